import pytest
import torch
from torch_geometric.nn import APPNP
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import Propagation, Topology, as_propagation
from torch_gckm.graph.topology import PropagationMatrix

EDGES = torch.tensor([[0, 1, 1, 2, 4, 3], [1, 0, 2, 3, 1, 2]])  # Directed; node 5 is isolated.
WEIGHT = torch.tensor([1.0, 0.5, 2.0, 1.5, 0.3, 1.0], dtype=torch.float64)


def features(n=6, d=4):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def dense(edges, weight, n=6):
    """[target, source] with self-loops."""
    matrix = torch.zeros(n, n, dtype=torch.float64)
    for (source, target), w in zip(edges.t().tolist(), weight.tolist(), strict=True):
        matrix[target, source] += w
    loops = matrix.diagonal()
    matrix += torch.diag(torch.where(loops == 0, 1.0, 0.0))
    return matrix


def reference(kind, matrix):
    degree = matrix.sum(dim=1)
    if kind == "gcn":
        return degree.rsqrt().unsqueeze(1) * matrix * degree.rsqrt()
    return {"sum": matrix, "mean": matrix / degree.unsqueeze(1)}[kind]


@pytest.mark.parametrize("kind", ["gcn", "sum", "mean"])
@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_equals_the_dense_formula(kind, hops, weighted, direction):
    x, weight = features(), WEIGHT if weighted else torch.ones_like(WEIGHT)
    edges = EDGES.flip(0) if direction == "out" else EDGES
    matrix = dense(edges, weight)
    if direction == "both":
        matrix, other = dense(EDGES, weight), dense(EDGES.flip(0), weight)
        matrix = torch.where((matrix > 0) & (other > 0), (matrix + other) / 2, matrix + other)
    expected = torch.linalg.matrix_power(reference(kind, matrix), hops) @ x
    given = WEIGHT if weighted else None
    torch.testing.assert_close(Propagation(kind, hops, direction)(x, EDGES, given), expected)


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize(("hops", "alpha"), [(1, None), (4, None), (4, 0.3), (2, 0.0), (3, 1.0)])
def test_mixtures_of_hops(direction, hops, alpha):
    x, edges = features(), EDGES.flip(0) if direction == "out" else EDGES
    matrix = reference("gcn", dense(edges, WEIGHT))
    kept = 0.05 if alpha is None else alpha
    powers = [torch.linalg.matrix_power(matrix, k) @ x for k in range(1, hops + 1)]
    expected = kept * x + (1 - kept) * torch.stack(powers).mean(dim=0)
    torch.testing.assert_close(Propagation("ssgc", hops, direction, alpha)(x, EDGES, WEIGHT), expected)
    kept = 0.1 if alpha is None else alpha
    expected = x
    for _ in range(hops):
        expected = (1 - kept) * matrix @ expected + kept * x
    torch.testing.assert_close(Propagation("ppr", hops, direction, alpha)(x, EDGES, WEIGHT), expected)


def test_pagerank_is_pygs():
    x = features()
    torch.testing.assert_close(Propagation("ppr", 7, alpha=0.2)(x, EDGES, WEIGHT), APPNP(7, 0.2)(x, EDGES, WEIGHT))


def test_gcn_is_pygs():
    x = features()
    edges, weight = gcn_norm(EDGES, WEIGHT, 6)
    expected = torch.zeros_like(x).index_add(0, edges[1], weight.unsqueeze(1) * x[edges[0]])
    torch.testing.assert_close(Propagation("gcn")(x, EDGES, WEIGHT), expected)


def test_none_returns_its_input():
    x = features()
    assert Propagation("none")(x, EDGES) is x


def test_self_loops_and_parallel_edges():
    x = features(2, 1)
    edges = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])  # 0 -> 1 twice, a loop at 1, 1 -> 0.
    weight = torch.tensor([1.0, 2.0, 5.0, 1.0], dtype=torch.float64)
    expected = torch.stack([x[0] + x[1], 3 * x[0] + 5 * x[1]])
    torch.testing.assert_close(Propagation("sum")(x, edges, weight), expected)


def test_graphs_without_edges():
    x = features()
    for edges in (None, torch.empty(2, 0, dtype=torch.long)):
        for kind in ("gcn", "sum", "mean"):
            torch.testing.assert_close(Propagation(kind)(x, edges), x)


