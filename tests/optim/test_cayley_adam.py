import copy
import io
import pickle

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.conftest import make_graph, projector_distance
from torch_gckm.errors import InvalidInputError, ManifoldWarning
from torch_gckm.manifold import StiefelParameter, orthogonality_error, random_stiefel
from torch_gckm.nn import GCKMConv
from torch_gckm.optim import CayleyAdam, param_groups


def reference_step(x, gradient, m, v, k, lr, betas, eps, norm):
    """The n x n formulas of the paper; ``norm`` measures W."""
    m = betas[0] * m + (1 - betas[0]) * gradient
    v = betas[1] * v + (1 - betas[1]) * float(gradient.square().sum())
    rho = (1 - betas[0] ** k) * (v / (1 - betas[1] ** k) + eps) ** 0.5
    hat = m @ x.t() - 0.5 * x @ (x.t() @ m @ x.t())
    w = (hat - hat.t()) / rho
    m = rho * w @ x
    alpha = min(lr, 1 / (norm(w) + eps))
    eye = torch.eye(x.size(0), dtype=x.dtype)
    return torch.linalg.solve(eye + alpha / 2 * w, (eye - alpha / 2 * w) @ x), m, v


def problem(n=25, s=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(n, n, generator=generator, dtype=torch.float64)
    return a @ a.t() / n, random_stiefel(n, s, seed=seed, dtype=torch.float64)


@pytest.mark.parametrize("betas", [(0.0, 0.99), (0.9, 0.999)])
@pytest.mark.parametrize("lr", [0.01, 1.0])
def test_equals_the_full_cayley_formula(betas, lr):
    a, start = problem()
    x = torch.nn.Parameter(start.clone())
    optimizer = CayleyAdam([x], lr=lr, betas=betas, stiefel=True, cleanup=0)
    reference, m, v = start.clone(), torch.zeros_like(start), 0.0
    for k in range(1, 8):
        gradient = -a @ x.detach()
        x.grad = gradient
        # The exact norm where the cap does not bind; where it does, the estimate may be a little lower.
        expected, m, v = reference_step(
            reference, gradient, m, v, k, lr, betas, 1e-8, lambda w: float(torch.linalg.matrix_norm(w, ord=1))
        )
        optimizer.step()
        if lr == 0.01:
            torch.testing.assert_close(x.detach(), expected, atol=1e-12, rtol=0)
        else:
            moved, wanted = x.detach() - reference, expected - reference
            assert float(torch.nn.functional.cosine_similarity(moved.flatten(), wanted.flatten(), dim=0)) > 0.98
            assert 0.99 < float(moved.norm() / wanted.norm()) < 1.2
        torch.testing.assert_close(optimizer.state[x]["exp_avg"], m, atol=1e-12, rtol=0)
        reference = x.detach().clone()


def test_fixed_point_option_follows_the_exact_step():
    a, start = problem()
    results = []
    for options in ({}, {"transform": "fixed_point", "iterations": 30}):
        x = torch.nn.Parameter(start.clone())
        optimizer = CayleyAdam([x], lr=0.05, stiefel=True, **options)
        for _ in range(5):
            x.grad = -a @ x.detach()
            optimizer.step()
        results.append(x.detach())
    torch.testing.assert_close(results[0], results[1], atol=1e-9, rtol=0)


def test_500_float32_steps_stay_on_the_manifold():
    a, start = problem(100, 8)
    a, x = a.float(), torch.nn.Parameter(start.float())
    optimizer = CayleyAdam([x], lr=0.1, stiefel=True)
    for _ in range(500):
        x.grad = -a @ x.detach() + 0.1 * torch.sin(100 * x.detach())
        optimizer.step()
    assert float(orthogonality_error(x)) < 1e-4


def test_finds_the_top_eigenspace():
    basis = random_stiefel(40, 40, seed=1, dtype=torch.float64)
    values = torch.cat([torch.tensor([10.0, 9.0, 8.0]), torch.linspace(2, 0, 37)]).double()
    a = (basis * values) @ basis.t()
    x = torch.nn.Parameter(random_stiefel(40, 3, seed=2, dtype=torch.float64))
    optimizer = CayleyAdam([x], lr=1.0, betas=(0.0, 0.99), stiefel=True)
    for _ in range(300):
        optimizer.zero_grad()
        (-0.5 * (x * (a @ x)).sum()).backward()
        optimizer.step()
    assert projector_distance(x.detach(), basis[:, :3]) < 1e-6


class LargestTensor(TorchDispatchMode):
    """Records the number of entries of the largest tensor that any operation returns."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        return out


@pytest.mark.parametrize("transform", ["exact", "fixed_point"])
def test_memory_is_of_the_order_of_the_parameter(transform):
    x = torch.nn.Parameter(random_stiefel(200_000, 16))
    x.grad = torch.randn(200_000, 16, generator=torch.Generator().manual_seed(0))
    optimizer = CayleyAdam([x], lr=1.0, stiefel=True, transform=transform, cleanup=1)
    with LargestTensor() as seen:
        optimizer.step()
    assert 0 < seen.largest <= 2 * x.numel()
    assert float(orthogonality_error(x)) < (1e-5 if transform == "exact" else 1e-3)


def test_other_groups_step_exactly_as_adam():
    torch.manual_seed(0)
    start = torch.randn(5, 3)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    arguments = {"lr": 0.02, "betas": (0.8, 0.99), "weight_decay": 0.01, "amsgrad": True}
    first, second = CayleyAdam([ours], **arguments), torch.optim.Adam([theirs], **arguments)
    for _ in range(6):
        gradient = torch.randn(5, 3)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        first.step()
        second.step()
    assert torch.equal(ours, theirs)


def test_mixed_groups_maximize_and_closure():
    a, start = problem()
    x, w = torch.nn.Parameter(start), torch.nn.Parameter(torch.tensor(3.0))
    optimizer = CayleyAdam([{"params": [x], "stiefel": True}, {"params": [w]}], lr=0.05, maximize=True)

    def closure():
        optimizer.zero_grad()
        gain = 0.5 * (x * (a @ x)).sum() - (w - 1).square()
        gain.backward()
        return gain

    values = [float(optimizer.step(closure).detach()) for _ in range(200)]
    assert values[-1] > values[0]
    assert abs(float(w.detach()) - 1) < 0.2
    assert float(orthogonality_error(x)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_state_dict_round_trip_continues_exactly(dtype):
    a, start = (tensor.to(dtype) for tensor in problem())

    def run(x, optimizer, steps):
        for _ in range(steps):
            x.grad = -a @ x.detach()
            optimizer.step()

    x = torch.nn.Parameter(start.clone())
    optimizer = CayleyAdam([x], lr=0.3, stiefel=True, cleanup=3)
    run(x, optimizer, 4)
    twin = torch.nn.Parameter(x.detach().clone())
    restored = CayleyAdam([twin], lr=9.0, stiefel=True)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    run(x, optimizer, 4)
    run(twin, restored, 4)
    assert torch.equal(x, twin)
    clone = copy.deepcopy(optimizer)
    clone.add_param_group({"params": [torch.nn.Parameter(torch.ones(2, 2))], "stiefel": False})
    assert clone.param_groups[1]["cleanup"] == 3


def test_parameters_without_gradient_are_left_alone():
    x = torch.nn.Parameter(random_stiefel(5, 2))
    before = x.detach().clone()
    CayleyAdam([x], lr=1.0, stiefel=True).step()
    assert torch.equal(x, before)


def test_a_zero_gradient_moves_nothing():
    x = torch.nn.Parameter(random_stiefel(5, 2))
    before = x.detach().clone()
    x.grad = torch.zeros_like(x)
    CayleyAdam([x], lr=1.0, stiefel=True).step()
    torch.testing.assert_close(x.detach(), before)


def test_bad_input():
    with pytest.raises(InvalidInputError, match="not orthonormal"):
        CayleyAdam([torch.nn.Parameter(torch.ones(4, 2))], stiefel=True)
    with pytest.raises(InvalidInputError, match="transform"):
        CayleyAdam([torch.nn.Parameter(random_stiefel(4, 2))], transform="other")
    with pytest.raises(InvalidInputError, match="iterations"):
        CayleyAdam([torch.nn.Parameter(random_stiefel(4, 2))], iterations=0)
    with pytest.raises(ValueError, match="learning rate"):
        CayleyAdam([torch.nn.Parameter(random_stiefel(4, 2))], lr=-1.0)


def test_param_groups_marks_the_stiefel_parameters():
    model = torch.nn.ModuleList([GCKMConv(4, 2, num_nodes=9), torch.nn.Linear(2, 3)])
    groups = param_groups(model, lr=1.0)
    assert [group["stiefel"] for group in groups] == [True, False]
    assert groups[0]["params"] == [model[0].h]
    assert groups[0]["lr"] == 1.0
    assert set(groups[1]["params"]) == set(model[1].parameters())
    assert len(param_groups(torch.nn.Linear(2, 2))) == 1
    CayleyAdam(groups, lr=0.01)


class Network(torch.nn.Module):
    """Two kernel layers, one for a known number of nodes, a basis of its own, and ordinary weights."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = GCKMConv(8, 4), GCKMConv(-1, 3, num_nodes=60)
        self.basis = StiefelParameter(random_stiefel(7, 3))
        self.last = torch.nn.Linear(7, 3)

    def forward(self, x, edge_index):
        both = torch.cat([self.first(x, edge_index).relu(), self.second(x, edge_index)], dim=1)
        return self.last(both) + both @ self.basis

    def stiefel(self):
        return [self.first.h, self.second.h, self.basis]


def train(model, optimizer, graph, steps=5):
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(graph.x.to(model.last.weight.dtype), graph.edge_index)
        torch.nn.functional.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask]).backward()
        optimizer.step()


