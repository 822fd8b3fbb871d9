import time
from unittest.mock import Mock

import pytest

from torch_gckm import progress
from torch_gckm.progress import Bar


def lines(capsys):
    return capsys.readouterr().err.split("\r")


def test_steps_and_the_time_left(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    with Bar("search", 8, done=2, unit=" settings", moves=False) as bar:
        assert "2/8 settings [00:00, ? left" in lines(capsys)[1]
        now[0] = 110.0
        bar.update(said="best=3")
        assert (bar.seconds, bar.left) == (10.0, 50.0)
        shown = lines(capsys)[-1]
        assert "3/8 settings" in shown
        assert "00:50 left, best=3" in shown
        bar.until = 105.0  # It is over, whatever is not done yet.
        assert bar.left == 0.0
    assert "00:00 left" in capsys.readouterr().err


def test_without_steps_it_is_a_line_that_is_removed(capsys):
    with Bar("preparing the graph"):
        assert "preparing the graph: 00:00" in capsys.readouterr().err
    assert lines(capsys)[-1] == ""


def test_it_moves_by_itself(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_ELSEWHERE", 0.01)
    with Bar("models", 2) as bar:
        capsys.readouterr()
        time.sleep(0.3)
        assert "models" in capsys.readouterr().err
    bar.close()
    assert not bar._clock.is_alive()


def test_ctrl_c_while_it_is_drawn_leaves_no_lock(monkeypatch):
    monkeypatch.setattr(progress, "_ELSEWHERE", 0.01)
    with Bar("search", 2, moves=False) as bar, monkeypatch.context() as patch:
        patch.setattr(bar._bar, "display", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            bar.update()
    with Bar("models", 2) as bar:
        time.sleep(0.1)  # Its clock would wait for the lock, and the end for the clock.
        bar._ended.set()
        bar._clock.join(10.0)
        assert not bar._clock.is_alive()


@pytest.mark.parametrize("total", [None, 3])
def test_hidden(capsys, total):
    with Bar("search", total, shown=False) as bar:
        bar.update(said="more")
    assert capsys.readouterr().err == ""
