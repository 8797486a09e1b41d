"""Builds the stages of a compilation from what was observed.

In: the objects that `runtime.events.observers` received for one call's compilation. Out: the parts
of a `lowered.Lowered`, each with those stages of the table `STAGES` that it has. Texts are made on
demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ..codegen.programs.compiled import Compiled, Divided, Seen
from ..ir.dataclass import dataclass
from ..ir.graph.nodes import Graph
from ..ir.graph.printing import calls_text, graph_text, place_text
from ..ir.passes.pipeline import PASSES
from ..runtime.events.observers import Published
from ..runtime.report.report import Report
from .bytecode_text import code_text, line_of
from .lowered import Part, Stage
from .texts import guards_text, nests_text, program_text, sources_text


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """The data of one part: its capture; the division into forward and backward, if any; each graph
    that became a program (forward first); and the compiled whole, None without a graph."""

    entry: Published
    divided: Divided | None
    seen: tuple[Seen, ...]
    compiled: Compiled | None

    @property
    def graph(self) -> Graph | None:
        return None if self.entry.made.graph is None else self.entry.made.graph

    @property
    def kernels(self) -> list[Any]:
        return [kernel for one in self.seen for kernel in one.plan.kernels]

    def half_of(self, one: Seen) -> str:
        """ "forward" or "backward" for one of two programs; "" for a single one."""
        if self.divided is None:
            return ""
        return "forward" if one is self.seen[0] else "backward"

    def lap(self, *names: str) -> float:
        """The total seconds of these steps of code generation over all programs."""
        return sum(one.compiled.timings.get(name, 0.0) for one in self.seen for name in names)


# -- one function per stage


def _captured(made: Made) -> Stage | None:
    graph = made.graph
    if graph is None:
        return None
    return Stage(
        "captured",
        "the torch calls of the program",
        _count(len(graph.calls), "call"),
        made.entry.seconds.get("capture", 0.0),
        lambda: calls_text(graph, line_of),
        graph,
    )


def _aten(made: Made) -> Stage | None:
    return _graph("aten", "the ATen operators below them", made.graph)


def _joint(made: Made) -> Stage | None:
    if made.divided is None:
        return None
    title, seconds = "with the backward, as torch's autograd records it", made.divided.seconds
    return _graph("joint", title, made.divided.whole, seconds - _seconds(made.divided.passes))


def _passes(made: Made) -> Stage | None:
    """One step for each pass that changed something: those on the joint graph first, then those on
    each half."""
    runs: list[tuple[str, Graph, Any]] = []
    if made.divided is not None:
        runs.append(("", made.divided.whole, made.divided.passes))
    runs += [(made.half_of(one), one.graph, one.passes) for one in made.seen]
    steps = tuple(step for run in runs for step in _steps(*run))
    if not any(passes for _, _, passes in runs):
        return None
    spent = sum(_seconds(passes) for _, _, passes in runs)
    return Stage(
        "passes",
        "the passes that simplify and decompose the graph",
        f"{_count(len(steps), 'pass', 'es')} changed it",
        spent,
        lambda: "\n".join(map(_step_line, steps)) or "nothing changed",
        steps=steps,
    )


def _steps(half: str, graph: Graph, passes: Any) -> Iterator[Stage]:
    before, named = graph, Counter[str]()
    for one in passes:
        after, was = one.graph, before
        before = after
        if after is was or after.text() == was.text():
            continue
        name = f"{half}.{one.name}" if half else one.name
        named[name] += 1
        name += f"_{named[name]}" if named[name] > 1 else ""
        size = f"{_count(one.before, 'node')} -> {one.after}"
        yield Stage(name, _WHY[one.name], size, one.seconds, _shown(after), graph=after, before=was)


def _shown(graph: Graph) -> Callable[[], str]:
    return lambda: graph_text(graph, line_of)


def _step_line(step: Stage) -> str:
    """name (nodes, ms): why; then the removed and added operators."""
    assert step.graph is not None and step.before is not None
    old, new = _operators(step.before), _operators(step.graph)
    changes = [
        f"    {sign} {', '.join(_times(name, n) for name, n in sorted(found.items()))}"
        for sign, found in (("-", old - new), ("+", new - old))
        if found
    ]
    head = f"{step.name}: {step.title} ({step.size}, {step.seconds * 1e3:.1f} ms)"
    return "\n".join([head, *changes])


def _operators(graph: Graph) -> Counter[str]:
    nodes = (node for node in graph.nodes if node.op == "call")
    return Counter(str(node.target).removesuffix(".default") for node in nodes)


def _times(name: str, count: int) -> str:
    return name if count == 1 else f"{count} {name}"


def _forward(made: Made) -> Stage | None:
    halves = made.divided
    return None if halves is None else _graph("forward", "the forward half", halves.forward)


def _backward(made: Made) -> Stage | None:
    halves = made.divided
    return None if halves is None else _graph("backward", "the backward half", halves.backward)


def _graph(name: str, title: str, graph: Graph | None, seconds: float = 0.0) -> Stage | None:
    if graph is None:
        return None
    operators = sum(node.op == "call" for node in graph.nodes)
    return Stage(name, title, _count(operators, "operator"), seconds, _shown(graph), graph)


def _nests(made: Made) -> Stage | None:
    return _of_kernels(made, "nests", "fused loops", nests_text, made.lap("plan"))


def _kernels(made: Made) -> Stage | None:
    spent = made.lap("render", "render_gpu", "tune", "build", "build_gpu")
    return _of_kernels(made, "kernels", "the loops as C++ or Triton source", sources_text, spent)


def _of_kernels(
    made: Made, name: str, title: str, text: Callable[[Seen], str], seconds: float
) -> Stage | None:
    if not made.seen:
        return None
    size = _count(len(made.kernels), "kernel")
    return Stage(name, title, size, seconds, lambda: _halves_text(made, text))


def _program(made: Made) -> Stage | None:
    specs = [one.compiled.spec for one in made.seen if one.compiled.spec is not None]
    if made.compiled is None or (not specs and made.compiled.mode != "replay"):
        return None
    if not specs:
        why = made.compiled.reason
        size = _count(made.compiled.library, "call")
        return Stage(
            "program", "the calls, one by one", size, 0.0, lambda: f"# {why}\n{_replayed(made)}"
        )
    steps = sum(len(spec.steps) for spec in specs)
    return Stage(
        "program",
        "what the executor runs",
        _count(steps, "step"),
        made.lap("load"),
        lambda: _halves_text(made, program_text),
    )


def _replayed(made: Made) -> str:
    assert made.graph is not None
    return calls_text(made.graph, line_of)


def _bytecode(made: Made) -> Stage | None:
    entry = made.entry
    if entry.made.kind == "plain":
        return None
    functions = 1 + len(dict.fromkeys((of, way) for of, way, _ in entry.resumes))
    title = "the code that runs in place of the frame, as Python"
    return Stage("bytecode", title, _count(functions, "function"), 0.0, lambda: code_text(entry))


def _guards(made: Made) -> Stage | None:
    rows = made.entry.made.rows
    if not rows:
        return None
    return Stage(
        "guards",
        "the conditions that must hold at each call",
        _count(len(rows), "guard"),
        made.entry.seconds.get("guards", 0.0),
        lambda: guards_text(rows),
    )


STAGES: tuple[Callable[[Made], Stage | None], ...] = (
    _captured,
    _aten,
    _joint,
    _passes,
    _forward,
    _backward,
    _nests,
    _kernels,
    _program,
    _bytecode,
    _guards,
)
"""The stages in order. Each function makes its stage from the data of a part, or returns None if
the part has no such stage."""


def _halves_text(made: Made, text: Callable[[Seen], str]) -> str:
    texts = [(made.half_of(one), text(one)) for one in made.seen]
    return "\n\n".join(f"# {half}\n{found}" if half else found for half, found in texts)


def _seconds(passes: Any) -> float:
    return sum(one.seconds for one in passes)


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{plural if number != 1 else ''}"


def _why() -> dict[str, str]:
    found: dict[str, str] = {}
    for one in PASSES:
        found.setdefault(one.name, one.why)
    return found


_WHY = _why()

# -- parts -----------------------------------------------------------------------------------------


def parts(emitted: list[Any], report: Report) -> tuple[Part, ...]:
    """The parts of a compilation, in order. If nothing was captured, one part that runs
    uncompiled."""
    found: list[Part] = []
    waiting: list[Any] = []
    for one in emitted:
        if not isinstance(one, Published):
            waiting.append(one)
            continue
        found.append(_part(_gathered(one, waiting)))
        waiting = []
    if not found:
        said = tuple(f"runs as written: {note.code} {note.reason}" for note in report.notes)
        found.append(Part(report.name, "plain", (), said or ("nothing was captured",)))
    return tuple(found)


def _gathered(entry: Published, emitted: list[Any]) -> Made:
    """The data of one part. If a frame was captured repeatedly, the last capture counts."""
    ends = [at for at, one in enumerate(emitted) if isinstance(one, Compiled)]
    if entry.made.graph is None or not ends:
        return Made(entry, None, (), None)
    emitted = emitted[ends[-2] + 1 if len(ends) > 1 else 0 : ends[-1] + 1]
    halves = [one for one in emitted if isinstance(one, Divided)]
    seen = [one for one in emitted if isinstance(one, Seen)]
    if halves:  # the half that is needed first was built first
        seen = [one for one in seen if one.graph.name == halves[-1].forward.name][-1:] + [
            one for one in seen if one.graph.name == halves[-1].backward.name
        ][-1:]
    return Made(entry, halves[-1] if halves else None, tuple(seen), emitted[-1])


def _part(made: Made) -> Part:
    entry = made.entry
    stages = tuple(stage for make in STAGES if (stage := make(made)) is not None)
    notes = [
        f"breaks at {place_text(one.where)}: {one.code} {one.reason}" for one in entry.made.breaks
    ]
    if entry.made.plain is not None:
        plain = entry.made.plain
        at = f" at {place_text(plain.where)}" if plain.where else ""
        notes.append(f"runs as written{at}: {plain.code} {plain.reason}")
    if made.compiled is not None and made.compiled.mode == "replay":
        notes.append(f"runs call by call: {made.compiled.reason}")
    return Part(_name(entry), entry.made.kind, stages, tuple(notes), made)


def _name(entry: Published) -> str:
    """The name of the function, and the line where a resume function continues."""
    name = entry.code.co_qualname
    if not entry.resumed:
        return name
    first = entry.code.co_firstlineno
    lines = (line for _, _, line in entry.code.co_lines() if line and line != first)
    line = next(lines, None)
    return f"{name}, resumed" if line is None else f"{name}, from line {line} on"
