"""ATen operators that run after a kernel has reported an error, to raise the exception of eager.

A `Tape` is a list of entries over numbered values; the given tensors come first. The operands of an
entry are `Slot`s of earlier values. A tape is plain data, so that the plan cache can store it.
`codegen.schedule.fallback` makes it; `Otherwise` steps call it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.interpreter import substitute
from ...ir.symbolic.expr import evaluate
from ..errors import InternalError
from .program import Slot

Entry = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Tape:
    """entries: ("view", value, shape, stride, offset), ("get", value, position) or ("call",
    operator, args, kwargs). `names`: the symbols whose values follow the `given` tensors. `kernel`:
    the kernel that reported the error."""

    kernel: str
    given: int
    names: tuple[str, ...]
    entries: tuple[Entry, ...]

    def __call__(self, *values: Any) -> None:
        known = list(values[: self.given])
        numbers = dict(zip(self.names, values[self.given :], strict=True))
        with torch.no_grad():
            for kind, *entry in self.entries:
                known.append(_KINDS[kind](known, numbers, *entry))
        raise InternalError(
            f"the kernel {self.kernel} found an error, but ATen's operators raised none"
        )


def _view(known: list[Any], numbers: Any, base: int, *layout: Any) -> Any:
    shape, stride, offset = evaluate(layout, numbers)
    tensor = known[base]
    return torch.as_strided(tensor, shape, stride, tensor.storage_offset() + offset)


def _get(known: list[Any], numbers: Any, of: int, position: int) -> Any:
    return known[of][position]


def _call(known: list[Any], numbers: Any, op: Any, args: Any, kwargs: Any) -> Any:
    args, kwargs = evaluate((args, kwargs), numbers)
    read = lambda one: known[one.index]  # noqa: E731
    return op(*substitute(args, read, Slot), **substitute(kwargs, read, Slot))


_KINDS: dict[str, Callable[..., Any]] = {"view": _view, "get": _get, "call": _call}
