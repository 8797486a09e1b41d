"""Folds of programs: their steps with bytes, operations and times, and their graphs.

In: a `folds.Folding`: the `Compiled` events with the facts of each step, and the `Timed` events
with run times. Out: `KernelRecord`s, which compare each step with the limits of the machine, and
`GraphRecord`s. `folds` uses this module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...ir.location import shown_text
from ..events import events
from . import roofline
from .fold_places import at
from .records import GraphRecord, KernelRecord, NodeRecord, Place, UnfusedRecord

if TYPE_CHECKING:
    from .folds import Folding

_Times = dict[
    tuple[str, int, str, str], tuple[dict[str, tuple[float, int]], tuple[roofline.Row, ...]]
]


def fold_kernels(log: Folding) -> list[KernelRecord]:
    """The steps of all programs, in execution order."""
    times = _times(log)
    return [_kernel(log, e, step, times) for e in log.programs for step in e.steps]


def _times(log: Folding) -> _Times:
    """The measurements of each program: (median seconds, samples) of its steps, and the limits of
    the machine."""
    found: _Times = {}
    for e in log.of(events.Timed):
        steps = {name: (seconds, samples) for name, seconds, samples in e.steps}
        found[e.frame, e.entry, e.graph, e.part] = steps, e.roofs
    return found


def _kernel(
    log: Folding, e: events.Compiled, step: events.StepFacts, times: _Times
) -> KernelRecord:
    steps, roofs = times.get((e.frame, e.entry, e.graph, e.part), ({}, ()))
    seconds, samples = steps.get(step.name, (0.0, 0))
    share, bound = _judged(e, step, seconds, roofs)
    # The facts of the step are wrong, or other processes ran while the machine was measured.
    if share > roofline.BEYOND:
        share, bound = 0.0, ""
    places = tuple(Place(**at(line)) for line in step.lines)
    return KernelRecord(
        **at(step.lines[0] if step.lines else None),
        name=step.name,
        frame=e.frame,
        graph=e.graph,
        entry=log.number(e),
        kind=step.kind,
        device=step.device,
        operators=step.operators,
        lines=places,
        shape=step.shape,
        reads=0 if e.varied else step.reads,
        writes=0 if e.varied else step.writes,
        flops=0 if e.varied else step.flops,
        seconds=seconds,
        samples=samples,
        share=min(1.0, share),
        bound=bound,
        cached=step.cached,
        source=shown_text(_source(e, step)) if step.kind == "kernel" else "",
        unfused=tuple(UnfusedRecord(u.neighbour, u.why, u.code) for u in step.unfused),
    )


def _judged(
    e: events.Compiled, step: events.StepFacts, seconds: float, roofs: tuple[roofline.Row, ...]
) -> tuple[float, str]:
    """(share of the roofline, bound). Empty for GPUs, and for symbolic sizes, since the timed calls
    may have other sizes than the step's facts."""
    if step.device != "cpu" or e.varied:
        return 0.0, ""
    return roofline.judged(roofs, seconds, step.reads + step.writes, step.flops, step.dtype)


def beats_the_roof(log: Folding) -> bool:
    """Whether a step was faster than the measured limit of the machine, so that the limit was
    measured while the machine was busy."""
    times = _times(log)
    for e in log.programs:
        steps, roofs = times.get((e.frame, e.entry, e.graph, e.part), ({}, ()))
        for step in e.steps if roofs else ():
            seconds = steps.get(step.name, (0.0, 0))[0]
            share, bound = _judged(e, step, seconds, roofs)
            if share > roofline.NOISE and bound != "overhead":
                return True
    return False


def _source(e: events.Compiled, step: events.StepFacts) -> str:
    """The source text of a step: that of all its launches."""
    return "\n\n".join(filter(None, (cut(e.source, one) for one in step.symbols or (step.name,))))


def cut(text: str, name: str) -> str:
    """The text of one kernel from that of its library: the comments above it, and its body."""
    found = re.search(
        rf'^(?:(?://|#)[^\n]*\n|@[^\n]*\n)*(?:extern "C" [^\n]*\b|def ){re.escape(name)}\(',
        text,
        re.M,
    )
    if found is None:
        return ""
    rest = text[found.start() :]
    ends = "\n}" if 'extern "C"' in found.group() else "\n\n\n"
    end = rest.find(ends)
    return rest if end < 0 else rest[: end + len(ends)].rstrip("\n")


def fold_graphs(log: Folding) -> list[GraphRecord]:
    """The graphs that became programs, in order."""
    return [
        GraphRecord(
            name=e.graph,
            frame=e.frame,
            entry=log.number(e),
            level=e.level,
            part=e.part,
            nodes=tuple(_node(node) for node in e.sketch.nodes) if e.sketch else (),
            text=_text(e.sketch) if e.sketch else "",
        )
        for e in log.programs
    ]


def _node(node: events.SketchNode) -> NodeRecord:
    return NodeRecord(
        **at(node.where),
        name=node.name,
        op=node.op,
        type=node.type,
        inputs=node.inputs,
        kernel=node.step,
    )


def _text(sketch: events.Sketch) -> str:
    """The graph as typed lines, one per node."""
    # Values on the stack at a break have no name in the program.
    if sketch.text:
        return re.sub(r"(?<![\w.])\.stack\d+", "a value between two steps", sketch.text)
    return "\n".join(
        f"{node.name}: {node.type or '?'} = {node.op}({', '.join(node.inputs)})"
        for node in sketch.nodes
    )
