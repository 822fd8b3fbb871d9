"""The runner, and the paper's tables on a tiny graph."""

import json
from pathlib import Path

import pytest
import report
import run
import store
import tables
import torch
from experiments import clustering, common
from experiments.attention import KernelAttention
from experiments.facts import readout_system
from experiments.qualitative import CHANGES
from experiments.registry import EXPERIMENTS
from store import RESULTS, provenance, read, run_tasks

from torch_gckm import SemiSupRKMReadout
from torch_gckm.kernels import RBF

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tiny(monkeypatch, graph):
    """Every dataset is the tiny graph, with the masks that each split has."""

    def load(name, root=None, *, split=None, transform=None, undirected=True):
        data = graph.clone()
        labelled = data.train_mask.nonzero().view(-1)
        data.val_mask = torch.zeros_like(data.train_mask).index_fill(0, labelled[::5], True)
        if split == "few_labels_folds":
            val = torch.stack([torch.zeros_like(data.train_mask).index_fill(0, labelled[i::3], True) for i in range(3)])
            data.train_mask, data.val_mask = (data.train_mask & ~val).t(), val.t()
        elif split == "few_labels":
            data.val_mask = torch.zeros_like(data.train_mask)
        else:
            data.train_mask = data.train_mask & ~data.val_mask
        return data if transform is None else transform(data)

    monkeypatch.setattr(common, "load", load)
    monkeypatch.setattr("baselines.training.MAX_EPOCHS", 10)
    monkeypatch.setattr("baselines.svm.POWERS", (-1, 0))
    small = dict.fromkeys(clustering.CHANNELS, lambda k: (6, 4))
    monkeypatch.setattr(clustering, "CHANNELS", small)
    monkeypatch.setattr("experiments.depth.CHANNELS", (3,))
    monkeypatch.setattr("experiments.directed.LABELLED", 0.2)
    monkeypatch.setattr("experiments.attention.LABELS", 3)
    monkeypatch.setattr("experiments.subset.CHANNELS", (4, 3))
    monkeypatch.setattr("experiments.subset.SHARES", (0.3, 0.5, 1.0))
    for module, name in (("table2", "FEW_LABELS"), ("ablation", "FEW_LABELS"), ("facts", "FEW_LABELS"),
                         ("table3", "FEW_VALIDATION")):  # fmt: skip
        settings = {"hidden_channels": (6, 4), "lambda2": 0.1}
        monkeypatch.setattr(f"experiments.{module}.{name}", {"cora": settings})


def quick(experiment, tmp_path, *more):
    return run.main([experiment, "--quick", "--budget", "1", "--datasets", "cora", "--out", str(tmp_path), *more])


@pytest.mark.slow
@pytest.mark.parametrize("experiment", [
    "table2", "table3", "standard", "depth", "clustering", "ablation", "inductive", "subset", "directed", "attention",
])  # fmt: skip
def test_tables(tiny, tmp_path, experiment):
    rows = quick(experiment, tmp_path)
    assert len(rows) >= 3
    for row in rows:
        assert all(0.0 <= value <= 100.0 for found in row["accuracy"].values() for value in found), row
        assert row["seconds"] >= 0.0
        assert row["torch"] == torch.__version__
    assert quick(experiment, tmp_path) == rows
    printed = report.printed_table(EXPERIMENTS[experiment], rows)
    assert all(row["method"] in printed for row in rows)
    assert f"{row['cpu']}, {row['threads']} threads" in printed.replace("1 thread.", "1 threads.")


def test_sparsity_and_progress(tiny, tmp_path):
    (row,) = quick("sparsity", tmp_path)
    assert 0.0 <= row["small"]["1e-05"] <= row["small"]["0.01"] <= 1.0
    rows = quick("progress", tmp_path)
    assert [row["start"] for row in rows] == ["kernel_pca", "random"]
    assert len(rows[0]["history"]["test_acc"]) == 4
    EXPERIMENTS["progress"].draw(rows, tmp_path)
    assert (tmp_path / "training_progress.png").exists()


