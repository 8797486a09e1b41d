"""Programs as tests: one world run in plain Python, the same world run through `jit`, and everything compared.

In: a world, a function without arguments that builds what a program needs and returns `(fn, args)` or
`(fn, args, steps)`. `@agrees(...)` turns it into a test: the world is built twice, each time over globals of its
own; `fn` is called, the first step runs (it may take the last result), `fn` is called again, and so on. After each call these must be equal:
result or exception, printed text, arguments, the closure and the globals of `fn`, with identities (which result
is which argument) and aliasing (which tensors share memory). Each program runs at O1, the level that users have, and
at O0, which runs torch's own operators: there values are compared bit by bit.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import math
import os
import traceback
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from graftjit import JitConfig, jit
from graftjit.jit import JitFunction
from tests.streams import OwnStream

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
# The whole suite with symbolic sizes and numbers from the first call on, by hand; graphs and recompiles are fewer then.
DYNAMIC = True if os.environ.get("GRAFTJIT_TEST_DYNAMIC") else None
TOLERANCE = {"O0": 0.0, "O1": 1e-5}
# The level that users have, and the one whose values are equal to the bit.
LEVELS = ("O1", pytest.param("O0", marks=pytest.mark.second))
Outcome = tuple[Any, ...]


def t(*shape: int) -> torch.Tensor:
    """A tensor of numbers that a program computes with exactly: -1.0, -0.75, -0.5, ..."""
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape) / 4 - 1


def in_a_frame(body: Callable[[], Any]) -> tuple[Callable[..., Any], tuple[torch.Tensor]]:
    """A frame that computes with a tensor around the body."""

    def frame(x):
        y = x + 1
        return body(), y * 2

    return frame, (torch.ones(3),)


def agrees(
    *,
    calls: int = 3,
    graphs: int | None = None,
    breaks: int | None = None,
    codes: tuple[str, ...] | None = None,
    recompiles: int | None = None,
    level: str | None = None,
    grad: bool = True,
    backward: bool = False,
    around: Callable[[Any], tuple] | None = None,
) -> Callable[[Callable[[], Any]], Callable[[str], None]]:
    """A test that the world's program does the same in plain Python and jitted.

    calls       how often it is called, if there are no steps (else once more than there are steps)
    graphs, breaks, recompiles, codes   what the report must count; codes are those of breaks and plain frames
    level       the one level to run at; both where it is not given
    backward    the sum of the results goes backward after each call, and gradients are compared
    around      makes a world of the decorated function, which is the program's body then
    """

    levels = LEVELS if level is None else (level,)

    def decorate(world: Callable[[], Any]) -> Callable[[str], None]:
        def test(level: str) -> None:
            before = torch.is_grad_enabled()
            torch.set_grad_enabled(grad)
            try:
                plain, _ = play(world, None, calls, backward, around)
                torch.set_grad_enabled(grad)
                found, report = play(world, level, calls, backward, around)
            finally:
                torch.set_grad_enabled(before)
            for number, (wanted, got) in enumerate(zip(plain, found, strict=True)):
                # gradients are sums of what cancels: an element's error is one of all of them
                where = difference(wanted, got, TOLERANCE[level] * (10 if backward else 1))
                assert where is None, f"call {number}: plain {where}\n{report}"
            kinds = tuple(row.code for row in [*report.breaks, *report.notes])
            assert "PL205" not in kinds, f"an internal fault\n{report}"
            named = tuple(code for code in kinds if code != "FB311")  # says that the level is O0
            counted = [(breaks, report.break_count), (codes, named)]
            if not DYNAMIC:
                counted += [(graphs, report.graph_count), (recompiles, report.recompile_count)]
            for wanted, got in counted:
                assert wanted is None or wanted == got, f"{got}, not {wanted}\n{report}"

        test.__name__, test.__qualname__ = world.__name__, world.__qualname__
        test.__doc__, test.__module__ = world.__doc__, world.__module__
        test.world = world  # type: ignore[attr-defined]
        return pytest.mark.parametrize("level", levels)(test)

    return decorate


def agrees_in_a_frame(body: Callable[[], Any]) -> Callable[[str], None]:
    """A test that the body does the same in plain Python and in a jitted frame."""
    return agrees(level="O1", around=in_a_frame)(body)


def logs_agree(program: Callable[..., Any], capsys: Any) -> Any:
    """The report of a program `(tensor, log) -> result` whose log, ends of objects included, printed
    text and result are the same in plain Python and in each of three jitted calls."""

    def outcome(fn: Any) -> tuple[str, list[Any], str]:
        log: list[Any] = []
        result = str(fn(torch.ones(2), log))
        log.append("returned")
        return result, log, capsys.readouterr().out

    run = jit(program)
    # Only what counts references ends objects meanwhile.
    gc.disable()
    try:
        plain = outcome(program)
        found = [outcome(run) for _ in range(3)]
    finally:
        gc.enable()
    report = run.report()
    assert found == [plain] * 3, report
    assert report.graph_count > 0
    return report


def play(
    world: Callable[[], Any],
    level: str | None,
    calls: int,
    backward: bool,
    around: Callable[[Any], tuple] | None = None,
) -> Any:
    """The description of each call in one fresh world, and the report (None in plain Python)."""
    assert isinstance(world, types.FunctionType) and world.__closure__ is None
    scope = dict(world.__globals__)
    made = types.FunctionType(world.__code__, scope)
    fn, args, *rest = around(made) if around else made()
    steps: list[Callable[[], Any] | None] = list(rest[0]) if rest else [None] * (calls - 1)
    run = fn if level is None else jit(fn, config=JitConfig(jit_level=level, dynamic=DYNAMIC))
    torch.manual_seed(0)
    described, result, held = [], None, []
    for step in [None, *steps]:
        if step is not None:
            changed = step(result) if step.__code__.co_argcount else step()
            if isinstance(changed, tuple):
                args = changed
        outcome, text, result = _call(run, fn, args, backward)
        held.append(result)
        described.append(Describer().describe((outcome, text, held)))
    return described, None if level is None else run.report()


def reads_as_python(text: str) -> None:
    ast.parse(text)
    assert "unknown instruction" not in text and "in place of" not in text, text


def _call(run: Any, fn: Any, args: tuple, backward: bool) -> tuple[Outcome, str, Any]:
    """All that can be seen of one call; and its result, which is looked at again after later calls."""
    printed, result = OwnStream(), None
    with contextlib.redirect_stdout(printed):
        try:
            result = run(*args)
            if backward:
                _backward(result)
            outcome: Outcome = ("returned", result)
        except Exception as error:
            outcome = ("raised", type(error).__name__, str(error), _lines(error, fn))
    state = {"args": args, "watched": _watched(fn), "grad": torch.is_grad_enabled()}
    return Describer().describe((outcome, state)), printed.getvalue(), result


def _lines(error: BaseException, fn: Any) -> list[tuple[str, int]]:
    """The user's lines of a traceback."""
    inner = getattr(fn, "__func__", fn)
    file = inner.__code__.co_filename if hasattr(inner, "__code__") else ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return [(f.name, f.lineno or 0) for f in frames][-1:]


