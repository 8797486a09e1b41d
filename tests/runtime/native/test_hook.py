"""The frame hook: frames inside an extent are looked up, all others are left as they are."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import subprocess
import sys
import sysconfig
import threading
import traceback
import types
import weakref
from typing import Any

import pytest

from graftjit.runtime import _native
from graftjit.runtime.guards.compiler import compile_rows
from graftjit.runtime.guards.rows import Row
from graftjit.runtime.guards.sources import Source

IN_EXTENT = _native.call_in_extent
SCOPE: dict[str, Any] = {}  # what replacement code reaches without a closure


def inner(a: Any, b: Any = 1) -> Any:
    return "plain", a, b


def compiled(a: Any, b: Any) -> Any:
    return "compiled", a, b


def raises(a: Any) -> Any:
    raise ValueError("plain")


def compiled_raises(a: Any) -> Any:
    raise ZeroDivisionError("compiled")


def code_entry(code: types.CodeType, replacement: Any, *rows: Row) -> Any:
    target = getattr(replacement, "__code__", replacement)
    return _native.Entry("code", compile_rows(rows, [], code), target)


class Policy:
    """Replaces the functions it is given; remembers what it was asked and what missed."""

    def __init__(self, *pairs: tuple[Any, Any]) -> None:
        self.replacements = {id(function.__code__): value for function, value in pairs}
        self.asked: list[str] = []
        self.missed: list[Any] = []

    def __call__(self, code: types.CodeType, scope: dict[str, Any]) -> Any:
        self.asked.append(code.co_name)
        return _native.CodeState(code, self.miss) if id(code) in self.replacements else None

    def miss(self, state: Any, values: tuple, scope: dict, closure: Any) -> Any:
        self.missed.append((state.code.co_name, values))
        made = self.replacements[id(state.code)]
        entry = made if isinstance(made, _native.Entry) else code_entry(state.code, made)
        state.add(entry)
        return entry


def fresh(function: Any) -> Any:
    """The function over a code object of its own: what a code object keeps is kept for good."""
    code = function.__code__.replace(co_name=function.__name__)
    made = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


@pytest.fixture(autouse=True)
def callbacks() -> Any:
    before = _native.set_callbacks(policy=None, state_for=None, check=None, on_rerun=None)
    yield
    _native.set_callbacks(**before)
    assert _native.hook_status() == {"installed": False, "extents": 0, "lookup": False}


def use(*pairs: tuple[Any, Any]) -> Policy:
    policy = Policy(*pairs)
    _native.set_callbacks(policy=policy)
    return policy


def test_frames_inside_an_extent_are_replaced_and_no_others() -> None:
    target = fresh(inner)
    policy = use((target, compiled))

    def outer(n: int) -> Any:
        return [target(i) for i in range(n)]

    assert outer(2) == [("plain", 0, 1), ("plain", 1, 1)]
    assert policy.asked == []
    assert IN_EXTENT(outer, 2) == [("compiled", 0, 1), ("compiled", 1, 1)]
    assert policy.missed == [("inner", (0, 1))]
    assert policy.asked.count("inner") == 1 and policy.asked.count("outer") == 1
    assert outer(1) == [("plain", 0, 1)]
    assert IN_EXTENT(outer, 1) == [("compiled", 0, 1)]
    assert policy.asked.count("outer") == 1
    assert IN_EXTENT(target, 5, b=6) == ("compiled", 5, 6)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        IN_EXTENT(target)
    with pytest.raises(TypeError, match="call_in_extent"):
        IN_EXTENT()


def test_all_kinds_of_parameters_cells_and_closures() -> None:
    free = "free"

    def f(a: Any, *rest: Any, k: Any = 0, **more: Any) -> Any:
        def holds_cells() -> Any:
            return a, rest, k, more

        return free, holds_cells()

    def replaced(a: Any, k: Any, rest: Any, more: Any) -> Any:
        return free, "compiled", a, k, rest, more

    target = fresh(f)
    use((target, replaced))
    assert IN_EXTENT(lambda: target(1, 2, k=3, z=4)) == (
        "free", "compiled", 1, 3, (2,), {"z": 4},
    )  # fmt: skip
    assert target(1) == ("free", (1, (), 0, {}))


def test_each_closure_has_its_own_cells() -> None:
    def make(free: Any) -> Any:
        def f(x: Any) -> Any:
            return x, free

        return f

    code = make(0).__code__.replace(co_name="shared")
    row = Row("equals", Source("contents", Source("cell", None, "free")), 7)
    replacement = make(0).__code__
    functions = [types.FunctionType(code, {}, "f", None, make(i).__closure__) for i in (7, 8, 7)]
    entry = code_entry(code, replacement, row)
    use((functions[0], entry))
    assert IN_EXTENT(lambda: [f(1) for f in functions]) == [(1, 7), (1, 8), (1, 7)]
    assert entry.hits == 2


def test_direct_entries_and_methods() -> None:
    class Thing:
        def __init__(self, size: int) -> None:
            self.size = size

        def grow(self, by: int) -> Any:
            return "plain"

    size = Source("attr", Source("local", None, "self"), "size")
    by = Source("local", None, "by")
    code = Thing.grow.__code__
    guards = compile_rows([Row("type", size, int)], [size, by], code)
    entry = _native.Entry("direct", guards, lambda a, b: (a + b,), ("out", 0))
    use((Thing.grow, entry))
    assert IN_EXTENT(lambda: [Thing(i).grow(10) for i in range(3)]) == [10, 11, 12]
    assert IN_EXTENT(lambda: Thing("x").grow(1)) == "plain"


def test_an_exception_of_a_replaced_frame() -> None:
    target = fresh(raises)
    use((target, compiled_raises))

    def outer() -> Any:
        try:
            target(1)
        except ZeroDivisionError as error:
            return error

    error = IN_EXTENT(outer)
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names == ["outer", "compiled_raises"]
    assert str(error) == "compiled" and error.__context__ is None
    with pytest.raises(ZeroDivisionError):
        IN_EXTENT(target, 1)
    with pytest.raises(ValueError, match="plain"):
        target(1)


def test_errors_of_miss_and_policy_come_out() -> None:
    target = fresh(inner)

    class Refuses(Policy):
        def miss(self, *_: Any) -> Any:
            raise LookupError("strict")

    policy = Refuses((target, compiled))
    _native.set_callbacks(policy=policy)
    with pytest.raises(LookupError, match="strict"):
        IN_EXTENT(target, 1)
    _native.set_callbacks(policy=lambda code, scope: 3)
    with pytest.raises(TypeError, match="CodeState or None"):
        IN_EXTENT(fresh(inner), 1)


def test_a_state_of_another_code_is_not_used() -> None:
    _native.set_callbacks(policy=lambda code, scope: _native.CodeState(inner.__code__))
    assert IN_EXTENT(fresh(inner), 1) == ("plain", 1, 1)


def test_a_new_policy_asks_again() -> None:
    target = fresh(inner)
    use()
    assert IN_EXTENT(target, 1) == ("plain", 1, 1)
    use((target, compiled))
    assert IN_EXTENT(target, 1) == ("compiled", 1, 1)


def test_generators_coroutines_and_class_bodies_are_left_alone() -> None:
    def numbers(n: int) -> Any:
        got = yield n
        yield inner(got)

    async def later(n: int) -> Any:
        await asyncio.sleep(0)
        return inner(n)

    async def many(n: int) -> Any:
        yield n

    asked: list[str] = []
    _native.set_callbacks(policy=lambda code, scope: asked.append(code.co_name))

    def outer() -> Any:
        generator = numbers(1)

        class Body:
            size = len([inner(i) for i in range(2)])

        first = next(generator)
        return first, generator.send(2), asyncio.run(later(3)), Body.size

    assert IN_EXTENT(outer) == (1, ("plain", 2, 1), ("plain", 3, 1), 2)
    assert not {"numbers", "later", "many", "Body", "<module>"} & set(asked)
    assert "inner" in asked
    generator = numbers(1)
    next(generator)
    with pytest.raises(KeyError):
        IN_EXTENT(generator.throw, KeyError("thrown"))


def test_traced_and_profiled_frames_are_left_alone() -> None:
    target = fresh(inner)
    use((target, compiled))
    assert IN_EXTENT(target, 1)[0] == "compiled"
    seen: list[str] = []
    for switch, current in ((sys.settrace, sys.gettrace()), (sys.setprofile, sys.getprofile())):
        switch(lambda frame, event, arg: seen.append(frame.f_code.co_name))
        try:
            outcome = IN_EXTENT(target, 1)
        finally:
            switch(current)
        assert outcome[0] == "plain" and "inner" in seen
        seen.clear()
    if current is None and sys.gettrace() is None:
        assert IN_EXTENT(target, 1)[0] == "compiled"


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in Python 3.12")
def test_monitored_frames_are_left_alone() -> None:
    target = fresh(inner)
    use((target, compiled))
    monitoring, tool = sys.monitoring, 3
    monitoring.use_tool_id(tool, "test")
    try:
        monitoring.set_events(tool, monitoring.events.PY_START)
        assert IN_EXTENT(target, 1)[0] == "plain"
        monitoring.set_events(tool, 0)
        # it may watch a function that a program has inlined: nobody asks each of those
        assert IN_EXTENT(target, 1)[0] == "plain"
        monitoring.set_local_events(tool, target.__code__, monitoring.events.LINE)
        assert IN_EXTENT(target, 1)[0] == "plain"
    finally:
        monitoring.set_local_events(tool, target.__code__, 0)
        monitoring.free_tool_id(tool)
    assert IN_EXTENT(target, 1)[0] == "compiled"


def test_replacements_run_with_the_hook_off_and_extents_turn_it_on_again() -> None:
    target, helper = fresh(inner), fresh(inner)

    def calls_helper(a: Any, b: Any) -> Any:
        return [SCOPE["helper"](a), IN_EXTENT(SCOPE["helper"], a), _native.hook_status()["lookup"]]

    SCOPE["helper"] = helper
    use((target, calls_helper), (helper, compiled))
    assert IN_EXTENT(lambda: [target(1), helper(2)]) == [
        [("plain", 1, 1), ("compiled", 1, 1), False],
        ("compiled", 2, 1),
    ]


def test_callables_work_inside_and_are_not_looked_up_twice() -> None:
    target, helper = fresh(inner), fresh(inner)
    policy = use((target, compiled), (helper, compiled))
    state = _native.CodeState(target.__code__, lambda *_: None)
    call = _native.Callable(target, state)
    assert IN_EXTENT(call, 1) == ("plain", 1, 1)
    assert policy.asked == [] and state.misses == 1
    state.add(code_entry(target.__code__, compiled))
    assert IN_EXTENT(lambda: (call(1), helper(2))) == (("compiled", 1, 1), ("compiled", 2, 1))
    assert call(3) == ("compiled", 3, 1)


def test_a_plain_entry_with_an_extent() -> None:
    helper = fresh(inner)

    def outer(x: Any) -> Any:
        return helper(x)

    policy = use((helper, compiled), (outer, compiled))
    guards = compile_rows([], [], outer.__code__)
    state = _native.CodeState(outer.__code__)
    call = _native.Callable(outer, state)
    entry = _native.Entry("plain", guards)
    state.add(entry)
    assert call(1) == ("plain", 1, 1)
    entry.extent = True
    assert call(1) == ("compiled", 1, 1)
    assert policy.asked == ["inner"]


def test_recursion_while_a_frame_is_captured() -> None:
    def f(n: int) -> int:
        return 0 if n == 0 else 1 + f(n - 1)

    results = []

    class Runs(Policy):
        def miss(self, state: Any, values: tuple, scope: dict, closure: Any) -> Any:
            results.append(IN_EXTENT(f, *values))
            return None

    _native.set_callbacks(policy=Runs((f, compiled)))
    assert IN_EXTENT(f, 2) == 2
    assert results == [2, 1, 0]


def test_deep_recursion_through_replaced_frames() -> None:
    def f(n: int) -> Any:
        return None

    def replaced(n: int) -> Any:
        return IN_EXTENT(SCOPE["deeper"], n + 1)

    SCOPE["deeper"] = f
    use((f, replaced))
    with pytest.raises(RecursionError):
        IN_EXTENT(f, 0)


def test_threads_have_their_own_extents() -> None:
    target = fresh(inner)
    use((target, compiled))
    inside, done = threading.Event(), threading.Event()
    outcome: list[Any] = []

    def waits() -> Any:
        inside.set()
        done.wait(10)
        return target(1)

    thread = threading.Thread(target=lambda: outcome.append(IN_EXTENT(waits)))
    thread.start()
    inside.wait(10)
    assert target(2) == ("plain", 2, 1)
    assert _native.hook_status() == {"installed": True, "extents": 1, "lookup": False}
    done.set()
    thread.join()
    assert outcome == [("compiled", 1, 1)]


def test_always() -> None:
    target = fresh(inner)
    use((target, compiled))
    _native.hook_always(True)
    try:
        outcome = [target(1)]
        thread = threading.Thread(target=lambda: outcome.append(target(2)))
        thread.start()
        thread.join()
        assert IN_EXTENT(target, 3) == ("compiled", 3, 1)
        _native.hook_always(True)
    finally:
        _native.hook_always(False)
    assert outcome == [("compiled", 1, 1), ("compiled", 2, 1)]
    assert target(4) == ("plain", 4, 1)


COUNTING = """
#include <Python.h>
static long seen;
static _PyFrameEvalFunction below;
static PyObject *count(PyThreadState *thread, struct _PyInterpreterFrame *frame, int flag) {
    seen++;
    return below(thread, frame, flag);
}
void install(void) {
    below = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), count);
}
void uninstall(void) { _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), below); }
int on_top(void) { return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == count; }
long frames(void) { return seen; }
"""


@pytest.fixture(scope="module")
def other_evaluator(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Another JIT's evaluator: counts frames and chains to the one below."""
    folder = tmp_path_factory.mktemp("evaluator")
    (folder / "counting.c").write_text(COUNTING)
    command = ["cc", "-shared", "-fPIC", "-O1", "-w", f"-I{sysconfig.get_path('include')}"]
    command += ["-o", str(folder / "counting.so"), str(folder / "counting.c")]
    subprocess.run(command, check=True)
    library = ctypes.PyDLL(str(folder / "counting.so"))
    library.frames.restype = ctypes.c_long
    return library


