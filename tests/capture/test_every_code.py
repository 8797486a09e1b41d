"""Every code of a graph break, a plain frame, a fallback or a recompile is raised by a small program of this table.

A program is a world (see `harness`): it must give in plain Python and jitted the same results, and its report must
name the code. The line that the report names is marked in the source by the code in a comment.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import random
import sys
import threading
import types
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graftjit import JitConfig, graft_break, jit
from graftjit.capture.interpreter import machine
from graftjit.codegen import pipeline as planned
from graftjit.codegen.build import cxx as build
from graftjit.runtime.codes import CODES, RETIRED
from graftjit.runtime.errors import BuildError
from graftjit.runtime.process import hardware as device
from graftjit.runtime.process.session import SESSION

from .harness import DYNAMIC, difference, play

HERE = __file__
World = Callable[[], tuple]


@dataclass(frozen=True, slots=True)
class Row:
    """One program. `around` is what it runs in; `line`: whether the report names the line that the source marks;
    `graph`: whether the rest of the function is still compiled."""

    code: str
    world: World
    around: Callable[[], Any]
    level: str
    line: bool
    calls: int


TABLE: dict[str, Row] = {}


def raises(
    code: str,
    *,
    around: Callable[[], Any] = contextlib.nullcontext,
    level: str = "O0",
    line: bool = True,
    calls: int = 3,
) -> Callable[[World], World]:
    """The world below is the program of this code."""

    def add(world: World) -> World:
        assert code not in TABLE, code
        TABLE[code] = Row(code, world, around, level, line, calls)
        return world

    return add


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values or (1.0, 2.0, 3.0))


# -- graph breaks ------------------------------------------------------------------------------------------
class Names:
    FIRST = "a"


@raises("GB101")
def an_instruction():
    def f(x, table):
        y = x + 1
        try:
            match table:
                case {Names.FIRST: a, "a": b}:  # GB101
                    y = y * a + b
        except ValueError:
            y = y * 2
        return y

    return f, (t(), {"a": 2, "b": 3})


@raises("GB102")
def a_c_function():
    def f(x):
        y = x + 1
        n = zlib.crc32(b"graft")  # GB102
        return y * (n % 7)

    return f, (t(),)


@raises("GB103")
def output():
    def f(x):
        y = x + 1
        print("between")  # GB103
        return y * 2

    return f, (t(),)


@raises("GB104")
def a_number():
    def f(x):
        y = x + 1
        n = y.sum().numpy()
        return y * float(n)  # GB104

    return f, (t(),)


@raises("GB105")
def a_branch():
    def f(x):
        y = x + 1
        if y.sum() > 0:  # GB105
            y = y * 2
        return y - 1

    return f, (t(),), [lambda: (t(-5.0, 1.0),)]


@raises("GB106")
def a_shape():
    def f(x):
        y = x - 2
        z, _ = torch._pack_padded_sequence(y, lengths, True)  # GB106
        return z + 1

    lengths = torch.tensor([3, 1])
    return f, (torch.ones(2, 3),), [lambda: (torch.zeros(2, 3),)]


@raises("GB107")
def a_generator():
    def steps(y):
        for n in range(3):
            yield y * n

    def f(x):
        y = x + 1
        found = steps(y)  # GB107
        print(next(found))
        return y + next(found)

    return f, (t(),)


@raises("GB108")
def an_exception():
    def f(x):
        y = x + 1
        if y.shape[0] == 3:
            raise ValueError("meant")  # GB108
        return y

    return f, (t(),), [lambda: (t(1.0),), lambda: (t(),)]


LOCK = threading.Lock()


@raises("GB110")
def a_context_manager():
    def f(x):
        y = x + 1
        with LOCK:  # GB110
            y = y * 2
        return y, LOCK.locked()

    return f, (t(),)


@raises("GB111")
def an_import():
    def forget():
        sys.modules.pop("colorsys", None)

    def f(x):
        y = x + 1
        import colorsys  # GB111

        return y * colorsys.ONE_THIRD

    return f, (t(),), [forget, forget]


class Ways(type):
    def __getattribute__(cls, name):
        return super().__getattribute__(name)


class Odd(metaclass=Ways):
    scale = 3


@raises("GB112")
def a_protocol():
    def f(x):
        y = x + 1
        return y * Odd.scale  # GB112

    return f, (t(),)


class Named(torch.Tensor):
    pass


@raises("GB113")
def a_subclass():
    def f(x, named):
        y = x + 1
        z = torch.add(named, y)  # GB113
        return z.as_subclass(torch.Tensor) * 2

    return f, (t(), t().as_subclass(Named))


@raises("GB114")
def autograd():
    def f(x):
        y = x * 2
        y.retain_grad()  # GB114
        return y + 1

    return f, (t().requires_grad_(),)


@raises("GB115")
def a_change():
    layer = torch.nn.Linear(1, 1)

    def f(x):
        y = x + 1
        layer.weight = torch.nn.Parameter(WEIGHT)  # GB115
        return y * 2, layer.weight.shape

    return f, (t(),)


WEIGHT = torch.ones(2, 2)


@raises("GB116")
def a_long_loop():
    def f(x):
        for _ in range(200):  # GB116
            x = x + 1
        return x

    return f, (t(),)


def deep(x, n):
    return x + n if n == 0 else deep(x + 1, n - 1)  # GB117


@raises("GB117")
def deep_calls():
    def f(x):
        return deep(x, 100) * 2

    return f, (t(),)


@raises("GB118")
def state_of_torch():
    def f(x):
        y = x + 1
        torch.manual_seed(3)  # GB118
        return y + torch.rand(3)

    return f, (t(),)


@raises("GB119")
def random_numbers():
    random.seed(0)

    def f(x):
        y = x + 1
        name = random.choice(["sin", "cos"])  # GB119
        return getattr(torch, name)(y)

    return f, (t(),)


@raises("GB120")
def an_iterator():
    def f(x, text):
        y = x + 1
        for row in text:  # GB120
            y = y + len(row)
        return y

    return f, (t(), io.StringIO("a\nbc\n")), [lambda: (t(), io.StringIO("abc"))]


@raises("GB121")
def a_builtin():
    def f(x):
        y = x + 1
        n = id(x) % 2  # GB121
        return y * n

    return f, (t(),)


@raises("GB122")
def a_method():
    def f(x):
        y = x + 1
        n = [1, 2, x, 1].index(1, 1)  # GB122
        return y * n

    return f, (t(),)


@raises("GB123")
def arrays():
    def f(x, outside):
        y = x + 1
        n = np.sum(outside)  # GB123
        return y * float(n)

    return f, (t(), np.arange(3.0))


@raises("GB124")
def an_operator():
    generator = torch.Generator().manual_seed(0)

    def f(x):
        y = x + 1
        z = torch.bernoulli(y / 4, generator=generator)  # GB124
        return y + z

    return f, (t(),)


@raises("GB125")
def an_iterator_that_leaves():
    def f(x, table):
        y = x + 1
        left = iter(table)
        y = y * (next(left) + next(left))
        del table[0]
        del table[0]
        return y, left  # GB125

    return f, (t(), [1, 2, 3]), [lambda: (t(), [4, 5, 6])]


@raises("GB126")
def a_class():
    def f(x):
        y = x + 1

        class Made:  # GB126
            scale = 2

        return y * Made.scale

    return f, (t(),)


@raises("GB128")
def a_delete():
    def f(x, name):
        y = x + 1
        try:
            del name[0]  # GB128
        except TypeError:
            y = y * 2
        return y

    return f, (t(), "text")


@raises("GB130")
def a_coroutine():
    async def later(y):
        return y * 2

    def f(x):
        y = x + 1
        waiting = later(y)  # GB130
        try:
            waiting.send(None)
        except StopIteration as done:
            return done.value

    return f, (t(),)


@raises("GB131")
def text():
    def f(x):
        y = x + 1
        names = {"y": y}
        z = eval("y * 2", names)  # GB131
        return z + 1

    return f, (t(),)


@raises("GB132")
def names():
    def f(x):
        y = x + 1
        found = locals()  # GB132
        return found["y"] * len(found)

    return f, (t(),)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        print("backward")
        return grad * 2


@raises("GB134")
def a_function_of_autograd():
    def f(x):
        y = x + 1
        z = Doubled.apply(y)  # GB134
        return z - 1

    return f, (t().requires_grad_(),)


@raises("GB135")
def graftjit_itself():
    def f(x):
        y = x + 1
        inner = jit(torch.nn.functional.relu)  # GB135
        return inner(y) * 2

    return f, (t(),)


@raises("GB140")
def a_break_of_the_programs():
    def f(x):
        y = x + 1
        graft_break("to look at y")  # GB140
        return y * 2

    return f, (t(),)


@raises("GB141")
def a_long_list_that_is_read_as_a_whole():
    def f(x, held):
        y = x + held[-1]
        held *= 2  # GB141
        return y * len(held)

    return f, (t(), list(range(5000)))


@torch.compiler.disable
def left_plain(x):
    return x * 2


@raises("GB142")
def a_disabled_function_of_the_program():
    def f(x):
        y = x + 1
        y = left_plain(y)  # GB142
        return y * 2

    return f, (t(),)


@torch.library.custom_op("graft_every_code::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@raises("GB143")
def an_operator_without_a_fake_rule():
    def f(x):
        y = x + 1
        y = torch.ops.graft_every_code.doubled(y)  # GB143
        return y * 2

    return f, (t(),)


class Key:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n

    def __eq__(self, other):
        return self.n == other.n


@raises("GB137")
def a_hash():
    def f(x, table, key):
        y = x + 1
        n = table[key]  # GB137
        return y * n

    return f, (t(), {Key(1): 5}, Key(1))


@raises("GB138")
def a_write_beside():
    seen = []

    def f(x):
        seen.append(1)
        x.add_(1)
        return torch.linalg.cholesky(x)  # GB138

    return f, (torch.eye(4)[::2, ::2],)


@raises("GB139")
def an_end():
    seen = []

    class Loud:
        def __del__(self):
            seen.append("gone")

    def f(x):
        loud = Loud()
        y = x + 1
        loud = None  # GB139
        seen.append("after")
        return y, loud

    return f, (t(),)


# -- frames in plain Python ----------------------------------------------------------------------------------
@raises("PL201")
def a_generator_function():
    def f(x):  # PL201
        for n in range(2):
            yield x * n

    return f, (t(),)


@contextlib.contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@raises("PL202", around=lambda: patched(machine, "MAX_INSTRUCTIONS", 500))
def a_large_frame():
    def f(x):
        found = [n * 2 for n in range(1000)]  # PL202
        return x * len(found)

    return f, (t(),)


@raises("PL203")
def no_place_to_resume_at():
    text = "\n" * (marked("PL203") - 1) + "X + 1"  # PL203
    code = compile(text, HERE, "eval")  # names in place of locals: no function's body
    return types.FunctionType(code, {"X": t()}), ()


@raises("PL204", line=False)
def no_tensors():
    def f(a, b):
        return a * b + len(str(a))

    return f, (3, 4)


def _fault(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a fault, for the test")


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Faults are raised under GRAFTJIT_CHECK; here they are to be reported."""
    with SESSION.override(check=False):
        yield