@pytest.mark.parametrize("convert", [to_torch_coo_tensor, to_torch_csr_tensor, to_torch_csc_tensor])
@pytest.mark.filterwarnings("ignore:.*Sparse CS. tensor support is in beta", "ignore:Sparse invariant checks")
def test_sparse_matrices_are_read_as_adj_t(convert):
    x, adj_t = features(), convert(EDGES.flip(0), WEIGHT, size=6)
    torch.testing.assert_close(Propagation("gcn")(x, adj_t), Propagation("gcn")(x, EDGES, WEIGHT))
    assert Topology(adj_t, None, 6).identity == Topology(EDGES, WEIGHT, 6).identity
    with pytest.raises(InvalidInputError, match="holds its own weights"):
        Propagation("gcn")(x, adj_t, WEIGHT)


@pytest.mark.parametrize(("kind", "hops"), [("gcn", 1), ("gcn", 2), ("ssgc", 3), ("ppr", 3)])
def test_gradients(kind, hops):
    x, weight = features().requires_grad_(), WEIGHT.clone().requires_grad_()
    propagation = Propagation(kind, hops)
    assert torch.autograd.gradcheck(lambda x: propagation(x, EDGES, WEIGHT), (x,))
    assert torch.autograd.gradgradcheck(lambda x: propagation(x, EDGES, WEIGHT).square(), (x,))
    assert torch.autograd.gradcheck(lambda w: propagation(x.detach(), EDGES, w), (weight,))


def test_sparse_matrix_with_tracked_values_gets_a_gradient():
    values = WEIGHT.clone().requires_grad_()
    adj_t = torch.sparse_coo_tensor(EDGES.flip(0), values, (6, 6), check_invariants=True)
    Propagation("sum")(features(), adj_t).sum().backward()
    assert float(values.grad.abs().sum()) > 0


@pytest.fixture
def built(monkeypatch):
    """The matrices that are built, by number of nodes."""
    calls, real = [], PropagationMatrix

    def counted(normalized, num_rows, typical_rows):
        calls.append(num_rows)
        return real(normalized, num_rows, typical_rows)

    monkeypatch.setattr("torch_gckm.graph.topology.PropagationMatrix", counted)
    return calls


def test_the_matrix_is_built_once_per_topology(built):
    x, propagation, topology = features(), Propagation("gcn"), Topology(EDGES.clone(), None, 6)
    for _ in range(3):
        propagation(x, topology)
    assert len(built) == 1
    propagation(x + 1, topology)
    Propagation("gcn", 3)(x, topology)  # Hops use one matrix several times.
    assert len(built) == 1
    assert propagation(x.float(), topology).dtype == torch.float32
    Propagation("sum")(x, topology)
    Propagation("gcn", direction="out")(x, topology)
    assert len(built) == 4
    Propagation("none")(x, topology)
    assert len(built) == 4


def test_edges_are_looked_at_in_every_call(built):
    """Nothing is kept for edges that are no topology, so that they may be written to."""
    x, edges, propagation = features(), EDGES.clone(), Propagation("gcn")
    before = propagation(x, edges)
    edges.numpy()[0, 0] = 5
    assert not torch.equal(propagation(x, edges), before)
    torch.testing.assert_close(propagation(x, edges), propagation(x, Topology(edges.clone(), None, 6)))
    assert len(built) == 4
    assert propagation(x.float(), edges).dtype == torch.float32


def test_bad_input():
    x = features()
    with pytest.raises(InvalidInputError, match="nodes 0 to 6, but there are 6"):
        Propagation("sum")(x, torch.tensor([[0], [6]]))
    with pytest.raises(InvalidInputError, match="integer tensor"):
        Propagation("sum")(x, torch.ones(3, 4))
    with pytest.raises(InvalidInputError, match="one value per edge"):
        Propagation("sum")(x, EDGES, WEIGHT[:3])
    with pytest.raises(InvalidInputError, match="'edge_weight' has 1 entries"):
        Propagation("sum")(x, EDGES, torch.where(WEIGHT == 2, torch.nan, WEIGHT))
    for kind in ("gcn", "mean"):
        with pytest.raises(InvalidInputError, match="node 1 has a total edge weight of -7, which is not"):
            Propagation(kind)(x, EDGES, torch.tensor([-9.0, 1, 1, 1, 1, 1], dtype=torch.float64))
    for bad in ({"kind": "max"}, {"hops": 0}, {"direction": "up"}, {"alpha": 0.1}, {"kind": "ppr", "alpha": 1.1}):
        with pytest.raises(InvalidInputError):
            Propagation(**bad)


def test_modules_pass_through():
    module = torch.nn.Identity()
    assert as_propagation(module) is module
    with pytest.raises(InvalidInputError, match="given by name"):
        as_propagation(module, hops=2)
    with pytest.raises(InvalidInputError, match="a name or a module"):
        as_propagation(3)
    assert repr(Propagation("mean", 2, "out")) == "Propagation('mean', hops=2, direction='out')"
    assert repr(Propagation("ssgc", 16)) == "Propagation('ssgc', hops=16, direction='in', alpha=0.05)"
