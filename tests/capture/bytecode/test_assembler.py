"""The assembler: what each method emits does what it says, on the running version."""

from __future__ import annotations

import dis
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest

from graftjit.capture.bytecode.assembler import Assembler
from graftjit.capture.bytecode.decoder import decode
from graftjit.capture.bytecode.opcodes import NULL_FIRST
from graftjit.capture.emit.resume import (
    CannotResume,
    Path,
    ResumeSpec,
    break_tail,
    can_resume,
    resume_code,
)
from graftjit.ir.location import Location
from graftjit.runtime.guards.sources import Source

shared = {"of": "the module"}


def sample(a: Any, *rest: Any, key: Any = None, **more: Any) -> Any:
    return a, rest, key, more


def build(emit: Callable[[Assembler], None], like: Any = sample) -> types.FunctionType:
    asm = Assembler(like.__code__)
    emit(asm)
    return types.FunctionType(asm.finish(), globals(), closure=like.__closure__)


def returning(*steps: Callable[[Assembler], None], like: Any = sample) -> types.FunctionType:
    def emit(asm: Assembler) -> None:
        for step in steps:
            step(asm)
        asm.return_value()

    return build(emit, like)


def test_shape_of_the_replacement() -> None:
    code = returning(lambda a: a.load_fast("more")).__code__
    assert code.co_varnames[:4] == ("a", "key", "rest", "more")
    assert (code.co_argcount, code.co_kwonlyargcount, code.co_flags & 0x0C) == (4, 0, 0)
    assert (code.co_name, code.co_qualname) == ("sample", "sample")
    assert (code.co_filename, code.co_firstlineno) == (
        sample.__code__.co_filename,
        sample.__code__.co_firstlineno,
    )
    assert code.co_consts[0] is None


CONSTANTS = [
    1, True, 1.0, -0.0, 0.0, (1, 2), (True, 2), "a b", "plain_name", ("in", ("tuple_of", "names")), [1], {},
    {"unhashable": 1}, object(), frozenset({"some_name"}), float("nan"), None, ..., b"x", 2**70,
]  # fmt: skip


def test_constants_keep_their_identity() -> None:
    fresh = ["".join(("built_", "at_run", "time")), ("".join(("also_", "built")), 1)]
    values = [*CONSTANTS, *fresh, *(tuple([value]) for value in CONSTANTS)]

    def emit(asm: Assembler) -> None:
        for value in values:
            asm.load_const(value)
        asm.build_list(len(values))
        asm.return_value()

    before = [list(map(id, v)) if isinstance(v, tuple) else None for v in values]
    found = build(emit)(1, 2, 3, 4)
    assert all(one is other for one, other in zip(found, values, strict=True))
    assert before == [list(map(id, v)) if isinstance(v, tuple) else None for v in values]


def test_docstring_is_not_made_of_a_constant() -> None:
    assert returning(lambda a: a.load_const("text")).__doc__ is None


def test_names_of_every_kind() -> None:
    cell = "outer"

    def user(a: Any, b: Any) -> Any:
        def inner() -> Any:
            return a, cell

        return inner

    def emit(asm: Assembler) -> None:
        asm.load_fast("b")
        asm.store_fast(name := asm.fresh("t"))
        asm.delete_fast("b")
        asm.load_const("new a")
        asm.store_deref("a")
        asm.load_const("stored")
        asm.store_global("_test_global")
        asm.load_fast(name)
        asm.load_deref("a")
        asm.load_deref("cell")
        asm.load_global("_test_global")
        asm.delete_global("_test_global")
        asm.load_closure("a")
        asm.load_attr("cell_contents")
        asm.delete_deref("a")
        asm.load_closure("cell")
        asm.build_tuple(6)
        asm.return_value()

    function = build(emit, user)
    assert function.__code__.co_cellvars == ("a",)
    assert function.__code__.co_freevars == ("cell",)
    result = function(1, 2)
    assert result[:5] == (2, "new a", "outer", "stored", "new a")
    assert result[5] is user.__closure__[0]
    assert "_test_global" not in globals()


