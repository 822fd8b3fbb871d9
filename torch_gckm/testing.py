"""Checks for kernels and kernel matrices of one's own.

Subclass in a test module that pytest collects, and say what to check:

.. code-block:: python

    class TestMyKernel(KernelChecks):
        def make_kernel(self):
            return MyKernel(bandwidth=2.0)
"""

import copy

import torch
from torch import Tensor
from torch.testing import assert_close

from torch_gckm import panels
from torch_gckm.gram import Dense, GramFactory
from torch_gckm.kernels import RBF, Kernel, as_rows
from torch_gckm.readout import ReadoutProblem, solve


def random_features(num_rows: int = 24, num_columns: int = 3, seed: int = 0) -> Tensor:
    """Standard normal features in double precision, ``[n, d]``."""
    return panels.random_normal(num_rows, num_columns, seed)


class KernelChecks:
    """What every kernel must keep: values, layout of results, types, copies and gradients."""

    def make_kernel(self) -> Kernel:
        """The kernel to check, a new one on every call."""
        raise NotImplementedError("say in make_kernel which kernel to check")

    def make_features(self) -> Tensor:
        """Features that the kernel can read, in double precision, ``[n, d]``."""
        return random_features()

    def test_is_symmetric_and_its_diagonal_agrees(self) -> None:
        kernel, x = self.make_kernel(), self.make_features()
        matrix = kernel(x)
        assert matrix.shape == (x.size(0), x.size(0))
        assert_close(matrix, matrix.t())
        assert_close(kernel(x, diag=True), matrix.diagonal(), rtol=1e-6, atol=1e-9)

    def test_blocks_are_parts_of_the_matrix(self) -> None:
        kernel, x = self.make_kernel(), self.make_features()
        matrix, rows = kernel(x), as_rows(x)
        index = torch.tensor([5, 0, 5, 2])
        assert_close(kernel(rows.rows(slice(3, 9)), rows), matrix[3:9])
        assert_close(kernel(rows, rows.rows(index)), matrix[:, index])

    def test_is_positive_semi_definite_if_it_says_so(self) -> None:
        kernel = self.make_kernel()
        if kernel.is_psd:
            values = torch.linalg.eigvalsh(kernel(self.make_features()))
            assert float(values[0]) >= -1e-8 * float(values[-1])

    def test_keeps_the_type_of_features_and_copies_are_equal(self) -> None:
        kernel, x = self.make_kernel(), self.make_features()
        matrix = kernel(x)
        assert matrix.dtype == torch.float64
        single = kernel(x.float())
        assert single.dtype == torch.float32
        assert_close(single.double(), matrix, rtol=1e-3, atol=1e-4)
        assert_close(copy.deepcopy(kernel)(x), matrix)

    def test_gradients_to_features(self) -> None:
        kernel = self.make_kernel()
        x = self.make_features()[:6].requires_grad_()
        kernel(x.detach())  # Sets automatic hyperparameters.
        if kernel(x).requires_grad:  # Some kernels are piecewise constant.
            others = self.make_features()[6:10]
            assert torch.autograd.gradcheck(lambda a: kernel(a, others), (x,))


class GramChecks:
    """What every representation of a kernel matrix must keep, compared with the exact one."""

    tolerance = 1e-6  # How far results may be from those of the exact matrix.

    def make_gram(self) -> GramFactory:
        """The representation to check, with an error below the tolerance for 24 rows of features."""
        raise NotImplementedError("say in make_gram which representation to check")

    def test_products_and_forms(self) -> None:
        kernel, rows = RBF(3.0), as_rows(random_features())
        v, u = random_features(24, 2, seed=1), random_features(24, 2, seed=2)
        matrix = kernel(rows)
        for gram in (self.make_gram().uncentred(kernel, rows), self.make_gram().centred(kernel, rows, min_rank=24)):
            self._close(gram.matmul(v), matrix @ v)
            self._close(gram.bilinear(u, v), panels.total(u * (matrix @ v)))
            centred = panels.centred(v)
            self._close(gram.centred_quadratic(v), panels.total(centred * (matrix @ centred)))
            self._close(gram.centred_matmul(v), panels.centred(matrix @ centred))
            nodes, weights = gram.representer(v)
            self._close(kernel(rows, rows if nodes is None else rows.rows(nodes)) @ weights, matrix @ v)

    def test_eigenvectors(self) -> None:
        kernel, rows = RBF(3.0), as_rows(random_features())
        values, vectors = self.make_gram().centred(kernel, rows, min_rank=24).eigenvectors(4)
        exact, basis = Dense().centred(kernel, rows).eigenvectors(4)
        self._close(values, exact)
        self._close(vectors @ vectors.t(), basis @ basis.t())

    def test_readout(self) -> None:
        kernel, rows = RBF(3.0), as_rows(random_features())
        classes = torch.arange(24) % 3
        weight = (torch.arange(24) < 6).double()
        problem = ReadoutProblem(weight, 2.0 * torch.nn.functional.one_hot(classes).double() - 1.0, 1.05, 1.0, 0.1)
        ours, exact = (solve(f.uncentred(kernel, rows), problem) for f in (self.make_gram(), Dense()))
        self._close(ours.scores, exact.scores)
        index = torch.arange(6)
        self._close(ours.response(index), exact.response(index))
        self._close(ours.leverage(index), exact.leverage(index))

    def test_gradients_to_features(self) -> None:
        x, h = random_features().requires_grad_(), random_features(24, 2, seed=1)
        landmarks = self.make_gram().centred(RBF(3.0), as_rows(x.detach()), min_rank=24).landmarks
        ours, exact = (
            torch.autograd.grad(gram.centred_quadratic(h), x)[0]
            for gram in (
                self.make_gram().centred(RBF(3.0), as_rows(x), min_rank=24, landmarks=landmarks),
                Dense().centred(RBF(3.0), as_rows(x)),
            )
        )
        self._close(ours, exact)

    def _close(self, ours: Tensor, exact: Tensor) -> None:
        assert_close(ours, exact.to(ours), rtol=self.tolerance, atol=self.tolerance * float(exact.detach().abs().max()))