def through_a_file(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def with_loaded_state(model):
    other = Network()
    other.load_state_dict(model.state_dict())
    return other


def cast_with(model, option):
    switch = getattr(torch.__future__, f"set_{option}_module_params_on_conversion")
    switch(True)
    try:
        return model.double()
    finally:
        switch(False)


JOURNEYS = {
    "none": lambda model: model,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "file": through_a_file,
    "state_dict": with_loaded_state,
    "to": lambda model: model.to("cpu"),
    "double": lambda model: model.double(),
    "several": lambda model: copy.deepcopy(through_a_file(copy.deepcopy(model).double())),
    "frozen and back": lambda model: model.requires_grad_(False).requires_grad_(),
}


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("journey", JOURNEYS.values(), ids=JOURNEYS)
def test_model_parameters_alone_stay_on_the_manifold(graph, journey, fitted):
    model = Network()
    if fitted:
        train(model, CayleyAdam(model.parameters(), lr=0.01), graph, steps=2)
    model = journey(model)
    optimizer = CayleyAdam(model.parameters(), lr=0.01, weight_decay=5e-4)
    model(graph.x.to(model.last.weight.dtype), graph.edge_index)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    train(model, optimizer, graph)
    assert not any(torch.equal(new, old) for new, old in zip(model.parameters(), before, strict=True))
    assert max(float(orthogonality_error(h)) for h in model.stiefel()) < 1e-5


@pytest.mark.parametrize("option", ["overwrite", "swap"])
def test_layers_keep_their_mark_where_torch_replaces_parameters(graph, option):
    conv = GCKMConv(8, 4).initialize(graph.x, graph.edge_index)
    cast_with(conv, option)
    assert isinstance(conv.h, StiefelParameter)
    assert conv.h.dtype == torch.float64
    other = GCKMConv(8, 4).double()
    other.load_state_dict(conv.state_dict(), assign=True)
    assert isinstance(other.h, StiefelParameter)


def test_adam_would_leave_the_manifold(graph):
    """What the test above would find if parameters were not known by their class."""
    model = Network()
    with pytest.warns(ManifoldWarning):
        train(model, torch.optim.Adam(model.parameters(), lr=0.01), graph)
    assert max(float(orthogonality_error(h)) for h in model.stiefel()) > 0.01


def test_groups_are_split_by_what_is_in_them():
    model = Network()
    optimizer = CayleyAdam(model.parameters(), lr=0.01, weight_decay=5e-4)
    others, stiefel = optimizer.param_groups
    assert [others["stiefel"], stiefel["stiefel"]] == [False, True]
    assert [others["lr"], stiefel["lr"]] == [0.01, 0.1]
    assert {id(h) for h in stiefel["params"]} == {id(h) for h in model.stiefel()}
    assert others["params"] == list(model.last.parameters())
    assert stiefel["cleanup"] == 20
    groups = [{"params": model.first.parameters(), "lr": 0.3}, {"params": list(model.last.parameters())}]
    optimizer = CayleyAdam(groups, lr=0.01, stiefel_lr=0.2)
    assert [(group["stiefel"], group["lr"]) for group in optimizer.param_groups] == [(True, 0.3), (False, 0.01)]
    optimizer.add_param_group({"params": model.basis})
    assert [(group["stiefel"], group["lr"]) for group in optimizer.param_groups[2:]] == [(True, 0.2)]
    named = CayleyAdam(model.named_parameters(), lr=0.01).param_groups
    assert named[1]["param_names"] == ["basis", "first.h", "second.h"]
    copied = pickle.loads(pickle.dumps(optimizer))
    copied.add_param_group({"params": [StiefelParameter(random_stiefel(5, 2))]})
    assert copied.param_groups[-1]["lr"] == 0.2


def test_learning_rates_by_default():
    x, w = torch.nn.Parameter(random_stiefel(5, 2)), torch.nn.Parameter(torch.ones(3))

    def rates(*args, **kwargs):
        return [group["lr"] for group in CayleyAdam(*args, **kwargs).param_groups]

    mixed = [{"params": [x], "stiefel": True}, {"params": [w]}]
    assert rates([x], stiefel=True) == [0.1]
    assert rates([x], lr=0.5, stiefel=True) == [0.5]
    assert rates([dict(group) for group in mixed]) == [0.1, 1e-3]
    assert rates([dict(group) for group in mixed], lr=0.05) == [0.05, 0.05]
    assert rates([StiefelParameter(x.detach()), w], lr=0.05) == [0.05, 0.1]
    with pytest.raises(InvalidInputError, match="stiefel_lr"):
        CayleyAdam([x], stiefel_lr=-1.0)


def test_the_default_learning_rate_finds_eigenvectors():
    a, start = problem(n=200, s=4)
    x = StiefelParameter(start)
    optimizer = CayleyAdam([x])
    for _ in range(300):
        x.grad = -a @ x.detach()
        optimizer.step()
    top = torch.linalg.eigvalsh(a)[-4:].sum()
    assert float((x * (a @ x)).detach().sum()) > 0.98 * float(top)


def test_a_layer_that_is_fitted_to_another_graph_starts_anew(graph):
    conv = GCKMConv(8, 4)
    optimizer = CayleyAdam(conv.parameters())
    for data in (graph, make_graph(40, seed=1)):
        conv.initialize(data.x, data.edge_index)
        for _ in range(2):
            optimizer.zero_grad()
            conv(data.x, data.edge_index)[:9].square().sum().backward()
            optimizer.step()
        assert float(orthogonality_error(conv.h)) < 1e-5


def test_a_stiefel_parameter_that_is_none_is_refused():
    with pytest.raises(InvalidInputError, match="not orthonormal"):
        CayleyAdam([StiefelParameter(torch.ones(4, 2))])
    late = StiefelParameter(torch.empty(0, 2))
    optimizer = CayleyAdam([late])
    late.data = torch.ones(4, 2)
    late.grad = torch.ones(4, 2)
    with pytest.raises(InvalidInputError, match="not orthonormal"):
        optimizer.step()


def test_a_scheduler_scales_both_rates():
    model = Network()
    optimizer = CayleyAdam(model.parameters(), lr=0.01)
    optimizer.step()
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.005, 0.05])
