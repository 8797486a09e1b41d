"""The guard mirror: every kind of source and row, against what plain Python says, without user code."""

from __future__ import annotations

import abc
import collections
import functools
import types

import pytest
import torch

from graftjit.ir.location import Location
from graftjit.runtime.errors import CheckError
from graftjit.runtime.guards import mirror as mirror_module
from graftjit.runtime.guards.mirror import (
    RECOMPILE_CODES,
    FrameView,
    Reader,
    check_verdict,
    explain_failure,
    failure_code,
    guard_lines,
    mirror,
    tensor_spec,
)
from graftjit.runtime.guards.rows import ROW_KINDS, Row
from graftjit.runtime.guards.sources import KINDS, Source
from graftjit.runtime.safe_access import MISSING, canonical, same_constant


def frame_of(closure=None, module=None, **values):
    """A view of a frame whose arguments are `values`."""
    names = ", ".join(values)
    free = tuple(closure or ())
    scope: dict = {}
    if free:
        text = f"def outer():\n {'; '.join(f'{n} = 0' for n in free)}\n"
        text += f" def f({names}):\n  return ({', '.join(free)},)\n return f\nf = outer()"
    else:
        text = f"def f({names}): pass"
    exec(text, scope)
    code = scope["f"].__code__
    cells = tuple((closure or {})[name] for name in code.co_freevars) or None
    return FrameView(code, tuple(values.values()), module or {}, {"len": len}, cells)


def local(name="x"):
    return Source("local", None, name)


def step(kind, key=None, base=None):
    return Source(kind, base or local(), key)


class Plain:
    kind = "class value"

    def __init__(self):
        self.a = 1


class Slotted:
    __slots__ = ("a", "empty")

    def __init__(self):
        self.a = "slot"


class Hostile:
    """Every hook raises: the mirror must not run any of them."""

    def __init__(self):
        object.__setattr__(self, "a", 5)

    def _trap(self, *args):
        raise AssertionError("user code ran in a guard")

    __eq__ = __hash__ = __getattribute__ = __getattr__ = __len__ = __iter__ = _trap
    __repr__ = __bool__ = __contains__ = __getitem__ = _trap
    __dict__ = property(_trap)
    __class__ = property(_trap)


class HostileDict(dict):
    def _trap(self, *args):
        raise AssertionError("user code ran in a guard")

    __getitem__ = __len__ = __iter__ = __contains__ = keys = get = __missing__ = _trap


class HostileList(list):
    def _trap(self, *args):
        raise AssertionError("user code ran in a guard")

    __getitem__ = __len__ = __iter__ = __eq__ = _trap
    __hash__ = None


def closed(value):
    return types.CellType(value)


def module_function(p, q=3, *, r=4):
    return p


PLAIN = Plain()
SOURCE_CASES = [
    (local(), {"x": 7}, 7),
    (Source("global", None, "G"), {"x": 0}, "global value"),
    (Source("global", None, "absent"), {"x": 0}, MISSING),
    (Source("builtin", None, "len"), {"x": 0}, len),
    (Source("builtin", None, "absent"), {"x": 0}, MISSING),
    (Source("const", None, Plain), {"x": 0}, Plain),
    (step("type"), {"x": 1.5}, float),
    (step("attr", "a"), {"x": PLAIN}, 1),
    (step("attr", "kind"), {"x": PLAIN}, MISSING),
    (step("attr", "a"), {"x": Slotted()}, MISSING),
    (step("attr", "a"), {"x": Hostile()}, 5),
    (step("dict"), {"x": PLAIN}, PLAIN.__dict__),
    (step("dict"), {"x": torch.nn}, torch.nn.__dict__),
    (step("class_attr", "kind"), {"x": PLAIN}, "class value"),
    (step("class_attr", "a"), {"x": PLAIN}, MISSING),
    (step("mro_attr", "kind"), {"x": Plain}, "class value"),
    (step("mro_attr", "kind"), {"x": PLAIN}, MISSING),
    (step("slot", "a"), {"x": Slotted()}, "slot"),
    (step("slot", "empty"), {"x": Slotted()}, MISSING),
    (step("slot", "a"), {"x": PLAIN}, MISSING),
    (step("item", 1), {"x": [1, 2]}, 2),
    (step("item", 2), {"x": [1, 2]}, MISSING),
    (step("item", -1), {"x": [1, 2]}, MISSING),
    (step("item", 0), {"x": HostileList([9])}, 9),
    (step("item", "k"), {"x": {"k": 3}}, 3),
    (step("item", "k"), {"x": HostileDict(k=3)}, 3),
    (step("item", "no"), {"x": HostileDict(k=3)}, MISSING),
    (step("item", "no"), {"x": collections.defaultdict(int)}, MISSING),
    (step("item", 0), {"x": 5}, MISSING),
    (step("item", Plain), {"x": {Plain: "by class"}}, "by class"),
    (step("key", 1), {"x": {"a": 1, "b": 2}}, "b"),
    (step("key", 2), {"x": {"a": 1, "b": 2}}, MISSING),
    (step("member", "__defaults__"), {"x": module_function}, (3,)),
    (step("member", "__kwdefaults__"), {"x": module_function}, module_function.__kwdefaults__),
    (step("member", "__func__"), {"x": PLAIN.__init__}, Plain.__init__),
    (step("member", "__self__"), {"x": PLAIN.__init__}, PLAIN),
    (step("member", "args"), {"x": functools.partial(print, 4)}, (4,)),
    (step("member", "fget"), {"x": Plain.__dict__.get("kind")}, MISSING),
    (step("member", "__code__"), {"x": print}, MISSING),
]


