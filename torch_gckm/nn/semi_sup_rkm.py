"""The semi-supervised kernel machine that reads out the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_gckm.cache import LastCall
from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.gram import Gram, GramLike, ReadoutProblem, ReadoutSolution, as_gram
from torch_gckm.kernels import FeaturesLike, KernelLike, Rows, as_kernel, as_rows
from torch_gckm.nn.coding import CodeLike, class_codes, decode
from torch_gckm.nn.extension import Extension
from torch_gckm.nn.fitted import FittedModule
from torch_gckm.nn.labels import ClassWeight, balance, parse_labels
from torch_gckm.nn.leave_out import places_of, withhold_groups, withhold_one
from torch_gckm.numerics import check_finite


class SemiSupRKMReadout(FittedModule):
    r"""The semi-supervised restricted kernel machine from the `"Unsupervised Neighborhood Propagation
    Kernel Layers for Semi-supervised Node Classification" <https://arxiv.org/abs/2301.13764>`_ paper.

    Kernel spectral clustering whose clusters are pulled towards the labels. With
    :math:`r_i = v_i / \lambda_1 - l_i / \lambda_2`, :math:`v_i` the inverse kernel degree and
    :math:`l_i` the label weights, the scores :math:`E` solve one linear system:

    .. math::
        E = K a / \eta + 1 b', \qquad a = R E + L C / \lambda_2, \qquad 1'a = 0.

    The solve is differentiable: a loss on the scores, or on the exact leave-out
    scores, trains whatever made the features, so this can be the head of any GNN.

    .. note::
        Leave-out scores are exact while the features do not depend on the
        labels. Once labels have been used to train them, leave-out scores of a
        hidden layer's machine tell nothing about test accuracy.

    Args:
        in_channels: The number of features of the view ``"h"``.
        out_channels: The number of classes.
        kernel: A kernel, its name, or a function of two matrices. Several views
            can be combined: ``RBF(0.05) * RBF(10.0).on("x")``.
        eta: The regularisation :math:`\eta > 0`.
        lambda1: The weight :math:`\lambda_1 > 0` of the unsupervised term.
        lambda2: The weight :math:`\lambda_2 > 0` of the labels; smaller trusts them more.
        gram: How to represent the kernel matrix: ``"auto"``, ``"dense"`` or an object such as ``Dense()``.
        code: The class code: ``"one_vs_all"``, ``"binary"`` or a matrix of plus and minus ones
            ``[out_channels, p]``. Other codes than one-vs-all are decoded by Hamming distance.
        class_weight: ``"balanced"`` gives the labels of every class the same weight in sum, so that classes with
            many labels do not win everywhere. Leave-out scores keep the weights that all labels have.

    Shapes:
        - **input:** features ``[n, in_channels]`` or a mapping of views, classes ``[n]``, mask ``[n]``
        - **output:** scores ``[n, p]``, with ``p = out_channels`` for one-vs-all codes

    Attributes:
        h: The dual variables :math:`H = R^{-1} a`, ``[n, p]``, a Parameter written by the solve.
        bias: The bias :math:`b`, ``[p]``.
        scores: The scores of the last solve, ``[n, p]``.
    """

    fitted_tensors = ("h", "alpha", "bias", "scores", "label_weight", "label_class", "landmarks")
    alpha: Tensor
    bias: Tensor
    scores: Tensor
    codes: Tensor
    label_weight: Tensor
    label_class: Tensor
    landmarks: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: KernelLike = "rbf",
        eta: float = 1.0,
        lambda1: float = 1.0,
        lambda2: float = 0.1,
        gram: GramLike = "auto",
        code: CodeLike = "one_vs_all",
        class_weight: ClassWeight = None,
    ) -> None:
        super().__init__()
        if out_channels < 2:
            raise InvalidInputError(f"'out_channels' is the number of classes, at least 2, got {out_channels}")
        for name, value in (("eta", eta), ("lambda1", lambda1), ("lambda2", lambda2)):
            if not value > 0:
                raise InvalidInputError(f"'{name}' must be positive, got {value}")
        if class_weight not in (None, "balanced"):
            raise InvalidInputError(f"'class_weight' must be None or 'balanced', got {class_weight!r}")
        self.in_channels, self.out_channels, self.class_weight = in_channels, out_channels, class_weight
        self.eta, self.lambda1, self.lambda2 = float(eta), float(lambda1), float(lambda2)
        self.kernel = as_kernel(kernel)
        self.gram = as_gram(gram)
        self.register_buffer("codes", class_codes(code, out_channels))
        width = self.codes.size(1)
        self.h = torch.nn.Parameter(torch.empty(0, width), requires_grad=False)
        self.register_buffer("alpha", torch.empty(0, width))
        self.register_buffer("bias", torch.empty(0))
        self.register_buffer("scores", torch.empty(0, width))
        self.register_buffer("label_weight", torch.empty(0))
        self.register_buffer("label_class", torch.empty(0, dtype=torch.long))
        self.register_buffer("landmarks", torch.empty(0, dtype=torch.long))
        self._gram_cache: LastCall[Gram] = LastCall()
        self._solution: ReadoutSolution | None = None
        self._solved: tuple[Gram, tuple[float, ...]] | None = None

    def reset_parameters(self) -> None:
        """Forget the fit."""
        for name in self.fitted_tensors:
            tensor = getattr(self, name)
            self._store(name, tensor.new_empty((0, *tensor.shape[1:])))
        self.support.set({})
        self._described = None
        self._gram_cache.clear()
        self._solution = self._solved = None

    @property
    def is_fitted(self) -> bool:
        """Whether the linear system has been solved for some labels."""
        return not self.support.is_empty

    def forward(
        self,
        h: FeaturesLike,
        y: Tensor,
        train_mask: Tensor | None = None,
        *,
        split: int | None = None,
        keep_landmarks: bool = False,
        keep_gram: bool = False,
    ) -> Tensor:
        """Solve for the scores of all nodes.

        Args:
            h: Features, a tensor (the view ``"h"``) or a mapping of views.
            y: Class numbers, ``[n]``; -1 means unlabelled.
            train_mask: Which labels to use: boolean, node indices, or non-negative
                weights. ``None`` uses every ``y >= 0``.
            split: The column to use of a mask ``[n, splits]``.
            keep_landmarks: Use the landmarks of the last solve again, if the kernel matrix has any.
            keep_gram: Use the kernel matrix of the last solve again; only labels have changed since.
        """
        rows = self._checked(h)
        labels = parse_labels(y.to(rows.device), train_mask, rows.num_rows, self.out_channels, split)
        if self.class_weight == "balanced":
            labels = balance(labels)
        self._solution = self._solved = None  # Their arrays are large: free them before making new ones.
        if not keep_gram:
            self._gram_cache.clear()
        self.kernel.fit(rows)
        problem = self._problem(labels.weight, labels.classes)
        if not ((keep_landmarks or keep_gram) and self.label_class.numel() == rows.num_rows):
            self._store("landmarks", self.landmarks.new_empty(0))
        tracked = torch.is_grad_enabled() and (rows.requires_grad or self.kernel.is_learned)
        gram = self._gram_of(rows) if tracked else self._constant_gram(rows)
        solution = gram.solve_readout(problem)
        marks = gram.landmarks
        self._described = gram.describe()
        self._store("landmarks", self.landmarks.new_empty(0) if marks is None else marks)
        self._store("label_weight", labels.weight)
        self._store("label_class", labels.classes)
        self._store("alpha", solution.alpha)
        self._store("bias", solution.bias)
        self._store("scores", solution.scores)
        self._store("h", solution.alpha / solution.r.unsqueeze(1))
        self.observe(rows)
        self._solution, self._solved = solution, None if tracked else (gram, self._state())
        return solution.scores.to(rows.dtype)

    def observe(self, h: FeaturesLike) -> None:
        """Make these features the ones that :meth:`transform` extends from; :meth:`forward` does so, too."""
        tensors = as_rows(h).tensors(self.kernel.views)
        self.support.set({name: x.detach().clone() for name, x in tensors.items()})

    def loss(self, h: FeaturesLike) -> Tensor:
        r"""The dual objective, with :math:`H` constant and gradients to the features.

        .. math::
            -\frac{1}{2 \eta} \mathrm{Tr}(H' R K R H) + \frac12 \mathrm{Tr}(H' R H)
            - \frac{1}{\lambda_2} \mathrm{Tr}(H' L C)

        Gradients flow through :math:`K` and through the degrees in :math:`R`.

        Args:
            h: The features of the fitted nodes.
        """
        self._require_fit()
        rows = self._checked(h)
        if rows.num_rows != self.h.size(0):
            raise InvalidInputError(f"the readout was fitted on {self.h.size(0)} nodes, got {rows.num_rows}")
        constant = self._constant_gram(rows)
        duals = self.h.to(rows.dtype)
        undefined = ~duals.isfinite().all(dim=1)
        if bool(undefined.any()):
            raise InvalidInputError(
                f"the dual variables of node {int(undefined.nonzero()[0])} are not defined because r is zero there; "
                "change lambda1 or lambda2 slightly to fine-tune"
            )
        with torch.no_grad():
            problem = self._problem(self.label_weight, self.label_class)
            solution = self._solution
            if solution is not None and self._is_solution_of(constant):  # It knows what would be computed again.
                degrees, product = solution.degrees.to(duals), solution.product().to(duals)
                r, alpha = solution.r.to(duals), solution.alpha.to(duals)
            else:
                degrees = constant.degrees()
                r = problem.r(degrees)
                alpha = r.unsqueeze(1) * duals
                product = constant.matmul(alpha)
            sq_norm = duals.square().sum(dim=1)
            value = (r * sq_norm).sum() / 2 - (problem.labels(duals.dtype) * duals).sum()
            value -= (alpha * product).sum() / (2 * self.eta)
            slope_r = sq_norm / 2 - (duals * product).sum(dim=1) / self.eta
            slope_degree = -slope_r / (self.lambda1 * degrees.square())
        # One bilinear form in K carries the whole gradient: -a'(dK)a/(2 eta) and the slope times d(K1).
        left = torch.cat([alpha / (-2 * self.eta), slope_degree.unsqueeze(1)], dim=1)
        right = torch.cat([alpha, torch.ones_like(slope_degree).unsqueeze(1)], dim=1)
        carrier = constant.tracking(rows).bilinear(left, right)
        return value + (carrier - carrier.detach())

    def leave_out(self, groups: Sequence[Tensor | Sequence[int]] | Tensor | None = None) -> Tensor | list[Tensor]:
        r"""Exact scores of labelled nodes had their own labels been withheld.

        Taking away the labels of a set :math:`B` changes the scores in closed form,

        .. math::
            E_B^{\textrm{out}} = (I - G_{BB} L_B / \lambda_2)^{-1} (E_B - G_{BB} L_B C_B / \lambda_2),

        where :math:`E = G S` is the map from labels to scores. It reuses the
        factorisation of the last solve and is differentiable.

        Args:
            groups: Sets of labelled nodes, or a matrix with a set in every row; each set is withheld as a whole.
                ``None``: one node at a time.

        Returns:
            Scores ``[num_labelled, p]`` in the order of the nodes, or a list with ``[len(group), p]`` for each group.
        """
        index, solution = self.labelled, self._last_solution()
        codes = self.codes.to(solution.scores)[self.label_class[index]]
        weight = self.label_weight[index].double() / self.lambda2
        if groups is None:
            return withhold_one(solution, index, codes, weight).to(self.h.dtype)
        withheld = withhold_groups(solution, index, codes, weight, places_of(groups, index))
        return [part.to(self.h.dtype) for part in withheld]

    def leave_one_out(self) -> Tensor:
        """Exact leave-one-out scores of the labelled nodes, ``[num_labelled, p]``, in the order of the nodes."""
        result = self.leave_out()
        assert isinstance(result, Tensor)
        return result

    def leverage(self) -> Tensor:
        r"""The pull of every label on its own score, :math:`g_i = G_{ii} l_i / \lambda_2`, ``[num_labelled]``.

        A well-posed problem has all of them in :math:`(0, 1)`.
        """
        index = self.labelled
        leverage = self._last_solution().leverage(index) * (self.label_weight[index].double() / self.lambda2)
        return leverage.to(self.h.dtype)

    @torch.no_grad()
    def transform(self, h: FeaturesLike, *, progress: str | None = None) -> Tensor:
        """Scores of new nodes from their features, ``[n_new, p]``; see :meth:`GCKMConv.transform`."""
        extension = self.extension
        return extension(self.kernel, self._checked(h), progress)

    def _extend(self) -> Extension:
        gram = self._gram_of(self.support.rows().to(torch.float64))
        return self._extension_of(gram, self.alpha.double(), lambda values: values / self.eta, self.bias)

    def predict(self, scores: Tensor | None = None) -> Tensor:
        """Classes from scores, by default those of the last solve, ``[n]``."""
        self._require_fit()
        return decode(self.scores if scores is None else scores, self.codes)

    @property
    def labelled(self) -> Tensor:
        """The labelled nodes of the last solve, in increasing order."""
        self._require_fit()
        return (self.label_class >= 0).nonzero().squeeze(1)

    def _state(self) -> tuple[float, ...]:
        """What changes when hyperparameters, duals or labels are written to after a solve."""
        tensors = (self.h, self.label_weight, self.label_class)
        return (self.eta, self.lambda1, self.lambda2, *(-1 if t.is_inference() else t._version for t in tensors))

    def _is_solution_of(self, gram: Gram) -> bool:
        return self._solved is not None and self._solved[0] is gram and self._solved[1] == self._state()

    def _last_solution(self) -> ReadoutSolution:
        if self._solution is None:
            raise NotFittedError("leave-out scores need the factors of a solve; call readout(h, y, train_mask) first")
        return self._solution

    def _gram_of(self, rows: Rows) -> Gram:
        marks = self.landmarks.clone() if self.landmarks.numel() else None  # A backward pass may need them as they are.
        return self.gram(self.kernel, rows, landmarks=marks)

    def _constant_gram(self, rows: Rows) -> Gram:
        """The kernel matrix without gradients; kept for the loss, and for a solve with other labels."""
        key = (*rows.tensors(self.kernel.views).values(), *self.kernel.parameters(), *self.kernel.buffers())
        with torch.no_grad():
            return self._gram_cache.get(key, lambda: self._gram_of(rows.detach()))

    def _problem(self, weight: Tensor, classes: Tensor) -> ReadoutProblem:
        codes = self.codes[classes.clamp(min=0)]
        return ReadoutProblem(weight, codes, self.eta, self.lambda1, self.lambda2)

    def _checked(self, h: FeaturesLike) -> Rows:
        rows = as_rows(h).to(self.h.dtype)
        if "h" in self.kernel.views:
            columns = rows.view("h").num_columns
            if columns != self.in_channels:
                raise InvalidInputError(f"'h' must have shape [n, {self.in_channels}], got [n, {columns}]")
        for name, tensor in rows.detach().tensors(self.kernel.views).items():
            check_finite(tensor, name)
        return rows

    def _require_fit(self) -> None:
        if not self.is_fitted:
            raise NotFittedError("the readout is not fitted; call readout(h, y, train_mask) first")

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._solution = self._solved = None  # They belong to the state that is replaced.
        self._gram_cache.clear()
        super()._load_from_state_dict(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # The factors belong to one process and one autograd graph: copies and pickles do without.
        return {**self.__dict__, "_solution": None, "_solved": None}

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, kernel={self.kernel!r}, "
            f"eta={self.eta:g}, lambda1={self.lambda1:g}, lambda2={self.lambda2:g}, "
            f"class_weight={self.class_weight!r}, gram={self.gram!r})"
        )
