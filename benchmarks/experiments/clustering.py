"""Clustering: k-means on the second of two unsupervised layers, next to DMoN; normalised mutual information."""

from __future__ import annotations

from baselines.dmon import EPOCHS, cluster
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from torch_geometric.data import Data

from experiments.common import WIKIPEDIA, Experiment, Row, Task, timed
from torch_gckm import GCKM

METHODS = ("DMoN", "DMoN, 16 clusters", "GCKM")
CHANNELS = (64, 16)


class Clustering(Experiment):
    """Clusters of nodes, without any label."""

    name = "clustering"

    def tasks(self) -> list[Task]:
        options = self.options
        return [
            {"dataset": name, "method": method, "seed": seed}
            for name in options.datasets
            for method in options.chosen(METHODS)
            for seed in range(options.seeds)
        ]

    def run(self, task: Task) -> Row:
        data = self.load(task["dataset"])
        classes = int(data.y.max()) + 1
        if task["method"] == "GCKM":
            clusters, seconds = timed(lambda: self._kernel_machine(task, data, classes))
        else:
            count = 16 if "16" in task["method"] else classes
            epochs = 20 if self.options.quick else EPOCHS
            clusters, seconds = timed(lambda: cluster(data, count, task["seed"], epochs).numpy())
        score = 100 * normalized_mutual_info_score(data.y.numpy(), clusters)
        return {"accuracy": {"NMI": [score]}, "seconds": seconds}

    @staticmethod
    def _kernel_machine(task: Task, data: Data, classes: int) -> object:
        aggregation = "sum" if task["dataset"] in WIKIPEDIA else "gcn"
        model = GCKM(data.num_features, CHANNELS, classes, kernel="rbf", aggregation=aggregation)
        h = model.initialize(data, fine_tune=False).layers[-1].h.detach().numpy()
        return KMeans(classes, n_init=10, random_state=task["seed"]).fit_predict(h)
