import copy

import matplotlib
import pytest
from matplotlib import pyplot

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.select import search

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def data():
    return make_graph()


def new_model(**options):
    return GCKM(8, (6, 4), 3, **{"hops": 2, **options})


@pytest.fixture(scope="module")
def tuned(data):
    """A fine-tuned model and its history; a later step than the first is kept."""
    model = new_model()
    history = Trainer(model, steps=4, progress=False).fit(data)
    assert history.best_step > 0
    return model, history


@pytest.fixture(scope="module")
def result(data):
    return search(data, budget=None, max_settings=12, workers=1, progress=False)


@pytest.fixture(scope="module")
def ensembles(data, result):
    """The same ensemble without and with self-training."""
    plain, trained = (result.ensemble(5, self_training=False) for _ in range(2))
    trained = trained.self_train(copy.copy(data), confidence=0.4)
    assert trained.members[0].readout.labelled.numel() > 6
    return plain, trained


@pytest.fixture(scope="module")
def start(data):
    model = new_model()
    Trainer(model, steps=0, progress=False).fit(data)
    return model
