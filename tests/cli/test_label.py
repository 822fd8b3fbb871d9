"""The command ``gckm label``: its options and what it says; the page itself is tested in tests/label."""

import importlib.util

import pytest

from tests.faults.tables import Tables
from torch_gckm.cli import main

pytest.importorskip("bokeh")


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path)


@pytest.fixture
def served(monkeypatch):
    """The sessions that would be served, and how; each is answered once."""
    from torch_gckm.label import server

    calls = []

    def serve(session, **options):
        calls.append((session, options))
        if options["port"] != 1:
            session.ask(20)
            session.label("new")

    monkeypatch.setattr(server, "serve", serve)
    return calls


def graph_of(tables):
    return ["--features", str(tables.x), "--edges", str(tables.edges)]


def test_labels_are_kept_beside_the_given_ones(tables, served, capsys):
    before = tables.y.read_bytes()
    labels = ["--labels", str(tables.y)]
    assert main(["label", *graph_of(tables), *labels, "--no-browser", "--budget", "3"]) == 0
    session, options = served[0]
    output = tables.folder / f"{tables.y.stem}.labelled.csv"
    assert options == {"port": 0, "open_browser": False, "title": f"Labels for {tables.x.name}"}
    assert (session.file.path, session.classifier.budget) == (output, 3.0)
    assert tables.y.read_bytes() == before
    said = capsys.readouterr().err
    assert f"every answer is saved to {output}" in said
    command = next(line for line in said.splitlines() if "go on with" in line).split("go on with: gckm ")[1].split()
    assert main([*command[:1], str(tables.folder / "m.pt"), *command[2:7], str(output), "--max-settings", "2"]) == 0
    assert "new" in capsys.readouterr().err

    assert main(["label", *graph_of(tables), *labels, "--port", "1"]) == 0  # Continues, and answers nothing.
    assert served[1][0].labels == session.labels
    assert "continued" in capsys.readouterr().err


def test_without_labels_and_with_names_of_classes(tables, served, capsys):
    assert main(["label", *graph_of(tables), "--classes", "ant", "bee", "--port", "1"]) == 0
    session, options = served[0]
    assert (session.classes, session.labels) == (["ant", "bee"], {})
    assert session.file.path == tables.folder / f"{tables.x.stem}.labelled.csv"
    assert options["open_browser"]
    assert "no node was labelled" in capsys.readouterr().err


def test_a_dataset_with_few_labels_and_all_classes(served, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["label", "--dataset", "digits", "--labels-per-class", "1"]) == 0
    session = served[0][0]
    assert len(session.labels) == 11
    assert session.classes[:10] == [str(digit) for digit in range(10)]
    assert (tmp_path / "digits.labelled.csv").exists()
    assert "gckm fit" not in capsys.readouterr().err  # A dataset takes no file of labels.


@pytest.mark.parametrize("output", ["x", "edges", "y"])
def test_inputs_are_not_overwritten(tables, served, capsys, output):
    path = getattr(tables, output)
    before = path.read_bytes()
    arguments = [*graph_of(tables), "--labels", str(tables.y), "--output", str(path)]
    assert main(["label", *arguments]) == 2
    assert "would be overwritten" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert not served


def test_mistakes_are_a_line(tables, served, capsys):
    other = tables.folder / "notes.csv"
    other.write_text("my notes\n")
    for arguments, message in (
        (["--output", str(other)], "it is left as it is"),
        (["--budget", "0"], "--budget must be a positive"),
        (["--classes", "nan"], "cannot be called 'nan'"),
    ):
        assert main(["label", *graph_of(tables), *arguments]) == 2
        said = capsys.readouterr().err.strip().splitlines()
        assert message in said[-1]
    assert other.read_text() == "my notes\n"
    assert not served


def test_without_bokeh(tables, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "bokeh" else find(name, *a))
    assert main(["label", *graph_of(tables)]) == 2
    assert "torch_gckm[app]" in capsys.readouterr().err
