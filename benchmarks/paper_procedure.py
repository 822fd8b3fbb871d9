"""A plain rendering of the paper's procedure, to measure against: everything dense, nothing clever.

Full eigendecompositions of n x n matrices, an n x n skew matrix with the fixed-point form of the Cayley
transform, and LU of the paper's linear system, as its formulas are printed (with both sides centred).
"""

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.graph import Propagation, Topology
from torch_gckm.kernels import Kernel


def kernel_pca(matrix: Tensor, count: int) -> Tensor:
    return torch.linalg.eigh(matrix)[1][:, -count:]


def centred(matrix: Tensor) -> Tensor:
    n = matrix.size(0)
    centring = torch.eye(n) - 1.0 / n
    return centring @ matrix @ centring


def solve(matrix: Tensor, label: Tensor, codes: Tensor, lambda2: float) -> tuple[Tensor, Tensor]:
    """The paper's linear system (I - R S K) R H = S' L C / lambda2, with eta = lambda1 = 1."""
    n = matrix.size(0)
    r = 1.0 / matrix.sum(dim=1) - label / lambda2
    s = torch.eye(n) - torch.ones(n, 1) * r / r.sum()
    system = torch.eye(n) - r.unsqueeze(1) * (s @ matrix)
    h = torch.linalg.solve(system, s.t() @ (label.unsqueeze(1) * codes) / lambda2) / r.unsqueeze(1)
    return h, r


def cayley_step(x: Tensor, gradient: Tensor, second: float, step: int, beta2: float = 0.99) -> tuple[Tensor, float]:
    """One step with learning rate 1 and no momentum, on n x n matrices."""
    second = beta2 * second + (1 - beta2) * float(gradient.square().sum())
    rho = (second / (1 - beta2**step) + 1e-8) ** 0.5
    half = gradient @ x.t() - 0.5 * x @ (x.t() @ gradient @ x.t())
    w = (half - half.t()) / rho
    alpha = min(1.0, 1.0 / (float(torch.linalg.matrix_norm(w, ord=1)) + 1e-8))
    y = x - alpha * w @ x
    for _ in range(5):
        y = x - 0.5 * alpha * w @ (x + y)
    return y, second


def paper_fit(
    data: Data, channels: tuple[int, ...], kernels: list[Kernel], lambda2: float, weights: list[float], steps: int = 10
) -> Tensor:
    propagation, n = Propagation("gcn"), data.num_nodes
    edges = Topology(data.edge_index, None, n)  # Keeps its matrix.
    label = data.train_mask.float()
    codes = 2.0 * torch.nn.functional.one_hot(data.y).float() - 1.0
    k1 = centred(kernels[0](propagation(data.x, edges)))
    h1 = kernel_pca(k1, channels[0])
    h2 = kernel_pca(centred(kernels[1](propagation(h1, edges))), channels[1])
    h3, _ = solve(kernels[2](h2), label, codes, lambda2)
    scores, seconds = h3, [0.0, 0.0]
    for step in range(1, steps + 1):
        h1, h2 = h1.detach().requires_grad_(), h2.detach().requires_grad_()
        k2, k3 = centred(kernels[1](propagation(h1, edges))), kernels[2](h2)
        r = 1.0 / k3.sum(dim=1) - label / lambda2
        rh = r.unsqueeze(1) * h3
        loss = -weights[0] * (h1 * (k1 @ h1)).sum() / 2 - weights[1] * (h2 * (k2 @ h2)).sum() / 2
        supervised = -(rh * (k3 @ rh)).sum() / 2 + (h3 * rh).sum() / 2
        loss = loss + weights[2] * (supervised - (h3 * label.unsqueeze(1) * codes).sum() / lambda2)
        gradients = torch.autograd.grad(loss / n, [h1, h2])
        with torch.no_grad():
            h1, seconds[0] = cayley_step(h1, gradients[0], seconds[0], step)
            h2, seconds[1] = cayley_step(h2, gradients[1], seconds[1], step)
            h3, _ = solve(kernels[2](h2), label, codes, lambda2)
            scores = h3
    return scores.argmax(dim=1)