@contextlib.contextmanager
def faulty(owner: Any, name: str, function: Any = _fault) -> Iterator[None]:
    with unchecked(), patched(owner, name, function):
        yield


@raises("PL205", around=lambda: faulty(machine.Machine, "step"))
def a_fault():
    def f(x):  # PL205
        return x + 1

    return f, (t(),)


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    with SESSION.override(disable=True):
        yield


@raises("PL206", around=disabled)
def switched_off():
    def f(x):  # PL206
        return x + 1

    return f, (t(),)


@raises("PL207")
def ever_new():
    def f(x, name):  # PL207
        return {name: x}

    def step(n):
        return lambda: (t(), f"{n}")

    return f, (t(), "first"), [step(n) for n in range(2 * JitConfig().recompile_limit + 1)]


@raises("RC410")
def more_than_there_is_room_for():
    def f(x, name):  # RC410
        return {name: x + 1}

    def step(n):
        return lambda: (t(), f"{n}")

    return f, (t(), "first"), [step(n) for n in range(JitConfig().recompile_limit)]


@contextlib.contextmanager
def traced() -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: None)
    try:
        yield
    finally:
        sys.settrace(before)


@raises("PL208", around=traced)
def under_a_tracer():
    def f(x):  # PL208
        return x + 1

    return f, (t(),)


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@raises("PL209", around=Mode)
def under_a_mode():
    def f(x):  # PL209
        return x + 1

    return f, (t(),)


