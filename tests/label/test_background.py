"""Fits in a process of their own."""

import os
import signal
import time

import pytest

from torch_gckm.label.background import Background


@pytest.fixture
def labelled(start, truth):
    session = start()
    for node in range(6):
        session.ask(node)
        session.label(truth[node])
    return session


@pytest.mark.skipif("GCKM_SLOW" not in os.environ, reason="starting processes takes a while: make test-browser")
def test_it_fits_while_answers_come_in_and_survives_a_kill(labelled, truth):
    session = labelled
    with Background(session) as background:
        background.step()
        assert background.task.labels.keys() == set(range(6))
        process = background._process
        session.ask(6)
        session.label(truth[6])  # Meanwhile.
        background.step()
        assert background._process is process  # Never two at once.
        assert len(background.task.labels) == 6
        background.wait(60)
        assert [record.labels for record in session.records] == [6, 7]
        assert session.error is None

        os.kill(process.pid, signal.SIGKILL)
        process.join()
        session.ask(7)
        session.label(truth[7])
        background.wait(60)  # Another process takes its place.
        assert session.records[-1].labels == 8

        session.ask(8)
        session.label(truth[8])
        background.step()
        os.kill(background._process.pid, signal.SIGKILL)  # In the middle of a fit.
        background.wait(60)
        assert "was killed" in session.error
        session.label("ant")  # Labelling goes on.
        background.step()
        assert background.task is not None
        begun = time.monotonic()
    assert time.monotonic() - begun < 10
    assert not background._process.is_alive()


def test_nothing_is_started_before_there_is_a_task(start):
    session = start()
    session.begin(session.task())
    with Background(session) as background:
        background.step()
        assert background.task is None
        assert background._process is None
