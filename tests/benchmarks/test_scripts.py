"""The scripts that have no table of the paper to make."""

import importlib
from pathlib import Path

import criteria
import numpy as np
import pytest
import torch

SCRIPTS = sorted(path.stem for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_finds_all_that_it_imports(name):
    assert importlib.import_module(name).__doc__


def test_criteria_are_judged(graph, monkeypatch):
    monkeypatch.setattr(criteria, "load", lambda name, root: graph)
    monkeypatch.setattr(criteria, "LABELS", (1, 4))
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    setup = criteria.Setup("tiny", None, splits=1)
    found = setup.fit(list(range(12)))
    rows = []
    for place, (labels, data) in enumerate(setup.splits):
        own = [(trial, scores) for at, trial, scores in found if at == place]
        scores = torch.from_numpy(np.stack([part for _, part in own]))
        judged = criteria.judge(setup.labels(data), [trial for trial, _ in own], scores, data)
        assert all(0.0 <= judged[name]["top"] <= judged["best there is"]["top"] for name in ("cosine", "auto"))
        assert (judged["per_class_out"]["top"] is None) == (labels == 1)
        rows += [{"labels": labels, "criterion": name, **values} for name, values in judged.items()]
    assert "1 per class" in criteria.table(rows)
    assert criteria.size_table(rows).count("\n") == 1 + len(criteria.SIZES)
