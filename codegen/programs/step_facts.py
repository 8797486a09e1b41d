"""Step facts: what reports say of each step of a program: what it computes, its source lines, what
it moves.

`rows(graph, made, ...)` describes a plan by plain values that are kept with it (`plan_cache`),
with nodes as positions in the captured graph. `report_facts` makes `StepFacts` of them, for a
kept plan as for a new one. `by_calls` is for a program that replays torch's calls. Bytes are
those that must move: each element that a kernel loads or stores counts once, at the sizes of
capture. `names` gives the names of the steps for the program, run times and reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.graph import cost_model
from ...ir.graph.nodes import Graph, Meta, Node
from ...ir.graph.printing import dtype_name, target_text
from ...ir.graph.summary import Sketch
from ...ir.symbolic.expr import hint_of
from ...runtime.events.events import StepFacts, UnfusedFacts
from ..loops import loop_nest
from ..loops.kernel import Kernel

if TYPE_CHECKING:
    from ..loops.loop_nest import Buffer, Index, LoopNest

Plain = dict[str, Any]
Steps = Sequence[Kernel | Node]


def names(steps: Steps) -> list[str]:
    """The name of each step: a kernel's own name; for a call its number among the calls and its
    operator; empty for a step that only makes a view.
    """
    found, calls = [], 0
    for step in steps:
        if isinstance(step, Kernel):
            found.append(step.nest.name)
        elif _is_view(step):
            found.append("")
        else:
            found.append(f"c{calls}_{step.target._schema.name.split('::')[-1].strip('_')}")
            calls += 1
    return found


def rows(
    graph: Graph,
    steps: Steps,
    symbols: Mapping[str, Sequence[str]],
    unfused: Mapping[str, Sequence[tuple[str, str, str]]],
) -> list[Plain]:
    """One row per step. `symbols`: kernel name -> the names in the kernel's text; `unfused`: step
    name -> (neighbour, why, code) of what it is not fused with.
    """
    places = {node.name: at for at, node in enumerate(graph.nodes)}
    found = []
    for name, step in zip(names(steps), steps, strict=True):
        if name:
            row = _kernel(step) if isinstance(step, Kernel) else _call(step)
            row["nodes"] = _places(row["nodes"], places)
            row["unfused"] = [list(one) for one in unfused.get(name, ())]
            found.append({"name": name, "symbols": list(symbols.get(name, ())), **row})
    return found


def report_facts(
    graph: Graph, rows: Sequence[Plain], cached: Mapping[str, bool]
) -> tuple[StepFacts, ...]:
    """The facts of a report. `cached`: kernel name -> whether it was found in the store."""
    nodes = graph.nodes
    return tuple(
        [
            StepFacts(
                name=row["name"],
                kind=row["kind"],
                device=row["device"],
                operators=tuple(row["operators"]),
                lines=_lines([nodes[at].where for at in row["nodes"]]),
                shape=row["shape"],
                reads=row["reads"],
                writes=row["writes"],
                flops=row["flops"],
                dtype=row["dtype"],
                cached=cached.get(row["name"], False),
                symbols=tuple(row["symbols"]),
                unfused=tuple(
                    [
                        UnfusedFacts(neighbour=to, why=why, code=code)
                        for to, why, code in row["unfused"]
                    ]
                ),
            )
            for row in rows
        ]
    )


def sketch(graph: Graph, rows: Sequence[Plain]) -> Sketch:
    """The graph, with the step that computes each node."""
    nodes = graph.nodes
    return Sketch.of(
        graph, {nodes[at].name: row["name"] for row in reversed(rows) for at in row["nodes"]}
    )


def by_calls(graph: Graph) -> tuple[StepFacts, ...]:
    """The facts of a program that replays the calls as the user wrote them."""
    found = []
    for number, call in enumerate(graph.calls):
        name = target_text(call.target)
        short = name.rpartition(".")[2].strip("_")
        lines = () if call.where is None else (call.where,)
        found.append(
            StepFacts(name=f"c{number}_{short}", kind="call", operators=(name,), lines=lines)
        )
    return tuple(found)


def _lines(places: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys([where for where in places if where is not None]))


def _places(nodes: Sequence[Node], places: Mapping[str, int]) -> list[int]:
    """The positions in the captured graph that these nodes come from: a pass names a new node after
    the node that it replaces.
    """
    found: dict[int, None] = {}
    for node in nodes:
        name = node.name
        while name and name not in places:
            name = name.rpartition("_")[0]
        if name:
            found[places[name]] = None
    return list(found)


def _is_view(node: Node) -> bool:
    return node.alias is not None and cost_model.traffic(node) == (0, 0)


# --- a call of ATen, or of a kernel in its place ---


def _call(node: Node) -> Plain:
    read, written = cost_model.traffic(node)
    meta = next(cost_model.metas(node.meta), None) or next(cost_model.metas(node.args), None)
    return {
        "kind": "call",
        "device": "cpu" if meta is None else str(meta.device),
        "operators": [str(node.target)],
        "nodes": [node],
        "shape": _shape(meta),
        "dtype": "" if meta is None else dtype_name(meta.dtype),
        "reads": read,
        "writes": written,
        "flops": cost_model.flops(node),
    }


def _shape(meta: Meta | None) -> str:
    """Text such as f32[32, 512]."""
    return (
        ""
        if meta is None
        else f"{dtype_name(meta.dtype)}[{', '.join([str(n) for n in meta.shape])}]"
    )


# --- a kernel ---


def _kernel(kernel: Kernel) -> Plain:
    calls = [node for node in kernel.nodes if node.op == "call"]
    counted = {node: cost_model.flops(node) for node in calls}
    read, written = _moved(kernel.nest)
    if kernel.host is not None:
        read += cost_model.traffic(kernel.host)[0]
    heaviest = max(calls, key=counted.__getitem__)
    result = max(kernel.stores, key=lambda node: cost_model.nbytes(node.meta))
    return {
        "kind": "kernel",
        "device": str(kernel.device),
        "operators": [str(node.target) for node in calls],
        "nodes": [heaviest, *kernel.nodes],
        "shape": _shape(result.meta),
        "dtype": dtype_name(_computed(heaviest).dtype),
        "reads": read,
        "writes": written,
        "flops": sum(counted.values()),
    }


def _computed(node: Node) -> Meta:
    """The metadata that determines the dtype of the computation: that of the first tensor operand,
    or of the result.
    """
    return next(cost_model.metas(node.args), None) or next(cost_model.metas(node.meta))


def _moved(nest: LoopNest) -> tuple[int, int]:
    """Bytes (read, written): for each buffer what its loads or stores access, at most its size."""
    sizes = [int(hint_of(size)) for size in (*nest.outer, *nest.inner)]
    reached = [0] * len(nest.buffers)
    seen = set()
    for value in nest.values:
        if value.op in loop_nest.LOADS:
            buffer, index = value.attr
            anywhere = len(value.args) > (2 if value.op == "load_if" else 0)
            key = buffer, index.strides, index.offset, anywhere
            if key not in seen:
                seen.add(key)
                reached[buffer] += _reach(index, sizes, anywhere)
    if nest.tiled is not None:
        reached[nest.tiled] = 0  # it is never in memory
    read = sum(map(_bytes, nest.buffers, reached))
    stored = [0] * len(nest.buffers)
    for store in nest.stores:
        stored[store.buffer] += _reach(store.index, sizes, store.scatter is not None)
    return read, sum(map(_bytes, nest.buffers, stored))


def _reach(index: Index, sizes: Sequence[int], anywhere: bool) -> int:
    """The number of different elements that the index gives in the whole iteration."""
    count = 1
    for stride, size in zip(index.strides, sizes, strict=True):
        if anywhere or stride != 0:
            count *= size
    return count


def _bytes(buffer: Buffer, reached: int) -> int:
    count = 1
    for size, stride in zip(buffer.shape, buffer.stride, strict=True):
        if stride != 0:
            count *= int(hint_of(size))
    return min(count, reached) * int(buffer.dtype.itemsize)