@pytest.mark.parametrize("case", range(len(SOURCE_CASES)))
def test_sources(case):
    source, values, expected = SOURCE_CASES[case]
    found = Reader(frame_of(module={"G": "global value"}, **values))(source)
    assert found is expected or (found == expected and type(found) is type(expected))


def test_closures():
    view = frame_of(closure={"c": closed(11), "d": types.CellType()}, x=0)
    cell = Source("cell", None, "c")
    assert Reader(view)(Source("contents", cell)) == 11
    empty = Source("cell", None, "d")
    assert Reader(view)(Source("contents", empty)) is MISSING
    assert mirror([Row("unbound_cell", empty, None)], view) == -1
    assert mirror([Row("unbound_cell", cell, None)], view) == 0
    assert Reader(view)(Source("globals")) is view.globals


def test_every_source_kind_is_walked():
    assert set(KINDS) == set(mirror_module._ROOTS) | set(mirror_module._STEPS)


def test_every_row_kind_is_checked_and_worded():
    for table in (mirror_module._CHECKS, mirror_module._FORMS, RECOMPILE_CODES):
        assert set(table) == set(ROW_KINDS)


T = torch.arange(6.0).reshape(2, 3)
STRIDED = torch.arange(6.0).reshape(3, 2).t()
SHARED = torch.arange(8.0)
HOLDS = [
    ("type", 1, int),
    ("type", Hostile(), Hostile),
    ("is", Plain, Plain),
    ("equals", 1, 1),
    ("equals", float("nan"), float("nan")),
    ("equals", (1, (2.0, "a")), (1, (2.0, "a"))),
    ("equals", torch.float32, torch.float32),
    ("equals", torch.device("cpu"), torch.device("cpu")),
    ("equals", torch.Size([1, 2]), torch.Size([1, 2])),
    ("equals", frozenset([1, "a"]), frozenset([1, "a"])),
    ("equals", slice(None, 2), slice(None, 2)),
    ("equals", range(0, 4, 2), range(0, 4, 2)),
    ("len", HostileList([1, 2]), 2),
    ("len", HostileDict(a=1), 1),
    ("len", collections.deque([1]), 1),
    ("len", "abc", 3),
    ("keys", {"a": 1, 2: 3}, ("a", 2)),
    ("set", {1, 2}, frozenset([1, 2])),
    ("no_attr", PLAIN, "b"),
    ("no_attr", 5, "b"),
    ("no_item", HostileDict(k=1), "b"),
    ("no_global", 0, "absent"),
    ("no_class_attr", PLAIN, "__getattr__"),
    ("no_mro_attr", Plain, "__getattr__"),
    ("tensor", T, tensor_spec(T)),
    ("tensor", T + 1, tensor_spec(T)),
    ("same", T, local()),
    ("distinct", T, (local(),)),
]
FAILS = [
    ("type", True, int, "bool", "int"),
    ("is", Plain, Slotted, None, None),
    ("equals", True, 1, "True", "x == 1"),
    ("equals", -0.0, 0.0, "-0.0", "x == 0.0"),
    ("equals", 1, 1.0, None, None),
    ("equals", (1, True), (1, 1), None, None),
    ("equals", (1,), torch.Size([1]), None, None),
    ("equals", Hostile(), 1, None, None),
    ("len", [1], 2, "1", None),
    ("len", 5, 2, None, None),
    ("keys", {"a": 1, "b": 2}, ("b", "a"), "['a', 'b']", None),
    ("keys", {1: 0}, (True,), None, None),
    ("keys", [1], (1,), None, None),
    ("set", {1, 2}, frozenset([1, 3]), None, None),
    ("set", [1], frozenset([1]), None, None),
    ("no_attr", PLAIN, "a", "1", "absent"),
    ("no_item", {"k": 1}, "k", "1", "absent"),
    ("no_item", 5, "k", None, None),
    ("no_global", 0, "G", "'global value'", "absent"),
    ("no_class_attr", PLAIN, "kind", "'class value'", "absent"),
    ("no_mro_attr", Plain, "kind", "'class value'", "absent"),
    ("no_mro_attr", PLAIN, "other", None, None),
    ("tensor", STRIDED, tensor_spec(T), "cpu f32[2, 3] strides (1, 2)", None),
    ("tensor", T.double(), tensor_spec(T), "cpu f64[2, 3]", None),
    ("tensor", T[:1], tensor_spec(T), "cpu f32[1, 3]", None),
    ("tensor", T.clone().requires_grad_(), tensor_spec(T), None, None),
    ("tensor", torch.nn.Parameter(T), tensor_spec(T), None, None),
    ("tensor", "text", tensor_spec(T), "'text'", None),
    ("tensor", T.to_sparse(), tensor_spec(T), None, None),
    ("tensor", torch.complex(T, T).conj(), tensor_spec(torch.complex(T, T)), None, None),
    ("abc", 0, -1, None, None),
]


