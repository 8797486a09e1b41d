"""`Sketch`: a graph in the form that reports keep, without tensors of the program.

In: a compiled graph, and the step of the program that computes each of its nodes. Out:
`SketchNode`s and the graph's text. A sketch is made with each program (a few microseconds per
node); its nodes and text are made when `runtime.report.folds` first reads them for a report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ..dataclass import dataclass
from ..location import Location
from .nodes import Graph, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchNode:
    """A node of a graph, see `runtime.report.records.NodeRecord`; `step` computes it."""

    name: str = ""
    op: str = ""
    type: str = ""
    inputs: tuple[str, ...] = ()
    step: str = ""
    where: Location | None = None


class Sketch:
    """See the module. `of` makes a sketch of a graph; else `nodes` and `text` are given."""

    __slots__ = ("_graph", "_nodes", "_steps", "_text")

    def __init__(self, *, nodes: Iterable[SketchNode] = (), text: str = "") -> None:
        self._graph: Graph | None = None
        self._steps: Mapping[str, str] = {}
        self._nodes: tuple[SketchNode, ...] | None = tuple(nodes)
        self._text: str | None = text

    @classmethod
    def of(cls, graph: Graph, steps: Mapping[str, str]) -> Sketch:
        """`steps`: name of a node -> name of the step that computes it."""
        made = cls()
        made._graph, made._steps = bare(graph), steps
        made._nodes = made._text = None
        return made

    @property
    def size(self) -> int:
        """The number of nodes, counted without making them."""
        if self._graph is None:
            return len(self._nodes or ())
        return len(self._graph.nodes) + len(self._graph.inputs)

    @property
    def nodes(self) -> tuple[SketchNode, ...]:
        """Inputs, computed nodes, and one node "output" whose inputs are all results."""
        if self._nodes is None:
            self._nodes = tuple(self._read())
        return self._nodes

    @property
    def text(self) -> str:
        """The graph as typed Python."""
        if self._text is None:
            self._text = "" if self._graph is None else self._graph.text()
        return self._text

    def _read(self) -> Iterable[SketchNode]:
        # loaded for a report: a first call needs neither
        from . import effects, printing

        graph = self._graph
        assert graph is not None
        for node in (*graph.inputs, *graph.nodes):
            yield SketchNode(
                name=node.name,
                op=str(node.target) if node.op == "call" else node.op,
                type=printing.type_text(node.meta),
                inputs=tuple(dict.fromkeys(one.name for one in effects.reads(node))),
                step=self._steps.get(node.name, ""),
                where=node.where,
            )
        results = tuple(node.name for node in graph.outputs)
        yield SketchNode(name="output", op="output", inputs=results)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Sketch:
            return NotImplemented
        return (self.nodes, self.text) == (other.nodes, other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __deepcopy__(self, memo: Any) -> Sketch:
        # A sketch is immutable.
        return self


def bare(graph: Graph) -> Graph:
    """The graph's ATen level without its tensors: the target of a constant is None.

    A graph without constants shares its nodes with the result; nodes are not changed after
    compilation.
    """
    held = any(node.op == "constant" for node in graph.nodes)
    inputs, nodes, outputs = _without(graph) if held else (graph.inputs, graph.nodes, graph.outputs)
    return Graph(
        graph.name,
        inputs=list(inputs),
        nodes=list(nodes),
        outputs=list(outputs),
        sources=[None if source is None else str(source) for source in graph.sources],
        needs_grad=graph.needs_grad,
        mutates=graph.mutates,
        random=graph.random,
        written=list(graph.written),
    )


def _without(graph: Graph) -> tuple[list[Node], list[Node], list[Node]]:
    """Copies of inputs, nodes and outputs, without tensors and generators."""
    now: dict[Node, Node] = {}

    def plain(value: Any) -> Any:
        kind = type(value)
        if kind is Node:
            return now[value]
        if kind is tuple or kind is list:
            return kind([plain(item) for item in value])
        return str(value) if isinstance(value, (torch.Tensor, torch.Generator)) else value

    for node in (*graph.inputs, *graph.nodes):
        target = None if node.op == "constant" else node.target
        kwargs = {name: plain(value) for name, value in node.kwargs.items()} if node.kwargs else {}
        alias = None if node.alias is None else now[node.alias]
        now[node] = Node(
            node.op, target, plain(node.args), kwargs, node.meta, node.name, node.where, alias
        )
    inputs, nodes, outputs = (
        [now[one] for one in some] for some in (graph.inputs, graph.nodes, graph.outputs)
    )
    return inputs, nodes, outputs
