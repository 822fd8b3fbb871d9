"""The paper's Table 3: the public splits, with 0, 1, 5 or 10 validation labels per class.

Networks stop early and are tuned by the validation labels. The paper's GCKM is chosen by its combined score. The
package's default looks at no validation label, or trains on them as well.
"""

from __future__ import annotations

from authors import FEW_VALIDATION
from baselines.training import GRID
from baselines.tuning import validate
from paper_numbers import TABLE3
from tables import datasets_of, interval, printed, table, title, unique

from experiments.common import (
    CITATIONS,
    Experiment,
    Row,
    Rows,
    Task,
    fit_authors,
    paper_space,
    percent,
    searched,
    seen_by,
    timed,
)

SIZES = (0, 1, 5, 10)
NETWORKS = ("GCN", "ChebNetII")
METHODS = (*NETWORKS, "GCKM authors", "GCKM", "GCKM default")


class Table3(Experiment):
    """The paper's Table 3: how accurate are models with 0 to 10 validation labels per class?"""

    name = "table3"
    takes = "30 min"
    keys = ("dataset", "method", "val_labels")
    text = """\
### Few validation labels (Table 3)

The public splits, 20 labels per class. Networks are tuned and stopped by the validation labels, the authors' settings
are fine-tuned by the paper's combined score, *GCKM default* trains on them as well. {version}

{table}
"""
    default_datasets = CITATIONS

    def tasks(self) -> list[Task]:
        options, found = self.options, []
        for name in options.datasets:
            for method in options.chosen(METHODS):
                for size in SIZES:
                    if method in NETWORKS and size == 0:
                        continue  # Nothing to stop or to choose by.
                    searches = method in ("GCKM", "GCKM default")
                    for seed in self.seeds[: None if searches else 1]:
                        task = {"dataset": name, "method": method, "val_labels": size, "seed": seed}
                        found.append({**task, "budget": options.budget} if searches else task)
        return found

    def run(self, task: Task) -> Row:
        name, method, size, quick = task["dataset"], task["method"], task["val_labels"], self.options.quick
        data = self.load(name, f"val_{size}" if size else "public")
        if not size:
            data.val_mask[:] = False
        if method in NETWORKS:
            seeds, grid = self.seeds[: 1 if quick else None], GRID[:1] if quick else None
            outcome, seconds = timed(lambda: validate(method, data, seeds, grid))
            found = {"tuned": [percent(predicted, data) for predicted in outcome.by_fold]}
            return {"accuracy": found, "setting": outcome.setting, "val": 100 * outcome.val, "seconds": seconds}
        if method == "GCKM authors":
            monitor = "combined" if size else "cosine"
            return fit_authors(data, FEW_VALIDATION[name], steps=2 if quick else 5, monitor=monitor)
        if method == "GCKM":
            seen = seen_by(data, data.train_mask, data.val_mask)
            criterion, space = "combined" if size else "cosine", paper_space(name, view=False)
            result, seconds = timed(lambda: searched(seen, data, task["budget"], task["seed"], space, criterion))
            found = {criterion: [percent(result.model().predict(), data)]}
        else:
            seen = seen_by(data, data.train_mask | data.val_mask)
            result, seconds = timed(lambda: searched(seen, data, task["budget"], task["seed"], None, "auto"))
            found = {"ensemble, trained on all labels": [percent(result.ensemble().predict(), data)]}
        return {"accuracy": found, "settings": len(result), "seconds": seconds}

    @classmethod
    def table(cls, rows: Rows) -> str:
        sizes = sorted({row["val_labels"] for row in rows})
        lines = []
        for name in datasets_of(rows):
            for method in unique(row["method"] for row in rows if row["dataset"] == name):
                line = [f"{title(name)}, {method}"]
                for size in sizes:
                    chosen = [r for r in rows if (r["dataset"], r["method"], r["val_labels"]) == (name, method, size)]
                    values = [value for row in chosen for value in list(row["accuracy"].values())[-1]]
                    known = TABLE3.get(name, {}).get(method.removesuffix(" authors"), {}).get(size)
                    line.append((interval(values) if values else "-") + printed(known))
                lines.append(line)
        return table(["validation labels per class", *map(str, sizes)], lines)

    @classmethod
    def page_table(cls, rows: Rows) -> str:
        return cls.table([row for row in rows if row["method"] != "GCKM"])
