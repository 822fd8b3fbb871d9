import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from torch_gckm.estimators.hops import HOPS, explained_share, halves_of, shares_by_hops


@pytest.mark.parametrize("as_given", [np.asarray, scipy.sparse.csr_array])
def test_share_is_that_of_analysis_of_variance(as_given):
    random = np.random.default_rng(0)
    x, clusters = random.standard_normal((30, 4)), random.integers(0, 3, 30)
    clusters[clusters == 1] = 3  # A number without a node.
    means = np.stack([x[clusters == cluster].mean(axis=0) for cluster in clusters])
    share = np.square(means - x.mean(axis=0)).sum() / np.square(x - x.mean(axis=0)).sum()
    assert explained_share(as_given(x), clusters) == pytest.approx(share)


def test_equal_rows_have_nothing_to_explain():
    assert explained_share(np.ones((4, 2)), np.array([0, 0, 1, 1])) == 0.0


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_csr])
def test_halves_share_edges_and_no_column(layout):
    x = torch.arange(1.0, 15.0).view(2, 7)
    graph = Data(x=x.to_sparse_csr() if layout == torch.sparse_csr else x, edge_index=torch.tensor([[0], [1]]), y=x[0])
    one, other = halves_of(graph)
    columns = torch.cat([one.x.to_dense(), other.x.to_dense()], dim=1)
    assert (one.x.size(1), other.x.size(1)) == (4, 3)
    assert torch.equal(columns[:, columns[0].argsort()], x)
    assert one.edge_index is graph.edge_index
    assert "y" not in one


def test_clusters_of_one_half_are_measured_on_the_other():
    y = np.repeat([0, 1], 10)
    halves = [np.eye(2)[y], np.ones((20, 1)) * y[:, None]]
    asked = []

    def clusters_of(half, hops):
        asked.append((half, hops))
        return y if hops == 4 else np.zeros(20, dtype=int)

    shares = shares_by_hops(halves, clusters_of)
    assert shares == {hops: pytest.approx(float(hops == 4)) for hops in HOPS}
    assert asked == [(half, hops) for hops in HOPS for half in (0, 1)]
