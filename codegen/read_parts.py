"""Graphs that read numbers from tensors (`ir.trace.read_numbers`), as several programs.

`divided(graph)` cuts the nodes, in their order, before each node that mentions a number which no
part before it has made. A number is an argument of the later parts, like a Python number that
varies: kernels take it, and memory of such a size is taken when it is known. `compiled` compiles
the parts and makes one function of them, which reads the numbers in between and checks
`Graph.required`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..ir.dataclass import dataclass, field
from ..ir.graph.effects import is_fresh, is_random, reads, root, writes
from ..ir.graph.interpreter import moved
from ..ir.graph.nodes import Graph, Node
from ..ir.passes.defer_writes import held_numbers
from ..ir.symbolic.expr import Symbol, symbols_of
from ..ir.trace.conditional import is_mark, only_if
from ..runtime.own_files import GENERATED
from .equal_parts import text_of
from .programs.compiled import Compiled
from .programs.replay import Writer


@dataclass(slots=True)
class Part:
    """One program. `takes`: the values of its inputs, which are inputs of the whole graph or values
    of an earlier part; `gives`: the values that later parts take or read; `when`: it runs if none
    of these numbers is zero (see `ir.trace.conditional`)."""

    graph: Graph
    takes: list[Node]
    gives: list[Node]
    when: tuple[Any, ...] = ()


def divided(graph: Graph) -> list[Part]:
    """The parts of a graph."""
    return _Division(graph).parts()


@dataclass(slots=True)
class _Building:
    """A part before it is complete. `now`: for nodes of the whole graph those of the part; `when`:
    see `Part`."""

    when: tuple[Any, ...] = ()
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    takes: list[Node] = field(default_factory=list)
    now: dict[Node, Node] = field(default_factory=dict)


class _Division:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.read = {
            symbol: graph.outputs[origin[1]]
            for symbol, origin in graph.symbols.items()
            if origin[0] == "data"
        }
        self.when: list[tuple[Any, ...]] = [()]  # for each group
        self.groups = self._groups()
        # for nodes that may not have been made
        self.unsure = {
            node: when
            for group, when in zip(self.groups, self.when, strict=True)
            if when
            for node in group
        }

    def _groups(self) -> list[list[Node]]:
        groups: list[list[Node]] = [[]]
        known: set[Symbol] = set()
        before: set[Node] = set()
        checked = held_numbers(self.graph)
        required = symbols_of([(one.left, one.right) for one in self.graph.required])
        sized = {
            _maker(held)
            for symbol, held in self.read.items()
            if symbol in required and len(self.graph.symbols[symbol]) > 2
        }
        for node in self.graph.nodes:
            used = symbols_of([node.meta, node.args, node.kwargs]) & self.read.keys()
            used = {symbol for symbol in used if _maker(self.read[symbol]) is not _maker(node)}
            # Nothing outside is written to before a check.
            waits = not checked.isdisjoint(groups[-1]) and not all(map(is_fresh, writes(node)))
            # What reads a tensor of such a size may have a fixed size that a check promises.
            new = sized.intersection(groups[-1])
            waits |= bool(new) and any(_maker(root(one)) in new for one in _read_by(node))
            borders = is_mark(node)
            if (waits or borders or not used <= known) and groups[-1]:
                before.update(groups[-1])
                known = {symbol for symbol, held in self.read.items() if held in before}
                groups.append([])
                self.when.append(self.when[-1])
            assert used <= known, "a number is used before it is read"
            if borders:
                self.when[-1] = _within(self.when[-1], node)
            else:
                groups[-1].append(node)
        return groups

    def parts(self) -> list[Part]:
        both = zip(self.groups, self.when, strict=True)
        building = [self._built(group, when) for group, when in both]
        last = building[-1]
        results = [self._value(last, node) for node in self.graph.outputs]
        for one in building:
            self._take_sizes(one)
        wanted = list(self.read.values())
        found = []
        for at, (one, when) in enumerate(zip(building, self.when, strict=True)):
            later = [node for other in building[at + 1 :] for node in other.takes]
            own = set(self.groups[at])
            gives = [node for node in dict.fromkeys([*later, *wanted]) if node in own]
            if one is last:
                found.append(Part(self._graph(one, results, self.graph.joined), one.takes, []))
                continue
            outputs = [one.now[node] for node in gives]
            found.append(Part(self._graph(one, outputs, frozenset()), one.takes, gives, when))
        return found

    def _built(self, group: Sequence[Node], when: tuple[Any, ...]) -> _Building:
        made = _Building(when)
        for node in group:
            if node.op == "constant":
                self._value(made, node)
            else:
                self._move(made, node)
        return made

    def _move(self, to: _Building, node: Node) -> Node:
        to.now[node] = made = moved(node, lambda one: self._value(to, one))
        to.nodes.append(made)
        return made

    def _value(self, to: _Building, node: Node) -> Node:
        """The node of a part for a value: its own, an input, or a view of one."""
        known = to.now.get(node)
        if known is not None:
            return known
        if node.op == "constant":
            to.now[node] = made = replace(node)
            to.nodes.append(made)
            return made
        if node.alias is not None and writes(node):  # the tensor that was written
            to.now[node] = made = self._value(to, node.alias)
            return made
        # A view of what was not made cannot be made either.
        is_made = self.unsure.get(node, ()) == to.when[: len(self.unsure.get(node, ()))]
        if (node.alias is not None and is_made) or isinstance(node.meta, tuple):
            return self._move(to, node)
        name = node.name
        made = Node("input", len(to.inputs), meta=node.meta, name=name, where=node.where)
        to.now[node] = made
        to.inputs.append(made)
        to.takes.append(node)
        return made

    def _used(self, one: _Building) -> set[Symbol]:
        """The symbols of a part, without the sizes of what it gives."""
        made = {s for s, held in self.read.items() if one.now.get(held) in one.nodes}
        return symbols_of([[n.meta, n.args, n.kwargs] for n in (*one.inputs, *one.nodes)]) - made

    def _take_sizes(self, one: _Building) -> None:
        """Add the inputs of the whole graph from which the sizes of a part are read."""
        pending = self._used(one)
        while pending:
            before = len(one.inputs)
            for symbol in sorted(pending, key=lambda symbol: symbol.name):
                what, at, *_ = self.graph.symbols[symbol]
                if what in ("size", "stride"):
                    self._value(one, self.graph.inputs[at])
            pending = self._used(one) if len(one.inputs) > before else set()

    def _graph(self, one: _Building, outputs: list[Node], joined: frozenset[int]) -> Graph:
        whole, n = self.graph, len(one.inputs)
        symbols: dict[Symbol, tuple[Any, ...]] = {}
        numbers: list[Symbol] = []
        for symbol in sorted(self._used(one), key=lambda symbol: symbol.name):
            what, at, *dim = whole.symbols[symbol]
            if what in ("size", "stride"):
                symbols[symbol] = (what, one.now[whole.inputs[at]].target, *dim)
            else:
                symbols[symbol] = ("number", n + len(numbers))
                numbers.append(symbol)
        places = {node.target: at for at, node in enumerate(one.takes) if node.op == "input"}
        written = {root(target) for node in one.nodes for target in writes(node)}
        changed = [at for at, node in enumerate(one.inputs) if node in written]
        overlaps = [tuple([places[at] for at in group if at in places]) for group in whole.overlaps]
        return replace(
            whole,
            inputs=one.inputs,
            nodes=one.nodes,
            outputs=outputs,
            calls=[],
            call_outputs=[],
            constants={},
            values=(),
            joint=None,
            needs_grad=False,
            mutates=any(node.op == "input" for node in written),
            random=any(map(is_random, one.nodes)),
            sources=[whole.sources[node.target] if node.op == "input" else None
                     for node in one.takes],
            overlaps=[group for group in overlaps if len(group) > 1],
            written=sorted({*changed, *_together(changed, overlaps)}),
            joined=frozenset(at for at in joined if outputs[at].op != "input"),
            consumes=False,
            own=frozenset(),
            spends=False,
            spent=(),
            symbols=symbols,
            numbers=numbers,
            required=[],
            late=False,
        )  # fmt: skip


def _within(when: tuple[Any, ...], mark: Node) -> tuple[Any, ...]:
    """The condition behind a mark."""
    return (*when, *mark.args) if mark.target is only_if else when[:-1]


def _read_by(node: Node) -> list[Node]:
    return [] if node.op == "get" else reads(node)


def _maker(node: Node) -> Node:
    """The call of a node: of one result of several, the call that has them."""
    return node.args[0] if node.op == "get" else node


def _together(positions: Sequence[int], groups: Sequence[tuple[int, ...]]) -> set[int]:
    """The positions of inputs that share memory with one of these."""
    return {at for group in groups if not set(group).isdisjoint(positions) for at in group}


def compiled(graph: Graph, compile_part: Callable[[Graph], Compiled]) -> Compiled:
    """The graph as one program over those of its parts."""
    parts = divided(graph)
    made, new = _compiled_once(parts, compile_part)
    program = _program(graph, parts, [one.program for one in made])
    timings: dict[str, float] = {}
    for one in new:
        for name, seconds in one.timings.items():
            timings[name] = timings.get(name, 0.0) + seconds
    steps = [
        replace(step, name=step.name if at == 0 else f"{step.name}_{at}")
        for at, one in enumerate(made)
        for step in one.steps
    ]
    return Compiled(
        graph,
        program,
        "fused",
        kernels=tuple([kernel for one in made for kernel in one.kernels]),
        library=sum(one.library for one in made),
        distinct=sum(one.distinct for one in new),
        timings=timings,
        steps=tuple(steps),
        source="\n".join([one.source for one in new if one.source]),
    )


def _compiled_once(
    parts: Sequence[Part], compile_part: Callable[[Graph], Compiled]
) -> tuple[list[Compiled], list[Compiled]]:
    """The programs of all parts, and each of them once: equal parts share theirs."""
    known: dict[Any, Compiled] = {}
    made = []
    for part in parts:
        key: Any = text_of(part.graph) or id(part)
        if key not in known:
            known[key] = compile_part(part.graph)
        made.append(known[key])
    return made, list(known.values())


class _Block:
    """Lines of parts with one condition: without it, other tensors stand for what they give."""

    def __init__(self, writer: Writer, when: tuple[Any, ...]) -> None:
        self.writer, self.when = writer, when
        self.made: dict[Node, str] = {}
        self.read: list[Symbol] = []
        self.start = len(writer.lines)

    def end(self) -> None:
        if not self.when:
            return
        condition = " and ".join(map(self.writer.number, self.when))
        made = [(name, node.meta) for node, name in self.made.items()]
        self.writer.conditional(self.start, condition, self.read, made)


def _program(graph: Graph, parts: Sequence[Part], programs: Sequence[Any]) -> Any:
    """A function that runs the parts: a line for each program, each number and each check."""
    writer = Writer(graph)
    values = {node: f"v{at}" for at, node in enumerate(graph.inputs)}
    inputs = [*values.values(), *(symbol.name for symbol in graph.numbers)]
    lines = [f"def run({', '.join(inputs)}):"]
    writer.read_sizes([(one.left, one.right) for one in graph.required])
    read = {s: graph.outputs[of[1]] for s, of in graph.symbols.items() if of[0] == "data"}
    dims = {s: of[2:] for s, of in graph.symbols.items()}
    writer.check()
    block = _Block(writer, ())
    when: tuple[Any, ...] = ()
    for at, (part, program) in enumerate(zip(parts, programs, strict=True)):
        if part.when != when:
            block.end()
            block, when = _Block(writer, part.when), part.when
        taken = [values[node] for node in part.takes]
        taken += [symbol.name for symbol in part.graph.numbers]
        call = f"{writer.named(program, f'part{at}')}({', '.join(taken)})"
        last = part is parts[-1]
        if last:
            own = {node: f"results[{place}]" for place, node in enumerate(graph.outputs)}
            writer.lines.append(f"    results = {call}")
        elif not part.gives:
            own = {}
            writer.lines.append(f"    {call}")
        else:
            own = {node: f"t{at}_{place}" for place, node in enumerate(part.gives)}
            writer.lines.append(f"    {', '.join(own.values())}, = {call}")
        block.made.update(own)
        values = own | values
        for symbol in [s for s in writer.unread if read[s] in values]:
            method = torch.Tensor.size if dims[symbol] else torch.Tensor.item
            given = ", ".join([values[read[symbol]], *map(str, dims[symbol])])
            name = writer.named(method, method.__name__)
            writer.lines.append(f"    {symbol.name} = {name}({given})")
            writer.unread.discard(symbol)
            block.read.append(symbol)
        writer.check()
    block.end()
    lines += [*writer.lines, "    return results"]
    scope = dict(writer.names)
    text = "\n".join(lines) + "\n"
    exec(compile(text, f"{GENERATED}parts of {graph.name}>", "exec"), scope)
    function = scope["run"]
    function.source = text
    return function