def test_containers_attributes_and_the_stack() -> None:
    class Bag:
        pass

    bag = Bag()

    def emit(asm: Assembler) -> None:
        c = asm.load_const
        c(5), c(bag), asm.store_attr("x"), c(6), c(bag), asm.store_attr("y")
        c(bag), asm.delete_attr("y")
        c("k"), c(1), asm.build_map(1), asm.copy(1), asm.store_fast("t")
        c(2), asm.swap(2), c("z"), asm.store_subscr()
        asm.load_fast("t"), c("k"), asm.delete_subscr()
        asm.load_fast("t")
        c(1), c(2), asm.build_set(2)
        c(1), c(None), asm.build_slice(2)
        c((7, 8)), asm.unpack_sequence(2), asm.build_list(2)
        c((9,)), asm.list_extend(1)
        asm.copy(1), c(2), asm.binary_subscr()
        c(0), asm.pop_top()
        asm.build_list(0), c("in"), asm.list_append(1), asm.list_to_tuple()
        asm.build_tuple(6), asm.return_value()

    assert build(emit)(*range(4)) == ({"z": 2}, {1, 2}, slice(1, None), [8, 7, 9], 9, ("in",))
    assert vars(bag) == {"x": 5}


def test_calls() -> None:
    def callee(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    def push(value: Any) -> Callable[[Assembler], Callable[[], None]]:
        return lambda asm: lambda: asm.load_const(value)

    plain = returning(lambda a: a.call_const(callee, push(1)(a), push(2)(a)))
    assert plain(*range(4)) == ((1, 2), {})
    named = returning(lambda a: a.call_const(callee, push(1)(a), push(2)(a), kwnames=("k",)))
    assert named(*range(4)) == ((1,), {"k": 2})

    def emit(asm: Assembler) -> None:
        asm.begin_call(lambda: asm.load_fast("a"))
        asm.load_fast("key")
        asm.end_call(1)

    assert returning(emit)(callee, "k", 0, 0) == (("k",), {})


@pytest.mark.parametrize(
    ("kind", "yes", "no"),
    [("true", [1], []), ("false", "", "x"), ("none", None, 0), ("not_none", 0, None)],
)
@pytest.mark.parametrize("backward", [False, True])
def test_conditional_jumps(kind: str, yes: Any, no: Any, backward: bool) -> None:
    def emit(asm: Assembler) -> None:
        label, test = asm.label(), asm.label()
        if backward:
            asm.jump(test)
            asm.place(label)
            asm.load_const("taken")
            asm.return_value()
        asm.place(test)
        asm.load_fast("a")
        asm.pop_jump_if(kind, label)
        asm.load_const("passed")
        asm.return_value()
        if not backward:
            asm.place(label)
            asm.load_const("taken")
            asm.return_value()

    function = build(emit)
    assert function(yes, 0, 0, 0) == "taken"
    assert function(no, 0, 0, 0) == "passed"


def test_many_constants_and_far_jumps() -> None:
    values = [object() for _ in range(700)]

    def emit(asm: Assembler) -> None:
        start, end = asm.label(), asm.label()
        asm.jump(end)
        asm.place(start)
        for value in values:
            asm.load_const(value)
            asm.store_fast("key")
        asm.load_fast("key")
        asm.return_value()
        asm.place(end)
        asm.load_fast("a")
        asm.pop_jump_if("true", start)
        asm.load_const("no")
        asm.return_value()

    function = build(emit)
    assert function(True, 0, 0, 0) is values[-1]
    assert function(False, 0, 0, 0) == "no"


def test_raise_and_location() -> None:
    where = Location(__file__, 12, 12, 4, 9, "sample")

    def emit(asm: Assembler) -> None:
        asm.set_location(where)
        asm.load_const(KeyError("k"))
        asm.raise_(1)

    with pytest.raises(KeyError) as caught:
        build(emit)(*range(4))
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.filename, frame.lineno, frame.colno, frame.end_colno) == (
        sample.__code__.co_filename, 12, 4, 9,
    )  # fmt: skip
    assert frame.name == "sample"


