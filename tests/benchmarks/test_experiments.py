"""The experiments that have no table of the paper to make, cut short, on a tiny graph or a synthetic one."""

import importlib
from pathlib import Path

import pytest
import report
import run
import torch
from experiments import arxiv, criteria, policies, scale, suggest
from experiments.registry import EXPERIMENTS
from experiments.synthetic import synthetic_graph

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
FILES = sorted(FOLDER.rglob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_finds_all_that_it_imports(name):
    assert importlib.import_module(name).__doc__


def test_files_are_short():
    lengths = {path: len(path.read_text().splitlines()) for path in FILES}
    assert max(lengths.values()) <= 300, max(lengths, key=lengths.__getitem__)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_says_what_it_answers(name):
    kind = EXPERIMENTS[name]
    assert kind.__doc__.splitlines()[0].endswith("?")
    assert kind.takes


@pytest.fixture
def tiny(monkeypatch, graph):
    """Every dataset is the tiny graph."""

    def load(name, root=None, *, split=None, transform=None, undirected=True):
        data = graph.clone()
        return data if transform is None else transform(data)

    for module in ("calibration", "common", "coverage", "criteria", "few_labels", "speed", "suggest"):
        monkeypatch.setattr(f"experiments.{module}.load", load)
    for module in ("calibration", "few_labels"):
        importlib.import_module(f"experiments.{module}").graph_of.cache_clear()
    importlib.import_module("experiments.coverage").fixed_model.cache_clear()
    suggest.fitted.cache_clear()
    criteria.fits_of.cache_clear()
    monkeypatch.setattr(run, "QUICK_SECONDS", 1.0)
    monkeypatch.setattr("experiments.calibration.TEST_NODES", 2)
    yield
    for module in ("calibration", "few_labels"):
        importlib.import_module(f"experiments.{module}").graph_of.cache_clear()
    importlib.import_module("experiments.coverage").fixed_model.cache_clear()
    suggest.fitted.cache_clear()
    criteria.fits_of.cache_clear()


def quick(name, tmp_path, *more):
    rows = run.main([name, "--quick", "--out", str(tmp_path), *more])
    assert rows
    assert all(row["commit"] is None or row["commit"] for row in rows)
    assert run.main([name, "--quick", "--out", str(tmp_path), *more]) == rows  # Nothing is done again.
    assert "| " in report.printed_table(EXPERIMENTS[name], rows)
    EXPERIMENTS[name].draw(rows, tmp_path)
    return rows


def test_criteria(tiny, tmp_path):
    (row,) = quick("criteria", tmp_path, "--datasets", "cora")
    judged = row["judged"]
    assert all(0.0 <= judged[name]["top"] <= judged[criteria.BEST]["top"] for name in ("cosine", "auto"))
    assert judged["auto"]["sizes"].keys() == {str(size) for size in criteria.SIZES}


def test_a_criterion_without_meaning(tiny, tmp_path):
    (row,) = quick("criteria", tmp_path, "--datasets", "cora", "--labels", "1")
    assert row["judged"]["per_class_out"]["top"] is None


def test_selection(tiny, tmp_path):
    search, networks = quick("selection", tmp_path, "--datasets", "cora")
    assert search["accuracy"].keys() == {"cosine", "leave_one_out", "auto", "plain", "ensemble"}
    assert networks["accuracy"].keys() >= {"gcn_tutorial", "appnp_example"}


def test_self_training(tiny, tmp_path):
    (row,) = quick("self_training", tmp_path, "--datasets", "cora")
    assert "none" in row["accuracy"]
    assert len(row["accuracy"]) == 7


def test_suggest(tiny, tmp_path):
    rows = quick("suggest", tmp_path, "--datasets", "cora")
    assert [row["way"] for row in rows] == ["random", "look-ahead"]
    assert all(len(row["accuracy"]) == 2 for row in rows)


def test_coverage(tiny, tmp_path):
    fixed, ensemble = quick("coverage", tmp_path, "--datasets", "chameleon")
    assert list(fixed)[:4] == ["model", "labels", "dataset", "seed"]
    assert {"held", "size", "empty", "single", "accuracy", "num_labels", "seconds"} <= fixed.keys()
    assert len(ensemble["held"]) == 3


def test_calibration(tiny, tmp_path):
    (row,) = quick("calibration", tmp_path, "--datasets", "cora")
    assert row["rules"].keys() == {"before", "now", "best factor"}


def test_policies(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(policies, "SHAPE", {"nodes": 200, "words": 50, "columns": 20})
    monkeypatch.setattr(policies, "SIZES", (40,))
    monkeypatch.setattr(policies, "PRECISIONS", ((20, 0.1),))
    monkeypatch.setitem(policies.SETTINGS, "cora", {"hidden_channels": (6, 4)})
    rows = quick("policies", tmp_path, "--datasets", "cora")
    assert [row["part"] for row in rows] == list(policies.PARTS)
    assert 0.0 <= rows[-1]["agreement"] <= 1.0


def test_arxiv(tmp_path, monkeypatch):
    monkeypatch.setattr(arxiv, "QUICK", {"nodes": 2000, "edges": 12000})
    monkeypatch.setattr(arxiv, "synthetic_graph", lambda nodes, edges: synthetic_graph(nodes, edges, 4, 12))
    (row,) = quick("arxiv", tmp_path)
    assert row["best_step"] in (0, 1)


def test_scale_in_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "QUICK", 400)
    (row,) = quick("scale", tmp_path)
    assert row["peak_gb"] >= row["data_gb"] > 0.0
    assert (tmp_path / "scale.png").exists()


def test_regression(tmp_path):
    rows = quick("regression", tmp_path, "--datasets", "diabetes", "--methods", "nearest", "kernel_ridge")
    assert all(-1.0 < row["r2"] < 1.0 for row in rows)


def test_synthetic_graphs_have_the_homophily_that_is_asked_for():
    data = synthetic_graph(2000, 8000, classes=5, features=8, homophily=0.7)
    same = (data.y[data.edge_index[0]] == data.y[data.edge_index[1]]).double().mean()
    assert float(same) == pytest.approx(0.7, abs=0.05)
    assert torch.equal(data.x, synthetic_graph(2000, 8000, classes=5, features=8, homophily=0.7).x)
