"""Graphs of all kinds: a typed error, or the scores of the exact formulas in double precision."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from torch_geometric.data import Data

from torch_gckm import GCKM
from torch_gckm.errors import GCKMError
from torch_gckm.gram import Dense, LowRank
from torch_gckm.kernels import RBF

ETA, LAMBDA1, LAMBDA2, CLASSES = 1.1, 1.0, 0.2, 3
LAYOUTS = {
    "dense": lambda x: x,
    "coo": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
}


@st.composite
def graphs(draw):
    """Features of any scale, type and layout, edges with and without weights, labels and masks of any form."""
    size, width = draw(st.integers(3, 24)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x = torch.randn(size, width, generator=generator, dtype=torch.float64)
    if draw(st.booleans()):  # Equal rows, zero rows.
        x[draw(st.integers(0, size - 1))] = x[0]
        x[draw(st.integers(0, size - 1))] = 0.0
    x = (x + draw(st.sampled_from([0.0, 0.0, 5.0]))) * 10.0 ** draw(st.integers(-3, 3))
    x = x.to(draw(st.sampled_from([torch.float32, torch.float64])))
    count = draw(st.integers(0, 3 * size))
    edges = torch.randint(size, (2, count), generator=generator)
    data = Data(x=LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))](x), edge_index=edges)
    weights = draw(st.sampled_from(["none", "positive", "any"]))
    if weights != "none":
        data.edge_weight = torch.rand(count, generator=generator) - (0.5 if weights == "any" else 0.0)
    data.y = torch.randint(-1, CLASSES, (size,), generator=generator)
    chosen = torch.rand(size, generator=generator) < 0.6
    mask = draw(st.sampled_from(["none", "boolean", "numbers", "weights"]))
    if mask == "boolean":
        data.train_mask = chosen
    elif mask == "numbers":
        data.train_mask = chosen.nonzero().view(-1)
    elif mask == "weights":
        data.train_mask = torch.where(chosen, 0.1 + torch.rand(size, generator=generator), 0.0)
    return data


def label_weights(data):
    """The weight of every label, by the meaning of a mask."""
    size, mask = data.y.numel(), data.get("train_mask")
    if mask is None:
        weight = torch.ones(size, dtype=torch.float64)
    elif mask.dtype == torch.long:
        weight = torch.zeros(size, dtype=torch.float64).index_fill(0, mask, 1.0)
    else:
        weight = mask.double()
    return torch.where(data.y >= 0, weight, 0.0)


def propagated(data, kind):
    """Features times the matrix of the definition, edge by edge."""
    x = (data.x if data.x.layout == torch.strided else data.x.to_dense()).double()
    if kind == "none":
        return x
    size = x.size(0)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    weight = data.get("edge_weight")
    for number, (source, target) in enumerate(data.edge_index.t().tolist()):
        matrix[target, source] += 1.0 if weight is None else float(weight[number])
    looped = {source for source, target in data.edge_index.t().tolist() if source == target}
    for node in set(range(size)) - looped:
        matrix[node, node] = 1.0
    degree = matrix.sum(dim=1)
    if kind == "mean":
        matrix = matrix / degree.unsqueeze(1)
    elif kind == "gcn":
        matrix = matrix / (degree.unsqueeze(1) * degree).sqrt()
    return matrix @ x


def expected_scores(data, kind):
    """The paper's equations: A = R E + L C / lambda2, E = K A / eta + 1 b', 1'A = 0."""
    z = propagated(data, kind)
    size, variance = z.size(0), float(z.var(dim=0, correction=0).sum())
    kernel = torch.exp(-(z.unsqueeze(1) - z).square().sum(dim=2) / (2.0 * variance))
    weight, codes = label_weights(data), 2.0 * torch.nn.functional.one_hot(data.y.clamp(min=0), CLASSES).double() - 1.0
    r = 1.0 / (LAMBDA1 * kernel.sum(dim=1)) - weight / LAMBDA2
    system = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    system[:size, :size] = torch.eye(size, dtype=torch.float64) - r.unsqueeze(1) * kernel / ETA
    system[:size, size], system[size, :size] = -r, 1.0
    right = torch.cat([weight.unsqueeze(1) * codes / LAMBDA2, torch.zeros(1, CLASSES, dtype=torch.float64)])
    solution = torch.linalg.solve(system, right)
    return kernel @ solution[:size] / ETA + solution[size], float(torch.linalg.cond(system))


@pytest.mark.parametrize("gram", [Dense(), LowRank(max_rank=64, tol=1e-14)], ids=["dense", "low_rank"])
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=graphs(), kind=st.sampled_from(["gcn", "mean", "sum", "none"]), double=st.booleans())
@pytest.mark.filterwarnings("ignore::torch_gckm.errors.GCKMWarning")
def test_a_typed_error_or_the_exact_scores(gram, data, kind, double):
    options = {"eta": ETA, "lambda1": LAMBDA1, "lambda2": LAMBDA2, "kernel": RBF(), "gram": gram, "aggregation": kind}
    model = GCKM(data.x.size(1), (), CLASSES, **options).to(torch.float64 if double else torch.float32)
    try:
        scores = model.initialize(data).solve(data).detach()
    except GCKMError:
        return
    assert bool(scores.isfinite().all())
    assert not bool(torch.isin(model.predict(), missing_classes(data)).any())
    expected, condition = expected_scores(data, kind)
    assume(condition < (1e8 if double else 1e4))
    precision = 1e-14 if double and data.x.dtype == torch.float64 else 1e-6
    tolerance = max(1e-10, 10.0 * precision * condition) * float(expected.abs().max())
    torch.testing.assert_close(scores.double(), expected, atol=tolerance, rtol=0.0)


def missing_classes(data):
    present = data.y[label_weights(data) > 0]
    return torch.tensor([number for number in range(CLASSES) if number not in present.tolist()])
