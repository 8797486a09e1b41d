"""Runs cases of torch's operator database compiled: many graphs as one translation unit, or through `jit`.

`Batch.add(case)` traces a case and plans its kernels, `Batch.run()` builds all in one unit, runs each and compares.
What comes out is an `Outcome` a case. Traces that end (data-dependent sizes, operators of the user's) are breaks for
capture and are no failures here.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from graftjit import jit
from graftjit.codegen.build import cxx as build
from graftjit.codegen.cpp import renderer as cpp
from graftjit.codegen.kernels import registry as replaced
from graftjit.codegen.loops.kernel import Kernel
from graftjit.codegen.lower.builder import RULES
from graftjit.codegen.pipeline import programmed  # noqa: F401  (fills the rules)
from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.schedule.program_writer import spec as spec_of
from graftjit.ir.errors import CannotTrace, TraceError
from graftjit.ir.graph.nodes import Graph, Node
from graftjit.ir.passes.pipeline import optimize
from graftjit.ir.trace.tracer import Tracer
from graftjit.runtime.executor.lower import load

from ..symbolic import arguments, trace_open
from .cases import (
    SEED,
    Case,
    copies,
    eager,
    exactly,
    leaves,
    name_of,
    nearby,
    samples_of,
    short,
    swap,
    widened,
)
from .judge import judge, worst

UNIT = 60  # kernels of one translation unit
LOOSE = 6.0  # units in the last place: our own erf's
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, KeyError,
            AttributeError, AssertionError)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case. `state`: "same", "differs", "break" (`said`: its code) or "refused" (by eager)."""

    case: Case
    state: str
    said: str = ""
    kernels: int = 0
    library: tuple[str, ...] = ()


@dataclass(slots=True)
class _Planned:
    case: Case
    expected: list[torch.Tensor]
    graph: Graph
    plan: schedule.Plan
    given: list[Any]

    @property
    def library(self) -> tuple[str, ...]:
        return library_of(self.plan)


def library_of(plan: schedule.Plan) -> tuple[str, ...]:
    """The ATen operators that stay steps; views cost nothing and are not among them."""
    return tuple(
        str(step.target)
        for step in plan.steps
        if isinstance(step, Node) and step.op == "call" and step.alias is None
    )


def graph_of(case: Case) -> tuple[Graph, list[Any]]:
    """The case's graph, and what the program takes."""
    inputs = copies(case.inputs)
    torch.manual_seed(SEED)
    if case.way != "open":
        tracer = Tracer("sample")
        with torch.no_grad():
            result = tracer.run(case.fn, [tracer.input(x) for x in inputs])
        return tracer.finish(list(result)), inputs
    dims = [[d for d, size in enumerate(x.shape) if size > 1] for x in inputs]
    if not all(x.is_contiguous() for x in inputs):
        raise NotOpen
    graph, facts = trace_open(case.fn, inputs, dims)
    return graph, arguments(graph, facts, inputs)


class NotOpen(Exception):
    """Sizes are opened for contiguous operands only."""


class Batch:
    """Cases that are built together. strict: nothing is let pass that left_out.txt lets pass."""

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.planned: list[_Planned] = []
        self.outcomes: list[Outcome] = []

    @property
    def kernels(self) -> int:
        return sum(len(one.plan.kernels) for one in self.planned)

    def add(self, case: Case) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._add(case)

    def _add(self, case: Case) -> None:
        try:
            expected = eager(case.fn, case.inputs)
        except REFUSALS as error:
            return self.outcomes.append(Outcome(case, "refused", type(error).__name__))
        try:
            graph, given = graph_of(case)
        except NotOpen:
            return None
        except (CannotTrace, TraceError) as error:
            said = getattr(error, "code", "") or type(error).__name__
            return self.outcomes.append(Outcome(case, "break", said))
        except REFUSALS as error:
            said = f"tracing raises {type(error).__name__}: {str(error)[:200]}"
            return self.outcomes.append(Outcome(case, "differs", said))
        try:
            plan = schedule.plan(optimize(graph, check=True))
        except Exception as error:  # any failure is the case's outcome
            said = f"planning raises {type(error).__name__}: {str(error)[:200]}"
            return self.outcomes.append(Outcome(case, "differs", said))
        plan.steps[:] = [
            replace(step, nest=replace(step.nest, name=f"c{len(self.planned)}_{step.nest.name}"))
            if isinstance(step, Kernel)
            else step
            for step in plan.steps
        ]
        self.planned.append(_Planned(case, expected, graph, plan, given))
        if self.kernels >= UNIT:
            self.run()

    def run(self) -> list[Outcome]:
        """Everything added so far, built and compared; all outcomes up to now."""
        nests = [kernel.nest for one in self.planned for kernel in one.plan.kernels]
        numbers: dict[str, tuple[Any, ...]] = {}
        symbols: dict[str, str] = {}
        keep, addresses = None, {}
        if nests:
            source = cpp.render(nests, build.vector_bytes(), numbers, symbols)
            keep = build.load(source, list(dict.fromkeys(symbols.values())))
            addresses = {name: keep.addresses[of] for name, of in symbols.items()}
        for one in self.planned:
            said = self._difference(one, addresses, keep, numbers)
            self.outcomes.append(
                Outcome(
                    one.case,
                    "differs" if said else "same",
                    said,
                    len(one.plan.kernels),
                    one.library,
                )
            )
        self.planned = []
        return self.outcomes

    def _difference(self, one: _Planned, addresses: Any, keep: Any, numbers: Any) -> str:
        try:
            if one.plan.replaced:
                large = replaced.load(one.plan.replaced.values())
                addresses = {**addresses, **large.addresses}
                keep = (keep, large)
            run = load(spec_of(one.plan, addresses, keep, numbers))
            torch.manual_seed(SEED)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = run(*one.given)
        except Exception as error:  # any failure is the case's outcome
            return f"the program raises {type(error).__name__}: {str(error)[:200]}"
        row = None if self.strict else entry(one.case.name, one.case.dtype)
        folded = not pointwise(one.plan) or (row is not None and row.what == "weigh")
        free = LOOSE if row is not None and row.what == "loose" else 0.0
        return compared(one.case, found, one.expected, folded, free, self.strict)


