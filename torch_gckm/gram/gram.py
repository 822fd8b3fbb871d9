r"""What layers may ask of a kernel matrix.

A :class:`Gram` is the matrix :math:`K_{uv} = k(a_u, a_v)` as an operator. Layers
meet it only through the methods below, all of which take and return thin
matrices; whether :math:`K` exists as an :math:`n \times n` array is the
implementation's own affair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_gckm.kernels import Kernel, Rows


@dataclass(frozen=True)
class ReadoutProblem:
    r"""The data of the semi-supervised readout.

    Args:
        weight: Label weights :math:`l`, ``[n]``, zero for unlabelled nodes.
        codes: Class codes :math:`C`, ``[n, p]``; rows of unlabelled nodes do not matter.
        eta: Regularisation :math:`\eta`.
        lambda1: Weight :math:`\lambda_1` of the unsupervised term.
        lambda2: Weight :math:`\lambda_2` of the labels.
    """

    weight: Tensor
    codes: Tensor
    eta: float
    lambda1: float
    lambda2: float

    def r(self, degrees: Tensor) -> Tensor:
        r""":math:`r_i = v_i / \lambda_1 - l_i / \lambda_2` with :math:`v_i` the inverse degree, ``[n]``."""
        return 1.0 / (self.lambda1 * degrees) - self.weight.to(degrees) / self.lambda2

    def labels(self, dtype: torch.dtype) -> Tensor:
        r"""The label term :math:`S = L C / \lambda_2`, ``[n, p]``."""
        return self.weight.to(dtype).unsqueeze(1) * self.codes.to(dtype) / self.lambda2


class ReadoutSolution(ABC):
    r"""The solution of the readout's linear system, differentiable in the features.

    Attributes:
        scores: :math:`E`, ``[n, p]``.
        alpha: :math:`a = R H`, ``[n, p]``.
        bias: :math:`b`, ``[p]``.
        r: The diagonal of :math:`R`, ``[n]``.
        degrees: The kernel degrees :math:`K 1`, ``[n]``.
    """

    problem: ReadoutProblem
    scores: Tensor
    alpha: Tensor
    bias: Tensor
    r: Tensor
    degrees: Tensor

    def product(self) -> Tensor:
        r""":math:`K a`, ``[n, p]``, which the scores :math:`E = K a / \eta + 1 b'` contain."""
        return self.problem.eta * (self.scores - self.bias)

    @abstractmethod
    def response(self, index: Tensor) -> Tensor:
        r"""The block :math:`G_{BB}` of the symmetric map :math:`E = G S` from labels to scores.

        It reuses the factorisation of the solve: one right-hand side a node.

        Args:
            index: Node indices :math:`B`, ``[b]``.

        Returns:
            ``[b, b]``
        """

    def leverage(self, index: Tensor) -> Tensor:
        r"""The diagonal of :meth:`response`, ``[b]``."""
        return self.response(index).diagonal()


class Gram(ABC):
    """A kernel matrix as an operator.

    Args:
        kernel: The kernel function.
        rows: The features, or views, of the ``n`` nodes.
    """

    def __init__(self, kernel: Kernel, rows: Rows) -> None:
        self.kernel, self.rows = kernel, rows

    @property
    def num_nodes(self) -> int:
        """The order of the matrix."""
        return self.rows.num_rows

    @property
    def is_constant(self) -> bool:
        """Whether no gradient flows to the features or the kernel's parameters."""
        return not (self.rows.requires_grad or self.kernel.is_learned)

    def diagonal(self) -> Tensor:
        r""":math:`\mathrm{diag}(K)`, ``[n]``; builds no matrix."""
        return self.kernel(self.rows, diag=True)

    @property
    def landmarks(self) -> Tensor | None:
        """The nodes that stand for all others, or ``None`` where every node stands for itself."""
        return None

    @abstractmethod
    def tracking(self, rows: Rows) -> Gram:
        """The same matrix as a function of ``rows``, which hold the same values and may carry gradients."""

    @abstractmethod
    def describe(self) -> str:
        """What represents the matrix, in a few words."""

    def release(self) -> None:  # noqa: B027  # Not every representation has something to free.
        """Free what is large and can be computed again."""

    @abstractmethod
    def matmul(self, v: Tensor) -> Tensor:
        r""":math:`K v`, ``[n, c]``, without gradients."""

    def degrees(self) -> Tensor:
        r""":math:`K 1`, ``[n]``, without gradients."""
        ones = torch.ones(self.num_nodes, 1, dtype=self.rows.dtype, device=self.rows.device)
        return self.matmul(ones).squeeze(1)

    @abstractmethod
    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:
        r""":math:`\mathrm{Tr}(u' K v)`, with gradients to ``u``, ``v``, the features and the kernel."""

    def centred_quadratic(self, h: Tensor) -> Tensor:
        r""":math:`\mathrm{Tr}(H' K_c H)` with :math:`K_c = M K M` centred on both sides, differentiable."""
        centred = h - h.mean(dim=0)
        return self.bilinear(centred, centred)

    @abstractmethod
    def eigenvectors(self, count: int) -> tuple[Tensor, Tensor]:
        """The largest eigenvalues of the centred matrix and their orthonormal eigenvectors.

        Returns fewer than ``count`` where the matrix has no more positive ones.

        Returns:
            Eigenvalues ``[count]`` in decreasing order, eigenvectors ``[n, count]``.
        """

    @abstractmethod
    def solve_readout(self, problem: ReadoutProblem) -> ReadoutSolution:
        """Solve the readout's linear system, differentiably."""

    @abstractmethod
    def representer(self, v: Tensor) -> tuple[Tensor | None, Tensor]:
        r"""Nodes :math:`S` and weights :math:`w` such that :math:`K_{\textrm{new}, \cdot} v = K_{\textrm{new}, S} w`.

        It extends products with the matrix to new nodes, without gradients.

        Returns:
            The nodes ``[m]``, ``None`` for all of them, and the weights ``[m, c]``.
        """


class GramFactory(ABC):
    """How to represent a kernel matrix; called with a kernel and features, it makes a :class:`Gram`."""

    @abstractmethod
    def __call__(
        self, kernel: Kernel, rows: Rows, *, landmarks: Tensor | None = None, centred: bool = False, min_rank: int = 1
    ) -> Gram:
        """Represent the kernel matrix of some features.

        Args:
            kernel: The kernel function.
            rows: The features.
            landmarks: Nodes chosen before, to be used again; ``None`` or empty chooses anew.
            centred: Whether only the centred matrix matters, as it does to a layer.
            min_rank: The number of directions that will be asked for.
        """

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Plain values from which :func:`~torch_gckm.gram.gram_from_config` rebuilds it."""
