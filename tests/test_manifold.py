import copy
import io
import pickle

import pytest
import torch

from torch_gckm.errors import InvalidInputError
from torch_gckm.manifold import (
    SkewFactors,
    StiefelParameter,
    assert_on_stiefel,
    cayley_fixed_point,
    cayley_step,
    is_on_stiefel,
    orthogonality_error,
    orthonormalize,
    random_stiefel,
)


def skew_case(n=30, s=4, seed=0):
    generator = torch.Generator().manual_seed(seed + 100)
    x = random_stiefel(n, s, seed=seed, dtype=torch.float64)
    p = torch.randn(n, s, generator=generator, dtype=torch.float64)
    rho = torch.tensor(1.7, dtype=torch.float64)
    return SkewFactors(p, x, rho), (p @ x.t() - x @ p.t()) / rho


def test_factors_equal_the_full_skew_matrix():
    w, full = skew_case()
    v = torch.randn(30, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(w.matmul(v), full @ v)
    exact = float(torch.linalg.matrix_norm(full, ord=1))
    assert 0.8 * exact <= float(w.one_norm()) <= exact * (1 + 1e-12)


@pytest.mark.parametrize("alpha", [0.01, 0.3, 2.0])
def test_cayley_step_equals_the_full_transform(alpha):
    w, full = skew_case()
    eye = torch.eye(30, dtype=torch.float64)
    expected = torch.linalg.solve(eye + alpha / 2 * full, (eye - alpha / 2 * full) @ w.x)
    y = cayley_step(w, torch.tensor(alpha, dtype=torch.float64))
    torch.testing.assert_close(y, expected, atol=1e-12, rtol=0)
    assert float(orthogonality_error(y)) < 1e-13


def test_fixed_point_converges_to_the_transform():
    w, _ = skew_case()
    alpha = 0.5 / w.one_norm()
    exact = cayley_step(w, alpha)
    errors = [float((cayley_fixed_point(w, alpha, k) - exact).abs().max()) for k in (1, 3, 5, 30)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-13


def test_orthonormalize_is_the_closest_point_and_flips_nothing():
    x = random_stiefel(20, 3, dtype=torch.float64)
    noisy = x + 1e-3 * torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = orthonormalize(noisy)
    u, _, v = torch.linalg.svd(noisy, full_matrices=False)
    torch.testing.assert_close(y, u @ v)  # The polar factor.
    assert bool(((x * y).sum(dim=0) > 0.99).all())


def test_random_points():
    x = random_stiefel(20, 5, seed=3, centred=True, dtype=torch.float64)
    assert is_on_stiefel(x, 1e-12)
    assert float(x.sum(dim=0).abs().max()) < 1e-12
    assert torch.equal(x, random_stiefel(20, 5, seed=3, centred=True, dtype=torch.float64))
    assert not torch.equal(x, random_stiefel(20, 5, seed=4, centred=True, dtype=torch.float64))
    random_stiefel(5, 5)
    with pytest.raises(InvalidInputError, match="5 orthonormal columns do not fit into 5 rows"):
        random_stiefel(5, 5, centred=True)


def test_check_and_assert_agree():
    good = random_stiefel(6, 2)
    assert_on_stiefel(good)
    for bad, match in ((good * 1.1, "not orthonormal"), (torch.ones(2, 3), "tall matrix"), (torch.ones(3), "tall")):
        assert not is_on_stiefel(bad)
        with pytest.raises(InvalidInputError, match=match):
            assert_on_stiefel(bad)


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.basis = StiefelParameter(random_stiefel(6, 2), requires_grad=True)


def saved_and_loaded(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def loaded_state(module):
    other = Module()
    other.load_state_dict(module.state_dict())
    return other


@pytest.mark.parametrize(
    "journey",
    [
        copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m)), saved_and_loaded, loaded_state,
        lambda m: m.to("cpu"), lambda m: m.double(), lambda m: m.double().float(), lambda m: m.requires_grad_(False),
        lambda m: copy.deepcopy(saved_and_loaded(copy.deepcopy(m).double())).float(),
        lambda m: torch.nn.Sequential(m, torch.nn.Linear(2, 2))[0],
        lambda m: torch.optim.swa_utils.AveragedModel(m).module,
    ],
)  # fmt: skip
def test_a_stiefel_parameter_stays_one(journey):
    module = Module()
    expected = module.basis.detach().clone()
    arrived = journey(module).basis
    assert type(arrived) is StiefelParameter
    assert isinstance(arrived, torch.nn.Parameter)
    torch.testing.assert_close(arrived.detach(), expected, check_dtype=False)


def test_copies_of_a_stiefel_parameter_alone():
    parameter = StiefelParameter(random_stiefel(6, 2), requires_grad=False)
    for other in (copy.deepcopy(parameter), pickle.loads(pickle.dumps(parameter))):
        assert type(other) is StiefelParameter
        assert not other.requires_grad
        assert torch.equal(other, parameter)
    assert type(parameter * 2) is torch.Tensor
    assert repr(parameter).startswith("StiefelParameter containing:\ntensor([[")
