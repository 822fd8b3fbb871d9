"""The kernel base class and the algebra of kernels."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels.features import DEFAULT_VIEW, Features, FeaturesLike, Rows
from torch_gckm.kernels.storage import as_rows

Tunable = float | Literal["auto"]


class Kernel(torch.nn.Module, ABC):
    r"""A kernel function :math:`k(a_u, a_v)` on rows of features.

    Kernels are modules: hyperparameters are buffers, or parameters if they are to be learned. They combine with ``+``,
    ``*`` and multiplication by a positive number, and read the view ``"h"`` unless :meth:`on` names another.

    .. code-block:: python

        RBF(0.05) * RBF(10.0).on("x")   # a product over two views
        0.9 * Cosine() + 0.1 * Linear()
    """

    is_psd: bool = True  #: Whether the kernel is positive semi-definite by construction.

    def forward(self, a: FeaturesLike, b: FeaturesLike | None = None, *, diag: bool = False) -> Tensor:
        """Evaluate the kernel between all rows of ``a`` and ``b``, ``[n, m]``.

        Args:
            a: Features, a tensor ``[n, d]`` or a mapping of views.
            b: The other rows; ``a`` itself if omitted.
            diag: Return only :math:`k(a_u, a_u)`, ``[n]``; no matrix is built.
        """
        rows = as_rows(a)
        if not self.is_fitted:
            self.fit(rows)
        if diag:
            if b is not None:
                raise InvalidInputError("diag=True evaluates k(a_u, a_u) and takes a single argument")
            return self.diagonal(rows)
        return self.evaluate(rows, rows if b is None else as_rows(b))

    @abstractmethod
    def evaluate(self, a: Rows, b: Rows) -> Tensor:
        """The kernel matrix between the rows of ``a`` and ``b``."""

    @abstractmethod
    def diagonal(self, a: Rows) -> Tensor:
        """The kernel of every row with itself, ``[n]``."""

    @abstractmethod
    def leaves(self) -> Iterator[LeafKernel]:
        """The elementary kernels that this kernel is made of."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Plain values from which :func:`~torch_gckm.kernels.kernel_from_config` rebuilds the kernel."""

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views that the kernel reads."""
        return tuple(dict.fromkeys(leaf.view for leaf in self.leaves()))

    @property
    def is_fitted(self) -> bool:
        """Whether every automatic hyperparameter has a value."""
        return all(leaf.is_fitted for leaf in self.leaves())

    @property
    def is_learned(self) -> bool:
        """Whether the kernel has parameters that take part in training."""
        return any(p.requires_grad for p in self.parameters())

    def key(self) -> tuple[object, ...]:
        """What its values depend on, to be compared: kinds, views and hyperparameters as they are now."""
        return (type(self), *(leaf.key() for leaf in self.leaves()))

    def fit(self, a: FeaturesLike) -> Kernel:
        """Set automatic hyperparameters from the features; does nothing where all are given."""
        rows = as_rows(a)
        for leaf in self.leaves():
            leaf.fit_view(rows.view(leaf.view))
        return self

    def reset_parameters(self) -> None:
        """Forget automatic hyperparameters; learnable ones that were given go back to where they started."""
        for leaf in self.leaves():
            leaf.forget()

    def on(self, view: str) -> Kernel:
        """A copy of this kernel that reads the features called ``view``."""
        kernel = copy.deepcopy(self)
        for leaf in kernel.leaves():
            leaf.view = view
        return kernel

    def __add__(self, other: Kernel) -> Kernel:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Kernel:
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, float(other)) if isinstance(other, int | float) else NotImplemented

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return self.extra_repr()


class LeafKernel(Kernel):
    """An elementary kernel: a function of one view.

    Subclasses register hyperparameters with :meth:`_hyperparameter`, add the constructor's other arguments in
    :meth:`arguments` and implement ``_evaluate`` and ``_diagonal`` on a single :class:`Features`.
    """

    view: str = DEFAULT_VIEW
    automatic: bool = False
    _start: float = math.nan
    _hyperparameters: frozenset[str] = frozenset()
    _unset: frozenset[str] = frozenset()

    @abstractmethod
    def _evaluate(self, a: Features, b: Features) -> Tensor: ...

    @abstractmethod
    def _diagonal(self, a: Features) -> Tensor: ...

    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments as plain values, here those about hyperparameters; not what was learned since."""
        values = dict.fromkeys(self._hyperparameters, "auto" if self.automatic else self._start)
        return {**values, "learnable": self.learnable, "scale": self.scale} if values else {}

    def evaluate(self, a: Rows, b: Rows) -> Tensor:
        return self._evaluate(a.view(self.view), b.view(self.view))

    def diagonal(self, a: Rows) -> Tensor:
        return self._diagonal(a.view(self.view))

    def leaves(self) -> Iterator[LeafKernel]:
        yield self

    def config(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, "view": self.view, "arguments": self.arguments()}

    def key(self) -> tuple[object, ...]:
        return (type(self), self.view, *(self._number(name) for name in sorted(self._hyperparameters)))

    @property
    def is_fitted(self) -> bool:
        return not self._unset  # Not a look at numbers, which would end a compiled graph.

    def fit_view(self, a: Features) -> None:
        """Set automatic hyperparameters from the features of this kernel's view."""

    def forget(self) -> None:
        """Unset automatic hyperparameters; those that were given start anew."""
        for name in self._hyperparameters:
            self._set_positive(name, torch.tensor(self._start, dtype=torch.float64))
            self._unset |= {name} if self.automatic else set()

    def extra_repr(self) -> str:
        given = {} if self.automatic else {name: self._number(name) for name in self._hyperparameters}
        values = {**self.arguments(), **given}
        shown = {k: v for k, v in values.items() if v is not False and not (k == "scale" and v == 1.0)}
        text = ", ".join(f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v!r}" for k, v in shown.items())
        on = "" if self.view == DEFAULT_VIEW else f".on({self.view!r})"
        return f"{type(self).__name__}({text}){on}"

    @torch.inference_mode(False)
    def _hyperparameter(self, name: str, value: Tunable, learnable: bool, scale: float = 1.0) -> None:
        """Register a positive number: a buffer, or the exponential of a parameter if it is learned; always double."""
        self.learnable, self.scale, self.automatic = learnable, scale, value == "auto"
        number = self._start = math.nan if value == "auto" else float(value)
        if not self.automatic and not 0.0 < number < math.inf:
            raise InvalidInputError(f"'{name}' of {type(self).__name__} must be a positive number, got {value!r}")
        if not 0.0 < scale < math.inf or (scale != 1.0 and not self.automatic):
            raise InvalidInputError(
                f"'scale' of {type(self).__name__} multiplies an automatic hyperparameter and must be positive; got "
                f"{scale!r} with {'an automatic' if self.automatic else 'a given'} one"
            )
        tensor = torch.tensor(number, dtype=torch.float64)
        self._hyperparameters |= {name}
        self._unset |= {name} if self.automatic else set()
        if learnable:
            self.register_parameter(f"log_{name}", torch.nn.Parameter(tensor.log()))
        else:
            self.register_buffer(name, tensor)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LeafKernel:
        # Hyperparameters follow a module to another device, but not to another precision.
        scalars = {name: t for name, t in self.state_dict(keep_vars=True).items() if t.dim() == 0}
        values = {name: tensor.detach().clone() for name, tensor in scalars.items()}
        super()._apply(fn, recurse)
        for name, value in values.items():
            tensor = getattr(self, name)
            tensor.data = value.to(tensor.device)
        return self

    def _positive(self, name: str) -> Tensor:
        """The current value of a registered hyperparameter, differentiable if it is learned."""
        raw = self._parameters.get(f"log_{name}")
        return getattr(self, name) if raw is None else raw.exp()

    def _number(self, name: str) -> float:
        """The current value of a registered hyperparameter as a plain number."""
        return float(self._positive(name).detach())

    def _set_positive(self, name: str, value: Tensor) -> None:
        raw = self._parameters.get(f"log_{name}")
        old, new = (getattr(self, name), value) if raw is None else (raw, value.log())
        with torch.no_grad():
            old.copy_(new)
        self._unset -= {name}

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._unset = frozenset(name for name in self._hyperparameters if math.isnan(self._number(name)))


