"""What is kept of training: a record of every step, and the state of the best."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from torch import Tensor

from torch_gckm.files import PathLike, write_atomically
from torch_gckm.nn import GCKM
from torch_gckm.nn.fits import Fit, FittedModule
from torch_gckm.partition import WHOLE, Partition

FITTED = ".fitted."


@dataclass
class Record:
    """One step of training; NaN where a quantity is not available."""

    step: int  #: 0 is the initialisation.
    loss: float  #: The objective J.
    orthogonality: float  #: The largest entry of |H'H - I| over the layers.
    train_acc: float  #: Accuracy on the labelled nodes.
    val_acc: float  #: On val_mask.
    test_acc: float  #: On test_mask; reported, never used.
    cosine: float  #: The cosine score of the unlabelled nodes.
    leave_one_out: float  #: Leave-one-out accuracy; at step 0 only, where it is valid.
    monitored: float  #: The value of the monitored criterion.
    seconds: float  #: Since the start of the fit.


@dataclass
class History:
    """The records of a fit, and which of them was kept."""

    monitor: str  #: The name of the monitored criterion.
    records: list[Record] = field(default_factory=list)  #: One :class:`Record` per step, from step 0.
    best_step: int = 0  #: The step whose state the model holds.

    @property
    def best(self) -> Record:
        """The record of the state that was kept."""
        return self.records[self.best_step]

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the monitor, the best step and one list per column."""
        columns = {f.name: [getattr(record, f.name) for record in self.records] for f in fields(Record)}
        return {"monitor": self.monitor, "best_step": self.best_step, **columns}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Rebuild what :meth:`to_dict` gave."""
        columns = [content[f.name] for f in fields(Record)]
        return cls(content["monitor"], [Record(*row) for row in zip(*columns, strict=True)], content["best_step"])

    def to_csv(self, path: PathLike) -> None:
        """Write one line per step."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [f.name for f in fields(Record)])
        writer.writeheader()
        writer.writerows(asdict(record) for record in self.records)
        write_atomically(path, lambda file: file.write(text.getvalue().encode()))

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __repr__(self) -> str:
        if not self.records:
            return f"History(monitor={self.monitor!r}, empty)"
        best = f"{self.monitor}={self.best.monitored:.4f}, train_acc={self.best.train_acc:.4f}"
        return f"History({len(self)} records, best step {self.best_step}: {best})"


@dataclass
class Snapshot:
    """The state of a model at one step: copies of what training writes to, and the fits, which are never written to."""

    state: dict[str, Tensor]
    fits: dict[str, Fit | None]

    @classmethod
    def of(cls, model: GCKM) -> Self:
        """The present state of a model."""
        state = {name: t.clone() for name, t in model.state_dict().items() if FITTED not in name}
        return cls(state, {name: part.fitted for name, part in parts_of(model).items()})

    @classmethod
    def from_state(cls, model: GCKM, state: Mapping[str, Any], over: Partition = WHOLE) -> Self:
        """From what :meth:`to_state` returned, for a model like the one it was taken of."""
        parts = parts_of(model).items()
        fits = {name: part.kind_of_fit.from_state(state, name + FITTED, part.h) for name, part in parts}
        for fit in fits.values():
            if fit is not None:
                fit.partition = over
        return cls({name: value for name, value in state.items() if FITTED not in name}, fits)

    def to_state(self) -> dict[str, Tensor]:
        """All tensors by name, as a state dict has them."""
        state = dict(self.state)
        for name, fit in self.fits.items():
            if fit is not None:
                state.update(fit.state_dict(prefix=name + FITTED))
        return state

    def restore(self, model: GCKM) -> None:
        """Bring a model back to this state."""
        model.load_state_dict(self.state, strict=False)
        for name, part in parts_of(model).items():
            part.fitted = self.fits[name]


def parts_of(model: GCKM) -> dict[str, FittedModule]:
    """What is fitted in a model, by its name in state dicts."""
    return {**{f"convs.{number}": conv for number, conv in enumerate(model.layers)}, "readout": model.readout}
