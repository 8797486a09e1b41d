"""The two tables of a code object: where its instructions come from, and which handlers cover them.

In: rows in code units, as the encoder has laid them. Out: the bytes of `co_linetable` (the format of PEP 657,
described in CPython's Objects/locations.md) and of `co_exceptiontable` (Objects/exception_handling_notes.txt); the
latter is read here too, for the decoder. Both formats are the same in 3.11, 3.12 and 3.13.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir.location import Location

_LONGEST = 8  # code units that one entry may span
_ONE_LINE, _NO_COLUMNS, _LONG, _NOWHERE = (
    10,
    13,
    14,
    15,
)  # kinds of entries; those below 10 are short


def line_table(spans: Iterable[tuple[int, Location | None]], first: int) -> bytes:
    """From (code units, location) of each instruction in order. Without a location it is told as the line `first`."""
    out = bytearray()
    last = first
    for units, where in spans:
        line = first if where is None else where.line
        while units > 0:
            span = min(units, _LONGEST)
            _entry(out, span - 1, where, line, 0 if line is None else line - last)
            last = last if line is None else line
            units -= span
    return bytes(out)


def _entry(out: bytearray, span: int, where: Location | None, line: int | None, delta: int) -> None:
    if line is None:
        out.append(0x80 | _NOWHERE << 3 | span)
        return
    start = where.column if where is not None else None
    end = where.end_column if where is not None else None
    if where is None or start is None or end is None:
        out.append(0x80 | _NO_COLUMNS << 3 | span)
        _signed(out, delta)
        return
    last = line if where.end_line is None else where.end_line
    if last == line and delta == 0 and start < 80 and 0 <= end - start < 16:
        out += bytes((0x80 | start >> 3 << 3 | span, (start & 7) << 4 | end - start))
    elif last == line and 0 <= delta < 3 and start < 128 and end < 128:
        out += bytes((0x80 | _ONE_LINE + delta << 3 | span, start, end))
    else:
        out.append(0x80 | _LONG << 3 | span)
        _signed(out, delta)
        for value in (last - line, start + 1, end + 1):
            _unsigned(out, value)


def _unsigned(out: bytearray, value: int) -> None:
    """Six bits a byte, the least significant first."""
    while value >= 0x40:
        out.append(0x40 | value & 0x3F)
        value >>= 6
    out.append(value)


def _signed(out: bytearray, value: int) -> None:
    _unsigned(out, -value << 1 | 1 if value < 0 else value << 1)


def exception_table(rows: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """From (start, stop, target, depth, lasti) in order; `stop` is the first unit that is not covered."""
    out = bytearray()
    for start, stop, target, depth, lasti in rows:
        at = len(out)
        for value in (start, stop - start, target, depth << 1 | lasti):
            _big_endian(out, value)
        out[at] |= 0x80  # where a row begins, for CPython's binary search
    return bytes(out)


def exception_rows(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """The rows that `exception_table` writes."""
    values: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 0x3F
        if byte & 0x40:
            continue
        values.append(value)
        value = 0
        if len(values) == 4:
            start, length, target, depth = values
            yield start, start + length, target, depth >> 1, bool(depth & 1)
            values.clear()


def _big_endian(out: bytearray, value: int) -> None:
    """Six bits a byte, the most significant first."""
    for shift in (24, 18, 12, 6):
        if value >= 1 << shift:
            out.append(0x40 | value >> shift & 0x3F)
    out.append(value & 0x3F)
