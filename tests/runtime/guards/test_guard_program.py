"""The native guard program against the laws of rows and sources, and against its Python mirror."""

from __future__ import annotations

import abc
import builtins
import collections
import dataclasses
import functools
import gc
import itertools
import random
import struct
import types
import weakref
from typing import Any

import pytest
import torch

from graftjit.ir.symbolic import shape_env as facts
from graftjit.ir.symbolic.expr import Symbol, made
from graftjit.runtime import _native
from graftjit.runtime.guards import tensor_access
from graftjit.runtime.guards.compiler import compile_rows
from graftjit.runtime.guards.interpreter_state import snapshot
from graftjit.runtime.guards.mirror import FrameView, mirror, tensor_spec
from graftjit.runtime.guards.relations import Relation, can_hold, compiled
from graftjit.runtime.guards.rows import ROW_KINDS, Row
from graftjit.runtime.guards.sources import KINDS, Source
from graftjit.runtime.guards.value_guards import ValueCheck, ValueProgram
from graftjit.runtime.program.program import Aten, ProgramSpec, Slot


def local(name: str = "x") -> Source:
    return Source("local", None, name)


def frame(x: Any = None, y: Any = None) -> None:
    """Stands for the guarded function: two arguments."""


def verdict(rows: list[Row], x: Any = None, y: Any = None, **more: Any) -> int:
    """What native and mirror both say."""
    code = more.pop("code", frame.__code__)
    scope = more.pop("scope", {"__builtins__": builtins})
    closure = more.pop("closure", None)
    program = compile_rows(rows, [], code)
    native = program.check((x, y), scope, closure)
    found = scope.get("__builtins__", builtins)
    names = found if isinstance(found, dict) else found.__dict__
    assert native == mirror(rows, FrameView(code, (x, y), scope, names, closure)), (rows, x, y)
    return native


def holds(row: Row, x: Any = None, y: Any = None, **more: Any) -> bool:
    return verdict([row], x, y, **more) == -1


class Plain:
    kind = "class level"

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Child(Plain):
    pass


class Slotted:
    __slots__ = ("a", "b")


