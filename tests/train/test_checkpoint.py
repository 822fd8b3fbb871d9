"""Training that goes on where a checkpoint left off."""

import warnings

import pytest
import torch

from tests.train.helpers import model_for, state_equal
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import GraphMismatchError, InvalidInputError, LowRankWarning
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.select import GCKMEnsemble, Space, search
from torch_gckm.train import accuracy
from torch_gckm.train.checkpoint import Checkpoint


@pytest.mark.parametrize("stop", [0, 2, 4])
def test_resume_is_exact(graph, tmp_path, monkeypatch, stop):
    path = tmp_path / "checkpoint.pt"
    whole, parts = model_for(graph), model_for(graph)
    expected = Trainer(whole, steps=5, monitor="val_acc", progress=False).fit(graph)

    class StopError(Exception):
        pass

    def stopping(self, history, *args, save=Checkpoint.save):
        save(self, history, *args)
        if len(history) == stop + 1:
            raise StopError

    monkeypatch.setattr(Checkpoint, "save", stopping)
    with pytest.raises(StopError):
        Trainer(parts, steps=5, monitor="val_acc", progress=False, checkpoint=path).fit(graph)
    monkeypatch.undo()
    fresh = model_for(graph)
    history = Trainer(fresh, steps=5, monitor="val_acc", progress=False, checkpoint=path).fit(graph)
    assert state_equal(whole, fresh)
    assert [r.loss for r in history] == [r.loss for r in expected]
    assert history.best_step == expected.best_step
    again = Trainer(model_for(graph), steps=5, monitor="val_acc", progress=False, checkpoint=path).fit(graph)
    assert len(again) == 6
    with pytest.raises(InvalidInputError, match="made with monitor='val_acc', not 'cosine'"):
        Trainer(model_for(graph), steps=5, progress=False, checkpoint=path).fit(graph)
    with pytest.raises(InvalidInputError, match=r"made with lambda2=0\.1, not 0\.2"):
        Trainer(model_for(graph, lambda2=0.2), steps=5, monitor="val_acc", progress=False, checkpoint=path).fit(graph)
    for change in ({"aggregation": "mean"}, {"hops": 2}, {"direction": "out"}, {"class_weight": "balanced"},
                   {"kernel": RBF(scale=7.0)}, {"gram": LowRank(max_rank=20)}):  # fmt: skip
        with pytest.raises(InvalidInputError, match="was made with"):
            Trainer(model_for(graph, **change), steps=5, monitor="val_acc", progress=False, checkpoint=path).fit(graph)
    other = graph.clone()
    other.x = graph.x + 1
    with pytest.raises(GraphMismatchError, match="made on another graph"):
        Trainer(model_for(graph), steps=5, monitor="val_acc", progress=False, checkpoint=path).fit(other)


@pytest.mark.parametrize("learnable", [False, True], ids=["fixed", "learned"])
def test_more_steps_continue_exactly(graph, tmp_path, learnable):
    path = tmp_path / "checkpoint.pt"

    def model():
        return model_for(graph, kernel=[RBF(3.0), RBF(0.5, learnable=learnable), RBF(0.2, learnable=learnable)])

    whole, parts = model(), model()
    expected = Trainer(whole, steps=6, progress=False).fit(graph)
    Trainer(parts, steps=3, progress=False, checkpoint=path).fit(graph)
    resumed = model()
    history = Trainer(resumed, steps=6, progress=False, checkpoint=path).fit(graph)
    assert [r.loss for r in history] == [r.loss for r in expected]
    assert state_equal(whole, resumed)


def test_early_stopping_stays_stopped_when_resumed(graph, tmp_path):
    path = tmp_path / "checkpoint.pt"
    arguments = {"steps": 50, "patience": 2, "progress": False, "checkpoint": path, "checkpoint_every": 7}
    first = Trainer(model_for(graph), **arguments).fit(graph)
    model = model_for(graph)
    second = Trainer(model, **arguments).fit(graph)
    assert len(first) == len(second) == first.best_step + 3
    assert accuracy(model.predict(), graph.y, graph.test_mask) == second.best.test_acc