def test_what_methods_react_to(tmp_path):
    """The paper's Table 1 for the methods whose answers are beyond doubt."""
    rows = {row["method"]: row for row in run.main(["qualitative", "--out", str(tmp_path)])}
    seen = {name: tuple(row[key] for key in CHANGES) for name, row in rows.items()}
    assert seen["GCKM"] == (True, True, True, True)
    assert seen["SVM-RBF"] == seen["MLP"] == (True, False, False, False)
    assert seen["SVM-DIFF"] == (False, True, True, True)
    assert seen["SVM-WWL"] == (True, True, True, False)
    assert seen["SVM-GCKN"] == (True, True, True, True)
    assert seen["GCN"][:2] == (True, True)


def test_attention_is_its_formula(graph64):
    """Kernel values between neighbours, by hand."""
    x, (source, target) = graph64.x, graph64.edge_index
    distance = torch.cdist(x, x).square()
    kernel = torch.exp(-distance / (0.3 * distance[source, target].mean()))
    weight = torch.eye(60, dtype=x.dtype).index_put((target, source), torch.ones(320, dtype=x.dtype)) * kernel
    weight = weight / weight.sum(dim=1, keepdim=True)
    found = KernelAttention(2, 0.3)(x, graph64.edge_index)
    torch.testing.assert_close(found, weight @ weight @ x)


def test_own_methods_come_first_and_the_table_is_printed(tiny, tmp_path, capsys):
    rows = quick("table2", tmp_path)
    assert [row["method"] for row in rows][:4] == ["GCKM authors", "GCKM", "GCKM-MV", "GCKM default"]
    printed = capsys.readouterr().out
    assert "| GCKM default, ensemble | " in printed
    quick("table2", tmp_path, "--print")
    assert printed.endswith(capsys.readouterr().out)


def test_no_task_is_begun_after_the_time(tiny, tmp_path, capsys):
    """What is done is kept and printed, and the same command goes on with the rest."""
    assert quick("table2", tmp_path, "--methods", "GCKM authors", "MLP", "--minutes", "1e-9") == []
    rows = quick("table2", tmp_path, "--methods", "GCKM authors", "MLP")
    assert [row["method"] for row in rows] == ["GCKM authors", "MLP"]


def test_all_experiments_are_listed(capsys):
    run.main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXPERIMENTS)
    readme = (ROOT / "benchmarks" / "README.md").read_text()
    assert all(f"| `{name}` |" in readme for name in EXPERIMENTS)
    with pytest.raises(SystemExit, match="name an experiment"):
        run.main([])


def test_chosen_methods(tiny, tmp_path):
    rows = quick("table2", tmp_path, "--methods", "GCN", "LabelPropagation")
    assert [row["method"] for row in rows] == ["GCN", "LabelPropagation"]
    with pytest.raises(SystemExit, match="unknown methods GIN"):
        quick("table2", tmp_path, "--methods", "GIN")


def test_statistics(tiny, tmp_path):
    (row,) = quick("statistics", tmp_path)
    assert row["nodes"] == 60
    assert row["homophily"] > 0.5


def test_the_system_is_the_readouts(graph):
    """The paper's matrix, applied to R H, gives S'L C / lambda2."""
    x, mask, lambda2 = graph.x.double(), graph.train_mask, 0.1
    readout = SemiSupRKMReadout(12, 3, RBF(2.0), lambda2=lambda2, gram="dense").double()
    with torch.no_grad():
        readout(x, graph.y, mask)
    kernel = RBF(2.0)(x).detach()
    r = 1 / kernel.sum(dim=1) - mask.double() / lambda2
    codes = torch.where(mask[:, None], readout.codes[graph.y], 0.0) / lambda2
    expected = codes - r[:, None] * codes.sum(dim=0) / r.sum()
    found = readout_system(kernel, mask, lambda2) @ (r[:, None] * readout.h.detach())
    assert torch.allclose(found, expected, atol=1e-8)


