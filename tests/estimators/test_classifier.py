import copy
import subprocess
import sys

import pytest
import torch
from sklearn.base import clone

from tests.conftest import make_graph
from torch_gckm import GCKMClassifier
from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.select import Space

SMALL = Space(channels=(3, 4), depth=(1, 2))


def classifier(**options):
    options = {"search": SMALL, "budget": None, "max_settings": 12, "members": 4, "progress": False, **options}
    return GCKMClassifier(**options)


def test_fits_any_graph_with_a_train_mask(graph):
    fitted = classifier().fit(graph)
    assert fitted.score(graph) > 0.7
    assert fitted.predict().shape == (60,)
    assert torch.equal(fitted.predict(), fitted.predict(graph))
    torch.testing.assert_close(fitted.predict_proba().sum(dim=1), torch.ones(60))
    assert len(fitted.result_) == 12
    assert len(fitted.model_.members) == 4
    assert fitted.predict(make_graph(20, seed=4)).shape == (20,)


@pytest.mark.filterwarnings("ignore::torch_gckm.errors.LowRankWarning")  # The default has more channels than needed.
def test_without_search_one_default_model(graph):
    fitted = classifier(search=None).fit(graph)
    assert fitted.result_ is None
    assert len(fitted.model_.members) == 1
    assert fitted.score(graph, graph.test_mask) > 0.5


def test_classes_may_have_any_numbers_and_need_labels(graph):
    ours = classifier().fit(graph)
    other = copy.copy(graph)
    other.y = torch.tensor([3, 7, 40])[graph.y]
    other.y[graph.test_mask] = 12  # No node of this class is labelled: it cannot be predicted.
    theirs = classifier().fit(other)
    assert theirs.classes_.tolist() == [3, 7, 40]
    assert torch.equal(theirs.predict(), torch.tensor([3, 7, 40])[ours.predict()])


def test_labels_of_any_integer_type(graph):
    ours = classifier(max_settings=4).fit(graph)
    graph.y = graph.y.int().unsqueeze(1)
    assert torch.equal(classifier(max_settings=4).fit(graph).predict(), ours.predict())


def test_same_seed_same_ensemble(graph):
    first, second = (classifier(random_state=3).fit(graph) for _ in range(2))
    assert torch.equal(first.predict_proba(), second.predict_proba())
    assert [t.setting for t in first.result_.trials] == [t.setting for t in second.result_.trials]


def test_splits(graph):
    several = copy.copy(graph)
    several.train_mask = torch.stack([graph.test_mask, graph.train_mask], dim=1)
    several.val_mask = torch.stack([graph.val_mask, graph.val_mask], dim=1)
    fitted = classifier(max_settings=4).fit(several, split=1)
    assert torch.equal(fitted.predict_proba(), classifier(max_settings=4).fit(graph).predict_proba())


def test_scikit_learn_manners(graph):
    original = classifier(members=3)
    assert clone(original).get_params() == original.get_params()
    assert original.set_params(members=2).members == 2
    with pytest.raises(NotFittedError, match="fit"):
        original.predict()


def test_suggests_unlabelled_nodes(graph):
    fitted = classifier().fit(graph)
    nodes = fitted.suggest(5)
    assert nodes.unique().numel() == 5
    assert not bool(graph.train_mask[nodes].any())


@pytest.mark.parametrize(("change", "match"), [
    ({"search": "best"}, "'search' must be"), ({"budget": None, "max_settings": None}, "budget"),
])  # fmt: skip
def test_bad_arguments(graph, change, match):
    with pytest.raises(InvalidInputError, match=match):
        classifier(**change).fit(graph)


def test_bad_labels(graph):
    for y, match in ((None, "no labels"), (torch.zeros(60, dtype=torch.long), "at least two classes")):
        graph.y = y
        with pytest.raises(InvalidInputError, match=match):
            classifier().fit(graph)


def test_package_works_without_scikit_learn():
    code = """
import sys
sys.modules["sklearn"] = sys.modules["sklearn.base"] = None
import torch_gckm
assert torch_gckm.GCKM
try:
    torch_gckm.GCKMClassifier
except ImportError as error:
    assert "torch_gckm[sklearn]" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
