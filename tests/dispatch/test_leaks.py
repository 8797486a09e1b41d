"""Nothing stays: memory is flat over calls and re-created functions, and what dies is not kept by compiled code."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import graftjit
from graftjit.dispatch import frame_policy as hook
from graftjit.dispatch.unit import UNITS
from graftjit.runtime.process.session import SESSION

X = torch.randn(1, 4)
PAGE = os.sysconf("SC_PAGESIZE")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def growth(work: Callable[[int], Any], times: int, warm: int = 20) -> tuple[int, int, int]:
    """What `times` rounds leave: bytes of Python's allocator, resident bytes, objects of the collector. Bytes are
    those of the better of two halves: caches and free lists fill up once, a leak shows in both."""
    for number in range(warm):
        work(number)
    gc.collect()
    objects, before = len(gc.get_objects()), resident()
    traced = []
    tracemalloc.start()
    try:
        for number in range(times):
            if number % (times // 3) == 0:
                gc.collect()
                traced.append(tracemalloc.get_traced_memory()[0])
            work(number)
    finally:
        tracemalloc.stop()
    gc.collect()
    halves = (traced[2] - traced[1], traced[3] - traced[2])
    return min(halves), resident() - before, len(gc.get_objects()) - objects


def plain(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + x * 2


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    z = y * float(y.sum().item() > -9)
    return z + 1


def listed(x: torch.Tensor) -> dict[str, Any]:
    return {"parts": [x + 1, x.sin()], "n": x.shape[0]}


def written(x: torch.Tensor) -> torch.Tensor:
    return x.add_(0.0).clone()


def differentiated(x: torch.Tensor) -> torch.Tensor:
    w = torch.ones(4, requires_grad=True)
    (x * w).sum().backward()
    return w.grad


CALLED = [plain, broken, listed, written, differentiated]


@pytest.mark.parametrize("function", CALLED, ids=lambda function: function.__name__)
def test_calls_leave_memory_flat(function):
    jitted = graftjit.jit(function)
    for _ in range(5):
        jitted(X)
    gc.collect()
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    times = 10_000 if function in (plain, listed) else 2_000
    pages = [resident()]
    for _ in range(2):
        for _ in range(times // 2):
            jitted(X)
        gc.collect()
        pages.append(resident())
    assert len(gc.get_objects()) - objects < 50
    assert sys.getallocatedblocks() - blocks < 500
    assert (
        min(pages[1] - pages[0], pages[2] - pages[1]) < 1 << 20
    )  # malloc may grow once, a leak twice


def test_errors_leave_memory_flat():
    jitted = graftjit.jit(lambda x, y: torch.mm(x, y) + 1)
    y = torch.randn(4, 4)
    jitted(X, y)
    wrong = torch.randn(3, 4)
    for _ in range(5):
        with pytest.raises(RuntimeError):
            jitted(X, wrong)
    gc.collect()
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    for _ in range(500):
        with pytest.raises(RuntimeError):
            jitted(X, wrong)
    gc.collect()
    assert len(gc.get_objects()) - objects < 100
    assert sys.getallocatedblocks() - blocks < 1000


# --- made again and again ----------------------------------------------------------------------------------


def closure(number: int) -> None:
    factor = torch.full((4,), float(number % 5))

    @graftjit.jit
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * factor + number % 3

    scaled(X)
    scaled(X)


def closure_with_breaks(number: int) -> None:
    seen: list[float] = []

    @graftjit.jit
    def summed(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        seen.append(y.sum().item())
        return y + 1

    summed(X)


def new_code(number: int) -> None:
    scope: dict[str, Any] = {"torch": torch}
    exec(f"def made(x, c={number % 5}):\n    return torch.cos(x) * c\n", scope)
    graftjit.jit(scope["made"])(X)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x))


def module(number: int) -> None:
    with torch.no_grad():
        graftjit.compile(Net())(X)


def module_class(number: int) -> None:
    class Local(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.inner(x)) + number % 3

    with torch.no_grad():
        graftjit.compile(Local())(X)


def jitted_class(number: int) -> None:
    @graftjit.jit
    class Doubled:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 + number % 3

    Doubled()(X)


def method(number: int) -> None:
    class Box:
        factor = number % 3

        @graftjit.jit
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    Box().scale(X)


def explained(number: int) -> None:
    assert graftjit.explain(lambda x: x.sin() + 1, X).graph_count == 1


MADE = [
    closure,
    closure_with_breaks,
    new_code,
    module,
    module_class,
    jitted_class,
    method,
    explained,
]


@pytest.mark.parametrize("work", MADE, ids=lambda work: work.__name__)
def test_functions_made_again_leave_memory_flat(work):
    gc.collect()
    units, shelves, states = (
        len(UNITS),
        len(SESSION.log._shelves),
        sum(len(unit._states) for unit in hook._UNITS.values()),
    )
    traced, pages, objects = growth(work, 202 if work in (closure, module) else 61)
    assert traced < 40 << 10, f"{traced} bytes of Python objects"
    assert pages < 8 << 20, f"{pages} bytes resident"
    assert objects < 100
    assert (len(UNITS), sum(len(unit._states) for unit in hook._UNITS.values())) == (units, states)
    assert len(SESSION.log._shelves) <= shelves + 1  # what is no function's own


# --- what dies is gone ---------------------------------------------------------------------------------------


def gone(*references: weakref.ref) -> bool:
    gc.collect()
    return all(reference() is None for reference in references)


def live_and_die() -> list[weakref.ref]:
    weight = torch.randn(4)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * weight

    class Helper:
        def apply(self, x: torch.Tensor) -> torch.Tensor:
            return inner(x) + 1

    helper = Helper()

    @graftjit.jit
    def outer(x: torch.Tensor) -> torch.Tensor:
        y = helper.apply(x)
        print(end="")
        return y.sin()

    outer(X)
    things = (weight, inner, Helper, helper, outer, outer.__wrapped__, outer.state)
    targets = [entry.target for entry in outer.state.entries]
    return [weakref.ref(thing) for thing in (*things, *targets)]


def test_a_dead_closure_leaves_nothing():
    assert gone(*live_and_die())


def test_a_dead_module_leaves_nothing():
    class Local(Net):
        pass

    model = Local()
    compiled = graftjit.compile(model)
    with torch.no_grad():
        compiled(X)
    compiled(X).sum().backward()
    references = [weakref.ref(thing) for thing in (model, compiled, model.inner, Local)]
    references += [weakref.ref(parameter) for parameter in model.parameters()]
    del model, compiled, Local
    assert gone(*references)


def test_arguments_and_results_are_let_go():
    jitted = graftjit.jit(lambda x, scale: (x * scale["by"], x.sin()))
    x, scale = torch.randn(4), {"by": torch.randn(4)}
    results = jitted(x, scale)
    references = [weakref.ref(thing) for thing in (x, scale["by"], *results)]
    del x, scale, results
    assert gone(*references)


def test_a_module_given_as_an_argument_is_let_go():
    jitted = graftjit.jit(lambda model, x: model(x) + 1)
    model = Net()
    with torch.no_grad():
        jitted(model, X)
    references = [weakref.ref(model), *map(weakref.ref, model.parameters())]
    del model
    assert gone(*references)


def test_functions_met_inside_an_extent_are_let_go():
    """Their code belongs to this file and stays; what one of them closed over does not."""

    def caller(function: Callable, x: torch.Tensor) -> torch.Tensor:
        return list(map(function, [x]))[0] + 1

    jitted = graftjit.jit(caller)
    references = []
    for _ in range(5):
        weight = torch.randn(4)

        def scaled(x: torch.Tensor, weight: torch.Tensor = weight) -> torch.Tensor:
            y = x * weight
            print(end="")
            return y.sin()

        torch.testing.assert_close(jitted(scaled, X), caller(scaled, X))
        references.append(weakref.ref(weight))
    del weight, scaled
    assert gone(*references)


def test_entries_go_with_what_they_were_made_for():
    """A class, a function of a class, a function handed in: each is gone when the program lets it go, and the
    entries with it. What the function is given next, at the same address maybe, is looked at anew."""
    jitted = graftjit.jit(lambda thing, x: thing(x) + 1)

    def handed_in(number: int) -> Callable:
        return eval(
            f"lambda x: x * {number}"
        )  # code of its own: functions of equal parts share entries

    def of_a_class(number: int) -> Callable:
        class Local(Net):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) * number if isinstance(self, Local) else x

        return Local()

    for make in (handed_in, of_a_class):
        for number in range(4):
            thing = make(number)
            with torch.no_grad():
                torch.testing.assert_close(jitted(thing, X), thing(X) + 1)
            references = [weakref.ref(thing), weakref.ref(type(thing))]
            if make is handed_in:
                references.pop()
            del thing
            assert gone(*references)
            assert len(jitted.state.entries) == 0
    assert jitted.state.eviction.useless == 4 * 8


def test_what_dies_after_each_call_is_soon_left_to_plain_python() -> None:
    """Each call has a class of its own: its entry can never answer another call."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        class Local:
            factor = 2

        return x * Local().factor + 1

    def helper(make: Callable, x: torch.Tensor) -> torch.Tensor:
        return x * make().factor + 1

    jitted = graftjit.jit(helper)
    for _ in range(200):
        local = type("Local", (), {"factor": 2})
        torch.testing.assert_close(jitted(local, X), scaled(X))
        del local
        gc.collect(0)
    assert jitted.state.eviction.made < 30