# -- fallbacks -----------------------------------------------------------------------------------------------
@raises("FB301", level="O1")
def a_gradient():
    def f(x):
        w = torch.ones(3, requires_grad=True)  # FB301
        return w, w * x

    return f, (t().requires_grad_(),)


@raises(
    "FB302",
    around=lambda: faulty(device, "find_compiler", lambda: None),
    level="O1",
    line=False,
)
def no_compiler():
    def f(x):
        return x.sin() + 1

    return f, (t(),)


@raises("FB303", around=lambda: faulty(planned.renderer, "render"), level="O1", line=False)
def no_code():
    def f(x):
        return x.cos() + 1

    return f, (t(),)


@raises("FB304")
def a_sparse_tensor():
    def f(x, sparse):
        y = x + 1
        z = sparse * 2  # FB304
        return y + z.to_dense()

    return f, (t(), t().to_sparse())


def _no_build(*_: Any, **__: Any) -> Any:
    raise BuildError("the compiler says no, for the test", todo="nothing")


@raises("FB306", around=lambda: faulty(build, "load", _no_build), level="O1", line=False)
def no_build():
    def f(x):
        return x.tan() + 1

    return f, (t(),)


@raises("FB310")
def overlapping_writes():
    whole = t(1, 2, 3, 4)

    def f(a, b):
        a.add_(1)
        return a, b.mul_(2)  # FB310

    return f, (whole[:3], whole[1:])


