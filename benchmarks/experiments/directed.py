"""What directions of edges are worth: Wikipedia's links as given, and made undirected as the paper does."""

from __future__ import annotations

from baselines.training import GRID, NetworkTrainer
from tables import by_dataset

from experiments.common import WIKIPEDIA, Experiment, Row, Rows, Task, percent, searched, seen_by, timed
from torch_gckm.datasets import PercentageSplit

# A network receives from one side; a search tries both.
FORMS = {"GCN": ("undirected", "as given", "turned round"), "GCKM default": ("undirected", "as given")}
LABELLED = 0.025
EPOCHS = 200


class Directed(Experiment):
    """What are directions of edges worth?"""

    name = "directed"
    takes = "10 min"
    default_seeds = 10
    text = """\
### Directed edges

Wikipedia's links have a direction, which the paper drops. Ten random choices of 2.5 % of the nodes as training nodes.
On the graph *as given* a search chooses for every layer whether nodes receive along the links, against them, or both
ways; a GCN receives one way, so it is also given the reversed links. {version}

{table}
"""
    default_datasets = WIKIPEDIA

    def tasks(self) -> list[Task]:
        options = self.options
        return [
            {"dataset": name, "method": f"{method}, {form}", "split": split, "seed": 0}
            | ({"budget": options.budget} if method == "GCKM default" else {})
            for name in options.datasets
            for method in options.chosen(tuple(FORMS))
            for form in FORMS[method]
            for split in (self.seeds[:2] if options.quick else self.seeds)
        ]

    def run(self, task: Task) -> Row:
        method, form = task["method"].split(", ")
        transform = PercentageSplit(LABELLED, 0.0, seed=task["split"])
        data = self.load(task["dataset"], transform=transform, undirected=form == "undirected")
        if form == "turned round":
            data.edge_index = data.edge_index.flip(0)
        if method == "GCN":
            epochs = 10 if self.options.quick else EPOCHS
            trainer = NetworkTrainer(data, method)
            trained, seconds = timed(lambda: trainer.train(GRID[0], task["split"], data.train_mask, epochs=epochs))
            return {"accuracy": {"test": [percent(trained.predicted, data)]}, "seconds": seconds}
        seen = seen_by(data, data.train_mask)
        result, seconds = timed(lambda: searched(seen, data, task["budget"], task["seed"], None, "auto"))
        found = {"best one": [percent(result.model().predict(), data)]}
        found["ensemble"] = [percent(result.ensemble().predict(), data)]
        return {"accuracy": found, "settings": len(result), "seconds": seconds}

    @classmethod
    def page_table(cls, rows: Rows) -> str:
        """Of the default, the ensemble."""
        kept = [{**row, "accuracy": dict(list(row["accuracy"].items())[-1:])} for row in rows]
        return by_dataset(kept, cls.printed)
