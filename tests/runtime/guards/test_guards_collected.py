"""Finalizers that run while guards are checked may drop what the check looks at: nothing is read after it is gone.

In processes of their own, where memory that was freed is overwritten: a read of it ends the process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

COMMON = """
import gc
import torch
from graftjit.runtime.guards.compiler import compile_rows
from graftjit.runtime.guards.rows import Row
from graftjit.runtime.guards.sources import Source
from graftjit.runtime.guards.interpreter_state import snapshot

class Node:
    def __init__(self, **names):
        for name, value in names.items():
            setattr(self, name, value)

def frame(x):
    return x

class Knot:
    def __init__(self, end):
        self.end, self.me = end, self

    def __del__(self):
        self.end()

X, scope = Source("local", None, "x"), {}

def check(program, x, allocations, end):
    gc.collect()
    Knot(end)
    gc.set_threshold(gc.get_count()[0] + allocations, 1, 1)
    try:
        return program.check((x,), scope)
    finally:
        gc.set_threshold(0)
"""


def _runs(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(COMMON) + textwrap.dedent(script)],
        env={**os.environ, "PYTHONMALLOC": "debug"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_check_that_makes_dicts() -> None:
    """An instance's `__dict__` is made when a row looks at it, and 3.11 collects where objects are made."""
    _runs("""
    for number in range(40):
        x = Node()
        x.__dict__.update(a=Node(c=Node(d=1.5)), others=[Node() for _ in range(8)])
        c = Source("attr", Source("attr", X, "a"), "c")
        others = [Source("item", Source("attr", X, "others"), i) for i in range(8)]
        rows = [
            Row("type", c, Node),
            *(Row("type", Source("dict", other, None), dict) for other in others),
            Row("equals", Source("attr", c, "d"), 1.5),
        ]
        program = compile_rows(rows, [], frame.__code__)
        end = lambda: x.__dict__.update(a=None)
        assert check(program, x, number % 10, end) in (-1, 0)
        gc.collect()
        assert program.check((x,), scope) == 0
    """)


def test_a_check_that_asks_for_the_state_in_python() -> None:
    """Under a mode the state is read by Python code: what was found in the arguments before stays till the end."""
    _runs("""
    with torch.device("cpu"):
        for number in range(40):
            x = [Node(d=1.5)]
            item = Source("item", X, 0)
            rows = [
                Row("state", None, snapshot()),
                Row("type", item, Node),
                Row("equals", Source("attr", item, "d"), 1.5),
            ]
            program = compile_rows(rows, [], frame.__code__)
            assert check(program, x, number % 4, x.clear) in (-1, 1)
            gc.collect()
            assert program.check((x,), scope) == 1
    """)


@pytest.mark.slow
def test_exact_answers() -> None:
    """The first row that fails is looked for in the rows' own order, with the state in between."""
    _runs("""
    with torch.device("cpu"):
        for number in range(100):
            x = [Node(d=1.5)]
            item = Source("item", X, 0)
            rows = [
                Row("type", item, Node),
                Row("state", None, snapshot()),
                Row("equals", Source("attr", item, "d"), 2.5),
            ]
            program = compile_rows(rows, [], frame.__code__)
            assert check(program, x, 2 * number, x.clear) in (0, 2)
            gc.collect()
            assert program.check((x,), scope) == 0
    """)
