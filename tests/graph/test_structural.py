import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from torch_gckm import GCKMClassifier
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import with_structural_features
from torch_gckm.graph.structural import _largest

QUICK = {"search": None, "members": 1, "workers": 1, "progress": False}


@pytest.fixture
def rings():
    """Three groups of nodes, most of whose edges stay in the group, and an isolated node."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(91) % 3
    pairs = torch.randint(90, (2, 900), generator=generator)
    keep = (y[pairs[0]] == y[pairs[1]]) | (torch.rand(900, generator=generator) < 0.1)
    pairs = pairs[:, keep & (pairs[0] != pairs[1])]
    mask = torch.arange(91) < 12
    return Data(edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), y=y, train_mask=mask, num_nodes=91)


def test_they_are_orthogonal_and_tell_groups_apart(rings):
    x = with_structural_features(rings).x
    h = x[:, :-1].double()
    gram = h.t() @ h
    assert float((gram - torch.diag(gram.diagonal())).abs().max()) < 1e-4
    assert gram.diagonal().diff().max() < 1e-4  # In decreasing order.
    assert torch.corrcoef(torch.stack([x[:, -1], torch.bincount(rings.edge_index[0], minlength=91)]))[0, 1] > 0.5
    assert "x" not in rings
    order = torch.randperm(91, generator=torch.Generator().manual_seed(1))
    place = order.argsort()
    other = with_structural_features(Data(edge_index=place[rings.edge_index], num_nodes=91)).x
    torch.testing.assert_close(other[:, :3].abs(), x[order, :3].abs(), atol=1e-3, rtol=1e-3)


def test_weights_count_by_their_logarithms(rings):
    weight = torch.ones(rings.edge_index.size(1))
    plain = with_structural_features(rings).x
    rings.edge_weight = 7 * weight
    torch.testing.assert_close(with_structural_features(rings).x[:, :3], plain[:, :3], atol=1e-4, rtol=1e-4)
    rings.edge_weight[:50] = 1e6
    assert with_structural_features(rings).x.isfinite().all()


def test_sparse_solver_and_dense_one():
    draw = np.random.default_rng(0)
    matrix = (draw.random((500, 500)) < 0.02).astype(float)
    matrix = matrix + matrix.T
    values, vectors = _largest(scipy.sparse.csr_matrix(matrix), 5)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[::-1][:5])
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-8)


def test_estimators_make_them(rings, tmp_path):
    classifier = GCKMClassifier(**QUICK).fit(rings)
    found = classifier.predict()
    assert float((found == rings.y)[12:90].float().mean()) > 0.8
    assert torch.equal(classifier.predict(rings), found)  # The same edges.
    classifier.save(tmp_path / "model.pt")
    assert torch.equal(GCKMClassifier.load(tmp_path / "model.pt").predict(), found)
    for other in (
        Data(edge_index=rings.edge_index[:, 400:], num_nodes=91),
        Data(x=torch.eye(3), edge_index=rings.edge_index[:, :0]),
    ):
        with pytest.raises(InvalidInputError, match="fitted to a graph without features"):
            classifier.predict(other)
    with pytest.raises(InvalidInputError, match="fitted to a graph without features"):
        classifier.predict(classifier.graph_.x[:1], new_edges=torch.tensor([[0], [91]]))
    with pytest.raises(InvalidInputError, match="neither features 'x' nor edges"):
        GCKMClassifier(**QUICK).fit(Data(y=rings.y, num_nodes=91))