# -- sources ---------------------------------------------------------------------------------------------
class Odd(dict):
    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("user code ran")


class Holder:
    __slots__ = ("__dict__", "slot")
    shared = "on the class"

    def __init__(self) -> None:
        self.slot = "slot"
        self.own = Odd(k=[10, (20, 30)])

    def method(self) -> None: ...


def test_sources() -> None:
    free = "contents"
    holder = Holder()

    def user(local: Any, captured: Any) -> Any:
        return (lambda: (captured, free)), local

    local = Source("local", None, "local")
    cell = Source("cell", None, "free")
    own = Source("attr", local, "own")
    items = Source("item", own, "k")
    cls = Source("type", local)
    cases: list[tuple[Source, Any]] = [
        (local, holder),
        (Source("local", None, "captured"), "C"),
        (Source("global", None, "shared"), shared),
        (Source("globals"), globals()),
        (Source("builtin", None, "len"), len),
        (cell, user.__closure__[0]),
        (Source("contents", cell), "contents"),
        (Source("const", None, holder), holder),
        (own, holder.own),
        (Source("dict", local), holder.__dict__),
        (items, [10, (20, 30)]),
        (Source("item", Source("item", items, 1), 0), 20),
        (Source("key", Source("dict", local), 0), "own"),
        (cls, Holder),
        (Source("class_attr", local, "method"), Holder.__dict__["method"]),
        (Source("mro_attr", cls, "shared"), "on the class"),
        (Source("member", Source("class_attr", local, "method"), "__code__"), Holder.method.__code__),
        (Source("slot", local, "slot"), "slot"),
    ]  # fmt: skip
    for source, expected in cases:
        found = returning(lambda a, s=source: a.load_source(s), like=user)(holder, "C")
        assert found == expected, source
        assert type(found) is type(expected)


# -- breaks and resumes ----------------------------------------------------------------------------------
def split(
    function: types.FunctionType,
    index: int,
    stack: tuple[str, ...] = (),
    wrap: Any = None,
) -> types.FunctionType:
    """The function with a break at `index` in it, its resume functions called as `capture` has them called."""
    code = function.__code__
    asm = Assembler(code)

    def resume_for(target: int, path: Path) -> ResumeSpec:
        names = code.co_varnames[: code.co_argcount]
        made = resume_code(code, target, ("value",), names)

        def resume(closure: Any, *values: Any) -> Any:
            return types.FunctionType(made, function.__globals__, closure=closure)(*values)

        return ResumeSpec(resume, ("value",), names)

    asm.patches[index] = lambda: break_tail(
        asm, code, index, resume_for, wrap is not None, wrap, stack or None
    )
    asm.jump(asm.original(0))
    made = types.FunctionType(asm.finish(), function.__globals__, closure=function.__closure__)
    return made


def find(function: Any, op: str, nth: int = 0) -> int:
    return [i.index for i in decode(function.__code__).instrs if i.op == op][nth]


