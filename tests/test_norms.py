import torch

from torch_gckm.norms import one_norm_estimate


def test_one_norm_estimate_is_a_tight_lower_bound():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        a = torch.randn(40, 40, generator=generator, dtype=torch.float64)
        estimate = float(one_norm_estimate(lambda x, a=a: a @ x, lambda x, a=a: a.t() @ x, like=a))
        exact = float(torch.linalg.matrix_norm(a, ord=1))
        assert 0.5 * exact <= estimate <= exact * (1 + 1e-12)


def test_one_norm_estimate_of_zero_is_zero():
    zero = torch.zeros(5, 5)
    assert float(one_norm_estimate(lambda x: zero @ x, lambda x: zero @ x, like=zero)) == 0.0
