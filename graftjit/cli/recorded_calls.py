"""Recording and repetition of a program's jitted calls: plain, jitted, and by another compiler.

In: a program that runs in the block of `recording`. Out: one `Call` for each newly compiled
combination of arguments, with copies of its tensors, and `measure`, which times it. `python -m
graftjit bench` uses this module.

Tensor arguments are copied before the call, so that later writes have no effect. Models and all
other objects are the program's own, in their final state. A call that writes to tensors keeps doing
so while it is timed, and its results are not compared.
"""

from __future__ import annotations

import contextlib
import inspect
import statistics
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..dispatch import frame_policy
from ..dispatch.unit import UNITS, Unit
from ..ir.dataclass import dataclass, field

MOST_A_FUNCTION = 8
_BATCH = 2e-3  # least seconds for a batch of calls
_ROUNDS = 15


@dataclass(slots=True, eq=False)
class Call:
    """One call. `face`: the jitted callable; `grad`: whether gradients were enabled."""

    name: str
    face: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool

    def __call__(self, function: Callable[..., Any]) -> Any:
        with torch.set_grad_enabled(self.grad):
            return function(*self.args, **self.kwargs)

    @property
    def signature(self) -> str:
        """The arguments as a short text."""
        named = [f"{name}={_shown(value)}" for name, value in self.kwargs.items()]
        # The first argument of a module's call is the module itself.
        args = self.args[1:] if self.name.endswith("()") else self.args
        return ", ".join([*map(_shown, args), *named])