class Hostile:
    """Every way of asking this object runs user code that fails."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("__eq__ ran")

    def __hash__(self) -> int:
        raise AssertionError("__hash__ ran")

    def __len__(self) -> int:
        raise AssertionError("__len__ ran")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"__getattr__({name}) ran")

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("__getitem__ ran")


class Colliding:
    """As a dict key it has the hash of "a" and an __eq__ that must not run."""

    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("__eq__ ran")


def function_of(value: Any, *, scale: int = 2) -> Any:
    return value * scale


NAN_QUIET = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]

CONSTANTS: list[Any] = [
    None, True, False, 0, 1, -1, 2**70, 0.0, -0.0, 1.0, float("nan"), NAN_QUIET, 1j, complex(0.0, -0.0), "",
    "a", "é", "名", b"", b"a", ..., slice(1, None), slice(1.0, None), (), (1, "a"), (1.0, "a"), (True, "a"),
    ((0.0,), (-0.0,)), frozenset(), frozenset({1}), frozenset({1.0}), frozenset({True}), frozenset({1, "a"}),
    torch.float32, torch.float64, torch.strided, torch.channels_last, torch.Size([1, 2]), (1, 2),
    torch.device("cpu"), torch.device("cpu", 0), torch.device("meta"),
    range(3), range(0, 3, 2), range(0, 4, 2), range(2**70), range(1, 3),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(CONSTANTS)))
def test_equals_is_by_exact_type_and_bits(index: int) -> None:
    expected = CONSTANTS[index]
    for other, value in enumerate(CONSTANTS):
        assert holds(Row("equals", local(), expected), value) == (index == other), value


def fresh_copies(value: Any) -> Any:
    """An equal constant that is another object where the type allows."""
    if type(value) is str:
        return "".join(list(value))
    if type(value) is int:
        return int(str(value))
    if type(value) is float:
        return struct.unpack("<d", struct.pack("<d", value))[0]
    if type(value) is tuple:
        return tuple(fresh_copies(element) for element in value)
    if type(value) is frozenset:
        return frozenset(fresh_copies(element) for element in value)
    if type(value) is torch.Size:
        return torch.Size(list(value))
    return value


def test_equals_sees_equal_copies() -> None:
    for value in CONSTANTS:
        assert holds(Row("equals", local(), value), fresh_copies(value)), value


def test_equals_of_other_objects_is_identity() -> None:
    one, two = Plain(), Plain()
    assert holds(Row("equals", local(), one), one)
    assert not holds(Row("equals", local(), one), two)
    assert not holds(Row("equals", local(), 1), Hostile())


def test_type_and_is() -> None:
    assert holds(Row("type", local(), int), 1)
    assert not holds(Row("type", local(), int), True)
    assert not holds(Row("type", local(), Plain), Child())
    assert holds(Row("is", local(), Plain), Plain)
    assert not holds(Row("is", local(), None), 0)


@pytest.mark.parametrize(
    "value",
    [
        {1: 2}, [1], (1,), {1}, frozenset({1}), collections.deque([1]), "1", b"1", bytearray(b"1"), range(1),
        types.MappingProxyType({1: 2}), collections.OrderedDict({1: 2}), torch.Size([1]),
        collections.defaultdict(int, {1: 2}), collections.Counter("a"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_len(value: Any) -> None:
    assert holds(Row("len", local(), 1), value)
    assert not holds(Row("len", local(), 2), value)


def test_len_of_what_has_none() -> None:
    assert not holds(Row("len", local(), 1), 1)
    assert not holds(Row("len", local(), 1), Hostile())


def test_keys() -> None:
    row = Row("keys", local(), ("a", 1, (2.0,)))
    assert holds(row, {"a": 0, 1: 0, (2.0,): 0})
    assert not holds(row, {1: 0, "a": 0, (2.0,): 0})
    assert not holds(row, {"a": 0, True: 0, (2.0,): 0})
    assert not holds(row, {"a": 0, 1: 0})
    assert not holds(row, {"a": 0, 1: 0, (2.0,): 0, "more": 0})
    assert not holds(row, ["a", 1, (2.0,)])
    changed = {"a": 0, "gone": 0, 1: 0, (2.0,): 0}
    del changed["gone"]
    assert holds(row, changed)
    assert holds(row, types.MappingProxyType(changed))


def test_set() -> None:
    row = Row("set", local(), frozenset({1, "a", (2,), None}))
    assert holds(row, {1, "a", (2,), None})
    assert holds(row, frozenset({"a", (2,), None, 1}))
    assert not holds(row, {True, "a", (2,), None})
    assert not holds(row, {1, "a", (2,)})
    assert not holds(row, {1, "a", (2,), None, 5})
    shrunk = {1, "a", (2,), None, "gone"}
    shrunk.discard("gone")
    assert holds(row, shrunk)
    assert not holds(row, [1, "a", (2,), None])


def test_attributes_of_instances() -> None:
    attribute = Row("equals", Source("attr", local(), "a"), 1)
    thing = Plain(a=1)
    assert holds(attribute, thing)
    thing.a = 2
    assert not holds(attribute, thing)
    assert not holds(attribute, Plain())
    assert not holds(attribute, 5)
    assert not holds(Row("equals", Source("attr", local(), "kind"), "class level"), Plain())
    assert not holds(attribute, Hostile())

    class Inline:  # attributes set one by one stay in inline values
        def __init__(self) -> None:
            self.a = 1

    inline = Inline()
    assert holds(attribute, inline)
    inline.b = 3
    del inline.a
    assert not holds(attribute, inline)
    inline.a = 1
    assert holds(attribute, inline)
    inline.__dict__["a"] = 7
    assert not holds(attribute, inline)
    inline.__dict__ = {"a": 1}
    assert holds(attribute, inline)
    for i in range(40):
        setattr(inline, f"more{i}", i)
    assert holds(attribute, inline)


def test_reading_inline_values_makes_no_dict() -> None:
    class Inline:
        def __init__(self) -> None:
            self.a = 1

    thing = Inline()
    size = thing.__sizeof__()
    before = len(gc.get_referents(thing))
    assert (
        compile_rows([Row("no_attr", local(), "z")], [], frame.__code__).check((thing,), {}) == -1
    )
    assert (thing.__sizeof__(), len(gc.get_referents(thing))) == (size, before)


def test_no_attr() -> None:
    row = Row("no_attr", local(), "a")
    assert holds(row, Plain())
    assert not holds(row, Plain(a=1))
    assert holds(row, 5)
    assert holds(row, Slotted())
    assert not holds(row, types.SimpleNamespace(a=1))


def test_module_class_and_function_attributes() -> None:
    module = types.ModuleType("m")
    module.a = 1  # type: ignore[attr-defined]
    row = Row("equals", Source("attr", local(), "a"), 1)
    assert holds(row, module)
    assert holds(row, type("T", (), {"a": 1}))
    assert not holds(row, type("U", (type("T", (), {"a": 1}),), {}))
    function = types.FunctionType(frame.__code__, {})
    assert not holds(row, function)
    function.a = 1  # type: ignore[attr-defined]
    assert holds(row, function)


def test_instance_dict() -> None:
    row = Row("equals", Source("item", Source("dict", local(), None), "a"), 1)
    assert holds(row, Plain(a=1))
    assert holds(row, type("T", (), {"a": 1}))
    assert not holds(row, Slotted())
    types_of = Row("type", Source("dict", local(), None), types.MappingProxyType)
    assert holds(types_of, Plain)
    assert not holds(types_of, Plain())


def test_class_attributes() -> None:
    row = Row("equals", Source("class_attr", local(), "kind"), "class level")
    assert holds(row, Plain())
    assert holds(row, Child())
    Child.kind = "other"
    try:
        assert not holds(row, Child())
        assert not holds(Row("no_class_attr", local(), "kind"), Child())
    finally:
        del Child.kind
    assert holds(row, Child())
    assert holds(Row("no_class_attr", local(), "absent"), Child())
    on_class = Row("equals", Source("mro_attr", local(), "kind"), "class level")
    assert holds(on_class, Child)
    assert not holds(on_class, Child())
    assert holds(Row("no_mro_attr", local(), "absent"), Child)
    assert not holds(Row("no_mro_attr", local(), "kind"), Child)
    assert not holds(Row("no_mro_attr", local(), "absent"), Child())
    assert holds(Row("is", Source("type", local(), None), Plain), Plain())


def test_slots() -> None:
    thing = Slotted()
    row = Row("equals", Source("slot", local(), "a"), 1)
    assert not holds(row, thing)
    thing.a = 1
    assert holds(row, thing)
    assert not holds(row, Plain(a=1))


def test_items() -> None:
    def item(key: Any) -> Row:
        return Row("equals", Source("item", local(), key), "v")

    assert holds(item(1), ["u", "v"])
    assert holds(item(1), ("u", "v"))
    assert not holds(item(2), ["u", "v"])
    assert not holds(item(-1), ["u", "v"])
    assert holds(item("a"), {"a": "v"})
    assert holds(item("a"), {"a": "v", 1: 2, None: 3})
    assert holds(item(1), {True: "v"})
    assert holds(item(1.0), {1: "v"})
    assert holds(item((1, 2)), {(1, 2): "v"})
    assert holds(item(Plain), {Plain: "v"})
    assert not holds(item("a"), {})
    assert holds(item("a"), collections.defaultdict(int, {"a": "v"}))
    assert not holds(item("a"), collections.defaultdict(int))
    assert holds(item("a"), types.MappingProxyType({"a": "v"}))
    assert not holds(item("a"), ["v"])
    assert not holds(item(0), "v")
    assert not holds(item(True), ["u", "v"])
    assert not holds(item(0), Hostile())
    big = {i: "u" for i in range(70000)}
    big[69999] = "v"
    assert holds(item(69999), big)


def test_a_key_of_a_user_class_runs_no_code() -> None:
    table = {Colliding(): 0}
    program = compile_rows([Row("no_item", local(), "a")], [], frame.__code__)
    assert program.check((table,), {}) == 0  # its __eq__ decides: neither there nor surely absent
    assert mirror([Row("no_item", local(), "a")], FrameView(frame.__code__, (table,), {}, {})) == 0
    assert program.check(({"b": 0},), {}) == -1
    program = compile_rows([Row("equals", Source("item", local(), "a"), 1)], [], frame.__code__)
    assert program.check((table,), {}) == 0


def test_no_item() -> None:
    assert holds(Row("no_item", local(), "a"), {})
    assert not holds(Row("no_item", local(), "a"), {"a": None})
    assert not holds(Row("no_item", local(), "a"), [])


def test_nth_key() -> None:
    row = Row("equals", Source("key", local(), 1), "b")
    assert holds(row, {"a": 1, "b": 2})
    assert not holds(row, {"b": 2, "a": 1})
    assert not holds(row, {"a": 1})
    assert not holds(row, [0, "b"])


class Members:
    def method(self) -> None: ...

    @property
    def size(self) -> int:
        return 1

    @classmethod
    def build(cls) -> None: ...

    @staticmethod
    def helper() -> None: ...


def closed_over(value: Any) -> Any:
    return lambda: value


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (function_of, "__code__"), (function_of, "__defaults__"), (function_of, "__kwdefaults__"),
        (function_of, "__globals__"), (function_of, "__closure__"), (closed_over(1), "__closure__"),
        (function_of, "__dict__"), (Members().method, "__func__"), (Members().method, "__self__"),
        (Members.__dict__["size"], "fget"), (Members.__dict__["size"], "fset"),
        (Members.__dict__["build"], "__func__"), (Members.__dict__["helper"], "__func__"),
        (Members.__dict__["helper"], "__wrapped__"), (functools.partial(function_of, 1, scale=3), "func"),
        (functools.partial(function_of, 1, scale=3), "args"),
        (functools.partial(function_of, 1, scale=3), "keywords"), (Plain, "kind"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_members(value: Any, name: str) -> None:
    found = getattr(value, name)
    expected = not (isinstance(value, type))
    assert holds(Row("is", Source("member", local(), name), found), value) == expected
    assert not holds(Row("is", Source("member", local(), name), Plain()), value)
    assert not holds(Row("is", Source("member", local(), name), found), Hostile())


def test_wrapped_of_a_function() -> None:
    wrapped = functools.wraps(frame)(types.FunctionType(frame.__code__, {}))
    assert holds(Row("is", Source("member", local(), "__wrapped__"), frame), wrapped)
    assert not holds(Row("is", Source("member", local(), "__wrapped__"), frame), frame)


def test_rebound_function_fields_are_seen() -> None:
    function = types.FunctionType(function_of.__code__, {}, "f", (1,))
    rows = [
        Row("is", Source("member", local(), "__code__"), function.__code__),
        Row("is", Source("member", local(), "__defaults__"), function.__defaults__),
    ]
    assert verdict(rows, function) == -1
    function.__defaults__ = (2,)
    assert verdict(rows, function) == 1
    function.__code__ = frame.__code__
    assert verdict(rows, function) == 0


def test_globals_and_builtins() -> None:
    scope = {"g": 1, "__builtins__": builtins}
    row = Row("equals", Source("global", None, "g"), 1)
    assert holds(row, scope=scope)
    scope["g"] = 2
    assert not holds(row, scope=scope)
    del scope["g"]
    assert not holds(row, scope=scope)
    assert holds(Row("no_global", None, "g"), scope=scope)
    scope["g"] = None
    assert not holds(Row("no_global", None, "g"), scope=scope)
    assert holds(Row("is", Source("globals"), scope), scope=scope)
    assert holds(Row("is", Source("builtin", None, "len"), len), scope=scope)
    assert holds(
        Row("is", Source("builtin", None, "len"), len), scope={"__builtins__": {"len": len}}
    )
    assert not holds(Row("is", Source("builtin", None, "nothing"), len), scope=scope)
    assert not holds(Row("is", Source("global", None, "len"), len), scope=scope)


def test_cells() -> None:
    def outer(flag: bool) -> Any:
        if flag:
            inside = 1

        def inner(x: Any, y: Any) -> Any:
            return inside

        return inner

    inner, empty = outer(True), outer(False)
    cell = Source("cell", None, "inside")
    row = Row("equals", Source("contents", cell), 1)
    code = inner.__code__
    assert holds(row, code=code, closure=inner.__closure__)
    assert not holds(row, code=code, closure=empty.__closure__)
    assert not holds(Row("unbound_cell", cell, None), code=code, closure=inner.__closure__)
    assert holds(Row("unbound_cell", cell, None), code=code, closure=empty.__closure__)
    inner.__closure__[0].cell_contents = 2
    assert not holds(row, code=code, closure=inner.__closure__)
    assert not holds(row, code=code)


def test_const_sources_and_identity() -> None:
    table: dict[str, Any] = {"a": 1}
    assert holds(Row("equals", Source("item", Source("const", None, table), "a"), 1))
    assert holds(Row("same", local(), local("y")), table, table)
    assert not holds(Row("same", local(), local("y")), table, {"a": 1})
    assert not holds(Row("same", local(), Source("item", local("y"), "z")), table, table)
    assert holds(Row("distinct", None, (local(), local("y"))), table, {"a": 1})
    assert not holds(Row("distinct", None, (local(), local("y"))), table, table)


def variants() -> list[Any]:
    """Tensors that each differ from the first in one respect, and things that are no tensors."""
    base = torch.zeros(4, 3)
    return [
        base, torch.zeros(3, 4), torch.zeros(4, 3, dtype=torch.float64), torch.zeros(3, 4).t(),
        torch.zeros(4, 3, requires_grad=True), torch.nn.Parameter(torch.zeros(4, 3)),
        torch.zeros(4, 3, device="meta"), torch.zeros(4, 3).to_sparse(), torch.zeros(12),
        torch.zeros(4, 3, 1), torch.zeros(8, 3)[::2], torch.zeros(4, 3, dtype=torch.complex64).conj(), 1, None,
    ]  # fmt: skip


def test_tensors() -> None:
    values = variants()
    specs = [
        (index, tensor_spec(value))
        for index, value in enumerate(values)
        if isinstance(value, torch.Tensor)
    ]
    for index, spec in specs:
        for other, value in enumerate(values):
            assert holds(Row("tensor", local(), spec), value) == (index == other), (index, other)


def test_a_tensor_changed_in_place_is_seen() -> None:
    tensor = torch.zeros(4, 3)
    row = Row("tensor", local(), tensor_spec(tensor))
    assert holds(row, tensor)
    tensor.requires_grad_()
    assert not holds(row, tensor)
    tensor.requires_grad_(False)
    assert holds(row, tensor)
    tensor.data = torch.zeros(5, 3)
    assert not holds(row, tensor)
    tensor.data = torch.zeros(4, 3)
    assert holds(row, tensor)
    tensor.t_()
    assert not holds(row, tensor)


def test_own_dict() -> None:
    owner, other, own = Plain(), Plain(), {}
    other.__dict__ = own
    row = Row("own_dict", local(), (local("y"),))
    assert holds(row, own, owner)
    assert not holds(row, own, other)
    assert not holds(row, owner.__dict__, owner)
    assert holds(row, owner, own)
    assert not holds(row, other, own)
    assert not holds(row, owner, owner.__dict__)
    assert holds(row, [], owner)
    assert holds(row, own, 3)
    assert holds(row, own, Plain)


@pytest.mark.parametrize("without", [(), ("history",), ("trace",), ("handle",)])
def test_history(without: tuple[str, ...]) -> None:
    tensor_access.bind(without)
    try:
        _check_histories()
    finally:
        tensor_access.bind()


def _check_histories() -> None:
    class Liar(torch.Tensor):
        is_leaf = _is_view = None

    leaf = torch.ones(2, requires_grad=True)
    result = leaf * 2
    for value, word in [
        (leaf, "leaf"), (torch.ones(2), "leaf"), (result, "result"), (result[:1], "view"), (leaf.t(), "view"),
        (leaf.detach(), "leaf"), (torch.ones(2).as_subclass(Liar), "leaf view"), (3, ""), (torch.Tensor, ""),
        ((leaf * 3).detach_(), "leaf"), (torch.ones(2).add_(leaf), "result"), (torch.nn.Parameter(leaf * 2), "leaf"),
        (leaf.detach()[:1], "leaf view"), (leaf.detach().requires_grad_()[:1].detach(), "leaf"),
    ]:  # fmt: skip
        for expected in ("leaf", "result", "view", "leaf view"):
            assert holds(Row("history", local(), expected), value) == (word == expected)


def test_distinct_memory() -> None:
    whole = torch.zeros(40)
    row = Row("distinct", None, (local(), local("y")))
    assert holds(row, whole[:20], whole[20:])
    assert not holds(row, whole[:21], whole[20:])
    assert not holds(row, whole, whole.view(8, 5))
    assert holds(row, whole, whole.clone())
    assert holds(row, whole, torch.zeros(0))
    assert holds(row, whole, "not a tensor")
    many = [whole[i : i + 1] for i in range(40)]
    sources = tuple(Source("item", local(), i) for i in range(40))
    assert holds(Row("distinct", None, sources), many)
    many[7] = whole[30:32]
    assert not holds(Row("distinct", None, sources), many)


def test_interpreter_state() -> None:
    row = Row("state", None, snapshot())
    assert holds(row)
    with torch.no_grad():
        assert not holds(row)
    with torch.autocast("cpu"):
        assert not holds(row)
    assert holds(row)


def test_abc_token() -> None:
    class Shape(abc.ABC):  # noqa: B024
        pass

    row = Row("abc", None, abc.get_cache_token())
    assert holds(row)
    Shape.register(Plain)
    assert not holds(row)


def test_what_is_being_handled() -> None:
    row = Row("unhandled", None, None)
    assert holds(row)
    try:
        raise KeyError
    except KeyError:
        assert not holds(row)
        try:
            raise ValueError
        except ValueError:
            assert not holds(row)
    assert holds(row)


def test_unknown_names_fail_without_an_exception() -> None:
    assert not holds(Row("is", local("nobody"), None))
    assert not holds(Row("is", Source("cell", None, "nobody"), None))


def test_the_first_row_that_fails_is_told() -> None:
    path = Source("attr", Source("attr", local(), "a"), "b")
    rows = [
        Row("type", local(), Plain),
        Row("type", Source("attr", local(), "a"), Plain),
        Row("equals", path, 1),
        Row("type", local(), Plain),
    ]
    assert verdict(rows, Plain(a=Plain(b=1))) == -1
    assert verdict(rows, Plain(a=Plain(b=2))) == 2
    assert verdict(rows, Plain(a=Plain())) == 2
    assert verdict(rows, Plain()) == 1
    assert verdict(rows, 1) == 0


def test_sources_and_rows_are_not_repeated() -> None:
    path = Source("attr", local(), "a")
    once = compile_rows([Row("type", path, int)], [path], frame.__code__)
    twice = compile_rows([Row("type", path, int)] * 3, [path, path], frame.__code__)
    assert (once.size, twice.size) == (3, 3)
    assert twice.gather((Plain(a=4),), {}) == (4, 4)
    assert twice.gather((Plain(a="4"),), {}) is None
    assert once.n_rows == 1


def test_an_input_that_is_missing_fails_after_the_rows() -> None:
    program = compile_rows(
        [Row("type", local(), Plain)], [Source("attr", local(), "a")], frame.__code__
    )
    assert program.check((Plain(a=1),), {}) == -1
    assert program.check((Plain(),), {}) == 1


def test_many_registers() -> None:
    rows = [Row("equals", Source("item", local(), i), i) for i in range(500)]
    rows += [Row("type", Source("dict", Source("item", local("y"), i)), dict) for i in range(200)]
    values, things = list(range(500)), [Plain() for _ in range(200)]
    assert verdict(rows, values, things) == -1
    values[400] = 0
    assert verdict(rows, values, things) == 400


def test_every_kind_is_known_to_native() -> None:
    loads = {kind: KINDS[kind] for kind in KINDS}
    constants = {"local": 0, "cell": 0, "key": 0, "item": "a", "iterated": 0}
    for kind in loads:
        key = constants.get(kind, "name")
        _native.GuardProgram(((kind, 0, 0, 0, key),), 1, (), 1)
    expected: dict[str, Any] = {
        "len": 1,
        "keys": (),
        "set": frozenset(),
        "same": 0,
        "distinct": (0,),
        "own_dict": (0,),
        "number": (int, None, None),
        "position": 0,
        "relation": (((0, "int", 0),), (("load", 0), ("int", 3)), "<", True),
        "value": (len, (0,), True, True),
    }
    for kind in set(ROW_KINDS) - {"tensor", "state"}:
        _native.GuardProgram(((f"check {kind}", 0, -1, 0, expected.get(kind, "name")),), 1, (), 1)


@pytest.mark.parametrize(
    "instruction",
    [
        ("nonsense", 0, 0, 0, None), ("attr", 0, 0, 0, 3), ("attr", 0, 5, 0, "a"), ("attr", 0, 0, -1, "a"),
        ("check len", 0, -1, 0, "a"), ("check keys", 0, -1, 0, [1]), ("check set", 0, -1, 0, (1,)),
        ("check same", 0, -1, 0, 9), ("check distinct", 0, -1, -1, (9,)),
        ("check value", 0, -1, 0, (len, (9,), True, True)), ("check value", 0, -1, 0, (len, [0], True, True)),
        ("check value", 0, -1, 0, (3, (0,), True, True)), ("check value", 0, -1, 0, len),
    ],
)  # fmt: skip
def test_a_bad_instruction_is_refused(instruction: tuple) -> None:
    with pytest.raises((ValueError, TypeError)):
        _native.GuardProgram((instruction,), 1, (), 1)


def test_programs_are_collected() -> None:
    class Owner:
        pass

    owner = Owner()
    owner.program = compile_rows([Row("is", local(), owner)], [], frame.__code__)  # type: ignore[attr-defined]
    alive = weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is None


def random_value(rng: random.Random, depth: int = 0) -> Any:
    makers: list[Any] = [
        lambda: rng.choice(CONSTANTS),
        lambda: rng.randrange(3),
        lambda: rng.choice("abc"),
        lambda: [random_value(rng, depth + 1) for _ in range(rng.randrange(3))],
        lambda: {rng.choice("abc"): random_value(rng, depth + 1) for _ in range(rng.randrange(3))},
        lambda: tuple(random_value(rng, depth + 1) for _ in range(rng.randrange(3))),
        lambda: {rng.randrange(4) for _ in range(rng.randrange(3))},
        lambda: Plain(**{rng.choice("abc"): random_value(rng, depth + 1)}),
        lambda: rng.choice((Plain, Child, function_of, Members().method, len, Hostile())),
        lambda: half_way(rng, [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]),
    ]
    return rng.choice(makers[:3] if depth > 2 else makers)()


def half_way(rng: random.Random, items: list[Any]) -> Any:
    """An iterator that has taken some steps, or all."""
    d = dict(enumerate(items))
    made = rng.choice((iter(items), iter(tuple(items)), iter(d), iter(d.values()), iter(d.items())))
    made = rng.choice((made, made, enumerate(made, 1), zip(made, items)))
    for _ in range(rng.randrange(4)):
        next(made, None)
    if rng.random() < 0.3:
        d[7] = items.append(1)
    return made


def random_source(rng: random.Random) -> Source:
    source = rng.choice((local(), local("y"), Source("global", None, rng.choice("abc"))))
    for _ in range(rng.randrange(4)):
        kind = rng.choice(
            ("attr", "item", "type", "dict", "class_attr", "mro_attr", "key", "member", "iterated")
        )
        keys = {
            "attr": ["a", "b", "c"], "item": ["a", "b", 0, 1, True, 1.0], "class_attr": ["kind", "a"],
            "mro_attr": ["kind", "__init__"], "key": [0, 1], "member": ["__code__", "__func__", "__dict__"],
            "iterated": [0, 1],
        }  # fmt: skip
        source = Source(kind, source, rng.choice(keys.get(kind, [None])))
    return source


def random_relation(rng: random.Random) -> Relation:
    """A comparison of two expressions over numbers at random sources."""
    kinds = [rng.choice(("int", "float")) for _ in range(2)]
    symbols = [Symbol(f"n{i}", kind, 1) for i, kind in enumerate(kinds)]
    places = {s: ("number", random_source(rng), 0) for s in symbols}

    def expression(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.3:
            return rng.choice((*symbols, rng.randrange(-3, 4), rng.randrange(-3, 4) / 2))
        op = rng.choice(("add", "sub", "mul", "floordiv", "mod", "min", "max", "truediv", "neg"))
        parts = [expression(depth - 1) for _ in range(1 if op == "neg" else 2)]
        try:
            return made(op, *parts)
        except ArithmeticError:
            return 1

    op = rng.choice(("==", "!=", "<", "<=", ">", ">="))
    found = facts.Relation(op, expression(3), expression(2), rng.random() < 0.5)
    if not can_hold(found.left, found.right):
        return random_relation(rng)
    return compiled(found, lambda s: places[s])


def random_row(rng: random.Random) -> Row:
    kind = rng.choice(sorted(set(ROW_KINDS) - {"tensor", "state", "abc", "unhandled", "value"}))
    source = random_source(rng)
    if kind in ("no_global", "distinct", "relation"):
        source = None  # type: ignore[assignment]
    expected: dict[str, Any] = {
        "type": lambda: rng.choice((int, str, dict, list, tuple, Plain, type)),
        "len": lambda: rng.randrange(3),
        "position": lambda: rng.randrange(4),
        "keys": lambda: tuple(rng.sample("abc", rng.randrange(3))),
        "set": lambda: frozenset(rng.randrange(4) for _ in range(rng.randrange(3))),
        "same": lambda: random_source(rng),
        "distinct": lambda: (random_source(rng), random_source(rng)),
        "own_dict": lambda: (random_source(rng), random_source(rng)),
        "equals": lambda: rng.choice(CONSTANTS),
        "is": lambda: rng.choice((None, Plain, len, function_of)),
        "number": lambda: rng.choice(((int, None, 1), (int, 0, None), (float, None, None))),
        "relation": lambda: random_relation(rng),
    }
    name = rng.choice("abc")
    return Row(kind, source, expected[kind]() if kind in expected else name)


@pytest.mark.parametrize("seed", range(8))
def test_native_and_mirror_agree_on_random_rows(seed: int) -> None:
    rng = random.Random(seed)
    outcomes = set()
    for _ in range(400):
        x, y = random_value(rng), random_value(rng)
        scope = {name: random_value(rng) for name in "ab"} | {"__builtins__": builtins}
        rows = [random_row(rng) for _ in range(rng.randrange(1, 4))]
        outcomes.add(verdict(rows, x, y, scope=scope))
    assert -1 in outcomes and 0 in outcomes


def test_relations_of_whole_numbers_and_floats() -> None:
    """Steps that Python and C could take differently: signs of divisions, ends of 64 bits, exactness of floats."""
    n, m = Symbol("n0", "int", 7), Symbol("n1", "int", -3)
    places = {n: ("number", local(), 0), m: ("number", local("y"), 0)}
    sides = [
        n // m,
        n % m,
        n * m,
        n * n * m,
        made("min", n, m),
        made("max", n, m),
        abs(m),
        n / m,
        n / 4,
        n + 0.5,
    ]
    values = [
        0,
        1,
        -1,
        2,
        -2,
        7,
        -7,
        1 << 31,
        1 << 53,
        (1 << 53) + 1,
        (1 << 63) - 1,
        -(1 << 63),
        1 << 63,
        0.5,
    ]
    outcomes = set()
    for side, x, y in itertools.product(sides, values, values):
        for op, limit in (("==", 0), ("<", 2), (">=", -1), ("!=", 3.0)):
            row = Row(
                "relation",
                None,
                compiled(facts.Relation(op, side, limit, True), lambda s: places[s]),
            )
            outcomes.add(verdict([row], x, y))
    assert outcomes == {-1, 0}


def test_relations_of_sizes() -> None:
    s, t = Symbol("s0", "int", 4, 2), Symbol("t1", "int", 1)
    places = {s: ("size", local(), 0), t: ("stride", local(), 1)}
    row = Row(
        "relation", None, compiled(facts.Relation("==", s * 2, t, True), lambda one: places[one])
    )
    outcomes = []
    for x in (
        torch.zeros(4, 8).t(),
        torch.zeros(8, 4).t(),
        torch.zeros(4),
        3,
        torch.zeros(8, 2).t(),
    ):
        outcomes.append(verdict([Row("type", local(), type(x)), row], x, None))
    assert outcomes == [1, 1, 1, 1, 1]
    assert verdict([row], torch.zeros(4, 2, 4)[:, :, 0].expand(4, 2).transpose(0, 1), None) == 0


def value_row(op: Any, outcome: Any, truth: bool = True) -> Row:
    """op(x, y) gives `outcome`."""
    inputs = (local(), local("y"))
    step = Aten(op, (Slot(0), Slot(1)), {}, (2,))
    program = ValueProgram(ProgramSpec("value guard", 2, 3, (step,), (2,)), object())
    return Row("value", None, ValueCheck(program, inputs, truth, outcome))


def test_values() -> None:
    one, two, nan = torch.tensor(1), torch.tensor(2), torch.tensor(float("nan"))
    less = value_row(torch.ops.aten.lt.Tensor, True)
    assert verdict([less], one, two) == -1 and verdict([less], two, one) == 0
    several = torch.tensor([1, 2])
    raising = torch.ones(3)
    assert verdict([less], several, raising) == 0 and verdict([less], several, two) == 0
    tensors = [Row("type", local(name), torch.Tensor) for name in "xy"]
    assert verdict([*tensors, less], 3, two) == 0 and verdict([*tensors, less], one, None) == 1
    total = torch.ops.aten.add.Tensor
    for outcome, holds_for in ((3, -1), (3.0, 0), (True, 0), (4, 0)):
        assert verdict([value_row(total, outcome, truth=False)], one, two) == holds_for
    assert verdict([value_row(total, float("nan"), truth=False)], one, nan) == -1
    assert verdict([value_row(total, True)], one, -one) == 0


def test_what_a_program_computes_is_kept_for_one_call() -> None:
    row = value_row(torch.ops.aten.lt.Tensor, True)
    x, y = torch.tensor(1), torch.tensor(2)
    program = compile_rows([row], [], frame.__code__)
    scope = {"__builtins__": builtins}
    assert program.check((x, y), scope, None) == -1
    x.fill_(5)
    assert program.check((x, y), scope, None) == 0


def test_open_sizes() -> None:
    spec = tensor_spec(torch.zeros(4, 8))
    row = Row("tensor", local(), dataclasses.replace(spec, shape=(None, 8)))
    tensors = [torch.zeros(n, 8) for n in (0, 1, 2, 3, 4, 400)]
    assert [holds(row, x) for x in tensors] == [False, False, True, True, True, True]
    assert not holds(row, torch.zeros(4, 8, dtype=torch.float64)) and not holds(row, torch.zeros(4))
    loose = Row("tensor", local(), dataclasses.replace(spec, shape=(4, None), stride=(None, 1)))
    assert holds(loose, torch.zeros(4, 3)) and holds(loose, torch.zeros(4, 9)[:, :5])
    assert not holds(loose, torch.zeros(3, 4).t())


def test_order_of_a_set() -> None:
    one, other = {0, 8}, {8, 0}
    assert one == other and list(one) != list(other)
    row = Row("keys", local(), tuple(one))
    assert holds(row, one) and not holds(row, other)
    assert not holds(row, {0}) and not holds(row, {0, 9}) and not holds(row, list(one))
    assert holds(Row("keys", local(), tuple(other)), frozenset(other))


def test_bases_of_a_class() -> None:
    class Base:
        pass

    class Other:
        pass

    class Cls(Base):
        pass

    row = Row("mro", local(), Cls.__mro__)
    assert holds(row, Cls) and not holds(row, Base) and not holds(row, 1)
    Cls.__bases__ = (Other,)
    assert not holds(row, Cls)
