"""The command line with tables of words, dates and blanks, and with graphs without features."""

import csv

import numpy as np
import pytest

from torch_gckm import GCKMClassifier
from torch_gckm.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::torch_gckm.errors.GCKMWarning")
QUICK = ["--budget", "0", "--max-settings", "4", "--quiet"]


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def shop(tmp_path):
    """Sixty customers of two kinds in files with semicolons, ten of whom come later; their rows, kinds and options."""
    draw, names = np.random.default_rng(0), [f"c-{row}" for row in range(60)]
    kind = np.arange(60) % 2
    rows = [
        [name, "" if row % 17 == 3 else f"{30 + 9 * k + draw.normal():.1f}".replace(".", ","),
         ["north", "south", "town"][k if draw.random() < 0.8 else 2], str(draw.random() < 0.5), f"2020-0{1 + k}-11"]
        for row, (name, k) in enumerate(zip(names, kind, strict=True))
    ]  # fmt: skip
    pairs = [
        (a, b) for a, b in draw.integers(60, size=(500, 2)).tolist()
        if a != b and (kind[a] == kind[b] or draw.random() < 0.1)
    ]  # fmt: skip

    def write(name, lines):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file, delimiter=";").writerows(lines)
        return str(tmp_path / name)

    heading, ends = ["customer", "age", "region", "member", "since"], ["from", "to"]
    x, new_x = write("x.csv", [heading, *rows[:50]]), write("new.csv", [heading, *rows[50:]])
    edges = write("edges.csv", [ends, *((names[a], names[b]) for a, b in pairs if max(a, b) < 50)])
    new_edges = write("new_edges.csv", [ends, *((names[a], names[b]) for a, b in pairs if a < 50 <= b)])
    y = write("y.csv", [["customer", "kind"], *((names[row], "ab"[kind[row]]) for row in range(12))])
    old = ["--features", x, "--edges", edges, "--labels", y]
    return tmp_path, old, ["--features", new_x, "--edges", new_edges], write, (heading, rows, kind)


def test_from_a_real_table_to_new_customers(shop, capsys):
    folder, old, new, write, (heading, rows, kind) = shop
    model, output = str(folder / "model.pt"), folder / "p.csv"
    assert main(["fit", model, *old, *QUICK]) == 0
    told = capsys.readouterr().err
    assert "50 nodes, 4 columns" in told
    assert (
        "12 labels of 2 classes: a, b; 1 column of words one-hot, 1 date column as days, 1 true/false as 1/0, " in told
    )
    assert (
        "blanks filled in 1 column, columns scaled: units differ; headings: x.csv (customer, age, region, ...)" in told
    )
    assert main(["predict", model, *new, "--output", str(output)]) == 0
    expected = read(output)
    assert [row["node"] for row in expected] == [row[0] for row in rows[50:]]
    assert sum(row["class"] == "ab"[k] for row, k in zip(expected, kind[50:], strict=True)) >= 8
    # Columns in another order, and a blank and a word that are new.
    order = [0, 3, 1, 4, 2]
    write("new.csv", [[line[place] for place in order] for line in [heading, *rows[50:]]])
    assert main(["predict", model, *new, "--output", str(output)]) == 0
    assert read(output) == expected
    capsys.readouterr()
    write("new.csv", [heading, [*rows[50][:2], "moon", "", rows[50][4]], *rows[51:]])
    assert main(["predict", model, *new, "--output", str(output)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert sum(f"'moon' in {folder / 'new.csv'}, line 2 is new and counts as no word" in line for line in told) == 1
    assert sum("column 'member' has blanks, which it had none of in the fit" in line for line in told) == 1
    assert read(output)[1:] == expected[1:]
    for change, message in (
        (
            ["c-50", "young", "town", "true", "2020-01-01"],
            "line 2: 'young' in column 'age' is none of the numbers",
        ),
        (["c-50", "30", "town", "true", "1.1."], "line 2: '1.1.' in column 'since' is none of the dates"),
    ):
        write("new.csv", [heading, change, *rows[51:]])
        assert main(["predict", model, *new]) == 2
        assert message in capsys.readouterr().err
    # The whole old graph, as it was read.
    assert main(["predict", model, *old[:4], "--output", str(output)]) == 0
    own = GCKMClassifier.load(model)
    assert [row["class"] for row in read(output)] == own.predict().tolist()


def test_a_graph_without_features(shop, capsys):
    folder, old, new, _, (_, rows, kind) = shop
    model, output = str(folder / "model.pt"), folder / "p.csv"
    assert main(["fit", model, *old[2:], *QUICK, "--predictions", str(output)]) == 0
    assert "50 nodes, no features: nodes are known by their edges" in capsys.readouterr().err
    right = {row[0]: "ab"[k] for row, k in zip(rows, kind, strict=True)}
    found = read(output)
    assert sum(row["class"] == right[row["node"]] for row in found) > 42
    assert main(["predict", model, "--output", str(output)]) == 0
    assert read(output) == found
    assert main(["suggest", model, "--count", "2"]) == 0
    for options, message in (
        (new[2:], "was fitted without features and knows its own nodes only"),
        (new, "fitted to a graph without features"),
    ):
        assert main(["predict", model, *options]) == 2
        assert message in capsys.readouterr().err
    assert main(["embed", *old[2:4], "--channels", "3"]) == 0
    assert main(["embed", "--n-neighbors", "3", "--edges", old[3]]) == 2
    assert "--n-neighbors goes with --features" in capsys.readouterr().err
