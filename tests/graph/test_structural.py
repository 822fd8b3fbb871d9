import pytest
import torch
from torch_geometric.data import Data

from torch_gckm import GCKMClassifier
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import with_structural_features

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


def test_they_are_the_normalised_rows_of_the_edges(rings):
    made = with_structural_features(rings)
    dense = torch.zeros(91, 91)
    dense[rings.edge_index[0], rings.edge_index[1]] = 1.0
    dense += torch.eye(91)
    root = dense.sum(dim=1).rsqrt()
    torch.testing.assert_close(made.x.to_dense(), root.unsqueeze(1) * dense * root)
    assert made.structural
    assert "x" not in rings
    one_way = Data(edge_index=rings.edge_index[:, rings.edge_index[0] < rings.edge_index[1]], num_nodes=91)
    torch.testing.assert_close(with_structural_features(one_way).x.to_dense(), made.x.to_dense())


def test_weights_count_by_their_logarithms(rings):
    rings.edge_weight = torch.full((rings.edge_index.size(1),), 7.0)
    plain = with_structural_features(rings).x.to_dense()
    rings.edge_weight = rings.edge_weight * 1_000
    torch.testing.assert_close(with_structural_features(rings).x.to_dense(), plain)  # In any unit.
    rings.edge_weight[0] = 1e9
    assert float(with_structural_features(rings).x.to_dense().max()) <= 1.0


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
        classifier.predict(torch.eye(91)[:1], new_edges=torch.tensor([[0], [91]]))
    with pytest.raises(InvalidInputError, match="neither features 'x' nor edges"):
        GCKMClassifier(**QUICK).fit(Data(y=rings.y, num_nodes=91))