# --- many calls, many recompiles -----------------------------------------------------------------------------


class Holder:
    def __init__(self) -> None:
        self.scale, self.parts = 2.0, [1.0, 2.0]

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.parts[-1]


def by_holder(x: torch.Tensor, holder: Holder = Holder()) -> torch.Tensor:
    return holder.apply(x)


MANY = """
import gc, sys
from tests.dispatch.test_leaks import X, by_holder, graftjit, plain, resident
for function in (plain, by_holder):
    jitted = graftjit.jit(function)
    for _ in range(1000):
        jitted(X)
    gc.collect()
    objects, blocks, pages = len(gc.get_objects()), sys.getallocatedblocks(), resident()
    for _ in range(100_000):
        jitted(X)
    gc.collect()
    assert len(gc.get_objects()) - objects < 50
    assert sys.getallocatedblocks() - blocks < 500
    assert resident() - pages < 2 << 20
    assert jitted.state.misses == 1
"""


def test_a_hundred_thousand_calls():
    """Without the checks, which would take minutes."""
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), root])
    environment = {**os.environ, "PYTHONPATH": paths, "GRAFTJIT_CHECK": "0"}
    done = subprocess.run(
        [sys.executable, "-c", MANY], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr


def keyed(x: torch.Tensor, key: str) -> dict[str, torch.Tensor]:
    return {key: x + 1}


def keyed_with_a_break(x: torch.Tensor, key: str) -> dict[str, torch.Tensor]:
    y = x.cos()
    print(end="")
    return {key: y + 1}


def flagged(x: torch.Tensor, flag: str) -> torch.Tensor:
    y = x.cos() if flag == "a" else x.sin()
    print(end="")
    return y + 1 if flag == "a" else y - 1


def recompiled(function: Callable) -> Callable[[int], None]:
    """Each round is a recompile; beyond the fourth one, an entry goes as well."""
    jitted = graftjit.jit(function, config=graftjit.JitConfig(recompile_limit=4))

    def work(number: int) -> None:
        states = jitted._unit.states
        for state in states:
            state.eviction.useless = 0
        misses = sum(state.misses for state in states)
        assert list(jitted(X, f"{number}")) == [f"{number}"]
        states = jitted._unit.states
        assert sum(state.misses for state in states) > misses
        for state in states:
            assert len(state.entries) <= 4
            SESSION.log.clear(state)  # it is bounded, by more than the rounds here

    return work


def was_reset() -> Callable[[int], None]:
    jitted = graftjit.jit(keyed_with_a_break)

    def work(number: int) -> None:
        jitted(X, "a")
        jitted.reset()

    return work


RECOMPILED = {
    "keyed": lambda: recompiled(keyed),
    "with a break": lambda: recompiled(keyed_with_a_break),
    "reset": was_reset,
}


@pytest.mark.parametrize("make", RECOMPILED.values(), ids=RECOMPILED)
def test_recompiles_leave_memory_flat(make):
    traced, pages, objects = growth(make(), 91)
    assert traced < 40 << 10, f"{traced} bytes of Python objects"
    assert pages < 4 << 20, f"{pages} bytes resident"
    assert objects < 100


@pytest.mark.parametrize("how", ["reset", "evicted"])
def test_entries_that_are_no_more_leave_nothing(how):
    """Neither the callable that ran them last, nor the resume functions of their frame, keep them."""
    jitted = graftjit.jit(flagged, config=graftjit.JitConfig(recompile_limit=1))
    for _ in range(3):
        jitted(X, "a")
    states = jitted._unit.states
    assert len(states) == 2
    references = [weakref.ref(entry.target) for state in states for entry in state.entries]
    del states
    if how == "reset":
        jitted.reset()
    else:
        jitted(X, "b")
    assert gone(*references)
