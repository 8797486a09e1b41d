"""Compiler from guard rows to a native guard program.

In: an entry's rows, the sources whose values its program takes as inputs, and the code object of
the guarded frames. Out: a `_native.GuardProgram`. Each source becomes one register, which is loaded
once, just before the first row that needs it. Equal rows are checked once.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _native
from ..safe_access import ARRAY_SCALARS
from .rows import Row
from .sources import Source
from .weak_ref import Weak

_native.set_known_types(torch.Size, torch.device, tuple(ARRAY_SCALARS), Weak)


def _split_dicts_are_watched() -> bool:
    """Whether dict watchers see attribute stores while the instance dict and the object share
    values.

    CPython 3.13.0 does not report stores that the interpreter has specialised (cpython#125608).
    """

    class Probe:
        def __init__(self) -> None:
            self.a = self.b = 0

    def store(probe: Probe, value: Any) -> None:
        probe.a = value

    for number in range(3):
        probe = Probe()
        own = probe.__dict__
        changes: list[Callable[[], None]] = [
            functools.partial(store, probe, object()) for _ in range(64)
        ]
        changes += [
            functools.partial(setattr, probe, f"new{number}", 1),
            functools.partial(delattr, probe, "b"),
        ]
        if not all(_native.change_is_seen(own, change) for change in changes):
            return False
    return True


_native.trust_split_dicts(_split_dicts_are_watched())

# operation, row, register to fill, source register, constant
Instruction = tuple[str, int, int, int, Any]

NO_REGISTER = -1


def compile_rows(
    rows: Sequence[Row], inputs: Sequence[Source], code: types.CodeType
) -> _native.GuardProgram:
    """The native program of these rows.

    `check` returns -1, or the index in `rows` of the first row that fails. An input that cannot be
    loaded although all rows hold counts as row `len(rows)`.
    """
    compiler = _Compiler(code)
    for index, row in enumerate(rows):
        compiler.add_row(index, row)
    registers = tuple(compiler.register(len(rows), source) for source in inputs)
    return _native.GuardProgram(
        tuple(compiler.instructions), compiler.n_registers, registers, len(rows)
    )


class _Compiler:
    def __init__(self, code: types.CodeType) -> None:
        self.code = code
        self.instructions: list[Instruction] = []
        self._registers: dict[Source, int] = {}
        self._seen: set[tuple[Any, ...]] = set()

    @property
    def n_registers(self) -> int:
        return len(self._registers)

    def register(self, row: int, source: Source | None) -> int:
        """The register of a source. Loads that fill it are emitted as part of `row`."""
        if source is None:
            return NO_REGISTER
        known = self._registers.get(source)
        if known is not None:
            return known
        base = self.register(row, source.base)
        into = self._registers[source] = len(self._registers)
        self.instructions.append((source.kind, row, into, base, self._key(source)))
        return into

    def _key(self, source: Source) -> Any:
        if source.kind == "local":
            return _position(source.key, self.code.co_varnames)
        if source.kind == "cell":
            return _position(source.key, self.code.co_freevars)
        return source.key

    def add_row(self, index: int, row: Row) -> None:
        source = self.register(index, row.source)
        expected = self._expected(index, row)
        same = _sameness(row.kind, source, expected)
        if same in self._seen:
            return
        self._seen.add(same)
        self.instructions.append((f"check {row.kind}", index, NO_REGISTER, source, expected))

    def _expected(self, index: int, row: Row) -> Any:
        if row.kind == "same":
            return self.register(index, row.expected)
        if row.kind == "relation":
            of = [self.register(index, source) for source in row.expected.sources]
            reads = tuple((of[at], what, dim) for at, what, dim in row.expected.reads)
            return (reads, row.expected.code, row.expected.op, row.expected.holds)
        if row.kind == "value":
            check = row.expected
            given = tuple(self.register(index, source) for source in check.sources)
            return (check.program.run, given, check.truth, check.outcome)
        if row.kind in ("distinct", "own_dict"):
            return tuple(self.register(index, source) for source in row.expected)
        return row.expected


def _position(name: str, names: Sequence[str]) -> int:
    """The index of a name, or -1, which makes a load that always fails."""
    return names.index(name) if name in names else -1


def _sameness(kind: str, source: int, expected: Any) -> tuple[Any, ...]:
    """A key that is equal for rows that check the same condition.

    Values are compared only for kinds that need no user code; all others go by identity.
    """
    if kind in ("same", "distinct", "own_dict") or type(expected) in (str, int):
        return (kind, source, type(expected), expected)
    return (kind, source, id(expected))