def test_an_evaluator_that_was_there_before_is_asked_and_put_back(other_evaluator: Any) -> None:
    target, plain = fresh(inner), fresh(inner)
    use((target, compiled))
    other_evaluator.install()
    try:
        before = other_evaluator.frames()
        assert IN_EXTENT(lambda: (plain(1), target(1))) == (("plain", 1, 1), ("compiled", 1, 1))
        assert other_evaluator.frames() > before
        assert other_evaluator.on_top()
    finally:
        other_evaluator.uninstall()
    assert not other_evaluator.on_top()


def test_an_evaluator_that_comes_on_top_stays_there(other_evaluator: Any) -> None:
    target, plain = fresh(inner), fresh(inner)
    use((target, compiled))

    def outer() -> Any:
        other_evaluator.install()
        first = plain(1), target(1)
        return first, IN_EXTENT(lambda: (plain(2), target(2)))

    assert IN_EXTENT(outer) == (
        (("plain", 1, 1), ("compiled", 1, 1)),
        (("plain", 2, 1), ("compiled", 2, 1)),
    )
    assert plain(3) == ("plain", 3, 1) and target(3) == ("plain", 3, 1)
    for _ in range(3):
        assert IN_EXTENT(target, 4) == ("compiled", 4, 1)
        assert IN_EXTENT(lambda: plain(5)) == ("plain", 5, 1)
    other_evaluator.uninstall()
    assert IN_EXTENT(target, 6) == ("compiled", 6, 1)