@raises("FB311", line=False)
def operator_by_operator():
    def f(x):
        return x + 1

    return f, (t(),)


# -- recompiles ----------------------------------------------------------------------------------------------
class Holder:
    def __init__(self, **names):
        self.__dict__.update(names)


@raises("RC401")
def another_type():
    def f(x, n):
        return x * n  # RC401

    return f, (t(), 2), [lambda: (t(), 2.5)]


@raises("RC402")
def another_shape():
    def f(x):
        return x * 2  # RC402

    return f, (t(),), [lambda: (t(1.0, 2.0),)]


@raises("RC403")
def another_number():
    def f(x, n):
        return x * n  # RC403

    return f, (t(), 2), [lambda: (t(), 3)]


def twice(x):
    return x * 2


def thrice(x):
    return x * 3


@raises("RC404")
def another_function():
    def f(x, holder):
        return holder.way(x)  # RC404

    holder = Holder(way=twice)
    return f, (t(), holder), [lambda: setattr(holder, "way", thrice)]


@raises("RC405")
def another_length():
    def f(x, items):
        return x * len(items)  # RC405

    items = [1, 2]
    return f, (t(), items), [lambda: items.append(3)]


@raises("RC406")
def an_attribute():
    def f(x, holder):
        return x * getattr(holder, "scale", 2)  # RC406

    holder = Holder()
    return f, (t(), holder), [lambda: setattr(holder, "scale", 3)]


@raises("RC407", line=False)
def another_state():
    def f(x):
        return torch.full((2,), 1.0) + x

    def change():
        torch.set_grad_enabled(not torch.is_grad_enabled())

    return f, (t(1.0, 2.0),), [change, change]


@raises("RC408", line=False)
def one_in_place_of_two():
    def f(x, a, b):
        a.append(x)
        b.append(x * 2)
        return len(a)

    one: list[Any] = []
    return f, (t(), [], []), [lambda: (t(), one, one)]


class Inner:
    inner = Holder(scale=5)


@raises("RC411")
def the_other_way():
    def f(x):
        return x * 2 if x.shape[0] > 5 else x + 1  # RC411

    return f, (torch.ones(3),), [lambda: (torch.ones(4),), lambda: (torch.ones(6),)]


@raises("RC412")
def the_other_mask():
    def f(x, mask):
        return x + 1 if mask.all() else x * mask  # RC412

    full, partial = torch.tensor([True] * 3), torch.tensor([True, False, True])
    return f, (t(), full), [lambda: (t(), partial), lambda: (t(), full)]


