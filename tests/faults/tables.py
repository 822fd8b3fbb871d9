"""A graph as tables in files."""

import csv

from tests.conftest import make_graph
from torch_gckm.cli import main

QUICK = ["--budget", "0", "--max-settings", "4", "--quiet"]
NAMES = [f"n{node}" for node in range(60)]
CLASSES = ["ant", "bee", "cat"]


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Tables:
    """The files of a graph, each of which can be written anew with other headings."""

    def __init__(self, folder, names=NAMES):
        self.folder, self.graph, self.names = folder, make_graph(), names
        self.x, self.edges, self.y = (folder / name for name in ("x.csv", "edges.csv", "y.csv"))
        self.rows = [[name, *row] for name, row in zip(names, self.graph.x.tolist(), strict=True)]
        write(self.x, [["node", *"abcdefgh"], *self.rows])
        pairs = self.graph.edge_index[:, self.graph.edge_index[0] < self.graph.edge_index[1]].t().tolist()
        self.pairs = [[names[a], names[b]] for a, b in pairs]
        write(self.edges, [["from", "to"], *self.pairs])
        known = zip(self.graph.y.tolist(), self.graph.train_mask.tolist(), strict=True)
        self.labels = [[name, CLASSES[y] if is_known else ""] for name, (y, is_known) in zip(names, known, strict=True)]
        write(self.y, [["node", "class"], *self.labels])
        self.options = ["--features", str(self.x), "--edges", str(self.edges)]

    def fit(self, *more, model="model.pt"):
        return main(["fit", str(self.folder / model), *self.options, "--labels", str(self.y), *QUICK, *more])

    def classes(self):
        path = self.folder / "classes.csv"
        assert self.fit("--predictions", str(path)) == 0
        return [(row["node"], row["class"], row["probability"]) for row in read(path)]
