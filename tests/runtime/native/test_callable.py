"""The native callable: binding as Python binds, entries, misses, attributes, lifetimes."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import itertools
import pickle
import random
import sys
import threading
import types
import weakref
from typing import Any

import pytest

from graftjit.runtime import _native
from graftjit.runtime.guards.compiler import compile_rows
from graftjit.runtime.guards.rows import Row
from graftjit.runtime.guards.sources import Source


@pytest.fixture(autouse=True)
def callbacks() -> Any:
    """No callbacks but those that a test sets; what the package has set is put back."""
    before = _native.set_callbacks(policy=None, state_for=None, check=None, on_rerun=None)
    yield _native.set_callbacks
    _native.set_callbacks(**before)


def local(name: str) -> Source:
    return Source("local", None, name)


def parameters(code: types.CodeType) -> tuple[str, ...]:
    flags = code.co_flags
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(flags & inspect.CO_VARARGS) + bool(flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def locals_entry(function: types.FunctionType) -> Any:
    """A direct entry without guards that returns the locals vector."""
    names = [local(name) for name in parameters(function.__code__)]
    tree = ("tuple", *(("input", i) for i in range(len(names))))
    guards = compile_rows([], names, function.__code__)
    return _native.Entry("direct", guards, lambda: (), tree, n_program_inputs=0)


def jitted(function: Any, *entries: Any, miss: Any = None, **options: Any) -> Any:
    state = _native.CodeState(function.__code__, miss)
    for entry in entries:
        state.add(entry)
    return _native.Callable(function, state, **options)


def code_entry(function: types.FunctionType, replacement: Any, *rows: Row) -> Any:
    code = getattr(replacement, "__code__", replacement)
    return _native.Entry("code", compile_rows(rows, [], function.__code__), code)


# --- binding -----------------------------------------------------------------------------------------


def bind_0() -> Any:
    return vector(locals())


def bind_1(a: Any) -> Any:
    return vector(locals())


def bind_2(a: Any, b: Any = "b0") -> Any:
    return vector(locals())


def bind_3(a: Any, /, b: Any, c: Any = "c0") -> Any:
    return vector(locals())


def bind_4(a: Any, *rest: Any) -> Any:
    return vector(locals())


def bind_5(a: Any, *rest: Any, k: Any, m: Any = "m0") -> Any:
    return vector(locals())


def bind_6(a: Any = "a0", *, k: Any = "k0", **more: Any) -> Any:
    return vector(locals())


def bind_7(a: Any, /, *rest: Any, k: Any = "k0", **more: Any) -> Any:
    return vector(locals())


def bind_8(*rest: Any, **more: Any) -> Any:
    return vector(locals())


def bind_9(a: Any = 1, b: Any = 2, /, c: Any = 3, *, d: Any = 4) -> Any:
    return vector(locals())


def vector(scope: dict[str, Any]) -> tuple[Any, ...]:
    """What a function's frame starts with; locals() has the order of co_varnames."""
    return ("plain", *scope.values())


BOUND = [bind_0, bind_1, bind_2, bind_3, bind_4, bind_5, bind_6, bind_7, bind_8, bind_9]


@pytest.mark.parametrize("function", BOUND, ids=lambda function: function.__name__)
def test_binding_is_pythons(function: Any) -> None:
    call = jitted(function, locals_entry(function))
    names = ("a", "b", "c", "d", "k", "m", "z")
    rng = random.Random(3)
    choices = [
        (n, chosen)
        for n in range(5)
        for size in range(4)
        for chosen in itertools.combinations(names, size)
    ]
    for n, chosen in rng.sample(choices, 250):
        args, kwargs = tuple(range(n)), {name: name.upper() for name in chosen}
        try:
            expected = function(*args, **kwargs)
        except TypeError as error:
            with pytest.raises(TypeError) as ours:
                call(*args, **kwargs)
            assert str(ours.value) == str(error)
        else:
            assert call(*args, **kwargs) == expected[1:]


def test_many_parameters() -> None:
    names = [f"p{i}" for i in range(60)]
    scope: dict[str, Any] = {}
    exec(f"def wide({', '.join(names)}, *rest, last=1): ...", scope)
    call = jitted(scope["wide"], locals_entry(scope["wide"]))
    assert call(*range(60)) == (*range(60), 1, ())
    assert call(*range(59), p59=0) == (*range(59), 0, 1, ())


