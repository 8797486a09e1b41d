"""Evidence of sizes and numbers that vary between calls of one code object and become symbolic.

In: at each miss, the rows of the existing entries and the frame that missed. Out: for capture,
which dimensions of a tensor are symbolic (after two different sizes) and whether a number is
symbolic (an int after three values, a float after two). The program may decide this itself
(`jit(dynamic=...)`, `graftjit.mark_dynamic`, `graftjit.mutable`). The values 0 and 1 are always
specialised. Parameters keep their sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..errors import Unusual
from ..safe_access import MISSING
from .rows import Row, TensorSpec
from .sources import Source

_SOME = 8  # calls that failed
_OFTEN = 4  # one failed in so many calls

MARK = "_graftjit_dynamic"  # attribute of a tensor: the dimensions that `mark_dynamic` named
VALUES = 3  # so many different values make an int symbolic: many ints are flags
_FLOATS = 2  # and so many a float: one that has changed changes again
# Limit of conditions on tensor data per code object for which both truths are compiled; those that
# change together count as one.
CONDITIONS = 4
# Limit of symbolic integers: results computed from them should stay within 64 bits.
LIMIT = (1 << 31) - 1


class Variation:
    """The evidence of one code object."""

    def __init__(self, dynamic: bool | None = None, plain: bool = False) -> None:
        self.dynamic = dynamic
        self.plain = plain  # no size is symbolic, even if observed or requested
        # Keys: source and number of dimensions. Values: two observed sizes of each dimension; the
        # dimensions whose strides varied.
        self._sizes: dict[tuple[Source, int], dict[int, tuple[int, int]]] = {}
        self._strides: dict[tuple[Source, int], set[int]] = {}
        self._values: dict[Source, set[tuple[str, str]]] = {}
        self._marked: set[Source] = set()
        # Keys: an iterator. Values: the places where calls brought it.
        self._places: dict[Source, set[int]] = {}
        # Keys: a read of a number from tensor data, as text. Values: its observed outcomes.
        self._outcomes: dict[Any, set[tuple[str, str]]] = {}
        self._conditions = _Conditions()
        self.usual = UsualSizes()

    def observe(self, entries: Iterable[Iterable[Row]], read: Any) -> None:
        """Compare the tensors and numbers that entries expect with those of the missed frame."""
        self._conditions.miss += 1
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
        """Treat the number at `source` as one that varies, without evidence."""
        self._marked.add(source)

    def mark_locals(self, names: Iterable[str]) -> None:
        """Treat these locals as numbers that vary."""
        self._marked.update(Source("local", None, name) for name in names)

    def plainly(self) -> Variation:
        """A copy for which nothing is symbolic."""
        made = Variation(dynamic=False, plain=True)
        made._outcomes, made._places = self._outcomes, self._places
        made._conditions = self._conditions
        made.usual = self.usual
        return made

    def answered(self, question: Any, outcome: Any) -> bool:
        """Note an outcome of a condition on tensor data, and say whether an entry may be made for
        it.

        Entries are made for both truths of the first few conditions (see `_Conditions`), for a few
        values of an integer, and for one value of a float.
        """
        if type(outcome) is bool:
            return self._conditions.answered(question, outcome)
        seen = self._outcomes.setdefault(question, set())
        if len(seen) <= VALUES:
            seen.add(_bits(outcome))
        return len(seen) <= (VALUES if type(outcome) is int else 1)

    def places(self, iterator: Source, place: int) -> int:
        """Note a place of an iterator, and return at how many it has been."""
        seen = self._places.setdefault(iterator, set())
        seen.add(place)
        return len(seen)

    def forget_dead(self) -> None:
        """Drop evidence about sources that begin with an object that no longer exists."""
        self._sizes = {key: seen for key, seen in self._sizes.items() if key[0].leads_somewhere}
        self._strides = {key: seen for key, seen in self._strides.items() if key[0].leads_somewhere}
        self._values = {key: seen for key, seen in self._values.items() if key.leads_somewhere}
        self._places = {key: seen for key, seen in self._places.items() if key.leads_somewhere}

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
        """The dimensions of a tensor whose strides varied between calls."""
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
        enough = VALUES if isinstance(value, int) else _FLOATS
        return source in self._marked or len(self._values.get(source, ())) >= enough

    def why(self, what: str, source: Source, dim: int) -> str:
        """The reason why something is symbolic, as text."""
        known = [
            found[dim] for (of, _), found in self._sizes.items() if of == source and dim in found
        ]
        if what == "size" and known:
            return "seen with {} and {}".format(*known[-1])
        values = len(self._values.get(source, ()))
        if what == "number" and values >= _FLOATS:
            return f"seen with {values} values"
        if what == "stride":
            return "seen with two strides"
        return "dynamic=True" if self.dynamic else "marked by the program"


def _bits(value: Any) -> tuple[str, str]:
    parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
    written = [part.hex() if isinstance(part, float) else hex(part) for part in parts]
    return (type(value).__name__, " ".join(written))


class _Conditions:
    """The truths of conditions on tensor data at the misses of one code object.

    Conditions that always change at the same misses, as the flags of layers that have been
    initialised, need no more entries than one of them: they are a group, which its first one leads.
    """

    def __init__(self) -> None:
        self.miss = 0
        self._first: dict[Any, bool] = {}
        # For each condition the miss at which it was answered last, and whether that was another
        # truth than its first one.
        self._last: dict[Any, tuple[int, bool]] = {}
        # For each condition that has changed the leader of its group; the leaders, in order; for
        # each miss the first of the conditions that had never changed before.
        self._leaders: dict[Any, Any] = {}
        self._groups: dict[Any, None] = {}
        self._changing: dict[int, Any] = {}

    def answered(self, question: Any, truth: bool) -> bool:
        """Note a truth, and say whether an entry may be made for it."""
        changed = self._first.setdefault(question, truth) is not truth
        self._last[question] = self.miss, changed
        leader = self._leaders.get(question)
        if leader is None:
            if not changed:
                return True
            leader = self._changing.setdefault(self.miss, question)
        if self._last[leader] == (self.miss, not changed):
            leader = question
        self._leaders[question] = leader
        self._groups.setdefault(leader)
        return leader in [*self._groups][:CONDITIONS]


class UsualSizes:
    """Sizes from tensor data that are assumed to be two or more, as long as that is usual: the
    evidence of one code object. Called: whether captures of it may still assume it.

    Torch has rules of its own for dimensions of 0 and of 1, so a walk that does not know such a
    size assumes neither (`capture.torch_models.tensor_scalars`). A program checks the assumption
    and raises `Unusual`; a call that fails costs what the program did before the check.
    """

    def __init__(self) -> None:
        self.__name__ = "sizes_are_usual"
        self.runs = self.failed = 0
        self.assumed = True

    def __call__(self) -> bool:
        return self.assumed

    def counted(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """The program, which adds to the evidence."""

        def run(*inputs: Any) -> Any:
            self.runs += 1
            try:
                return program(*inputs)
            except Unusual:
                self.failed += 1
                if self.failed >= _SOME and self.failed * _OFTEN > self.runs:
                    self.assumed = False
                raise

        run.tells_begun = getattr(program, "tells_begun", False)  # type: ignore[attr-defined]
        return run
