"""Clustering: the paper's layers, the package's estimator, DMoN and SSGC; normalised mutual information.

The paper names its bandwidth and not its numbers of channels, on which the result depends. With k classes ours are
2 k and k, after spectral clustering, which embeds k clusters in k dimensions; other numbers stand beside it.
``GCKMClustering`` is the package's default, which takes nothing but the number of clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from baselines.dmon import EPOCHS, cluster
from baselines.ssgc_clusters import MOST_HOPS
from baselines.ssgc_clusters import cluster as smoothed_clusters
from paper_numbers import CLUSTERING
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from tables import by_dataset, interval, title, values_of
from torch_geometric.data import Data

from experiments.common import CITATIONS, WIKIPEDIA, Experiment, Row, Rows, Task, timed
from torch_gckm import GCKMClustering
from torch_gckm.nn import KernelLayers

# Numbers of channels from the number of classes.
CHANNELS: dict[str, Callable[[int], tuple[int, int]]] = {
    "GCKM": lambda k: (2 * k, k),
    "GCKM (k, k)": lambda k: (k, k),
    "GCKM (16, k)": lambda k: (16, k),
    "GCKM (32, k)": lambda k: (32, k),
    "GCKM (16, 16)": lambda k: (16, 16),
    "GCKM (64, 16)": lambda k: (64, 16),
}
GCN_ON_WIKIPEDIA = "GCKM, gcn on all graphs"
METHODS = ("DMoN", "DMoN, 16 clusters", "SSGC + k-means", *CHANNELS, GCN_ON_WIKIPEDIA, "GCKMClustering")


class Clustering(Experiment):
    """Do clusters, made without any label, agree with the classes?"""

    name = "clustering"
    takes = "20 min"
    printed = CLUSTERING
    text = """\
### Clustering

Normalised mutual information of clusters and classes, times 100: k-means on the second of two unsupervised layers
with the paper's automatic bandwidth; `GCKMClustering`; DMoN; SSGC and k-means. {version}

{table}
The paper does not name its numbers of channels, on which the result depends: six choices give {ranges}.
`GCKMClustering` chooses nothing but its hops, [by withheld features](selection.md#how-far-clusters-smooth).
"""

    def tasks(self) -> list[Task]:
        options = self.options
        return [
            {"dataset": name, "method": method, "seed": seed}
            for name in options.datasets
            for method in options.chosen(METHODS)
            if method != GCN_ON_WIKIPEDIA or name in WIKIPEDIA
            for seed in self.seeds
        ]

    def run(self, task: Task) -> Row:
        data = self.load(task["dataset"])
        classes = int(data.y.max()) + 1
        if task["method"] == "GCKMClustering":
            estimator = GCKMClustering(classes, random_state=task["seed"])
            clusters, seconds = timed(lambda: estimator.fit_predict(data).numpy())
        elif task["method"].startswith("GCKM"):
            clusters, seconds = timed(lambda: self._kernel_machine(task, data, classes))
        elif task["method"] == "SSGC + k-means":
            hops = 3 if self.options.quick else MOST_HOPS
            clusters, seconds = timed(lambda: smoothed_clusters(data, classes, task["seed"], hops).numpy())
        else:
            count = 16 if "16" in task["method"] else classes
            epochs = 20 if self.options.quick else EPOCHS
            clusters, seconds = timed(lambda: cluster(data, count, task["seed"], epochs).numpy())
        score = 100 * normalized_mutual_info_score(data.y.numpy(), clusters)
        return {"accuracy": {"NMI": [score]}, "seconds": seconds}

    @classmethod
    def page_table(cls, rows: Rows) -> str:
        shown = ("GCKM", "GCKMClustering", "DMoN, 16 clusters", "SSGC + k-means")
        return by_dataset(sorted((row for row in rows if row["method"] in shown), key=_place(shown)), cls.printed)

    @classmethod
    def facts(cls, rows: Rows) -> dict[str, Any]:
        ranges = []
        for name in CITATIONS:
            means = [
                float(interval(values).partition("±")[0])
                for values in (values_of(rows, "NMI", dataset=name, method=method) for method in CHANNELS)
                if values
            ]
            ranges.append(f"{min(means):.1f} to {max(means):.1f} on {title(name)}")
        return {"ranges": ", ".join(ranges)}

    @staticmethod
    def _kernel_machine(task: Task, data: Data, classes: int) -> object:
        method, name = task["method"], task["dataset"]
        aggregation = "sum" if name in WIKIPEDIA and method in CHANNELS else "gcn"
        channels = CHANNELS[method if method in CHANNELS else "GCKM"](classes)
        layers = KernelLayers(data.num_features, channels, "rbf", aggregation, power=0.0)
        with torch.no_grad():
            h = layers.initialize(data).embed().numpy()
        return KMeans(classes, n_init=10, random_state=task["seed"]).fit_predict(h)


def _place(names: tuple[str, ...]) -> Callable[[Row], int]:
    return lambda row: names.index(row["method"])