def test_str_subclass_keywords_are_left_to_python() -> None:
    class Name(str):
        pass

    def f(**more: Any) -> Any:
        return sorted(more)

    assert jitted(f, locals_entry(f))(**{Name("x"): 1}) == ["x"]


def test_defaults_are_read_at_each_call() -> None:
    def f(a: Any, b: Any = 1, *, k: Any = 2) -> Any: ...

    call = jitted(f, locals_entry(f))
    assert call(0) == (0, 1, 2)
    f.__defaults__ = (5,)
    f.__kwdefaults__["k"] = 6
    assert call(0) == (0, 5, 6)
    call.__defaults__ = (7,)
    assert f.__defaults__ == (7,)
    assert call(0) == (0, 7, 6)
    f.__defaults__ = None
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        call(0)


# --- entries -----------------------------------------------------------------------------------------


def test_trees() -> None:
    def f(x: Any, y: Any) -> Any: ...

    tree = (
        "dict",
        (
            (("const", "outs"), ("list", ("out", 0), ("out", 1), ("out", 0))),
            (("input", 1), ("tuple", ("input", 0), ("const", None), ("tuple",))),
        ),
    )
    guards = compile_rows([], [local("x"), local("y")], f.__code__)
    entry = _native.Entry("direct", guards, lambda x: (x + 1, x + 2), tree, n_program_inputs=1)
    assert jitted(f, entry)(1, "k") == {"outs": [2, 3, 2], "k": (1, None, ())}
    assert entry.hits == 1 and entry.kind == "direct"


@pytest.mark.parametrize(
    "tree",
    [
        None, (), ("out",), ("out", 0, 1), ("out", "x"), ("input", 1), ("input", -1), ("out", -1), ("what", 1),
        ("tuple", 3), ("dict", (1,)), ("dict", ((("const", 1),),)),
    ],
)  # fmt: skip
def test_a_bad_tree_is_refused(tree: Any) -> None:
    guards = compile_rows([], [local("a")], bind_1.__code__)
    with pytest.raises((TypeError, ValueError)):
        _native.Entry("direct", guards, lambda x: (x,), tree)


def test_a_bad_entry_is_refused() -> None:
    guards = compile_rows([], [], bind_1.__code__)
    with pytest.raises(ValueError, match="kind"):
        _native.Entry("other", guards)
    with pytest.raises(TypeError, match="code object"):
        _native.Entry("code", guards, 3)
    with pytest.raises(ValueError, match="callable"):
        _native.Entry("direct", guards, 3, ("const", 1))
    with pytest.raises(ValueError, match="guards lack"):
        _native.Entry("direct", guards, print, ("const", 1), n_program_inputs=1)


def test_a_program_that_breaks_its_word() -> None:
    guards = compile_rows([], [local("a")], bind_1.__code__)
    entry = _native.Entry("direct", guards, lambda x: 5, ("out", 0))
    with pytest.raises(TypeError, match="not a tuple"):
        jitted(bind_1, entry)(1)
    entry = _native.Entry("direct", guards, lambda x: (), ("out", 0))
    with pytest.raises(SystemError, match="0 outputs"):
        jitted(bind_1, entry)(1)


def test_the_entry_whose_guards_hold_answers() -> None:
    def f(x: Any) -> Any:
        return "plain", x

    def on_int(x: Any) -> Any:
        return "int", x

    def on_str(x: Any) -> Any:
        return "str", x

    ints = code_entry(f, on_int, Row("type", local("x"), int))
    strs = code_entry(f, on_str, Row("type", local("x"), str))
    call = jitted(f, ints, strs)
    values = [1, "a", 2, 3, "b", 1.5, "c", 4]
    names = {int: "int", str: "str", float: "plain"}
    assert [call(value) for value in values] == [(names[type(v)], v) for v in values]
    assert (ints.hits, strs.hits, call.state.misses) == (4, 3, 1)
    assert call.state.entries == (ints, strs)
    call.state.remove(ints)
    assert call(1) == ("plain", 1)
    call.state.clear()
    assert call.state.entries == ()


def test_replacement_code_has_the_globals_and_the_closure() -> None:
    def make(free: Any) -> Any:
        def f(x: Any) -> Any:
            return x, free, SCOPE_WORD

        return f

    scope_one, scope_two = {"SCOPE_WORD": 1}, {"SCOPE_WORD": 2}
    code = make(0).__code__
    state = _native.CodeState(code)
    state.add(_native.Entry("code", compile_rows([], [], code), code))
    calls = [
        _native.Callable(types.FunctionType(code, scope, "f", None, make(free).__closure__), state)
        for scope, free in ((scope_one, "a"), (scope_one, "b"), (scope_two, "a"))
    ]
    for _ in range(3):
        assert [call(0) for call in calls] == [(0, "a", 1), (0, "b", 1), (0, "a", 2)]
    assert state.entries[0].hits == 9


