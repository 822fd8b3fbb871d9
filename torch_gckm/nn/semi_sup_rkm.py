"""The semi-supervised kernel machine that reads out the classes."""

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import filled
from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.gram import Gram, GramLike, as_gram, gram_from_config
from torch_gckm.kernels import FeaturesLike, KernelLike, Rows, as_kernel, as_rows, kernel_from_config
from torch_gckm.nn.extension import check_columns, widen, write
from torch_gckm.nn.fits import FittedModule, own_rows
from torch_gckm.nn.inductive import ReadoutMap
from torch_gckm.nn.prediction_sets import PredictsSets, check_exchangeable, machine_of
from torch_gckm.nn.readout_fit import ReadoutFit
from torch_gckm.nn.settings import ReadoutSettings
from torch_gckm.readout import (
    ClassWeight,
    CodeLike,
    Machine,
    ReadoutProblem,
    Targets,
    class_codes,
    decode,
    dual_objective,
    is_values,
    kind_of_targets,
    solve_for,
)


class SemiSupRKMReadout(PredictsSets, FittedModule):
    r"""The semi-supervised restricted kernel machine from the `"Unsupervised Neighborhood Propagation
    Kernel Layers for Semi-supervised Node Classification" <https://arxiv.org/abs/2301.13764>`_ paper.

    Kernel spectral clustering whose clusters are pulled towards the labels. With :math:`r_i = v_i / \lambda_1 - l_i /
    \lambda_2`, :math:`v_i` the inverse kernel degree and :math:`l_i` the label weights, scores :math:`E` solve

    .. math::
        E = K a / \eta + 1 b', \qquad a = R E + L C / \lambda_2, \qquad 1'a = 0.

    The solve is differentiable: a loss on scores or leave-out scores trains whatever made the features.

    .. note::
        Leave-out scores are exact while the features do not depend on the labels. Once
        these have been used to train them, such scores tell nothing about test accuracy.

    Args:
        in_channels: The number of features of the view ``"h"``; -1 takes it from the first ones.
        out_channels: The number of classes, or of columns of real targets.
        kernel: A kernel, its name, or a function of two matrices; of several views, ``RBF() * RBF(10.0).on("x")``.
        eta: The regularisation :math:`\eta > 0`.
        lambda1: The weight :math:`\lambda_1 > 0` of the unsupervised term.
        lambda2: The weight :math:`\lambda_2 > 0` of the labels; smaller trusts them more.
        gram: How to represent the kernel matrix: ``"auto"``, ``"dense"`` or an object such as ``Dense()``.
        code: The class code: ``"one_vs_all"``, ``"binary"`` or a matrix of plus and minus ones
            ``[out_channels, p]``. Other codes than one-vs-all are decoded by Hamming distance. ``"values"`` is for
            real targets ``[n, out_channels]``, which are centred by their mean; scores are then predictions.
        class_weight: ``"balanced"`` gives the labels of every class the same weight in sum, so that classes with
            many labels do not win everywhere. Leave-out scores keep the weights that all labels have.

    Shapes:
        - **input:** features ``[n, in_channels]`` or a mapping of views, classes ``[n]``, mask ``[n]``
        - **output:** scores ``[n, p]``, in double precision if the features are; ``p = out_channels`` for one-vs-all

    Attributes:
        h: The dual variables :math:`H = R^{-1} a`, ``[n, p]``, a Parameter written by the solve.
        fitted: The rest of what the solve found, a :class:`~torch_gckm.nn.readout_fit.ReadoutFit`; ``None`` before.
    """

    codes: Tensor
    fitted: ReadoutFit | None
    kind_of_fit = ReadoutFit

    @torch.inference_mode(False)  # Also there, parameters can be trained later.
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
        if out_channels < (1 if is_values(code) else 2):
            what = "columns, at least 1" if is_values(code) else "classes, at least 2"
            raise InvalidInputError(f"'out_channels' is the number of {what}, got {out_channels}")
        for name, value in (("eta", eta), ("lambda1", lambda1), ("lambda2", lambda2)):
            if not value > 0:
                raise InvalidInputError(f"'{name}' must be positive, got {value}")
        if class_weight is not None and (class_weight != "balanced" or is_values(code)):
            allowed = "None with code='values'" if is_values(code) else "None or 'balanced'"
            raise InvalidInputError(f"'class_weight' must be {allowed}, got {class_weight!r}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.class_weight, self.code = class_weight, code
        self.eta, self.lambda1, self.lambda2 = float(eta), float(lambda1), float(lambda2)
        self.kernel = copy.deepcopy(as_kernel(kernel))  # Its bandwidth is this readout's alone.
        self.gram = as_gram(gram)
        self.register_buffer("codes", class_codes(code, out_channels))
        self.h = torch.nn.Parameter(torch.empty(0, self.codes.size(1)), requires_grad=False)
        self.register_module("fitted", None)

    def reset_parameters(self) -> None:
        """Forget the fit, and automatic hyperparameters of the kernel."""
        self.fitted = None
        self.kernel.reset_parameters()
        write(self.h, self.h.new_empty(0, self.codes.size(1)))

    @property
    def is_fitted(self) -> bool:
        """Whether the linear system has been solved for some labels."""
        return self.fitted is not None

    @property
    def scores(self) -> Tensor:
        """The scores of the last solve, ``[n, p]``."""
        return self.fit.scores

    @property
    def bias(self) -> Tensor:
        """The bias of the last solve, ``[p]``."""
        return self.fit.bias

    @property
    def labelled(self) -> Tensor:
        """The labelled nodes of the last solve, in increasing order."""
        return self.fit.labelled

    @property
    def known_codes(self) -> Tensor:
        """The codes of the classes, NaN for those without a label, which are never predicted; ``[num_classes, p]``."""
        return self.codes if is_values(self.code) else self.codes.where(self.fit.counts.unsqueeze(1) > 0, torch.nan)

    @property
    def fit(self) -> ReadoutFit:
        """What the last solve found; raises if there was none."""
        if self.fitted is None:
            raise NotFittedError("the readout is not fitted; call readout(h, y, train_mask) first")
        return self.fitted

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(
        self, h: FeaturesLike, y: Tensor, train_mask: Tensor | None = None, *, split: int | None = None
    ) -> Tensor:
        """Solve for the scores of all nodes.

        Args:
            h: Features, a tensor (the view ``"h"``) or a mapping of views.
            y: Class numbers, ``[n]``; -1 means unlabelled. Or real targets ``[n, p]``; NaN means unknown.
            train_mask: Which labels to use: boolean, node indices, or non-negative weights; by default all.
            split: The column to use of a mask ``[n, splits]``.
        """
        widen(self, as_rows(h).dtype)
        rows, kind = self._checked(h), kind_of_targets(self.code)
        targets = kind.parse(y.to(rows.device), train_mask, rows.num_rows, self.out_channels, split, warn=True)
        return self.solve_on(own_rows(rows, self.kernel.views), targets)

    def solve_on(self, rows: Rows, targets: Targets, landmarks: Tensor | None = None) -> Tensor:
        """Solve from features that nobody will write to; ``landmarks`` were chosen before, ``None`` chooses anew."""
        if self.fitted is not None:
            self.fitted.forget()  # Its matrices are large: free them before making new ones.
        self.kernel.fit(rows)
        tracked = torch.is_grad_enabled() and (rows.requires_grad or self.kernel.is_learned)
        gram = self.gram.uncentred(self.kernel, rows if tracked else rows.detach(), landmarks=landmarks)
        return self._adopt(self._solved(gram, targets))

    def solve_again(self, targets: Targets) -> Tensor:
        """Solve for other labels with the features and the kernel matrix of the last solve."""
        return self._adopt(self.solved_again(targets))

    @torch.no_grad()
    def solved_again(self, targets: Targets) -> ReadoutFit:
        """What :meth:`solve_again` would find; the readout stays as it is."""
        return self._solved(self.fit.gram or self._matrix(self.fit.rows()), targets)

    def loss(self, h: FeaturesLike) -> Tensor:
        """The dual objective of the features of the fitted nodes, with :math:`H` constant.

        Gradients flow through the kernel matrix and its degrees; see :func:`~torch_gckm.readout.dual_objective`.
        """
        fitted, rows = self.scores.size(0), self._checked(h)
        if rows.num_rows != fitted:
            raise InvalidInputError(f"the readout was fitted on {fitted} nodes, got {rows.num_rows}")
        return self.loss_on(rows)

    def loss_on(self, rows: Rows) -> Tensor:
        """The dual objective with features that were checked before; see :meth:`loss`."""
        fit, duals = self.fit, self.h.detach()
        gram = fit.matrix_of(self.kernel, rows)
        problem = self._problem(fit.label_weight, fit.coded(self.codes))
        solution = None if gram is None else fit.solution_of(problem, duals)
        if gram is None:
            with torch.no_grad():
                gram = self._matrix(rows.detach())
        return dual_objective(gram, rows, problem, duals.to(rows.dtype), solution)

    def leave_out(self, groups: Sequence[Tensor | Sequence[int]] | Tensor | None = None) -> Tensor | list[Tensor]:
        r"""Exact scores of labelled nodes had their own labels been withheld.

        Taking away the labels of a set :math:`B` changes the scores in closed form,

        .. math::
            E_B^{\textrm{out}} = (I - G_{BB} L_B / \lambda_2)^{-1} (E_B - G_{BB} L_B C_B / \lambda_2),

        where :math:`E = G S` is the map from labels to scores. It reuses the factors of the last solve and is
        differentiable. Real targets are centred by the mean of the others; see :mod:`torch_gckm.readout.leave_out`.

        Args:
            groups: Sets of labelled nodes, or a matrix with a set per row, each withheld whole; ``None``: one by one.

        Returns:
            Scores ``[num_labelled, p]`` in the order of the nodes, or a list with ``[len(group), p]`` for each group.
        """
        return self.fit.leave_out(groups)

    def leave_one_out(self) -> Tensor:
        """Exact leave-one-out scores of the labelled nodes, ``[num_labelled, p]``, in the order of the nodes."""
        return self.fit.leave_one_out()

    def leverage(self) -> Tensor:
        r"""The pull of every label on its own score, :math:`g_i = G_{ii} l_i / \lambda_2`; in (0, 1) if well-posed."""
        return self.fit.leverage()

    @torch.no_grad()
    def transform(self, h: FeaturesLike, *, progress: str | None = None) -> Tensor:
        """Scores of new nodes from their features, ``[n_new, p]``; see :meth:`GCKMConv.transform`."""
        return self.out_of_sample()(self._checked(h), progress)

    def out_of_sample(self) -> ReadoutMap:
        """What the fit predicts for any node, apart from the graph it was fitted on."""
        eta = torch.tensor(self.eta, dtype=torch.float64)
        return ReadoutMap(self.kernel, self.known_codes, self.fit.extension(self.kernel, eta, self._matrix))

    def predict(self, scores: Tensor | None = None) -> Tensor:
        """Classes from scores, by default those of the last solve, ``[n]``; real targets are the scores themselves."""
        scores = self.scores if scores is None else scores
        return scores if is_values(self.code) else decode(scores, self.known_codes)

    def _machines(self, per_class: bool) -> tuple[list[Machine], Tensor]:
        check_exchangeable(self.class_weight, self.fit.label_weight, per_class)
        return [machine_of(self)], self.fit.label_class

    def settings(self, loss_weight: float = 1.0) -> ReadoutSettings:
        """The settings of the readout; ``loss_weight`` is its weight in the objective of a model."""
        numbers, gram = (self.eta, self.lambda1, self.lambda2), self.gram.config()
        return ReadoutSettings(self.kernel.config(), *numbers, self.class_weight, self.code, loss_weight, gram)

    @classmethod
    def from_settings(
        cls, in_channels: int, out_channels: int, settings: ReadoutSettings, gram: GramLike = "auto"
    ) -> Self:
        """A readout with these settings; ``gram`` is used where they leave it open."""
        chosen = gram if settings.gram is None else gram_from_config(settings.gram)
        kernel, numbers = kernel_from_config(settings.kernel), (settings.eta, settings.lambda1, settings.lambda2)
        return cls(in_channels, out_channels, kernel, *numbers, chosen, settings.code, settings.class_weight)

    def _solved(self, gram: Gram, targets: Targets) -> ReadoutFit:
        weighted = targets.balanced() if self.class_weight == "balanced" else targets
        problem = self._problem(weighted.weight, weighted.coded(self.codes))
        solution = solve_for(gram, problem, weighted)
        return ReadoutFit(gram, solution, weighted, self.h.dtype)

    def _adopt(self, fit: ReadoutFit) -> Tensor:
        solution = fit.solution
        assert solution is not None
        with torch.no_grad():
            write(self.h, filled(solution.duals, solution.scores, self.h.dtype))
        self.fitted = fit
        return (solution.scores + fit.centre if fit.has_values else solution.scores).to(self.h.dtype)

    def _matrix(self, rows: Rows) -> Gram:  # With the landmarks of the fit.
        return self.gram.uncentred(self.kernel, rows, landmarks=self.fit.known_landmarks)

    def _problem(self, weight: Tensor, codes: Tensor) -> ReadoutProblem:
        return ReadoutProblem(weight, codes, self.eta, self.lambda1, self.lambda2)

    def _checked(self, h: FeaturesLike) -> Rows:
        rows = as_rows(h).to(self.h.dtype)
        if "h" in self.kernel.views:
            self.in_channels = check_columns(rows.view("h").num_columns, self.in_channels)
        for name, tensor in rows.detach().tensors(self.kernel.views).items():
            panels.check_finite(tensor, name)
        return rows

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, kernel={self.kernel!r}, "
            f"eta={self.eta:g}, lambda1={self.lambda1:g}, lambda2={self.lambda2:g}, "
            f"class_weight={self.class_weight!r}, gram={self.gram!r})"
        )
