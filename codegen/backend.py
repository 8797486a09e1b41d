"""The backend: from a graph to a program. Capture calls it.

`compile_graph(graph, options)` returns a `Compiled`: fused kernels and ATen steps run by the
executor, or the replay of the torch-level calls (a gradient is needed, level O0, or code generation
failed: reported by an event and, once, by a warning). Under GRAFTJIT_CHECK a failure raises, and
each run is compared with the replay. With the option `background` a program starts as ATen's
operators and is exchanged for the fused one when its kernels are built.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..ir.errors import NotDivided
from ..ir.graph.effects import sends_any
from ..ir.graph.nodes import Graph
from ..ir.location import Location
from ..ir.passes.defer_writes import deferred, early
from ..ir.symbolic.expr import Symbol, symbols_of
from ..ir.trace.conditional import is_mark
from ..ir.trace.joint_graph import Joint, Trade
from ..runtime.autograd.freed_graph import SpentProgram
from ..runtime.autograd.rollback import begins, marking_begun, unwriting
from ..runtime.errors import BuildError, GraftError, InternalError
from ..runtime.events import observers
from ..runtime.events.events import Fallback
from ..runtime.process import faults
from ..runtime.process.session import SESSION
from .plan_cache import cache
from .programs import step_facts
from .programs.compiled import Compiled, compared, emit_compiled, sampled, show
from .programs.replay import compile_replay


def compile_graph(graph: Graph, options: Any = None) -> Compiled:
    """Compile a graph at the level of `options` (a JitConfig or None)."""
    start = time.perf_counter()
    level = getattr(options, "jit_level", "O1")
    background = getattr(options, "background", False)
    tune = level == "O2" and SESSION.options.tune and getattr(options, "tune", True)
    mode = getattr(options, "exec_mode", "auto")
    sink = mode == "sink" or (mode == "auto" and level == "O2")
    if level == "O0":
        compiled = _replayed(graph, "FB311", "level O0")
    elif graph.needs_grad:
        compiled = _joint_or_replayed(graph, level, background, tune, sink, options)
    else:
        traded, trade = _within_budget(graph, options)
        compiled, late = _late_or_replayed(graph, traded, level, background, tune)
        compiled.trade = trade
        _finish(compiled, late, sink)
        if (graph.spent or (graph.spends and graph.mutates)) and compiled.mode != "replay":
            compiled.program = SpentProgram(compiled.program, graph.spent)
    if graph.late and compiled.mode == "replay":
        compiled.program = unwriting(compiled.program, early(graph))
    if sends_any(graph.nodes):  # no message may be sent twice
        compiled.program = begins(compiled.program)
    compiled.timings["total"] = time.perf_counter() - start
    observers.publish(lambda: compiled)
    if not compiled.part:
        sampled(compiled)
    if compiled.mode != "background":  # `exchange` in pipeline.py emits that event
        emit_compiled(compiled, level)
    return compiled


def _training() -> Any:
    # loaded at first use: not every program is trained
    from . import training

    return training


def _within_budget(graph: Graph, options: Any) -> tuple[Graph, Trade]:
    """The graph whose backward keeps to `JitConfig.memory_budget`, and what that changes."""
    budget = getattr(options, "memory_budget", None)
    from_data = any(origin[0] == "data" for origin in graph.symbols.values())
    if budget is None or not graph.forward_end or from_data:
        return graph, Trade()
    return _training().within_budget(graph, budget)  # type: ignore[no-any-return]


def _replayed(graph: Graph, code: str, reason: str, where: Location | None = None) -> Compiled:
    SESSION.emit(Fallback(code=code, reason=reason, where=where))
    return Compiled(
        graph, compile_replay(graph), "replay", library=len(graph.calls), reason=reason,
        steps=step_facts.by_calls(graph), sketch=step_facts.sketch(graph, ()),
    )  # fmt: skip


def _joint_or_replayed(
    graph: Graph, level: str, background: bool, tune: bool, sink: bool, options: Any
) -> Compiled:
    """Forward and backward as programs, or the calls under autograd."""
    if not isinstance(graph.joint, Joint):
        reason = graph.joint.reason if graph.joint else "a gradient is needed"
        return _replayed(graph, "FB301", reason, graph.grad_where)
    owner = SESSION.owner

    def build(half: Graph) -> Compiled:
        start = time.perf_counter()
        with SESSION.working_for(*owner):
            written_late = deferred(half) if half.late else half
            made = _half(written_late, level, background, tune)
            forward = half.name == graph.name
            made.part = "forward" if forward else "backward"
            sampled(made)
            saved = range(len(graph.joint.pieces), len(half.outputs)) if forward else ()
            _finish(made, written_late, sink, frozenset(saved))
            made.timings["total"] = time.perf_counter() - start
            if not forward:  # the event of the forward is emitted with its frame
                emit_compiled(made, level)
            return made

    def whole(gradients: Graph) -> Any | str:
        start = time.perf_counter()
        with SESSION.working_for(*owner):
            if gradients.needs_grad:
                made = _joint_or_replayed(gradients, level, background, tune, sink, options)
            else:
                made = _fused_or_replayed(gradients, level, background, tune)
                _finish(made, gradients, sink)
            if made.mode == "replay":
                return made.reason
            made.part = "backward"
            made.timings["total"] = time.perf_counter() - start
            emit_compiled(made, level)
            return made.program

    try:
        program, forward = _training().compile_joint(
            graph, build, options, SESSION.options.check, show(), whole
        )
    except NotDivided as error:
        return _replayed(graph, "FB301", str(error), graph.grad_where)
    except Exception as error:  # a bug of graftjit must not become the user's error
        return _replayed(graph, *_fallback_reason(graph, error))
    return replace(forward, graph=graph, program=program)


def _half(graph: Graph, level: str, background: bool, tune: bool) -> Compiled:
    """A forward or backward. It has no calls to fall back to: without kernels ATen runs
    its operators.
    """
    try:
        return _programmed(graph, level, background, tune)
    except Exception as error:
        code, reason = _fallback_reason(graph, error)
        SESSION.emit(Fallback(code=code, reason=reason))
        if _has_parts(graph):
            return _in_parts(graph, _pipeline().by_aten)
        return _pipeline().by_aten(graph)


def _finish(
    compiled: Compiled, graph: Graph, sink: bool, inner: frozenset[int] = frozenset()
) -> None:
    """Wrap the program: a launch as a whole (`inner`: see `graphed`), and checks."""
    if sink and compiled.mode != "replay" and compiled.spec is not None:
        # loaded at first use: few programs are launched as a whole
        from .cuda_graphs import graphed

        compiled.program = graphed(compiled, graph, inner)
    if compiled.mode != "replay":
        kernels = [one.name for one in compiled.kernels]
        compiled.program = compared(graph, compiled.program, kernels)
    if compiled.mode != "replay" and graph.mutates and compiled.part != "backward":
        compiled.program = marking_begun(compiled.program, graph.written)


def _late_or_replayed(
    graph: Graph, traded: Graph, level: str, background: bool, tune: bool
) -> tuple[Compiled, Graph]:
    """The program and the graph that it is of, whose writes to inputs may wait."""
    try:
        late = deferred(traded) if graph.late else traded
    except Exception as error:  # a bug of graftjit must not become the user's error
        return _replayed(graph, *_fallback_reason(graph, error)), graph
    return _fused_or_replayed(late, level, background, tune), late


def _fused_or_replayed(graph: Graph, level: str, background: bool, tune: bool) -> Compiled:
    try:
        return _programmed(graph, level, background, tune)
    except Exception as error:  # a bug of graftjit must not become the user's error
        return _replayed(graph, *_fallback_reason(graph, error))


def _mentioned(graph: Graph) -> set[Symbol]:
    """The numbers that the program has to check."""
    return symbols_of([(one.left, one.right) for one in graph.required])


def _programmed(graph: Graph, level: str, background: bool, tune: bool) -> Compiled:
    """The program from the kept plan of such a graph, or from a new one."""
    if _has_parts(graph):
        return _in_parts(graph, lambda part: _programmed(part, level, False, tune))
    key = cache.key_of(graph) if not tune else None
    try:
        done = _kept(graph, key, background)
    except Exception as error:
        then = "Its graph is planned again: its results are right."
        faults.warn_of_fault(graph.name, error, then)
        done = None
    if done is not None:
        return done
    return _pipeline().programmed(graph, level, background, tune, _fallback_reason, key)


def _has_parts(graph: Graph) -> bool:
    # A backward has the numbers that the forward has checked.
    checks = graph.required and graph.symbols.keys() >= _mentioned(graph)
    reads = any(origin[0] == "data" for origin in graph.symbols.values())
    return bool(checks) or reads or any(map(is_mark, graph.nodes))


def _in_parts(graph: Graph, compile_part: Callable[[Graph], Compiled]) -> Compiled:
    # loaded at first use: few programs read numbers from tensors
    from .read_parts import compiled

    return compiled(graph, compile_part)


def _pipeline() -> Any:
    # loaded for the first graph without a kept plan: 80 modules, which a kept plan does not need
    from . import pipeline

    return pipeline


def _kept(graph: Graph, key: Any, background: bool) -> Compiled | None:
    kept = None if key is None or observers.is_observed() else cache.recall(key)
    if kept is None:
        return None
    if SESSION.options.check:
        _pipeline().verify(graph, kept)
    return cache.loaded(graph, kept, stored=background)


def _fallback_reason(graph: Graph, error: Exception) -> tuple[str, str]:
    """The code and the reason of a fallback, after one warning. Under GRAFTJIT_CHECK the error is
    raised.
    """
    if SESSION.options.check:
        if isinstance(error, GraftError):
            raise error
        raise InternalError(
            f"code generation failed for the graph {graph.name}", found=repr(error)
        ) from error
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    SESSION.warn_once(
        "WN606",
        f"a graph runs operator by operator, because its kernels could not be made: {reason}."
        " Its results are right, but slower than they could be."
        " `python -m graftjit doctor` tries the compiler.",
    )
    return "FB306" if isinstance(error, BuildError) else "FB303", reason