def _backward(result: Any) -> None:
    total = torch.zeros(())
    for leaf in _leaves(result):
        if leaf.requires_grad:
            total = total + leaf.double().sum()
    if total.requires_grad:
        total.backward()


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return []


def _watched(fn: Any) -> Any:
    """The closure and the globals that a function can reach by name."""
    inner = getattr(fn, "__func__", fn)
    if not isinstance(inner, types.FunctionType):
        return None
    hidden = (types.FunctionType, types.ModuleType, types.BuiltinFunctionType, type)
    names = {
        name: inner.__globals__[name]
        for name in inner.__code__.co_names
        if name in inner.__globals__ and not isinstance(inner.__globals__[name], hidden)
    }
    return [inner, names]


# -- describing ------------------------------------------------------------------------------------------
class Describer:
    """Plain data for any value; an object or a storage met again is named by its first meeting."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.kept: list[Any] = []

    def describe(self, value: Any) -> Any:
        if type(value) in PLAIN:
            return (type(value).__name__, value)
        if issubclass(type(value), (torch.dtype, torch.device, torch.Size, range, slice)):
            return (type(value).__name__, str(value))
        if isinstance(value, np.generic):
            return (str(value.dtype), value.item())
        if id(value) in self.seen:
            return ("same as", self.seen[id(value)])
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)  # an id is only good while its object lives
        for kinds, describe in _DESCRIBERS:
            if issubclass(type(value), kinds):
                return (type(value).__name__, describe(self, value))
        return (type(value).__name__, self._object(value))

    def _object(self, value: Any) -> Any:
        kind = type(value)
        parts: list[Any] = []
        for base in (list, tuple):
            if issubclass(kind, base):
                parts.append([self.describe(item) for item in base.__iter__(value)])
        if issubclass(kind, dict):
            items = OrderedDict.items if issubclass(kind, OrderedDict) else dict.items
            parts.append([(self.describe(k), self.describe(v)) for k, v in items(value)])
        for base in kind.__mro__:
            for name in base.__dict__.get("__slots__", ()):
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    parts.append((name, self.describe(getattr(value, name))))
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict) and not kind.__module__.startswith(("torch._C", "builtins")):
            parts.append(self._names(own))
        return parts

    def _names(self, names: Any) -> Any:
        return [
            (n, self.describe(v))
            for n, v in names.items()
            if not n.startswith("__") and n != "_abc_impl"
        ]

    def _tensor(self, value: torch.Tensor) -> Any:
        if value.layout is not torch.strided:
            return (str(value.layout), self.describe(value.to_dense()))
        if value.is_meta:
            return (str(value.dtype), tuple(value.shape), value.stride(), "no data")
        memory = value.untyped_storage()
        storage = memory.data_ptr() if memory.nbytes() else 0
        group = self.storages.setdefault(storage, len(self.storages)) if storage else None
        facts = (
            str(value.dtype), tuple(value.shape), value.stride(), value.storage_offset(),
            value.requires_grad, value.is_leaf, group,
        )  # fmt: skip
        grad = self.describe(value.grad) if value.is_leaf and value.requires_grad else None
        return (facts, value.detach().flatten().tolist(), grad)

    def _array(self, value: np.ndarray) -> Any:
        base = value.ctypes.data if value.nbytes else 0
        group = self.storages.setdefault(base, len(self.storages)) if base else None
        items = [self.describe(item) for item in value.ravel().tolist()]
        facts = (str(value.dtype), value.shape, value.strides, value.flags.writeable, group)
        return (facts, items, value.base is None)

    def _function(self, value: types.FunctionType) -> Any:
        cells = [c.cell_contents if _filled(c) else "empty" for c in value.__closure__ or ()]
        parts = (cells, value.__defaults__, value.__kwdefaults__, value.__dict__)
        return (value.__name__, value.__qualname__, [self.describe(part) for part in parts])

    def _class(self, value: type) -> Any:
        module = value.__module__
        mine = module.startswith(("tests", "test_", "capture"))
        return (value.__qualname__, self._names(vars(value)) if mine else None)


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


_DESCRIBERS: tuple[tuple[Any, Callable[[Describer, Any], Any]], ...] = (
    (JitFunction, lambda d, v: d.describe(v.__wrapped__)),
    (torch.Tensor, Describer._tensor),
    (np.ndarray, Describer._array),
    (types.FunctionType, Describer._function),
    (type, Describer._class),
    (types.ModuleType, lambda d, v: v.__name__),
    (types.MethodType, lambda d, v: [d.describe(v.__func__), d.describe(v.__self__)]),
    (types.BuiltinFunctionType, lambda d, v: [v.__name__, d.describe(v.__self__)]),
    ((staticmethod, classmethod), lambda d, v: d.describe(v.__func__)),
    (property, lambda d, v: [d.describe(v.fget), d.describe(v.fset)]),
    ((set, frozenset), lambda d, v: sorted(map(repr, v))),
    (BaseException, lambda d, v: [d.describe(list(v.args))]),
    ((type({}.keys()), type({}.values()), type({}.items())), lambda d, v: d.describe(list(v))),
    ((torch._ops.OpOverload, torch._ops.OpOverloadPacket), lambda d, v: str(v)),
    (types.CodeType, lambda d, v: v.co_qualname),
)


# -- comparing -------------------------------------------------------------------------------------------
def difference(plain: Any, other: Any, tolerance: float, path: str = "") -> str | None:
    """The first place where two descriptions part, or None."""
    if isinstance(plain, float) and isinstance(other, float):
        same = plain == other and math.copysign(1, plain) == math.copysign(1, other)
        close = tolerance and math.isclose(plain, other, rel_tol=tolerance, abs_tol=tolerance)
        if same or close or plain != plain and other != other:
            return None
    elif type(plain) is not type(other):
        pass
    elif isinstance(plain, (list, tuple)):
        if len(plain) == len(other):
            pairs = enumerate(zip(plain, other, strict=True))
            found = (difference(p, o, tolerance, f"{path}.{n}") for n, (p, o) in pairs)
            return next((one for one in found if one), None)
    elif plain == other:
        return None
    return f"at {path}: {plain!r}, jitted {other!r}"


@functools.total_ordering
class Ordered:
    """A class of the program's, with an order."""

    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n
