"""What has been seen to vary between the calls of one code object, and therefore becomes symbolic.

In: at each miss, the rows of the entries there are and the frame that missed. Out: answers to capture: which
dimensions of the tensor at a source vary (two sizes are enough), whether the number there does (three values), or what
the program itself said (`jit(dynamic=...)`, `graftjit.mark_dynamic`, `graftjit.mutable`). 0 and 1 never count: they
specialise. Parameters keep their sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from ..safe_access import MISSING
from .rows import Row, TensorSpec
from .sources import Source

MARK = "_graftjit_dynamic"  # the attribute in which `mark_dynamic` leaves dimensions
VALUES = 3  # of a number that are evidence
CONDITIONS = (
    4  # on tensor data, of one code object, that may come out both ways and have an entry each time
)
LIMIT = (1 << 31) - 1  # of symbolic whole numbers: what follows from them is to stay within 64 bits


class Variation:
    """The evidence of one code object."""

    def __init__(self, dynamic: bool | None = None, plain: bool = False) -> None:
        self.dynamic = dynamic
        self.plain = plain  # nothing is symbolic, whatever was seen or said
        # By source and number of dimensions: a dimension -> two sizes seen; the dimensions of strides.
        self._sizes: dict[tuple[Source, int], dict[int, tuple[int, int]]] = {}
        self._strides: dict[tuple[Source, int], set[int]] = {}
        self._values: dict[Source, set[tuple[str, str]]] = {}
        self._marked: set[Source] = set()
        # By question to tensor data, in words: the outcomes there were.
        self._outcomes: dict[Any, set[tuple[str, str]]] = {}

    def observe(self, entries: Iterable[Iterable[Row]], read: Any) -> None:
        """Compare what entries hold their tensors and numbers to with what is there now."""
        if self.dynamic is False:
            return
        for rows in entries:
            for row in rows:
                if row.source is None or row.kind not in ("tensor", "equals"):
                    continue
                now = read(row.source)
                if now is MISSING:
                    continue
                if row.kind == "tensor":
                    self._tensor(row.source, row.expected, now)
                elif type(row.expected) in (int, float) and type(now) is type(row.expected):
                    known = self._values.setdefault(row.source, set())
                    if len(known) < VALUES:
                        known |= {_bits(row.expected), _bits(now)}

    def mark(self, source: Source) -> None:
        """The number there is known to vary, before it was seen to."""
        self._marked.add(source)

    def plainly(self) -> Variation:
        """The same where nothing is symbolic."""
        made = Variation(dynamic=False, plain=True)
        made._outcomes = self._outcomes
        return made

    def answered(self, question: Any, outcome: Any) -> bool:
        """Note an outcome of a question to tensor data. Whether an entry may be made for it: for both truths of a few
        conditions, for some of the values of a whole number, and for one of a float."""
        seen = self._outcomes.setdefault(question, set())
        if len(seen) <= VALUES:
            seen.add(_bits(outcome))
        if type(outcome) is not bool:
            return len(seen) <= (VALUES if type(outcome) is int else 1)
        both = [known for known, found in self._outcomes.items() if len(found) > 1]
        return len(seen) < 2 or question in both[:CONDITIONS]

    def forget_dead(self) -> None:
        """Let go of what was seen on paths that began with an object that is gone."""
        self._sizes = {key: seen for key, seen in self._sizes.items() if key[0].leads_somewhere}
        self._strides = {key: seen for key, seen in self._strides.items() if key[0].leads_somewhere}
        self._values = {key: seen for key, seen in self._values.items() if key.leads_somewhere}

    def _tensor(self, source: Source, spec: TensorSpec, now: torch.Tensor) -> None:
        parameter = issubclass(spec.type, torch.nn.Parameter)
        if spec.type not in {type(now)} or parameter:
            return
        with torch._C.DisableTorchFunction():
            if now.layout is not torch.strided or len(now.shape) != len(spec.shape):
                return
            sizes, steps = tuple(now.shape), tuple(now.stride())
        for dim, (size, before) in enumerate(zip(sizes, spec.shape, strict=True)):
            if before is not None and before != size:
                self._sizes.setdefault((source, len(sizes)), {}).setdefault(dim, (before, size))
        for dim, (step, before) in enumerate(zip(steps, spec.stride, strict=False)):
            if before is not None and before != step:
                self._strides.setdefault((source, len(sizes)), set()).add(dim)

    # -- answers
    def sizes(self, source: Source, tensor: torch.Tensor) -> set[int]:
        """The dimensions of a tensor whose sizes are symbolic."""
        shape = tuple(tensor.shape)
        if self.plain:
            return set()
        found = {
            dim % len(shape) for dim in getattr(tensor, MARK, ()) if -len(shape) <= dim < len(shape)
        }
        if self.dynamic and not isinstance(tensor, torch.nn.Parameter):
            found = set(range(len(shape)))
        if self.dynamic is not False:
            found |= self._sizes.get((source, len(shape)), {}).keys()
        return {dim for dim in found if shape[dim] > 1}

    def strides(self, source: Source, rank: int) -> set[int]:
        """The dimensions of a tensor whose strides were seen to differ."""
        return set() if self.plain else self._strides.get((source, rank), set())

    def number(self, source: Source, value: Any) -> bool:
        """Whether an int or float is symbolic."""
        if isinstance(value, int):
            if value in (0, 1) or not -LIMIT <= value <= LIMIT:
                return False
        elif not math.isfinite(value):
            return False
        if self.dynamic is not None:
            return self.dynamic
        return source in self._marked or len(self._values.get(source, ())) >= VALUES

    def why(self, what: str, source: Source, dim: int) -> str:
        """Why something is symbolic, in words."""
        known = [
            found[dim] for (of, _), found in self._sizes.items() if of == source and dim in found
        ]
        if what == "size" and known:
            return "seen with {} and {}".format(*known[-1])
        if what == "number" and len(self._values.get(source, ())) >= VALUES:
            return f"seen with {VALUES} values"
        if what == "stride":
            return "seen with two strides"
        return "dynamic=True" if self.dynamic else "marked by the program"


def _bits(value: Any) -> tuple[str, str]:
    return (type(value).__name__, value.hex() if isinstance(value, float) else hex(value))