@dataclass(slots=True, eq=False)
class Recording:
    """`calls` in order; `left_out`: number of calls beyond MOST_A_FUNCTION."""

    calls: list[Call] = field(default_factory=list)
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """Median seconds per call. `error`: the largest difference from plain Python relative to its
    largest value, None if not compared; `said`: a remark."""

    name: str
    signature: str
    plain: float = 0.0
    jitted: float = 0.0
    peer: float = 0.0
    error: float | None = None
    said: str = ""


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Within the block, record each miss of a jitted function as a call."""
    found, before = Recording(), Unit.miss

    def miss(self: Unit, state: Any, values: tuple, scope: dict, closure: tuple | None) -> Any:
        face = self.face() if self.face is not None else None
        if face is not None and state.origin is None and state.code is face.__wrapped__.__code__:
            if sum(call.face is face for call in found.calls) < MOST_A_FUNCTION:
                found.calls.append(_call_of(self.name, face, state.code, values))
            else:
                found.left_out += 1
        return before(self, state, values, scope, closure)

    Unit.miss = miss  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Unit.miss = before  # type: ignore[method-assign]


def _call_of(name: str, face: Any, code: types.CodeType, values: tuple[Any, ...]) -> Call:
    """The call with the arguments in the locals of a frame that has not started."""
    at, only = code.co_argcount, code.co_kwonlyargcount
    args = list(values[:at])
    kwargs = dict(zip(code.co_varnames[at : at + only], values[at : at + only], strict=True))
    at += only
    if code.co_flags & inspect.CO_VARARGS:
        args += values[at]
        at += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= values[at]
    return Call(
        name,
        face,
        tuple(map(_copied, args)),
        {n: _copied(v) for n, v in kwargs.items()},
        torch.is_grad_enabled(),
    )


def _copied(value: Any) -> Any:
    """The value with copies of tensors in plain containers, which keep requires_grad."""
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    if type(value) is dict:
        return {name: _copied(item) for name, item in value.items()}
    return value


def measure(call: Call, peer: bool, rounds: int = _ROUNDS) -> Result:
    """Time the call plain, jitted and, on request, by torch.compile, in alternating batches.
    Returns medians."""
    function = call.face.__wrapped__
    ways: dict[str, Callable[[], Any]] = {
        "plain": lambda: call(function),
        "jitted": lambda: call(call.face),
    }
    if peer:
        compiled = torch.compile(function)
        ways["peer"] = lambda: call(compiled)
    result = {"name": call.name, "signature": call.signature}
    try:
        error, said = _compared(call, ways)
        counts = {name: _calls_a_batch(name, way) for name, way in ways.items()}
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                times[name].append(_batch(name, way, counts[name]))
    # The program is in another state than at the first call.
    except Exception as raised:
        return Result(
            **result,  # type: ignore[arg-type]
            said=f"raises {type(raised).__name__} when called again: not timed",
        )
    medians = {name: statistics.median(found) for name, found in times.items()}
    return Result(**result, **medians, error=error, said=said)  # type: ignore[arg-type]


@contextlib.contextmanager
def _jit_is(on: bool) -> Iterator[None]:
    """Unless `on`, run jitted callables and the frames below them uncompiled within the block."""
    states = (
        []
        if on
        else [s for u in (*UNITS, *frame_policy.units()) for s in u.states if not s.disabled]
    )
    for state in states:
        state.disabled = True
    try:
        yield
    finally:
        for state in states:
            state.disabled = False


def _batch(name: str, way: Callable[[], Any], count: int) -> float:
    """Seconds per call over `count` calls."""
    with _jit_is(name == "jitted"):
        start = time.perf_counter()
        for _ in range(count):
            way()
        return (time.perf_counter() - start) / count


def _calls_a_batch(name: str, way: Callable[[], Any]) -> int:
    for _ in range(2):  # the first calls compile
        spent = _batch(name, way, 1)
    return max(1, min(1000, int(_BATCH / max(spent, 1e-7))))


def _compared(call: Call, ways: dict[str, Callable[[], Any]]) -> tuple[float | None, str]:
    """The error of the jitted results, or None with the reason why there is none."""
    watched = [
        t for value in (call.args, call.kwargs, call.face.__wrapped__) for t in _tensors(value)
    ]
    versions, found = [t._version for t in watched], {}
    for name in ("plain", "jitted"):
        state = torch.get_rng_state()
        with _jit_is(name == "jitted"):
            found[name] = list(_results(ways[name]()))
        torch.set_rng_state(state)
    if versions != [t._version for t in watched]:
        return (
            None,
            "writes into tensors: each call starts from the last one's state, so"
            " results are not compared",
        )
    if [type(v) for v in found["plain"]] != [type(v) for v in found["jitted"]]:
        return None, "returns other types when called again: results are not compared"
    return max(map(_error, found["plain"], found["jitted"]), default=0.0), ""


def _tensors(value: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    """The tensors reachable from a value through containers, modules, closures and used globals."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from (*value.parameters(), *value.buffers())
    elif depth == 0:
        return
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item, depth - 1)
    elif isinstance(value, types.MethodType):
        yield from _tensors([value.__self__, value.__func__], depth)
    elif isinstance(value, types.FunctionType):
        names, cells = value.__code__.co_names, value.__closure__ or ()
        yield from _tensors([value.__globals__[n] for n in names if n in value.__globals__], depth)
        yield from _tensors([c.cell_contents for c in cells if c != types.CellType()], depth)


def _results(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _results(item)
    elif isinstance(value, dict):
        yield from _results(list(value.values()))
    elif isinstance(value, (torch.Tensor, bool, int, float)):
        yield value.detach().clone() if isinstance(value, torch.Tensor) else value


def _error(plain: Any, jitted: Any) -> float:
    one, other = (torch.as_tensor(v).to(torch.float64) for v in (plain, jitted))
    if one.shape != other.shape:
        return float("inf")
    if torch.equal(one, other) or one.numel() == 0:
        return 0.0
    both = one.isfinite() & other.isfinite()
    if not torch.equal(one[~both].nan_to_num(), other[~both].nan_to_num()):
        return float("inf")
    return float((one - other)[both].abs().max() / one[both].abs().max().clamp_min(1e-30))


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.").replace("float", "f").replace("int", "i")
        return f"{name}{list(value.shape)}"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    return type(value).__name__