@pytest.mark.parametrize("case", range(len(HOLDS)))
def test_rows_hold(case):
    kind, value, expected = HOLDS[case]
    source = None if kind in ("no_global", "abc") else local()
    view = frame_of(x=value, module={"G": "global value"})
    assert mirror([Row(kind, source, expected)], view) == -1


@pytest.mark.parametrize("case", range(len(FAILS)))
def test_rows_fail_and_say_why(case):
    kind, value, expected, now, before = FAILS[case]
    source = None if kind in ("no_global", "abc") else local()
    view = frame_of(x=value, module={"G": "global value"})
    row = Row(kind, source, expected)
    good = Row("type", local(), type(value))
    assert mirror([good, row, good], view) == 1
    told_now, told_before = explain_failure(row, view)
    assert "0x" not in told_now + told_before
    if now is not None:
        assert told_now == now
    if before is not None:
        assert told_before in (before, before.split(" == ")[-1])
    assert failure_code(row, view).startswith("RC4")


def test_unreachable_source_fails_every_kind():
    view = frame_of(x=1)
    gone = step("attr", "gone")
    for kind in ("type", "is", "equals", "no_attr", "no_class_attr", "tensor", "len"):
        row = Row(kind, gone, tensor_spec(T) if kind == "tensor" else None)
        assert mirror([row], view) == 0
        assert failure_code(row, view) == "RC409"
        assert explain_failure(row, view)[0] == "missing"


def test_abc_registration_is_seen():
    class Base(abc.ABC):  # noqa: B024
        pass

    row = Row("abc", None, abc.get_cache_token())
    view = frame_of(x=0)
    assert mirror([row], view) == -1
    Base.register(int)
    assert mirror([row], view) == 0


def test_distinct_and_same():
    pair = (local("x"), local("y"))
    distinct, same = Row("distinct", None, pair), Row("same", local("x"), local("y"))
    cases = [
        (T, T, 0, -1),
        (T, T.clone(), -1, 0),
        (SHARED[:4], SHARED[3:], 0, 0),
        (SHARED[:4], SHARED[4:], -1, 0),
        (SHARED[:0], SHARED, -1, 0),
        (SHARED[:0], SHARED[:0], -1, 0),
        (T, T.to_sparse(), 0, 0),
        (T, torch.empty(2, device="meta"), -1, 0),
        (T, T.view(-1), 0, 0),
        ([], [], -1, 0),
    ]
    for x, y, for_distinct, for_same in cases:
        view = frame_of(x=x, y=y)
        assert mirror([distinct], view) == for_distinct
        assert mirror([same], view) == for_same
    assert explain_failure(distinct, frame_of(x=T, y=T))[0] == "x is y"
    assert explain_failure(distinct, frame_of(x=T, y=T[0]))[0] == "x shares memory with y"


def test_no_user_code_runs():
    view = frame_of(x=Hostile(), y=HostileDict(a=1))
    rows = [
        Row("type", local("x"), Hostile),
        Row("equals", step("attr", "a"), 5),
        Row("no_attr", local("x"), "b"),
        Row("equals", local("x"), Plain),
    ]
    assert mirror(rows, view) == 3
    for row in rows:
        explain_failure(row, view)
    assert mirror([Row("keys", local("y"), ("a",))], view) == -1


def test_check_verdict_names_the_row_and_the_line():
    where = Location(__file__, 1, 1, 0, 3, "f")
    rows = [Row("type", local(), int, where), Row("equals", local(), 3, where)]
    view = frame_of(x=4)
    check_verdict(rows, view, 1)
    with pytest.raises(CheckError, match=r"x == 3.*now 4"):
        check_verdict(rows, view, -1)


def test_guard_lines_are_texts_only():
    where = Location(__file__, 1)
    rows = [Row("tensor", local(), tensor_spec(T), where), Row("is", local(), Plain, where)]
    lines = guard_lines(rows)
    assert lines[0].expected == "x: cpu f32[2, 3]" and lines[0].where is where
    assert "Plain" in lines[1].expected
    assert all(type(line.expected) is str and "0x" not in line.expected for line in lines)


def test_canonical_tells_signs_payloads_and_types_apart():
    assert not same_constant(0.0, -0.0)
    assert not same_constant(complex(0.0, -0.0), complex(0.0, 0.0))
    assert not same_constant(True, 1)
    assert canonical(float("nan")) == canonical(float("nan"))
