"""The tables of code objects: written as CPython writes them, for all the code of a few library modules."""

import argparse
import asyncio.base_events
import dataclasses
import dis
import types

import pytest

from graftjit.capture.codetables import exception_rows, exception_table, line_table
from graftjit.ir.location import Location


def codes(module):
    todo = [f.__code__ for f in vars(module).values() if isinstance(f, types.FunctionType)]
    for cls in [c for c in vars(module).values() if isinstance(c, type)]:
        todo += [f.__code__ for f in vars(cls).values() if isinstance(f, types.FunctionType)]
    while todo:
        code = todo.pop()
        yield code
        todo += [c for c in code.co_consts if isinstance(c, types.CodeType)]


@pytest.mark.parametrize("module", [argparse, asyncio.base_events, dataclasses])
def test_tables_are_those_of_cpython(module):
    for code in codes(module):
        positions = list(code.co_positions())
        spans = [(1, Location(code.co_filename, *p, code.co_qualname)) for p in positions]
        same = code.replace(co_linetable=line_table(spans, code.co_firstlineno))
        assert list(same.co_positions()) == positions
        assert list(dis.findlinestarts(same)) == list(dis.findlinestarts(code))
        rows = list(exception_rows(code.co_exceptiontable))
        assert exception_table(rows) == code.co_exceptiontable


@pytest.mark.parametrize(
    "where",
    [
        Location("f", 1, 1, 0, 0), Location("f", 3, 3, 200, 4000), Location("f", 90000, 90001, 5, 2), Location("f", None),
        Location("f", 7), None, Location("f", 1, 3, 79, 94), Location("f", 2, 2, 127, 127),
    ],
)  # fmt: skip
def test_positions_of_all_kinds(where):
    code = (lambda: None).__code__
    spans = [(9, Location("f", 20, 20, 1, 2)), (9, where), (2, Location("f", 21, 21, 1, 2))]
    table = line_table(spans, 5)
    found = list(
        code.replace(
            co_firstlineno=5, co_linetable=table, co_code=code.co_code[:0] + bytes([9, 0] * 20)
        ).co_positions()
    )
    line = 5 if where is None else where.line
    end = line if where is None or where.end_line is None else where.end_line
    columns = (None, None) if where is None else (where.column, where.end_column)
    assert found[0] == found[8] == (20, 20, 1, 2) and found[18] == (21, 21, 1, 2)
    assert found[9] == found[17] == (line, end if line else None, *columns)