SCOPE_WORD = 0


def test_a_miss_makes_an_entry() -> None:
    seen: list[Any] = []

    def f(x: Any, *rest: Any, k: Any = 0, **more: Any) -> Any:
        return "plain"

    def miss(state: Any, values: tuple, scope: dict, closure: Any) -> Any:
        seen.append((values, scope is globals(), closure))
        entry = locals_entry(f)
        state.add(entry)
        return entry

    call = jitted(f, miss=miss)
    assert call(1, 2, z=3) == (1, 0, (2,), {"z": 3})
    assert call(4) == (4, 0, (), {})
    assert seen == [((1, 0, (2,), {"z": 3}), True, None)]


def test_a_miss_may_decline() -> None:
    def f(x: Any) -> Any:
        return "plain", x

    call = jitted(f, miss=lambda *_: None)
    assert [call(1), call(2)] == [("plain", 1), ("plain", 2)]
    assert call.state.misses == 2
    call.state.disabled = True
    assert call(3) == ("plain", 3)
    assert call.state.misses == 2


def test_an_entry_that_does_not_hold_on_its_own_call_is_not_run() -> None:
    def f(x: Any) -> Any:
        return "plain", x

    entry = code_entry(f, lambda x: "wrong", Row("type", local("x"), str))
    assert jitted(f, miss=lambda *_: entry)(1) == ("plain", 1)


def test_an_error_of_miss_comes_out() -> None:
    def miss(*_: Any) -> Any:
        raise LookupError("told to the user")

    with pytest.raises(LookupError, match="told to the user"):
        jitted(bind_1, miss=miss)(1)
    with pytest.raises(TypeError, match="not an Entry"):
        jitted(bind_1, miss=lambda *_: 3)(1)


def test_a_function_that_calls_itself_while_captured_runs_plain() -> None:
    def f(n: Any) -> Any:
        return 0 if n == 0 else 1 + call(n - 1)

    depth = []

    def miss(state: Any, values: tuple, scope: dict, closure: Any) -> Any:
        depth.append(f(*values))
        return None

    call = jitted(f, miss=miss)
    assert call(3) == 3
    assert depth == [3, 2, 1, 0]


def test_plain_entries_and_generators() -> None:
    def f(n: Any) -> Any:
        yield from range(n)

    entry = _native.Entry("plain", compile_rows([], [], f.__code__), name="f")
    call = jitted(f, entry)
    assert list(call(3)) == [0, 1, 2]
    assert entry.hits == 1 and entry.name == "f" and entry.kind == "plain"