def test_results_are_resumed(tmp_path):
    file, calls = tmp_path / "rows.jsonl", []

    def work(task):
        calls.append(task["seed"])
        if task["seed"] == 2 and len(calls) < 4:
            raise KeyboardInterrupt
        return {"value": task["seed"] ** 2}

    tasks = [{"name": "a", "seed": seed} for seed in range(4)]
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks, work, file, str)
    rows = run_tasks(tasks, work, file, lambda row: str(row["value"]))
    assert calls == [0, 1, 2, 2, 3]
    assert [row["value"] for row in rows] == [0, 1, 4, 9]
    assert [json.loads(line)["seed"] for line in file.read_text().splitlines()] == [0, 1, 2, 3]
    assert read(tmp_path / "none.jsonl") == []


def test_a_row_says_what_it_was_measured_with(tmp_path, monkeypatch):
    found = provenance(1.5)
    assert list(found) == [
        "commit",
        "version",
        "python",
        "torch",
        "pyg",
        "sklearn",
        "cpu",
        "threads",
        "load",
        "peak_gb",
    ]
    assert found["load"] == 1.5
    assert 0.01 < found["peak_gb"] < 100.0
    assert found["commit"] is None or len(found["commit"].removesuffix("-dirty")) >= 7
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    store.commit.cache_clear()
    assert store.commit() is None  # No checkout.
    store.commit.cache_clear()


def test_the_peak_is_that_of_a_task(tmp_path):
    def work(task):
        return {"sum": float(torch.ones(task["size"]).sum())}

    tasks = [{"size": 50_000_000}, {"size": 1}]
    large, small = run_tasks(tasks, work, tmp_path / "rows.jsonl", str)
    assert large["peak_gb"] >= small["peak_gb"]
    if store.peak_gb() < large["peak_gb"]:  # Not every system can forget a peak.
        assert large["peak_gb"] - small["peak_gb"] > 0.15


def test_rows_of_other_versions_are_no_reason_to_skip(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"seed": 0, "value": 1, "version": "0.1.0"}) + "\n")
    rows = run_tasks([{"seed": 0}], lambda task: {"value": 2}, file, str)
    assert [row["value"] for row in rows] == [2]
    assert [row["value"] for row in read(file)] == [1, 2]
    assert tables.newest(read(file), ("seed",)) == rows


def test_what_other_versions_measured_is_said():
    old = {"dataset": "cora", "version": "0.1.0", "accuracy": {"a": [1.0]}}
    new = {**old, "version": tables.is_current.__globals__["__version__"]}
    rows = [{**old, "method": "GCN"}, {**new, "method": "GCKM"}]
    assert tables.measured_with(rows) == "Measured with version 0.1, but for GCKM."
    assert tables.measured_with(rows[:1]) == "Measured with version 0.1."
    assert tables.measured_with(rows[1:]) == ""
    both = [*rows, {**new, "method": "GCN", "accuracy": {"a": [2.0]}}]
    assert tables.newest(both) == both[1:]


def test_the_page_is_what_the_rows_say(tmp_path):
    """``python benchmarks/run.py report`` writes it anew."""
    text = (ROOT / "docs" / "results.md").read_text()
    assert text == report.page_of(report.rows_in(RESULTS), "images")
    assert len(text.split()) <= 3000
    for picture in ("few_labels", "scale", "training_progress"):
        assert f"images/{picture}.png" in text
        assert (ROOT / "docs" / "images" / f"{picture}.png").exists()


def test_the_page_of_few_rows(tmp_path, tiny):
    quick("depth", tmp_path, "--methods", "GCN")
    (tmp_path / "depth_quick.jsonl").rename(tmp_path / "depth.jsonl")
    page = tmp_path / "docs" / "page.md"
    run.main(["report", "--out", str(tmp_path), "--page", str(page)])
    text = page.read_text()
    assert "### Depth" in text
    assert "### Clustering" not in text
    assert "Not run at all: `few_labels`" in text


def test_intervals_are_students():
    assert tables.interval([1.0]) == "1.0"
    assert tables.interval([1.0, 2.0, 3.0]) == "2.0±2.5"  # 4.303 / sqrt(3)
