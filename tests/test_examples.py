"""Every example runs, quickly and offline; ``make check`` runs them whole, each in a process of its own."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), "--quick", "--no-progress"])
    monkeypatch.delenv("GCKM_DATA_ROOT", raising=False)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()
