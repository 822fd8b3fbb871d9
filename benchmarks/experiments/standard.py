"""Standard splits: the public ones of the citation graphs, 2.5 / 2.5 / 95 % at random on Chameleon and Squirrel."""

from __future__ import annotations

from baselines.training import GRID
from baselines.tuning import validate
from paper_numbers import STANDARD
from tables import by_dataset, seconds_by_dataset
from torch_geometric.data import Data

from experiments.common import CITATIONS, Experiment, Row, Rows, Task, paper_space, percent, searched, seen_by, timed
from torch_gckm.datasets import PercentageSplit

NETWORKS = ("MLP", "GCN", "APPNP", "GPR-GNN", "BernNet", "ChebNetII", "GraphSAGE")
OWN = ("GCKM", "GCKM default", "GCKM without validation")
SPLITS = 10


class Standard(Experiment):
    """How accurate are models on standard splits, with validation labels to choose by?"""

    name = "standard"
    takes = "1 h"
    printed = STANDARD
    text = """\
### Standard splits

Public splits of the citation graphs; ten random splits of 2.5 / 2.5 / 95 % of Chameleon and Squirrel. Models are
chosen by validation accuracy, but for *without validation*; the last two rows are ensembles. {version}

{table}
ChebNetII's authors have another network for Chameleon and Squirrel.
"""

    def tasks(self) -> list[Task]:
        options, found = self.options, []
        for name in options.datasets:
            splits = range(1 if name in CITATIONS else 2 if options.quick else SPLITS)
            for method in options.chosen((*NETWORKS, *OWN)):
                for split in splits:
                    # On random splits the split is the source of chance.
                    seeds = self.seeds if method in OWN and len(splits) == 1 else self.seeds[:1]
                    for seed in seeds:
                        task = {"dataset": name, "method": method, "split": split, "seed": seed}
                        found.append({**task, "budget": options.budget} if method in OWN else task)
        return found

    def run(self, task: Task) -> Row:
        name, method, quick = task["dataset"], task["method"], self.options.quick
        data = self.split(name, task["split"])
        if method in NETWORKS:
            seeds = self.seeds[: 1 if quick or name not in CITATIONS else None]
            grid = GRID[:1] if quick else None if name in CITATIONS else GRID[::2]
            outcome, seconds = timed(lambda: validate(method, data, seeds, grid))
            found = {"tuned": [percent(predicted, data) for predicted in outcome.by_fold]}
            return {"accuracy": found, "setting": outcome.setting, "val": 100 * outcome.val, "seconds": seconds}
        if method == "GCKM without validation":
            seen, criterion, space = seen_by(data, data.train_mask), "auto", None
        else:
            seen, criterion = seen_by(data, data.train_mask, data.val_mask), "val_acc"
            space = paper_space(name, view=False) if method == "GCKM" else None
        result, seconds = timed(lambda: searched(seen, data, task["budget"], task["seed"], space, criterion))
        found = {"best one": [percent(result.model().predict(), data)]}
        if method != "GCKM":
            found["ensemble"] = [percent(result.ensemble().predict(), data)]
        return {"accuracy": found, "settings": len(result), "seconds": seconds}

    def split(self, name: str, split: int) -> Data:
        """The public split of a graph, or a random one."""
        if name in CITATIONS:
            return self.load(name, "public")
        return self.load(name, transform=PercentageSplit(0.025, 0.025, seed=split))

    @classmethod
    def table(cls, rows: Rows) -> str:
        return f"{by_dataset(rows, cls.printed)}\n{seconds_by_dataset(rows)}"

    @classmethod
    def page_table(cls, rows: Rows) -> str:
        """Of the package's defaults, the ensembles."""
        shown = [{**row, "accuracy": {name: row["accuracy"].get(name, row["accuracy"].get("best one", [])) for name in
                                      list(row["accuracy"])[-1:]}} for row in rows]  # fmt: skip
        order = (*NETWORKS, *OWN)
        return by_dataset(sorted(shown, key=lambda row: order.index(row["method"])), cls.printed)
