import pytest
import torch

from torch_gckm import GCKM, Trainer
from torch_gckm.errors import InvalidInputError, NotFittedError


def fitted(data, **options):
    model = GCKM(8, 4, 3, **options)
    Trainer(model, steps=0, progress=False).fit(data)
    return model


def test_of_a_model_are_those_of_its_readout(graph):
    model = fitted(graph)
    sets = model.predict_set(0.6)
    assert sets.dtype == torch.bool
    assert sets.shape == (60, 3)
    assert torch.equal(sets, model.readout.predict_set(0.6))
    assert bool((model.p_values() >= model.p_values(randomize=True)).all())
    assert 0.3 < float(sets[6:].double().mean()) < 0.9


def test_a_higher_coverage_excludes_fewer_classes(graph):
    model = fitted(graph)
    assert bool((model.predict_set(0.5) <= model.predict_set(0.8)).all())
    assert int(model.predict_set(0.5).sum()) < int(model.predict_set(0.8).sum())


def test_of_a_loaded_model_are_the_same(graph, tmp_path):
    model = fitted(graph)
    model.save(tmp_path / "model.pt")
    loaded = GCKM.load(tmp_path / "model.pt")
    torch.testing.assert_close(loaded.p_values(), model.p_values())


def test_balanced_labels_are_compared_within_classes_only(graph):
    model = fitted(graph, class_weight="balanced")
    with pytest.raises(InvalidInputError, match="per_class=True"):
        model.predict_set()
    assert model.predict_set(per_class=True).shape == (60, 3)


def test_what_is_not_fitted_has_none():
    with pytest.raises(NotFittedError):
        GCKM(8, 4, 3).predict_set()