def test_a_program_that_fails_is_run_again_in_plain_python(callbacks: Any) -> None:
    emitted: list[Any] = []
    callbacks(on_rerun=lambda state, entry, error: emitted.append((state.code, entry, str(error))))

    def f(x: Any) -> Any:
        raise KeyError("from plain Python")

    def program(x: Any) -> Any:
        raise error

    guards = compile_rows([], [local("x")], f.__code__)
    entry = _native.Entry("direct", guards, program, ("out", 0), rerun=True)
    call = jitted(f, entry)
    error: BaseException = ValueError("from the program")
    with pytest.raises(KeyError, match="from plain Python") as caught:
        call(1)
    assert caught.value.__context__ is None
    assert emitted == [(f.__code__, entry, "from the program")]
    error = KeyboardInterrupt()  # what is to come out is for Python's side to say

    def comes_out(state: Any, entry: Any, error: BaseException) -> None:
        raise error

    callbacks(on_rerun=comes_out)
    with pytest.raises(KeyboardInterrupt):
        call(1)
    entry.rerun = False
    error = ValueError("not again")
    with pytest.raises(ValueError, match="not again"):
        call(1)
    entry.rerun, error = True, ValueError("first")
    callbacks(on_rerun=lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        call(1)


def test_the_check_callback_hears_every_verdict(callbacks: Any) -> None:
    heard: list[Any] = []
    callbacks(check=lambda *emitted: heard.append(emitted[1:]))

    def f(x: Any) -> Any:
        return x

    entry = code_entry(f, f, Row("type", local("x"), str), Row("equals", local("x"), "a"))
    call = jitted(f, entry)
    assert [call("a"), call("b"), call(1)] == ["a", "b", 1]
    assert heard == [
        (entry, entry.guards, (value,), globals(), None, verdict)
        for value, verdict in (("a", -1), ("b", 1), (1, 0))
    ]

    def refuse(*_: Any) -> None:
        raise AssertionError("they do not agree")

    callbacks(check=refuse)
    with pytest.raises(AssertionError, match="do not agree"):
        call("a")


def test_rebound_code_gets_a_state_of_its_own(callbacks: Any) -> None:
    def f(x: Any) -> Any:
        return "old"

    def g(x: Any) -> Any:
        return "new"

    asked = []

    def state_for(code: Any) -> Any:
        asked.append(code)
        return _native.CodeState(code)

    call = jitted(f, code_entry(f, lambda x: "compiled"))
    assert call(1) == "compiled"
    f.__code__ = g.__code__
    with pytest.raises(RuntimeError, match="state_for"):
        call(1)
    callbacks(state_for=state_for)
    assert [call(1), call(1)] == ["new", "new"]
    assert asked == [g.__code__]
    callbacks(state_for=lambda code: 3)
    f.__code__ = (lambda x: "third").__code__
    with pytest.raises(TypeError, match="CodeState expected"):
        call(1)


# --- resume functions --------------------------------------------------------------------------------


def test_resume() -> None:
    def make(free: Any) -> Any:
        def rest(a: Any, b: Any) -> Any:
            return a, b, free

        return rest

    rest = make("f")
    call = jitted(rest, resume=True)
    assert call(rest.__closure__, 1, 2) == (1, 2, "f")
    assert call(make("g").__closure__, 1, 2) == (1, 2, "g")
    row = Row("equals", Source("contents", Source("cell", None, "free")), "g")
    call.state.add(_native.Entry("code", compile_rows([row], [], rest.__code__), rest.__code__))
    assert call(make("g").__closure__, 1, 2) == (1, 2, "g")
    assert call(rest.__closure__, 1, 2) == (1, 2, "f")
    assert call.state.entries[0].hits == 1
    for wrong in ((), (rest.__closure__, 1), (3, 1, 2)):
        with pytest.raises(SystemError):
            call(*wrong)


def test_resume_without_free_variables() -> None:
    code = (lambda a: (a, SCOPE_WORD)).__code__
    call = _native.Callable(None, _native.CodeState(code), resume=True, globals={"SCOPE_WORD": 5})
    assert call(None, 1) == (1, 5)
    assert call((), 1) == (1, 5)
    assert "resume" in repr(call)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(call)


# --- looks like the function -------------------------------------------------------------------------


def documented(a: int, b: str = "x", *, c: float = 1.0) -> list[int]:
    """What it does."""
    return [a]


class Named(_native.Callable):
    """A Python subclass, as jit makes."""

    def report(self) -> str:
        return "report"


def test_it_looks_like_the_function() -> None:
    documented.note = "hi"  # type: ignore[attr-defined]
    call = jitted(documented)
    assert inspect.signature(call) == inspect.signature(documented)
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__code__", "__defaults__",
                 "__kwdefaults__", "__globals__", "__closure__", "__annotations__", "note"):  # fmt: skip
        assert getattr(call, name) == getattr(documented, name), name
    assert call.__wrapped__ is documented
    assert inspect.unwrap(call) is documented
    assert callable(call) and "documented" in repr(call)
    call.mine = 3
    assert call.mine == documented.mine == 3 and call.__dict__ is documented.__dict__  # type: ignore[attr-defined]
    del call.mine
    with pytest.raises(AttributeError):
        call.mine  # noqa: B018
    call.__name__ = "renamed"
    assert documented.__name__ == "renamed"
    documented.__name__ = "documented"
    assert copy.deepcopy(call) is call and copy.copy(call) is call
    assert functools.wraps(call)(lambda: 0).__name__ == "documented"
    assert functools.partial(call, 3)() == [3]


@pytest.mark.parametrize("base", [_native.Callable, Named], ids=["native", "subclass"])
def test_it_binds_like_a_function(base: type) -> None:
    def method(self: Any, x: Any) -> Any:
        return self, x

    made = base(method, _native.CodeState(method.__code__))

    class Owner:
        m = made
        s = staticmethod(made)
        c = classmethod(made)

    owner = Owner()
    assert owner.m(1) == (owner, 1)
    assert Owner.m(owner, 2) == (owner, 2)
    bound = owner.m
    assert bound(3) == (owner, 3) and bound.__self__ is owner and bound.__func__ is made
    assert bound == owner.m
    assert owner.s(4, 5) == (4, 5)
    assert owner.c(6) == (Owner, 6)
    assert inspect.signature(owner.m) == inspect.signature(method.__get__(owner))
    assert Owner.m is made