def test_a_break_at_a_call_runs_it_in_the_extent() -> None:
    seen: list[Any] = []

    def extent(function: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((function, args, kwargs))
        return function(*args, **kwargs)

    def plain(x: Any, y: Any) -> Any:
        return [x(y, 1), y]

    def keyed(x: Any, y: Any) -> Any:
        return [x(y, key=y), y]

    def starred(x: Any, y: Any) -> Any:
        return [x(*y, **{"key": 1}), y]

    def spread(x: Any, y: Any) -> Any:
        return [x(*y), y]

    def callee(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    for function, op, argument in (
        (plain, "CALL", 5), (keyed, "CALL", 5), (starred, "CALL_FUNCTION_EX", (1, 2)),
        (spread, "CALL_FUNCTION_EX", [3]),
    ):  # fmt: skip
        del seen[:]
        broken = split(function, find(function, op), wrap=extent)
        assert broken(callee, argument) == function(callee, argument)
        assert [call[0] for call in seen] == [callee]
    with pytest.raises(TypeError, match=r"callee\(\) argument after \* must be an iterable"):
        split(spread, find(spread, "CALL_FUNCTION_EX"), wrap=extent)(callee, 3)


def test_a_method_call_in_the_extent() -> None:
    seen: list[Any] = []

    def extent(function: Any, *args: Any) -> Any:
        seen.append((function, args))
        return function(*args)

    def method(x: Any, y: Any) -> Any:
        return [x.append(y), x, y]

    items: list[Any] = []
    # list.append is a method descriptor: both slots hold values
    broken = split(method, find(method, "CALL"), stack=("value", "value", "value"), wrap=extent)
    assert broken(items, 1) == [None, [1], 1]
    assert seen == [(list.append, (items, 1))]


def test_a_method_load_that_breaks_leaves_a_bound_method() -> None:
    def method(x: Any, y: Any) -> Any:
        z = x.pop(y)
        return z + 1

    index = find(method, "LOAD_METHOD")
    code = method.__code__
    asm = Assembler(code)
    after = ("null", "value") if NULL_FIRST else ("value", "null")
    found: list[Any] = []

    def resume(closure: None, bound: Any, y: Any) -> Any:
        found.append(bound)
        made = resume_code(code, index + 1, after, ("y",))
        return types.FunctionType(made, globals())(bound, y)

    asm.patches[index] = lambda: break_tail(
        asm, code, index, lambda target, path: ResumeSpec(resume, after, ("y",))
    )
    asm.jump(asm.original(0))
    assert types.FunctionType(asm.finish(), globals())([3, 4], 0) == 4
    assert found[0].__name__ == "pop"


def test_the_handler_of_a_break_is_a_way_on() -> None:
    def risky(x: Any, y: Any) -> Any:
        try:
            y.append(x(y))
        except ZeroDivisionError as error:
            y.append(str(error))
        finally:
            y.append("done")
        return y

    index = find(risky, "CALL")
    assert can_resume(risky.__code__, index) is None
    code = risky.__code__
    asm = Assembler(code)
    calls: list[int] = []

    def resume_for(target: int, path: Path) -> ResumeSpec:
        stack = ("value", "value", "value") if path[-1][1] == "falls" else ("value",)

        def resume(closure: None, *values: Any) -> Any:
            calls.append(target)
            made = resume_code(code, target, stack, ("x", "y"))
            return types.FunctionType(made, globals())(*values)

        return ResumeSpec(resume, stack, ("x", "y"))

    asm.patches[index] = lambda: break_tail(asm, code, index, resume_for)
    asm.jump(asm.original(0))
    function = types.FunctionType(asm.finish(), globals())
    assert function(len, [1]) == [1, 1, "done"]
    assert len(calls) == 1
    assert function(lambda y: 1 / 0, []) == ["division by zero", "done"]
    assert calls[1:] == [decode(code).instrs[index].handler]


def test_only_a_return_left_asks_for_no_resume() -> None:
    def last(x: Any) -> Any:
        x(1)

    def refuse(target: int, path: Path) -> ResumeSpec:
        raise AssertionError("not needed")

    asm = Assembler(last.__code__)
    index = find(last, "CALL")
    asm.patches[index] = lambda: break_tail(asm, last.__code__, index, refuse)
    asm.jump(asm.original(0))
    seen: list[int] = []
    assert types.FunctionType(asm.finish(), globals())(seen.append) is None
    assert seen == [1]


def test_the_frame_that_broke_keeps_nothing_alive() -> None:
    def user(x: Any, y: Any) -> Any:
        return [x, y(x), x, y]

    code, index = user.__code__, find(user, "CALL")
    seen: list[Any] = []

    def resume(closure: None, *values: Any) -> Any:
        seen.append(dict(sys._getframe(1).f_locals))
        return values

    spec = ResumeSpec(resume, ("value", "value"), ("x", "y"))
    asm = Assembler(code)
    asm.patches[index] = lambda: break_tail(asm, code, index, lambda target, path: spec)
    asm.jump(asm.original(0))
    assert types.FunctionType(asm.finish(), globals())("X", len) == ("X", 1, "X", len)
    assert seen == [{}]


def test_resumes_of_resumes_do_not_grow() -> None:
    def user(x: Any, y: Any) -> Any:
        total = 0
        for i in x:
            try:
                total += y(i)
            finally:
                y(total)
        return total

    code = user.__code__
    sizes = []
    for _ in range(6):
        instrs = decode(code).instrs
        index = next(i.index for i in instrs if i.op == "BINARY" and i.arg == "+=")
        code = resume_code(code, index, ("value",) * 3, ("total", "y"))
        sizes.append(len(code.co_code))
        assert code.co_qualname == user.__qualname__
        assert code.co_argcount == 5
    assert sizes[1:] == sizes[1:2] * 5
    assert types.FunctionType(code, globals())(iter([5]), 1, 2, 1, lambda v: v) == 8


def test_super_finds_self_in_a_resume_function() -> None:
    class Base:
        def value(self) -> int:
            return 7

    class Derived(Base):
        def value(self, other: Any = None) -> Any:
            other = other or print
            other("")
            return super().value() + 1

        def kept(self, other: Any) -> Any:
            other(lambda: self)
            found = super
            return found().value() + 1

    for function in (Derived.value, Derived.kept):
        code = function.__code__
        index = find(function, "POP_TOP")
        bound = tuple(n for n in ("other", "self") if n not in code.co_cellvars)
        made = resume_code(code, index, ("value",), bound)
        me = Derived()
        cells = {"self": types.CellType(me), "__class__": types.CellType(Derived)}
        closure = tuple(cells[name] for name in code.co_cellvars + code.co_freevars)
        values = {"other": len, "self": me}
        resumed = types.FunctionType(made, globals(), closure=closure)
        assert resumed("stack item", *(values[n] for n in bound)) == 8


def test_super_without_anything_to_stand_on_is_refused() -> None:
    class Derived(dict):
        def value(self) -> Any:
            print(lambda: self)
            return super().keys()

    code = Derived.value.__code__
    index = find(Derived.value, "POP_TOP")
    with pytest.raises(CannotResume):
        resume_code(code, index + 1, (), ())


def test_where_no_resume_is_possible() -> None:
    def generator(x: Any) -> Any:
        yield x

    def handled(x: Any) -> Any:
        try:
            x()
        except ValueError:
            x(1)

    assert can_resume(generator.__code__, 3)
    reasons = [can_resume(handled.__code__, i.index) for i in decode(handled.__code__).instrs]
    going_on = find(handled, "POP_EXCEPT", -1)
    assert reasons[going_on] == "an exception goes on here"
    assert reasons[find(handled, "CHECK_EXC_MATCH")] is None
    assert reasons[find(handled, "CALL")] is None
    assert can_resume(compile("x = 1", "m", "exec"), 1)
    with pytest.raises(CannotResume):
        resume_code(handled.__code__, going_on, ("exc", "lasti", "value", "value"), ())


def test_unbound_locals_stay_unbound() -> None:
    def user(x: Any) -> Any:
        if x:
            late = 1
        x()
        return late

    made = resume_code(user.__code__, find(user, "POP_TOP"), ("value",), ())
    with pytest.raises(UnboundLocalError):
        types.FunctionType(made, globals())(0)


def test_lines_of_a_resume_function_are_the_users() -> None:
    def user(x: Any) -> Any:
        y = x + 1
        return 1 / y

    made = resume_code(user.__code__, find(user, "STORE_FAST"), ("value",), ())
    with pytest.raises(ZeroDivisionError) as caught:
        types.FunctionType(made, globals())(0)
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.name, frame.line) == ("user", "return 1 / y")
    lines = {line for _, _, line in made.co_lines() if line is not None}
    assert lines <= {line for _, _, line in user.__code__.co_lines() if line is not None}


def test_dis_reads_what_the_assembler_writes() -> None:
    for function in (sample, split, test_sources):
        asm = Assembler(function.__code__)
        asm.jump(asm.original(0))
        code = asm.finish()
        assert [i.opname for i in dis.get_instructions(code)]