class Pair(Kernel):
    """Two kernels, combined entry by entry."""

    symbol: str
    combine: Callable[[Tensor, Tensor], Tensor]  # The values of the pair from those of its kernels.

    def __init__(self, left: Kernel, right: Kernel) -> None:
        super().__init__()
        self.left, self.right = left, right
        self.is_psd = left.is_psd and right.is_psd

    def evaluate(self, a: Rows, b: Rows) -> Tensor:
        return self.combine(self.left.evaluate(a, b), self.right.evaluate(a, b))

    def diagonal(self, a: Rows) -> Tensor:
        return self.combine(self.left.diagonal(a), self.right.diagonal(a))

    def leaves(self) -> Iterator[LeafKernel]:
        yield from self.left.leaves()
        yield from self.right.leaves()

    def config(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, "left": self.left.config(), "right": self.right.config()}

    def extra_repr(self) -> str:
        return f"({self.left!r} {self.symbol} {self.right!r})"


class Sum(Pair):
    """The sum of two kernels."""

    symbol, combine = "+", staticmethod(torch.add)


class Product(Pair):
    """The elementwise product of two kernels, over one view or over several."""

    symbol, combine = "*", staticmethod(torch.mul)


class Scaled(Kernel):
    """A kernel times a positive number."""

    def __init__(self, kernel: Kernel, scale: float) -> None:
        super().__init__()
        if not 0.0 < scale < math.inf:
            raise InvalidInputError(f"a kernel can only be scaled by a positive number, got {scale!r}")
        self.kernel, self.scale = kernel, scale
        self.is_psd = kernel.is_psd

    def evaluate(self, a: Rows, b: Rows) -> Tensor:
        return self.kernel.evaluate(a, b) * self.scale

    def diagonal(self, a: Rows) -> Tensor:
        return self.kernel.diagonal(a) * self.scale

    def leaves(self) -> Iterator[LeafKernel]:
        return self.kernel.leaves()

    def key(self) -> tuple[object, ...]:
        return (*super().key(), self.scale)

    def config(self) -> dict[str, Any]:
        return {"kind": "Scaled", "kernel": self.kernel.config(), "scale": self.scale}

    def extra_repr(self) -> str:
        return f"{self.scale:g} * {self.kernel!r}"