def test_frames_are_let_go() -> None:
    class Payload:
        pass

    target, failing = fresh(inner), fresh(raises)
    policy = use((target, compiled), (failing, compiled_raises))
    alive = []

    def outer() -> None:
        payload = Payload()
        alive.append(weakref.ref(payload))
        target(payload)
        try:
            failing(payload)
        except ZeroDivisionError:
            pass

    for _ in range(300):
        IN_EXTENT(outer)
    policy.missed.clear()
    gc.collect()
    assert [ref for ref in alive if ref() is not None] == []


def test_code_objects_and_their_states_are_let_go() -> None:
    def miss(state: Any, values: tuple, scope: dict, closure: Any) -> Any:
        entry = code_entry(state.code, lambda x: ("compiled", x))
        state.add(entry)
        return entry

    def policy(code: types.CodeType, scope: dict[str, Any]) -> Any:
        return _native.CodeState(code, miss) if code.co_name == "made" else None

    _native.set_callbacks(policy=policy)
    alive = []
    for i in range(50):
        scope: dict[str, Any] = {}
        exec(f"def made(x): return x + {i}", scope)
        assert IN_EXTENT(scope["made"], 1) == ("compiled", 1)
        alive.append(weakref.ref(_native.state_of(scope["made"].__code__)))
        del scope
    gc.collect()
    assert sum(ref() is not None for ref in alive) == 0


def test_many_frames_deep() -> None:
    target = fresh(inner)

    def deep(n: int) -> Any:
        return target(n) if n == 0 else deep(n - 1)

    use((target, compiled))
    for _ in range(20):
        assert IN_EXTENT(deep, 150) == ("compiled", 0, 1)