@raises("RC409")
def gone():
    def f(x, holder):
        return x * holder.inner.scale  # RC409

    def change():
        del holder.inner

    holder = Inner()
    holder.inner = Holder(scale=2)
    return f, (t(), holder), [change]


# -- the table ------------------------------------------------------------------------------------------------
# Codes that another test raises, where what they need is at hand, and where.
ELSEWHERE: dict[str, str] = {
    "PL212": "tests/dispatch/test_threads.py",
    "PL213": "tests/dispatch/test_threads.py",
    "PL214": "tests/dispatch/test_paying.py",
    "PL215": "tests/dispatch/test_paying.py",
    "PL216": "tests/distributed/test_sharded.py",
    "FB307": "tests/runtime/store/test_kernel_store.py",
    "FB308": "tests/runtime/store/test_kernel_store.py",
    "FB313": "tests/runtime/store/test_kernel_store.py",
    "FB314": "tests/runtime/store/test_kernel_store.py",
    "FB315": "tests/codegen/build/test_background.py",
    "FB316": "tests/codegen/tuning/test_tune.py",
    "FB317": "tests/training/test_watchers.py",
    "FB318": "tests/codegen/schedule/test_gpu_plan.py",
    "FB319": "tests/codegen/schedule/test_gpu_plan.py",
    **{f"FB{number}": "tests/gpu/test_device_graphs.py" for number in range(330, 338)},
}
RAISED_BY_PROGRAMS = ("GB", "PL", "FB", "RC")


def lines_of(report: Any) -> dict[str, list[tuple[str, int | None]]]:
    """code -> the places that the report names"""
    emitted: dict[str, list[tuple[str, int | None]]] = {}
    for row in [*report.breaks, *report.notes, *report.recompiles]:
        emitted.setdefault(row.code, []).append((row.file, row.line))
    return emitted


def marked(code: str) -> int:
    """The line of this file that ends with the code in a comment."""
    with open(HERE) as file:
        found = [n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {code}")]
    assert len(found) == 1, (code, found)
    return found[0]


@pytest.mark.parametrize("row", [pytest.param(row, id=code) for code, row in TABLE.items()])
def test_the_program_raises_its_code(row: Row) -> None:
    grad = torch.is_grad_enabled()
    try:
        with row.around():
            wanted, _ = play(row.world, None, row.calls, False)
        torch.set_grad_enabled(grad)
        with row.around():
            found, report = play(row.world, row.level, row.calls, False)
    finally:
        torch.set_grad_enabled(grad)
    tolerance = 1e-5 if row.level == "O1" else 0.0
    varying = row.code in ("RC401", "RC402", "RC403")  # what changes there is no reason to compile
    for number, (plain, jitted) in enumerate(zip(wanted, found, strict=True)):
        where = difference(plain, jitted, tolerance)
        assert where is None, f"call {number}: plain {where}\n{report}"
    if DYNAMIC and varying:
        return
    emitted = lines_of(report)
    assert row.code in emitted, f"{sorted(emitted)}\n{report}"
    if row.line:
        assert (HERE, marked(row.code)) in emitted[row.code], emitted[row.code]


def test_every_code_has_a_program() -> None:
    """A code without one is dead: take it out of the table (and put its number into RETIRED), or write the program."""
    wanted = {code for code in CODES if code.startswith(RAISED_BY_PROGRAMS)}
    assert wanted - TABLE.keys() - ELSEWHERE.keys() == set()
    assert (TABLE.keys() | ELSEWHERE.keys()) - wanted == set()


def test_codes_that_other_tests_raise_are_there() -> None:
    from pathlib import Path

    root = Path(HERE).parents[2]
    for code, path in ELSEWHERE.items():
        assert code in (root / path).read_text(), code


def test_retired_codes_are_not_used_again() -> None:
    assert RETIRED.isdisjoint(CODES)


def test_worlds_are_functions_without_a_closure() -> None:
    for row in TABLE.values():
        assert isinstance(row.world, types.FunctionType) and row.world.__closure__ is None
        assert inspect.getsourcefile(row.world) == HERE
