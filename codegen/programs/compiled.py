"""`Compiled`: a graph that can run, and the records of its kernels for the report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.dataclass import dataclass, field
from ...ir.graph.nodes import Graph
from ...ir.graph.summary import Sketch
from ...ir.symbolic.expr import hint_of
from ...ir.trace.joint_graph import Trade
from ...runtime.events.events import Compiled as CompiledEvent
from ...runtime.events.events import StepFacts
from ...runtime.events.loggers import PACKAGES, asked
from ...runtime.process.session import SESSION
from ...runtime.program.program import ProgramSpec
from ...runtime.report import timings as clocks
from .replay import compile_replay
from .shadow import can_compare, shadowed

if TYPE_CHECKING:
    from ...ir.passes.pipeline import PassRecord
    from ..schedule.plan import Plan

Program = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One kernel for the report: its text, what it covers (operator and line), bytes moved
    per call.
    """

    name: str
    source: str
    covers: tuple[str, ...]
    bytes: int
    cached: bool = False


def record(
    name: str, text: str, covers: tuple[str, ...], nbytes: int, cached: bool, comment: str = "//"
) -> KernelRecord:
    """The record of a kernel; the lines that it covers are comments above its text."""
    head = "".join(f"{comment} {line}\n" for line in covers)
    return KernelRecord(name, head + text, covers, nbytes, cached)


@dataclass(slots=True)
class Compiled:
    """A graph that can run. `program` takes input tensors by position and returns a tuple of
    outputs.

        mode      "fused", "replay" (`reason` says why), or "background": ATen's operators until
                  kernels replace them
        kernels   one record per kernel; `distinct`: how many the library has; `library` counts
                  ATen calls
        timings   stage -> seconds
        part      "forward" or "backward" of a graph for training, else ""
        steps     the report's facts of each step; sketch: of the graph; source: the text of all
                  kernels
        sampled   the native program, which `program` may wrap
        trade     of a forward: what it saves for its backward
    """

    graph: Graph
    program: Program
    mode: str
    spec: ProgramSpec | None = None
    kernels: tuple[KernelRecord, ...] = ()
    library: int = 0
    distinct: int = 0
    reason: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    part: str = ""
    steps: tuple[StepFacts, ...] = ()
    sketch: Sketch | None = None
    source: str = ""
    sampled: Any = None
    trade: Trade = Trade()

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self.program(*inputs)

    @property
    def computes(self) -> bool:
        """Whether it may do more than make views, which is all that can be faster than eager."""
        return self.mode != "fused" or bool(self.kernels or self.library)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """How a graph became a program, for `runtime.events.observers`. `passes`: each with the graph
    that it returned; `texts`: of the kernels, by name, in C++ or Triton.
    """

    graph: Graph
    passes: tuple[PassRecord, ...]
    plan: Plan
    texts: dict[str, str]
    compiled: Compiled


@dataclass(frozen=True, slots=True, eq=False)
class Divided:
    """The same for a graph with its backward: both as one graph, the passes over it, and the two
    halves.
    """

    whole: Graph
    passes: tuple[PassRecord, ...]
    forward: Graph
    backward: Graph
    seconds: float


def sampled(compiled: Compiled) -> None:
    """Sample the run times of the program for the report (`runtime.report.timings`)."""
    clocks.follow(compiled.sampled, compiled.graph.name, compiled.part)


def emit_compiled(compiled: Compiled, level: str) -> None:
    """Emit the event of a graph that has been compiled."""
    graph = compiled.graph
    SESSION.emit(
        CompiledEvent(
            graph=graph.name,
            level=level,
            nodes=sum(node.op == "call" for node in graph.nodes),
            kernels=len(compiled.kernels),
            distinct=compiled.distinct,
            library=compiled.library,
            arena_bytes=0 if compiled.spec is None else hint_of(compiled.spec.arena),
            seconds=compiled.timings["total"],
            part=compiled.part,
            steps=compiled.steps,
            sketch=compiled.sketch,
            source=compiled.source,
            varied=any(origin[0] != "number" for origin in graph.symbols.values()),
            saved_bytes=compiled.trade.saved,
            spared_bytes=compiled.trade.spared,
            again=compiled.trade.again,
            again_seconds=compiled.trade.seconds,
        )
    )


def compared(graph: Graph, program: Program, kernels: Sequence[str] = ()) -> Program:
    """The program; under GRAFTJIT_CHECK each run is compared with eager's."""
    if not SESSION.options.check or not can_compare(graph):
        return program
    return shadowed(program, compile_replay(graph), graph, kernels)


def show() -> Callable[[str], None] | None:
    """The logger that prints the graphs of the passes, or None."""
    debug, logger = SESSION.options.debug, PACKAGES["ir"]
    return logger.debug if (debug >= 4 or not debug) and asked(logger, logging.DEBUG) else None
