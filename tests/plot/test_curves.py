import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from torch_gckm import History, plot
from torch_gckm.errors import InvalidInputError
from torch_gckm.plot.curves import centred_trace, shares


def test_shares_of_variance(start):
    for conv, share in zip(start.layers, shares(start), strict=True):
        kernel = conv.kernel(conv.fit.rows().to(torch.float64))
        centring = torch.eye(60, dtype=torch.float64) - 1 / 60
        centred = centring @ kernel @ centring
        values = torch.linalg.eigvalsh(centred).flip(0)[: share.numel()]
        torch.testing.assert_close(share, values / centred.trace(), atol=1e-5, rtol=1e-4)
        assert centred_trace(conv, most=40) == pytest.approx(float(centred.trace()), rel=0.1)
        assert centred_trace(conv, most=40) == centred_trace(conv, most=40)


def test_decay_is_drawn(start, ensembles):
    ax = plot.eigenvalues(start)
    for line, share, conv in zip(ax.lines, shares(start), start.layers, strict=True):
        np.testing.assert_allclose(line.get_ydata(), share.numpy())
        assert f"{100 * float(share.sum()):.0f} %" in line.get_label()
        assert len(line.get_xdata()) == conv.h.size(1)
    ax = plot.eigenvalues(ensembles[0], Figure().subplots())
    assert len(ax.lines) == sum(len(member.layers) for member in ensembles[0].members)


def test_training_curves(tuned):
    history = tuned[1]
    ax = plot.training(history)
    curves = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert curves["cosine score, unlabelled nodes"] == [record.cosine for record in history]
    assert curves["accuracy, test (not used)"] == [record.test_acc for record in history]
    assert list(ax.lines[-1].get_xdata()) == [history.best_step] * 2
    assert not any("leave" in label for label in curves)
    loss = plot.training(history, names=["loss"])
    assert list(loss.lines[0].get_ydata()) == [record.loss for record in history]
    assert loss.get_ylabel() == "objective"
    with pytest.raises(InvalidInputError, match="leave_one_out"):
        plot.training(history, names=["leave_one_out"])
    with pytest.raises(InvalidInputError, match="empty"):
        plot.training(History("cosine"))


def test_settings_of_a_search(result):
    ax = plot.settings(result, members=5)
    others, chosen = (ax.collections[at].get_offsets() for at in (0, 1))
    shown = [t for t in result.trials if t.is_valid and not result.ranking.is_collapsed(t)]
    assert len(others) + len(chosen) == len(shown)
    assert ax.lines[0].get_ydata()[-1] == max(result.ranking.scores(result.trials))
    assert math.isfinite(ax.get_ylim()[0])