def test_resume_of_a_deficient_rank(graph, tmp_path):
    path = tmp_path / "checkpoint.pt"
    for steps in (1, 2):
        model = GCKM(8, (12, 4), 3, kernel=["linear", "rbf", "rbf"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LowRankWarning)
            Trainer(model, steps=steps, progress=False, checkpoint=path).fit(graph)
    assert model.layers[0].h.size(1) == 8


def test_another_choice_of_landmarks_is_noticed(graph, tmp_path):
    path = tmp_path / "checkpoint.pt"
    Trainer(model_for(graph, gram=LowRank(max_rank=20)), steps=1, progress=False, checkpoint=path).fit(graph)
    other = model_for(graph, gram=LowRank(max_rank=20, seed=1))
    with pytest.raises(InvalidInputError, match="made with seed=0, not 1"):
        Trainer(other, steps=1, progress=False, checkpoint=path).fit(graph)


def with_splits(data):
    """The masks as columns; the second split swaps training and validation nodes."""
    data = data.clone()
    train, val = data.train_mask, data.val_mask
    data.train_mask, data.val_mask = torch.stack([train, val], dim=1), torch.stack([val, train], dim=1)
    data.test_mask = data.test_mask.unsqueeze(1).expand(-1, 2)
    return data


def changed(data, what):
    data = data.clone()
    if what == "weights":
        data.train_mask = torch.where(data.train_mask, 0.5, 0.0)
    elif what == "y of a test node":
        data.y[-1] = (data.y[-1] + 1) % 3
    elif what == "y of a training node":
        data.y[0] = (data.y[0] + 1) % 3
    else:
        data[what][20] = ~data[what][20]
    return data


@pytest.mark.parametrize("steps", [2, 4], ids=["finished", "unfinished"])
@pytest.mark.parametrize(
    "what", ["train_mask", "val_mask", "test_mask", "weights", "y of a training node", "y of a test node"]
)
def test_other_labels_are_refused(graph, tmp_path, what, steps):
    path = tmp_path / "checkpoint.pt"
    Trainer(model_for(graph), steps=2, progress=False, checkpoint=path).fit(graph)
    model = model_for(graph)
    with pytest.raises(InvalidInputError, match=r"checkpoint\.pt' was made with other labels"):
        Trainer(model, steps=steps, progress=False, checkpoint=path).fit(changed(graph, what))
    assert not model.is_fitted  # Refused before anything was touched.


@pytest.mark.parametrize("steps", [1, 2], ids=["finished", "unfinished"])
def test_another_split_is_refused(graph, tmp_path, steps):
    path, many = tmp_path / "checkpoint.pt", with_splits(graph)
    Trainer(model_for(graph), steps=1, progress=False, checkpoint=path).fit(many, split=0)
    with pytest.raises(InvalidInputError, match="another split"):
        Trainer(model_for(graph), steps=steps, progress=False, checkpoint=path).fit(many, split=1)
    resumed = Trainer(model_for(graph), steps=steps, progress=False, checkpoint=path).fit(graph)  # The same labels.
    assert len(resumed) == steps + 1


def fitted(graph):
    model = model_for(graph)
    Trainer(model, steps=0, progress=False).fit(graph)
    return model


def write_search(graph, path):
    search(graph, Space(channels=(3,), depth=(1,)), None, max_settings=1, progress=False, checkpoint=path)


OTHER_FILES = {
    "model": lambda graph, path: fitted(graph).save(path),
    "ensemble": lambda graph, path: GCKMEnsemble([fitted(graph)]).save(path),
    "search": write_search,
    "dict": lambda graph, path: torch.save({"weight": torch.ones(3)}, path),
    "tensor": lambda graph, path: torch.save(torch.ones(3), path),
    "text": lambda graph, path: path.write_text("step,loss\n0,1.0\n"),
}


@pytest.mark.parametrize("write", OTHER_FILES.values(), ids=OTHER_FILES)
def test_a_file_that_is_no_checkpoint_is_refused(graph, tmp_path, write):
    path = tmp_path / "other file.pt"
    write(graph, path)
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match=r"other file\.pt"):
        Trainer(model_for(graph), steps=1, progress=False, checkpoint=path).fit(graph)
    assert path.read_bytes() == before
