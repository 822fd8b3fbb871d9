"""Ctrl-C while a search runs, and what is imported before it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.test_cli import files  # noqa: F401
from torch_gckm import GCKMClassifier
from torch_gckm.cli import main
from torch_gckm.errors import GCKMWarning, NotFittedError
from torch_gckm.files import load_tensors
from torch_gckm.select.result import SearchResult
from torch_gckm.select.trial import Evaluator
from torch_gckm.select.workers import can_fork

needs_posix = pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a signal")


@pytest.mark.slow
@needs_posix
@pytest.mark.skipif(not can_fork(), reason="processes cannot be copied here")
def test_a_fit_is_interrupted_and_continued(files, monkeypatch, capsys):  # noqa: F811
    _, folder, options, labels = files
    model, kept = folder / "model.pt", folder / "search.pt"
    command = ["fit", str(model), *options, *labels, "--checkpoint", str(kept)]
    limits = ["--budget", "300", "--max-settings", "100000"]
    call = [sys.executable, "-m", "torch_gckm", *command, *limits]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONUNBUFFERED": "1"}  # So there are workers.
    with subprocess.Popen(
        call, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2], env=environment, start_new_session=True
    ) as process:
        guard = threading.Timer(120.0, process.kill)
        guard.start()
        shown = ""
        while "settings" not in shown or any(f" {few}/100000" in shown[-200:] for few in range(20)):
            shown += os.read(process.stderr.fileno(), 4096).decode(errors="replace")
            assert process.poll() is None, shown
        os.killpg(process.pid, signal.SIGINT)  # As a terminal does: the workers get it, too.
        shown += process.stderr.read().decode(errors="replace")
        assert process.wait() == 0, shown
        guard.cancel()
    assert shown.index("preparing the graph") < shown.index("search:") < shown.index("models:")
    assert f"a second Ctrl-C stops that; continue with the same checkpoint, '{kept}'" in shown
    assert model.exists()
    tried = [trial["number"] for trial in load_tensors(kept)["trials"]]
    more, original = [], Evaluator.__call__
    monkeypatch.setattr(Evaluator, "__call__", lambda *args: (more.append(args[1]), original(*args))[1])
    monkeypatch.setattr(sys.modules["torch_gckm.select.search"], "default_workers", lambda *_: 1)
    assert main([*command, "--budget", "0", "--max-settings", str(max(tried) + 3), "--quiet"]) == 0
    assert not set(more) & set(tried)
    assert sorted({*more, *tried}) == list(range(max(tried) + 3))
    assert "\r" not in capsys.readouterr().err  # --quiet silences all bars.


@needs_posix
def test_a_second_one_ends_the_fit(graph, monkeypatch):
    original = Evaluator.__call__

    def interrupted(self, number, setting):
        if number == 2:
            signal.raise_signal(signal.SIGINT)
        return original(self, number, setting)

    monkeypatch.setattr(Evaluator, "__call__", interrupted)
    classifier = GCKMClassifier(budget=60, workers=1, progress=False)
    with pytest.warns(GCKMWarning, match="interrupted after 2 settings; their best ones are fitted now"):
        fitted = classifier.fit(graph)
    assert len(fitted.model_.members) == 2
    monkeypatch.setattr(SearchResult, "_members", lambda *_: signal.raise_signal(signal.SIGINT))
    another = GCKMClassifier(budget=60, workers=1, progress=False)
    with pytest.warns(GCKMWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        another.fit(graph)
    with pytest.raises(NotFittedError):
        another.predict()


IMPORTS = """
import sys, time
start = time.perf_counter()
from torch_gckm.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code in (0, 2), end.code
assert time.perf_counter() - start < 1.0
heavy = {"torch", "torch_geometric", "numpy", "sklearn"} & set(sys.modules)
assert not heavy, heavy
"""


def test_help_and_mistakes_are_immediate():
    for arguments in (["--help"], ["fit", "--help"], ["fit"], ["--version"], ["fit", "m.pt", "--seed", "x"]):
        found = subprocess.run([sys.executable, "-c", IMPORTS, *arguments], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr


def test_public_names_are_imported_when_asked_for_and_nothing_is_warned_about():
    code = """
import torch_gckm, sys
assert "torch" not in sys.modules
assert {"GCKM", "GCKMClassifier", "kernels", "__version__"} <= set(dir(torch_gckm))
assert all(getattr(torch_gckm, name) is not None for name in dir(torch_gckm))
from torch_gckm import *
assert GCKM is torch_gckm.nn.GCKM
try:
    torch_gckm.Nonsense
except AttributeError as error:
    assert "no attribute 'Nonsense'" in str(error)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    call = [sys.executable, "-W", "always", "-m", "torch_gckm", "info"]
    assert "jit" not in subprocess.run(call, capture_output=True, text=True, check=True).stderr
