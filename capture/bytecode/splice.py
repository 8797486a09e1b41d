"""Splicing: an original's own bytes after new instructions.

Code that continues in the original carries its bytes instead of encoding the whole function again:
jumps of CPython 3.11 and later are relative, so they are valid at any position. What changes are
numbers of fast slots, positions in the exception table, and LOAD_FAST of a local that may be
unbound. `original_of(code)` gives the bytes and the parts that depend on slots, once per code
object; `Original.moved` gives the bytes for new slots; `behind` appends them to a code object.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...ir.dataclass import dataclass
from .decoder import PAIRS, PerCode, slot_names
from .opcodes import SLOT_OPS

_SLOT_OPCODES = frozenset(dis.opmap[name] for name in SLOT_OPS | PAIRS if name in dis.opmap)
_PAIR_OPCODES = frozenset(dis.opmap[name] for name in PAIRS if name in dis.opmap)
_LOAD_FAST = dis.opmap["LOAD_FAST"]
_LOAD_CHECKED = dis.opmap.get("LOAD_FAST_CHECK", _LOAD_FAST)


@dataclass(frozen=True, slots=True)
class Original:
    """The bytes of a code object.

    `slots`: (position, opcode, slot) of each instruction that names a slot; None if an argument is
    wider than a byte.
    """

    data: bytes
    slots: tuple[tuple[int, int, int], ...] | None
    names: tuple[str, ...]

    def moved(
        self, numbers: Mapping[str, int], may_be_unbound: Callable[[str], bool]
    ) -> bytes | None:
        """The bytes for new slot numbers; None if one does not fit the old one's width."""
        if self.slots is None:
            return None
        new = [numbers[name] for name in self.names]
        checked = [may_be_unbound(name) for name in self.names]
        data = bytearray(self.data)
        for at, op, slot in self.slots:
            if op in _PAIR_OPCODES:
                first, second = new[slot >> 4], new[slot & 15]
                if first > 15 or second > 15:
                    return None
                data[at + 1] = first << 4 | second
                continue
            if new[slot] > 255:
                return None
            data[at + 1] = new[slot]
            if op == _LOAD_FAST and checked[slot]:
                data[at] = _LOAD_CHECKED
        return bytes(data)


def _read(code: types.CodeType) -> Original:
    data, slots = code.co_code, []
    wide = False
    for at in range(0, len(data), 2):
        op = data[at]
        if op == dis.EXTENDED_ARG:
            wide = True
            continue
        if op in _SLOT_OPCODES:
            if wide:
                return Original(data, None, slot_names(code))
            slots.append((at, op, data[at + 1]))
        wide = False
    return Original(data, tuple(slots), slot_names(code))


original_of = PerCode(_read)
"""The bytes of a code object, and where they name slots."""


def behind(code: types.CodeType, tail: bytes, original: types.CodeType) -> types.CodeType:
    """`code` followed by `tail`, the bytes of `original` for the slots of `code`.

    The last instruction of `code` must be on the first line of the original: the lines of the tail
    count from there.
    """
    shift = len(code.co_code) // 2
    return code.replace(
        co_code=code.co_code + tail,
        co_linetable=code.co_linetable + original.co_linetable,
        co_exceptiontable=code.co_exceptiontable + _shifted(original.co_exceptiontable, shift),
        co_stacksize=max(code.co_stacksize, original.co_stacksize),
    )


def _shifted(table: bytes, shift: int) -> bytes:
    """The exception table of bytes that start `shift` code units later.

    An entry is start, length, target, and depth with a flag (CPython's
    Objects/exception_handling_notes.txt): numbers in groups of six bits, the most significant
    first.
    """
    found = bytearray()
    numbers = _numbers(table)
    for start in numbers:
        entry = start + shift, next(numbers), next(numbers) + shift, next(numbers)
        first = len(found)
        for number in entry:
            found += bytes(_groups(number))
        found[first] |= 0x80
    return bytes(found)


def _numbers(table: Sequence[int]) -> Iterator[int]:
    value = 0
    for one in table:
        value = value << 6 | one & 0x3F
        if not one & 0x40:
            yield value
            value = 0


def _groups(number: int) -> list[int]:
    groups = [number & 0x3F]
    while number := number >> 6:
        groups.insert(0, number & 0x3F | 0x40)
    return groups
