"""Rows whose functions, classes and code are held weakly: the same verdicts, and none once those are gone."""

from __future__ import annotations

import builtins
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graftjit.runtime.guards import weak_rows as held
from graftjit.runtime.guards.compiler import compile_rows
from graftjit.runtime.guards.mirror import FrameView, mirror, row_text
from graftjit.runtime.guards.rows import Row
from graftjit.runtime.guards.sources import Source

X, Y = Source("local", None, "x"), Source("local", None, "y")


def frame(x: Any = None, y: Any = None) -> None:
    """Stands for the guarded function."""


def verdict(rows: list[Row], x: Any, y: Any = None) -> int:
    """What native and mirror both say."""
    code, scope = frame.__code__, {"__builtins__": builtins}
    native = compile_rows(rows, [], code).check((x, y), scope, None)
    assert native == mirror(rows, FrameView(code, (x, y), scope, builtins.__dict__, None))
    return native


def make_class() -> type:
    class Local(torch.nn.Linear):
        label = "own"

    return Local


def make_function() -> Callable:
    return lambda: None


def rows_of(kind: str) -> tuple[Any, Any, list[Row]]:
    """(the object that may go, a value for x, rows about it)"""
    if kind == "function":
        function = make_function()
        return function, function, [Row("is", X, function)]
    if kind == "code":
        code = eval("lambda: 1").__code__
        return code, code, [Row("is", X, code)]
    local = make_class()
    constant = Source("const", None, local)
    rows = {
        "class": (local, [Row("is", X, local)]),
        "type": (local(1, 1), [Row("type", X, local)]),
        "mro": (local, [Row("mro", X, local.__mro__)]),
        "constant": (local, [Row("mro", constant, local.__mro__), Row("same", X, constant)]),
        "path": ("own", [Row("equals", Source("mro_attr", constant, "label"), "own")]),
        "pair": (local(1, 1), [Row("distinct", None, (X, constant))]),
    }
    return local, *rows[kind]


KINDS = ["function", "code", "class", "type", "mro", "constant", "path", "pair"]


@pytest.mark.parametrize("kind", KINDS)
def test_held_rows_hold_as_long_as_their_object_lives(kind):
    thing, value, strong = rows_of(kind)
    lost: list[Any] = []
    rows, inputs, weak = held.hold_weakly(strong, [X], lost.append)
    assert [reference() for reference in weak].count(thing) == 1 and inputs == [X] and not lost
    assert verdict(strong, value) == verdict(rows, value) == -1
    assert [row_text(row) for row in rows] == [row_text(row) for row in strong]
    for other in (None, make_class(), make_function(), 3):
        assert verdict(rows, other) == verdict(strong, other)
    program = compile_rows(rows, [], frame.__code__)
    seen = weakref.ref(thing)
    del thing, strong, other
    if value != "own":
        value = None
    gc.collect()
    assert seen() is None and len(lost) == 1 and lost[0]() is None
    scope = {"__builtins__": builtins}
    for value in (None, "own", lost[0], make_class(), make_class()(1, 1)):
        assert verdict(rows, value) >= 0
        assert program.check((value, None), scope, None) >= 0


def test_an_expected_weak_reference_is_meant_as_such():
    thing = make_function()
    reference = weakref.ref(thing)
    rows, _inputs, weak = held.hold_weakly([Row("is", X, reference)], [], print)
    assert rows[0].expected is reference and weak == ()
    assert verdict(rows, reference) == -1 and verdict(rows, thing) == 0


def test_what_cannot_go_is_held_as_it_is():
    values = (None, int, torch.sin, torch, "text", (int, float), len)
    rows = [Row("is", X, value) for value in values]
    found, _inputs, weak = held.hold_weakly(rows, [], print)
    assert weak == () and all(a is b for a, b in zip(found, rows, strict=True))


def test_one_object_is_one_register():
    local = make_class()
    constants = [Source("const", None, local), Source("const", None, local)]
    rows = [Row("no_mro_attr", source, name) for source in constants for name in ("a", "a")]
    strong = compile_rows(rows, [], frame.__code__)
    weak = compile_rows(held.hold_weakly(rows, [], print)[0], [], frame.__code__)
    assert (weak.size, weak.n_rows) == (strong.size, strong.n_rows) == (2, 4)


def test_an_object_that_dies_between_the_two_verdicts():
    from graftjit.runtime.guards.mirror import check_verdict
    from graftjit.runtime.guards.rows import Row
    from graftjit.runtime.guards.sources import Source
    from graftjit.runtime.guards.weak_ref import Weak

    def function():
        return None

    held = Weak(function)
    row = Row("is", Source("member", Source("const", None, held), "__code__"), function.__code__)
    check_verdict([row], None, -1)
    del function
    check_verdict([row], None, -1)