def pointwise(plan: schedule.Plan) -> bool:
    """No sums, neither in kernels (a product of few columns has no loop) nor in ATen's steps."""
    rules = [RULES.get(node.target) for k in plan.kernels for node in k.nodes]
    sums = any(rule is not None and rule.kind not in ("pointwise", "create") for rule in rules)
    return not library_of(plan) and not sums


def compared(case: Case, found: Any, expected: list[torch.Tensor], folded: bool, free: float,
             strict: bool = False) -> str:  # fmt: skip
    if len(found) != len(expected):
        return f"{len(found)} results in place of {len(expected)}"
    exact: Any = None
    row = None if strict else entry(case.name, case.dtype)
    for position, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if row is not None and row.what == "zeros" and torch.equal(ours, theirs):
            continue
        if not exact and theirs.dtype.is_floating_point and not torch.equal(ours, theirs):
            exact = exactly(case)
        known = exact[position] if exact and len(exact) == len(expected) else None
        said = judge(ours, theirs, known, folded, free)
        if said and theirs.dtype.is_floating_point:
            said = judge(ours, theirs, known, folded, max(free, rounding(case, position, folded)))
        if said:
            return f"result {position}: {said}"
    return ""


def rounding(case: Case, position: int, folded: bool) -> float:
    """The error that is twice eager's, at its worst beside the case's values. In float64 what is measured is the
    distance from eager's result, which has its own error, too."""
    own = [worst(a[position], b[position], folded) for a, b in nearby(case)]
    return (3 if case.dtype == torch.float64 else 2) * max(own, default=0.0) + 1


# --- what is left out ---


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row of left_out.txt."""

    name: str
    dtypes: tuple[str, ...]
    what: str
    reason: str

    def covers(self, name: str, dtype: torch.dtype) -> bool:
        return self.name == name and (self.dtypes == ("*",) or short(dtype) in self.dtypes)


@functools.cache
def left_out() -> tuple[LeftOut, ...]:
    """The table; its head says what it holds."""
    text = Path(__file__).with_name("left_out.txt").read_text(encoding="utf-8")
    rows = [line.split(maxsplit=3) for line in text.splitlines() if line and line[0] != "#"]
    return tuple(LeftOut(name, tuple(d.split(",")), what, why) for name, d, what, why in rows)


def entry(name: str, dtype: torch.dtype) -> LeftOut | None:
    return next((row for row in left_out() if row.covers(name, dtype)), None)


# --- through jit ---

_CALLER = "def call(op, cases):\n    return [op(*args, **kwargs) for args, kwargs in cases]\n"


def function(source: str) -> Any:
    """The function `call` of a source, with code of its own: entries and limits belong to the code."""
    space: dict[str, Any] = {}
    exec(compile(source, "<samples>", "exec"), space)
    return space["call"]


def fresh_caller() -> Any:
    return function(_CALLER)


def through_jit(
    info: Any, dtype: torch.dtype, most: int, **options: Any
) -> Iterator[tuple[str, str]]:
    """(where, what differs) of the samples of an operator, all of them in one jitted call."""
    good: list[tuple[Any, Any, Any]] = []
    row = entry(name_of(info), dtype)
    if row is not None and row.what == "skip":
        return
    for number, sample in enumerate(samples_of(info, dtype)):
        if number == most:
            break
        given = ((sample.input, *sample.args), sample.kwargs)
        try:
            good.append((number, given, _plain(info.op, given)))
        except REFUSALS:
            continue
    call = jit(fresh_caller(), **options)
    cases = [tuple(fresh(given)) for _, given, _ in good]
    torch.manual_seed(SEED)
    where = f"{name_of(info)} {dtype}"
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call(info.op, cases)
    except Exception as error:  # any failure is the outcome
        yield where, f"the jitted call raises {type(error).__name__}: {str(error)[:300]}"
        return
    for (number, given, expected), ours in zip(good, found, strict=True):
        said = _against(info, dtype, given, leaves(ours), leaves(expected))
        if said:
            yield f"{where} {number} jit", said


def _plain(op: Any, given: Any) -> Any:
    torch.manual_seed(SEED)
    args, kwargs = fresh(given)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return op(*args, **kwargs)


def fresh(given: Any) -> Any:
    return swap(given, lambda x: x.clone() if x.layout is not torch.strided else copies([x])[0])


def _against(info: Any, dtype: torch.dtype, given: Any, ours: list[Any], theirs: list[Any]) -> str:
    if [type(x) for x in ours] != [type(x) for x in theirs]:
        return f"{ours} in place of {theirs}"
    wide: list[Any] = [None] * len(theirs)
    with contextlib.suppress(*REFUSALS):
        wide = leaves(_plain(info.op, widened(given)))
    row = entry(name_of(info), dtype)
    loose = row is not None and row.what == "loose"
    for a, b, exact in zip(ours, theirs, wide, strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b and a == a:
                return f"{a} in place of {b}"
            continue
        known = exact if isinstance(exact, torch.Tensor) else None
        free = LOOSE if loose else 0.0
        said = judge(a, b, known, False, free) and judge(a, b, known, True, free)
        if said:
            return said
    return ""
