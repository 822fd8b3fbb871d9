"""Mistakes end in a typed error that says what to change."""

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from torch_gckm import GCKM, GCKMClassifier, GCKMClustering, GCKMConv, Trainer
from torch_gckm.errors import GCKMError, InvalidInputError, InvalidLabelError
from torch_gckm.kernels import RBF
from torch_gckm.select import search


def classifier(**settings):
    return GCKMClassifier(budget=None, max_settings=4, workers=1, progress=False, **settings)


FITS = {
    "model": lambda data: GCKM(8, (4,), 3).initialize(data).solve(data),
    "trainer": lambda data: Trainer(GCKM(8, (4,), 3), steps=0, progress=False).fit(data),
    "search": lambda data: search(data, budget=None, max_settings=1, workers=1, progress=False),
    "classifier": lambda data: classifier().fit(data),
}
every_fit = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)


@every_fit
@pytest.mark.parametrize(("name", "change", "message"), [
    ("y", lambda y: y.numpy(), "got a ndarray"),
    ("y", lambda y: y.tolist(), "got a list"),
    ("y", lambda y: torch.where(y == 0, torch.nan, y.float()), "integer class"),
    ("train_mask", lambda mask: mask.numpy(), "'train_mask' must be a tensor, got a ndarray"),
    ("train_mask", lambda mask: mask.tolist(), "'train_mask' must be a tensor, got a list"),
    ("x", lambda x: x[:, 0], r"'x' must have shape \[n, d\], got \(60,\)"),
    ("x", lambda x: x.unsqueeze(0), r"'x' must have shape \[n, d\]|each of the 1 nodes"),
    ("x", lambda x: x.to_sparse_bsr((2, 2)), "layout torch.sparse_bsr"),
    ("x", lambda x: x.to(torch.complex64), "real numbers"),
])  # fmt: skip
def test_attributes_of_the_wrong_kind(graph, fit, name, change, message):
    graph[name] = change(graph[name])
    with pytest.raises(GCKMError, match=message):
        fit(graph)


@every_fit
def test_heterogeneous_graphs(fit):
    with pytest.raises(InvalidInputError, match="heterogeneous graphs are not supported"):
        fit(HeteroData())


def test_a_class_number_that_is_no_number_of_a_class(graph):
    graph.y[0] = 2 * 10**9
    with pytest.raises(InvalidLabelError, match="there is a class 2000000000, but there are 60 nodes only"):
        FITS["search"](graph)
    assert 2 * 10**9 in classifier().fit(graph).classes_.tolist()  # Its classes may have any numbers.


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision(graph, dtype):
    with pytest.raises(InvalidInputError, match="models compute in float32 or float64"):
        GCKM(8, (4,), 3).to(dtype).initialize(graph)
    with pytest.raises(InvalidInputError, match="compute in float32 or float64"):
        GCKMConv(8, 4).to(dtype)(graph.x.to(dtype), graph.edge_index)


@pytest.mark.parametrize("gram", ["dense", "low_rank"])
@pytest.mark.parametrize(("function", "given"), [
    (lambda a, b: torch.cdist(a, b).neg().exp().numpy(), "ndarray"),
    (lambda a, b: torch.cdist(a, b).neg().exp().half(), "torch.float16"),
])  # fmt: skip
def test_kernel_functions_that_return_something_else(graph, gram, function, given):
    with pytest.raises(InvalidInputError, match=f"the kernel function returned {given} for rows of torch.float"):
        GCKM(8, (4,), 3, kernel=function, gram=gram).initialize(graph)


def test_a_model_file_is_no_checkpoint(graph, tmp_path):
    model, path = GCKM(8, (4,), 3).initialize(graph), tmp_path / "model.pt"
    model.solve(graph)
    model.save(path)
    with pytest.raises(InvalidInputError, match="is not a checkpoint of a Trainer"):
        Trainer(GCKM(8, (4,), 3), steps=1, progress=False, checkpoint=path).fit(graph)


@pytest.mark.parametrize("value", [1.5, "3", 0, None])
@pytest.mark.parametrize("name", ["members", "n_neighbors"])
def test_numbers_that_are_no_counts(graph, name, value):
    with pytest.raises(InvalidInputError, match=f"'{name}' must be a positive integer"):
        classifier(**{name: value}).fit(graph)


def test_fitted_classifiers_can_be_copied(graph):
    graph.x = graph.x * (graph.x > 1.0)  # Few entries: matrices inside are sparse.
    model = classifier().fit(graph)
    copied = copy.deepcopy(model)
    assert torch.equal(copied.predict_proba(), model.predict_proba())


class TestInferenceMode:
    def test_models_made_there_can_be_trained(self, graph):
        with torch.inference_mode():
            model = GCKM(8, (4,), 3, kernel=RBF(learnable=True))
        Trainer(model, steps=2, progress=False).fit(graph)
        other = GCKM(8, (4,), 3, kernel=RBF(learnable=True))
        Trainer(other, steps=2, progress=False).fit(graph)
        assert torch.equal(model.scores(), other.scores())

    def test_models_loaded_there_predict_and_can_be_solved_again(self, graph, tmp_path):
        model = GCKM(8, (4,), 3).initialize(graph)
        model.solve(graph)
        model.save(tmp_path / "model.pt")
        with torch.inference_mode():
            loaded = GCKM.load(tmp_path / "model.pt")
            assert torch.equal(loaded.predict(), model.predict())
        assert torch.allclose(loaded.solve(graph), model.scores(), atol=1e-5)

    def test_fits_there(self, graph):
        with torch.inference_mode():
            predicted = classifier().fit(graph).predict()
        assert torch.equal(predicted, classifier().fit(graph).predict())


class TestRandomState:
    def test_as_scikit_learn_takes_it(self, graph):
        fits = [classifier(random_state=np.random.RandomState(3)).fit(graph) for _ in range(2)]
        assert torch.equal(fits[0].predict_proba(), fits[1].predict_proba())
        assert classifier(random_state=None).fit(graph).predict().shape == (60,)

    def test_negative_ones_are_refused(self, graph):
        with pytest.raises(InvalidInputError, match="'random_state' must not be negative, got -1"):
            classifier(random_state=-1).fit(graph)


@pytest.mark.parametrize("estimator", [classifier(), GCKMClustering(3)], ids=["classifier", "clustering"])
def test_a_fit_that_fails_changes_nothing(graph, estimator):
    before = dict(vars(estimator.fit(graph)))
    other = graph.clone()
    other.x = torch.full((60, 5), torch.nan)
    with pytest.raises(GCKMError):
        estimator.fit(other)
    with pytest.raises(ValueError, match="NaN"):
        estimator.fit(other.x.numpy(), np.zeros(60))
    assert vars(estimator) == before


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of the address space")
def test_a_limit_of_the_address_space_is_known():
    script = (
        "import resource, torch; from torch_gckm.memory import available_bytes; device = torch.device('cpu'); "
        "import psutil; limit = psutil.Process().memory_info().vms + 2**28; "
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit)); print(available_bytes(device))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) <= 2**28
