"""The state of a model at one step of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from torch_gckm.nn import GCKM
from torch_gckm.nn.layer_fit import LayerFit
from torch_gckm.nn.readout_fit import ReadoutFit

_FITTED = ".fitted."


class Snapshot:
    """Copies of what training writes to, and the fits, which are never written to."""

    def __init__(self, state: dict[str, Tensor], fits: dict[str, LayerFit | ReadoutFit | None]) -> None:
        self.state, self.fits = state, fits

    @classmethod
    def of(cls, model: GCKM) -> Snapshot:
        """The present state of a model."""
        state = {name: t.clone() for name, t in model.state_dict().items() if _FITTED not in name}
        return cls(state, {name: part.fitted for name, part in _parts(model).items()})

    @classmethod
    def from_state(cls, model: GCKM, state: Mapping[str, Any]) -> Snapshot:
        """From what :meth:`to_state` returned, for a model like the one it was taken of."""
        fits: dict[str, LayerFit | ReadoutFit | None] = {}
        for name, part in _parts(model).items():
            kind: Any = ReadoutFit if name == "readout" else LayerFit
            fits[name] = kind.from_state(state, name + _FITTED, part.h)
        return cls({name: value for name, value in state.items() if _FITTED not in name}, fits)

    def to_state(self) -> dict[str, Tensor]:
        """All tensors by name, as a state dict has them."""
        state = dict(self.state)
        for name, fit in self.fits.items():
            if fit is not None:
                state.update(fit.state_dict(prefix=name + _FITTED))
        return state

    def restore(self, model: GCKM) -> None:
        """Bring a model back to this state."""
        model.load_state_dict(self.state, strict=False)
        for name, part in _parts(model).items():
            part.fitted = self.fits[name]


def _parts(model: GCKM) -> dict[str, Any]:
    return {**{f"convs.{number}": conv for number, conv in enumerate(model.layers)}, "readout": model.readout}
