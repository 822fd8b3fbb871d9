"""Scaled features, of the fitted graph and of new ones."""

import copy

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import InvalidInputError, ZeroRowWarning
from torch_gckm.graph import Scaling

pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse CSR tensor support is in beta")


def fit(data, **arguments):
    model = GCKM(data.num_features, (6, 4), 3, **arguments).to(data.x.dtype)
    Trainer(model, steps=0, progress=False).fit(data)
    return model


def test_none_returns_its_input(graph):
    scaling = Scaling()
    assert scaling(graph.x) is graph.x
    assert scaling.fitted_to(graph.x) is scaling


@pytest.mark.parametrize("layout", ["strided", "csr", "coo"])
def test_rows_of_unit_length(graph, layout):
    x = {"strided": graph.x, "csr": graph.x.to_sparse_csr(), "coo": graph.x.to_sparse()}[layout]
    scaling = Scaling("l2")
    assert scaling.fitted_to(x) is scaling
    scaled = scaling(x)
    assert (scaled.layout == torch.strided) == (layout == "strided")
    torch.testing.assert_close(scaled.to_dense(), torch.nn.functional.normalize(graph.x))


@pytest.mark.parametrize("layout", ["strided", "csr", "coo"])
def test_columns_are_scaled_by_the_graph_that_was_fitted(graph, layout):
    x = {"strided": graph.x, "csr": graph.x.to_sparse_csr(), "coo": graph.x.to_sparse()}[layout]
    unfitted = Scaling("columns")
    scaling = unfitted.fitted_to(x)
    assert unfitted.scale.numel() == 0  # It makes another one.
    spread = graph.x.std(dim=0, correction=0)
    torch.testing.assert_close(scaling(x).to_dense(), graph.x / spread)
    other = make_graph(20, seed=1).x
    torch.testing.assert_close(scaling(other), other / spread)
    with pytest.raises(InvalidInputError, match="8 columns"):
        scaling(other[:, :5])


def test_the_input_is_not_written_to(graph):
    for x in (graph.x.clone(), graph.x.to_sparse_csr()):
        for normalize in ("l2", "columns"):
            Scaling(normalize).fitted_to(x)(x)
            assert torch.equal(x.to_dense(), graph.x)


def test_state_dict_brings_its_size(graph):
    scaling = Scaling("columns").fitted_to(graph.x)
    twin = Scaling("columns")
    twin.load_state_dict(scaling.state_dict())
    assert torch.equal(twin.scale, scaling.scale)
    twin.load_state_dict(Scaling("columns").state_dict())
    assert twin.scale.numel() == 0
    assert repr(twin) == "Scaling(normalize='columns')"


def test_l2_normalisation_is_applied_to_new_data_too(graph64):
    model = fit(graph64, normalize="l2")
    scaled = graph64.clone()
    scaled.x = graph64.x * torch.linspace(1, 9, 60, dtype=torch.float64).unsqueeze(1)
    torch.testing.assert_close(model.scores(scaled), model.inductive().scores(graph64))
    scaled.x[3] = 0
    with pytest.warns(ZeroRowWarning, match=r"1 rows of x are zero .*row 3"):
        model.scores(scaled)


def test_columns_of_unit_spread(graph64):
    graph64.x[:, 0] = 7.0  # A constant column stays as it is.
    new = make_graph(20, seed=5)
    new.x = 3.0 * new.x.double()
    spread = graph64.x.std(dim=0, correction=0)
    spread[0] = 1.0
    model = fit(graph64, normalize="columns")
    expected = model.scores(new)
    scaled, scaled_new, sparse = (copy.copy(data) for data in (graph64, new, graph64))
    scaled.x, scaled_new.x, sparse.x = graph64.x / spread, new.x / spread, graph64.x.to_sparse_csr()
    plain = fit(scaled)
    torch.testing.assert_close(model.readout.scores, plain.readout.scores)
    torch.testing.assert_close(expected, plain.scores(scaled_new))  # New data are scaled by the fitted graph.
    torch.testing.assert_close(fit(sparse, normalize="columns").readout.scores, plain.readout.scores)
    new.x = new.x[:, :5]
    with pytest.raises(InvalidInputError, match="8 columns"):
        model.scores(new)


def test_columns_of_whole_numbers(graph):
    graph.x = (3 * graph.x).round()
    scores = []
    for x in (graph.x, graph.x.long(), graph.x.long().to_sparse()):
        graph.x = x
        scores.append(GCKM(8, (4,), 3, normalize="columns").initialize(graph).solve(graph))
    torch.testing.assert_close(scores[1], scores[0])
    torch.testing.assert_close(scores[2], scores[0])


def test_unknown_names_are_refused():
    with pytest.raises(InvalidInputError, match="'normalize' must be None, 'l2' or 'columns'"):
        Scaling("l1")
