r"""What layers and readouts may ask of a kernel matrix."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import times
from torch_gckm.gram.factor import Factor
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.partition import WHOLE, Partition


@dataclass(frozen=True)
class Panel:
    r"""A low-rank matrix: :math:`K \approx F F' + \mathrm{diag}(\delta)`."""

    # F, [n, m], stored or recomputed by blocks of rows; of a centred matrix, F minus its column means.
    values: Factor
    residual: Tensor  # delta = diag(K) - rowsum(F^2), [n], in double precision.
    landmarks: Tensor  # The nodes whose columns were used, [m], in the order of the columns of F.
    error: float  # The sum of the residual, relative to the trace of the centred matrix.
    partition: Partition = WHOLE  # Which rows these are.

    @cached_property
    def row_sums(self) -> Tensor:
        r"""The row sums of :math:`F F'`, ``[n]``, in double precision."""
        values = self.values
        if isinstance(values, Tensor):
            return (values @ panels.column_sums(values, self.partition)).double()
        assert values.mean is not None
        sums = values.mean * self.partition.all_rows(values.size(0))
        return times(values, sums.unsqueeze(1), values.dtype).squeeze(1)

    def pick(self, index: Tensor) -> Tensor:
        """Rows of the factor by their global numbers, the same on all processes, ``[k, m]``. R(k m), or R(k d)."""
        values = self.values
        return self.partition.pick(values, index) if isinstance(values, Tensor) else values.pick(index)


def describe_matrix(num_nodes: int, rank: int | None, error: float) -> str:
    """What represents a kernel matrix, in a few words; without a rank it is exact."""
    if rank is None:
        return f"exact, {num_nodes} x {num_nodes}"
    return f"rank {rank} of {num_nodes}, error {error:.2g}"


class Gram(ABC):
    r"""A kernel matrix :math:`K_{uv} = k(a_u, a_v)` as an operator on thin matrices.

    Whether it exists as an :math:`n \times n` array is the implementation's own affair.

    Args:
        kernel: The kernel function.
        rows: The features, or views, of the ``n`` nodes.
    """

    landmarks: Tensor | None = None  # The nodes that stand for all others; without them every node does for itself.

    def __init__(self, kernel: Kernel, rows: Rows) -> None:
        self.kernel, self.rows = kernel, rows

    @property
    def num_nodes(self) -> int:
        """The order of the matrix, whose rows may be spread over processes."""
        return self.rows.num_nodes

    @property
    def partition(self) -> Partition:
        """Which rows of the matrix this process has."""
        return self.rows.partition

    @property
    def is_constant(self) -> bool:
        """Whether no gradient flows to the features or the kernel's parameters."""
        return not (self.rows.requires_grad or self.kernel.is_learned)

    @abstractmethod
    def tracking(self, rows: Rows) -> "Gram":
        """The same matrix as a function of ``rows``, which hold the same values and may carry gradients."""

    def error(self) -> float:
        """What the representation leaves of the trace, relative to that of the centred matrix."""
        return 0.0

    def describe(self) -> str:
        """What represents the matrix, in a few words."""
        count = None if self.landmarks is None else self.landmarks.numel()
        return describe_matrix(self.num_nodes, count, self.error())

    def release(self) -> None:  # noqa: B027  # Not every representation has something to free.
        """Free what is large and can be computed again."""

    @abstractmethod
    def matmul(self, v: Tensor) -> Tensor:
        r""":math:`K v`, ``[n, c]``, without gradients."""

    def centred_matmul(self, v: Tensor) -> Tensor:
        r""":math:`K_c v` with :math:`K_c = M K M` centred on both sides, ``[n, c]``, without gradients."""
        return panels.centred(self.matmul(panels.centred(v, self.partition)), self.partition)

    def degrees(self) -> Tensor:
        r""":math:`K 1`, ``[n]``, without gradients."""
        ones = torch.ones(self.rows.num_rows, 1, dtype=self.rows.dtype, device=self.rows.device)
        return self.matmul(ones).squeeze(1)

    @abstractmethod
    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:
        r""":math:`\mathrm{Tr}(u' K v)`, with gradients to ``u``, ``v``, the features and the kernel."""

    def centred_quadratic(self, h: Tensor) -> Tensor:
        r""":math:`\mathrm{Tr}(H' K_c H)` with :math:`K_c = M K M` centred on both sides, differentiable."""
        centred = panels.centred(h, self.partition)
        return self.bilinear(centred, centred)

    @abstractmethod
    def eigenvectors(self, count: int) -> tuple[Tensor, Tensor]:
        """The largest eigenvalues of the centred matrix and their orthonormal eigenvectors.

        Returns:
            Eigenvalues ``[count]`` in decreasing order, eigenvectors ``[n, count]``; fewer where no more are positive.
        """

    @abstractmethod
    def representer(self, v: Tensor) -> tuple[Tensor | None, Tensor]:
        r"""Nodes :math:`S` and weights :math:`w` such that :math:`K_{\textrm{new}, \cdot} v = K_{\textrm{new}, S} w`.

        It extends products with the matrix to new nodes, without gradients.

        Returns:
            The nodes ``[m]``, ``None`` for all of them, and the weights ``[m, c]``.
        """

    def panel(self) -> Panel | None:
        """The factor of an uncentred matrix, differentiable; ``None`` if the matrix is exact (see :meth:`matrix`)."""
        return None

    def matrix(self) -> Tensor:
        """Every entry in double precision, ``[n, n]``, differentiable; asked for where there is no :meth:`panel`."""
        raise NotImplementedError(f"{type(self).__name__} has neither a panel nor a matrix")


class GramFactory(ABC):
    """How to represent kernel matrices: in either of two ways, for layers and for readouts."""

    @abstractmethod
    def centred(self, kernel: Kernel, rows: Rows, *, min_rank: int = 1, landmarks: Tensor | None = None) -> Gram:
        """A matrix of which only the centred part matters, as it does to a layer.

        Args:
            kernel: The kernel function.
            rows: The features.
            min_rank: The number of directions that are needed at least.
            landmarks: Nodes chosen before, to be used again; ``None`` chooses anew.
        """

    @abstractmethod
    def uncentred(self, kernel: Kernel, rows: Rows, *, landmarks: Tensor | None = None) -> Gram:
        """A matrix with its diagonal exact, as a readout needs it; see :meth:`centred`."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Plain values from which :func:`~torch_gckm.gram.gram_from_config` rebuilds it."""