def test_a_subclass_keeps_the_vectorcall() -> None:
    have_vectorcall, method_descriptor = 1 << 11, 1 << 17
    assert Named.__flags__ & have_vectorcall and Named.__flags__ & method_descriptor

    class Own(_native.Callable):
        def __call__(self, *args: Any) -> Any:
            return "own"

    assert not Own.__flags__ & have_vectorcall
    assert Own(bind_1, _native.CodeState(bind_1.__code__))(1) == "own"
    named = Named(bind_1, _native.CodeState(bind_1.__code__), False)
    assert named.report() == "report" and named(1) == ("plain", 1)


def test_what_is_not_a_function_is_refused() -> None:
    state = _native.CodeState(bind_1.__code__)
    for wrong in (3, print, Named, functools.partial(bind_1)):
        with pytest.raises(TypeError, match="Python function expected"):
            _native.Callable(wrong, state)
    with pytest.raises(TypeError, match="CodeState"):
        _native.Callable(bind_1, None)
    with pytest.raises(TypeError):
        _native.CodeState(3)
    with pytest.raises(TypeError, match="Entry expected"):
        state.add(3)


# --- lifetimes and threads ---------------------------------------------------------------------------


def test_recreated_closures_leave_nothing() -> None:
    class Payload:
        pass

    def make() -> Any:
        payload = Payload()

        def f(x: Any) -> Any:
            return payload, call, x

        call = jitted(f, code_entry(f, f), locals_entry(f))
        call.note = call
        return call, weakref.ref(call), weakref.ref(payload), weakref.ref(call.state)

    alive = []
    for _ in range(200):
        call, *refs = make()
        call(1)
        alive += refs
    del call
    gc.collect()
    assert [ref() for ref in alive if ref() is not None] == []


def test_references_are_balanced() -> None:
    def f(x: Any, *rest: Any, k: Any = None, **more: Any) -> Any:
        return x

    token = object()
    call = jitted(f, locals_entry(f), code_entry(f, lambda x, k, rest, more: x))
    raising = jitted(f, code_entry(f, lambda x, k, rest, more: 1 // 0))
    before = sys.getrefcount(token)
    for _ in range(100):
        call(token, token, k=token, z=token)
        call(token)
        with pytest.raises(ZeroDivisionError):
            raising(token)
        with pytest.raises(TypeError):
            call(k=token)
    gc.collect()
    assert sys.getrefcount(token) == before


def test_a_state_kept_by_its_code() -> None:
    scope: dict[str, Any] = {}
    exec("def f(x): return x", scope)
    function = scope["f"]
    state = _native.CodeState(function.__code__)
    alive = weakref.ref(state)
    _native.adopt_state(function.__code__, state)
    assert _native.state_of(function.__code__) is state
    del state
    gc.collect()
    held = alive()
    assert held is not None and held.code is function.__code__
    other = _native.CodeState(function.__code__)
    _native.adopt_state(function.__code__, other)
    assert held.code is function.__code__
    with pytest.raises(ValueError, match="another code"):
        _native.adopt_state(bind_1.__code__, other)
    del held, function, scope
    gc.collect()
    assert other.code is None and alive() is None
    assert _native.state_of(bind_1.__code__) is None


def test_threads_may_publish_while_others_call() -> None:
    def f(x: Any) -> Any:
        return x

    call = jitted(f, locals_entry(f))
    stop = threading.Event()
    failures: list[BaseException] = []

    def publish() -> None:
        while not stop.is_set():
            call.state.add(code_entry(f, f, Row("type", local("x"), str)))
            if len(call.state.entries) > 20:
                call.state.clear()

    def use() -> None:
        try:
            for i in range(20000):
                assert call(i) in (i, (i,))
        except BaseException as error:  # told to the main thread
            failures.append(error)

    publisher = threading.Thread(target=publish)
    users = [threading.Thread(target=use) for _ in range(3)]
    publisher.start()
    for thread in users:
        thread.start()
    for thread in users:
        thread.join()
    stop.set()
    publisher.join()
    assert failures == []


def test_deep_recursion_ends_in_a_recursion_error() -> None:
    def f(n: Any) -> Any:
        return call(n + 1)

    call = jitted(f, code_entry(f, f))
    with pytest.raises(RecursionError):
        call(0)
