"""Processes that compute together: what they exchange, and errors that all of them raise."""

from __future__ import annotations

import builtins
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torch_gckm import errors
from torch_gckm.errors import OtherProcessError, ProcessLostError


class Processes:
    """The processes of a group of ``torch.distributed``, or one by itself.

    Before they exchange anything, processes agree that none of them has failed: one that has would exchange something
    else, or nothing. Inside of :meth:`agreed` the error of one process is raised by all.

    Args:
        group: The group, such as ``torch.distributed.group.WORLD``; ``None`` for one process by itself.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.world = 1 if group is None else dist.get_world_size(group)
        self.sent: Counter[str] = Counter()  #: Bytes that this process has handed over, by kind of exchange.

    @property
    def on_this_machine(self) -> int:
        """How many of the processes are on this machine: what torchrun says, else all of them."""
        return 1 if self.world == 1 else int(os.environ.get("LOCAL_WORLD_SIZE", self.world))

    def __deepcopy__(self, memo: dict[int, object]) -> Processes:
        return self

    def __reduce__(self) -> tuple[type[Processes], tuple[()]]:
        return Processes, ()  # Whoever reads a copy is by itself.

    def sum(self, x: Tensor) -> Tensor:
        """The sum of a tensor over processes, the same on all of them; differentiable as such."""
        if self.world == 1:
            return x
        return _Sum.apply(self, x) if x.requires_grad else self._reduced(x, dist.ReduceOp.SUM)

    def sums(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The sums of several tensors, in one exchange if they are of one type."""
        if self.world == 1 or len({x.dtype for x in parts}) != 1:
            return [self.sum(x) for x in parts]
        joined = self.sum(torch.cat([x.reshape(-1) for x in parts]))
        pieces = joined.split([x.numel() for x in parts])
        return [piece.view(x.shape) for piece, x in zip(pieces, parts, strict=True)]

    def shared(self, x: Tensor) -> Tensor:
        """A tensor that is the same on all processes, for use with the rows of each: its gradients are added up."""
        return _Shared.apply(self, x) if self.world > 1 and x.requires_grad else x

    def largest(self, x: Tensor) -> Tensor:
        """The largest of every entry."""
        return x if self.world == 1 else self._reduced(x, dist.ReduceOp.MAX)

    def smallest(self, x: Tensor) -> Tensor:
        """The smallest of every entry."""
        return x if self.world == 1 else self._reduced(x, dist.ReduceOp.MIN)

    def everywhere(self, holds: bool) -> bool:
        """Whether something holds for every process."""
        return holds if self.world == 1 else bool(self.smallest(torch.tensor(int(holds))))

    def gather(self, x: Tensor) -> Tensor:
        """Tensors of one shape from all processes, ``[world, ...]``."""
        if self.world == 1:
            return x.unsqueeze(0)
        if x.dtype == torch.bool:
            return self.gather(x.to(torch.uint8)).bool()
        x = x.detach().contiguous()
        result = x.new_empty(self.world, *x.shape)
        self._exchange("gather", x, dist.all_gather, list(result.unbind()), x)
        return result

    def gather_rows(self, x: Tensor) -> Tensor:
        """The rows of all processes, in their order."""
        if self.world == 1:
            return x
        counts = self.gather(torch.tensor(x.size(0))).tolist()
        padded = x.new_zeros(max(counts), *x.shape[1:])
        padded[: x.size(0)] = x.detach()
        parts = self.gather(padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def trade(self, x: Tensor, sends: Sequence[int], receives: Sequence[int]) -> Tensor:
        """Rows for every process in their order, so many for each; returns those from every process."""
        if self.world == 1:
            return x
        x = x.detach().contiguous()
        result = x.new_empty(sum(receives), *x.shape[1:])
        self._exchange("halo", x, dist.all_to_all_single, result, x, list(receives), list(sends))
        return result

    def texts(self, text: str) -> list[str]:
        """A text from every process."""
        if self.world == 1:
            return [text]
        self._agree()
        return self._texts(text)

    def of_first(self, values: Any) -> Any:
        """Plain values of the first process, on all of them."""
        return values if self.world == 1 else json.loads(self.texts(json.dumps(values))[0])

    def once(self, compute: Callable[[], Sequence[Tensor]]) -> list[Tensor]:
        """What the first process computes, on all of them; so rounding of other machines cannot matter."""
        if self.world == 1:
            return list(compute())
        result = [x.contiguous() for x in compute()] if self.rank == 0 else []
        known = json.dumps([(str(x.dtype).removeprefix("torch."), list(x.shape)) for x in result])
        size = torch.tensor(len(known))
        self._exchange("broadcast", size, dist.broadcast, size, group_src=0)
        text = torch.frombuffer(bytearray(known.encode()), dtype=torch.uint8) if self.rank == 0 else None
        text = torch.empty(int(size), dtype=torch.uint8) if text is None else text
        self._call(dist.broadcast, text, group_src=0)
        if self.rank > 0:
            kinds = json.loads(bytes(text.tolist()))
            result = [torch.empty(shape, dtype=getattr(torch, dtype)) for dtype, shape in kinds]
        for x in (x for x in result if x.numel()):
            self._call(dist.broadcast, x, group_src=0)
            self.sent["broadcast"] += x.numel() * x.element_size()
        return result

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.world > 1:
            self._agree()

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """An error of one process in here is raised by all of them, with the number of the process.

        All processes are past it when one of them is. It may be nested, and used again after an error.
        """
        if self.world == 1:
            yield
            return
        self._agree()
        try:
            yield
            self._agree()
        except ProcessLostError:
            raise
        except Exception as error:
            if error.__dict__.get("is_agreed"):
                raise
            is_own = not isinstance(error, OtherProcessError)
            if is_own:
                self._agree(failed=True)
            kinds = [kind.__name__ for kind in type(error).__mro__]
            system = [error.errno, error.strerror, error.filename] if isinstance(error, OSError) else None
            found = self._texts(json.dumps([kinds, str(error), system], default=str) if is_own else "")
            rank = next(number for number, text in enumerate(found) if text)
            kinds, message, system = json.loads(found[rank])
            raised = _error_of(kinds, message, system, f" (process {rank} of {self.world})")
            raised.__dict__["is_agreed"] = True
            raise raised from (error if is_own else None)

    def _reduced(self, x: Tensor, how: Any) -> Tensor:
        if x.dtype == torch.bool:
            return self._reduced(x.to(torch.uint8), how).bool()
        result = x.detach().clone(memory_format=torch.contiguous_format)
        if result.numel():
            self._exchange("sum", result, dist.all_reduce, result, how)
        return result

    def _texts(self, text: str) -> list[str]:
        own = torch.frombuffer(bytearray(text.encode()) or bytearray(1), dtype=torch.uint8)
        size = torch.tensor(len(text.encode()))
        sizes = [torch.empty_like(size) for _ in range(self.world)]
        self._call(dist.all_gather, sizes, size)
        widest = max(1, *map(int, sizes))
        own = torch.nn.functional.pad(own, (0, widest - own.numel()))
        parts = [torch.empty_like(own) for _ in range(self.world)]
        self._call(dist.all_gather, parts, own)
        return [bytes(part[: int(size)].tolist()).decode() for part, size in zip(parts, sizes, strict=True)]

    def _exchange(self, kind: str, x: Tensor, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
        """Exchange data, once it is clear that all processes are about to."""
        self._agree()
        self._call(call, *arguments, **options)
        self.sent[kind] += x.numel() * x.element_size()

    def _agree(self, *, failed: bool = False) -> None:
        flag = torch.tensor([int(failed)], dtype=torch.int32)
        self._call(dist.all_reduce, flag, dist.ReduceOp.MAX)
        if int(flag) and not failed:
            raise OtherProcessError("another process has failed, and says why")

    def _call(self, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
        try:
            call(*arguments, group=self.group, **options)
        except RuntimeError as error:
            raise ProcessLostError(
                f"process {self.rank} of {self.world} lost the connection to another one, which may have been killed "
                f"({str(error).splitlines()[0]}); start all of them again"
            ) from error

    def __repr__(self) -> str:
        return f"Processes({self.rank} of {self.world})"


ALONE = Processes()  #: One process by itself.


def _error_of(kinds: Sequence[str], message: str, system: Sequence[Any] | None, where: str) -> Exception:
    """An error of the first of some classes that is known; they are listed from the most special one on.

    One of the operating system keeps its number and the name of the file.
    """
    if system is not None and system[0] is not None:
        number, text, name = system
        return OSError(number, f"{text}{where}", name)
    for name in kinds:
        kind = getattr(errors, name, None) or getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(message + where)
            except TypeError:  # It takes other arguments; its base class may take a message.
                continue
    return RuntimeError(message + where)


class _Sum(torch.autograd.Function):
    """The sum over processes. What follows it is computed by all of them, so gradients are passed on as they are."""

    @staticmethod
    def forward(ctx: Any, processes: Processes, x: Tensor) -> Tensor:
        return processes._reduced(x, dist.ReduceOp.SUM)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, grads[0]


class _Shared(torch.autograd.Function):
    """The identity. What follows it is computed from other rows by every process, so gradients are added up."""

    @staticmethod
    def forward(ctx: Any, processes: Processes, x: Tensor) -> Tensor:
        ctx.processes = processes
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.processes.sum(grads[0])
