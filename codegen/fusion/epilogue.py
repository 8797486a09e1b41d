"""Epilogues: element-wise operators after a fixed kernel's product or convolution are applied to
each tile of its result.

In: the steps of a plan, and the calls that a fixed kernel replaces (`registry.replaced`). Out: the
same steps. A pointwise kernel that reads such a result, each element at its own position, becomes
the epilogue of that call, its `host`: a function over some rows and columns, which the host calls
for each tile as soon as it is finished, while it is in the cache. The values are those of the
separate kernel, because the text is the same with other bounds. Its other operands (bias, running
statistics, residual) are read from memory at each call. The host's own result is stored only if
another step reads it. `cpp.epilogue` writes the function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Protocol

from ...ir.graph.effects import reads, root, writes
from ...ir.graph.layout import contiguous_strides
from ...ir.graph.nodes import Node
from ..analysis.dataflow import Flow
from ..loops import loop_nest
from ..loops.extents import is_symbolic, product
from ..loops.kernel import Kernel
from ..loops.loop_nest import Index, LoopNest
from .nest_builder import describe

Steps = Sequence[Kernel | Node]
Follows = list[set[int]]  # for each step the positions of the steps that it follows


class Tiled(Protocol):
    """The property of a fixed kernel that epilogues need: the columns of a call's result, which is
    given in tiles; 0: no tiles.
    """

    def columns(self, node: Node) -> Any: ...


def hosted(
    steps: Steps, follows: Follows, flow: Flow, replaced: Mapping[Node, Tiled]
) -> tuple[list[Kernel | Node], Follows]:
    """The steps with epilogues in their hosts, and which of them each follows.

    A host runs at the position of its epilogue, where the operands of the epilogue exist.
    """
    if not replaced:
        return list(steps), follows
    found: list[Kernel | Node | None] = list(steps)
    # the position of a host that became part of its epilogue -> that of the epilogue
    moved: dict[int, int] = {}
    outputs = {root(node) for node in flow.graph.outputs}
    place = {node: number for number, node in enumerate(steps) if isinstance(node, Node)}
    writing = [0, *accumulate(map(writes_memory, steps))]
    readers: dict[Node, list[int]] = {}
    for number, step in enumerate(steps):
        for base in _roots(step):
            readers.setdefault(base, []).append(number)
    for number, step in enumerate(steps):
        # the host might read the memory that is stored to
        if not isinstance(step, Kernel) or step.writes_inputs:
            continue
        hosts = [node for node in step.reads if node in replaced and found[place[node]] is node]
        for host in sorted(hosts, key=place.__getitem__, reverse=True):
            at, users = place[host], readers[host]
            if users[0] < number or writing[number] != writing[at] or host in flow.written:
                # a step needs the host's result earlier, or the host's operands may have changed by
                # then
                continue
            kept = host if host in outputs or users[-1] > number else None
            made = _epilogue(step, host, replaced[host].columns(host), kept)
            if made is not None:
                found[at], found[number], moved[at] = None, made, number
                for base in _roots(host):
                    readers[base].append(number)
                    readers[base].sort()
                break
    return moved_along(found, follows, moved)


def moved_along(
    found: Sequence[Kernel | Node | None], follows: Follows, moved: Mapping[int, int]
) -> tuple[list[Kernel | Node], Follows]:
    """The remaining steps, and which of them each follows. A step that is None has become part of
    another one (`moved`).
    """
    left = [number for number, step in enumerate(found) if step is not None]
    new = {number: place for place, number in enumerate(left)}
    new |= {at: new[number] for at, number in moved.items()}
    after: Follows = [set() for _ in left]
    for number, before in enumerate(follows):
        after[new[number]] |= {new[one] for one in before} - {new[number]}
    return [step for step in found if step is not None], after


def writes_memory(step: Kernel | Node) -> bool:
    """Whether it writes memory that existed before."""
    return bool(writes(step) if isinstance(step, Node) else step.writes_inputs)


def _roots(step: Kernel | Node) -> Iterator[Node]:
    """The memory that a step reads, each root once."""
    return iter(dict.fromkeys(map(root, step.reads if isinstance(step, Kernel) else reads(step))))


def _epilogue(kernel: Kernel, host: Node, columns: Any, kept: Node | None) -> Kernel | None:
    """The kernel as the epilogue of this call, None if it cannot be one."""
    nest = as_tile(kernel.nest, kernel.reads.index(host), host.meta.shape, columns)
    if nest is None:
        return None
    nest = replace(nest, covers=(describe(host), *nest.covers))
    stores = kernel.stores
    if kept is not None:
        nest, stores = _with_tile_stored(nest, kept), (*stores, kept)
    return replace(kernel, nest=nest, stores=stores, nodes=(host, *kernel.nodes), host=host)


def as_tile(nest: LoopNest, number: int, shape: tuple[Any, ...], columns: Any) -> LoopNest | None:
    """The nest with a last axis of `columns` elements, as an epilogue over tiles; None if it cannot
    be one.

    All that it does with buffer `number`, a contiguous tensor of shape `shape`, must be to load
    each element at its own position, and all its accesses must be contiguous along the columns.
    """
    if nest.has_reduction or nest.scatters or nest.may_fail or nest.outer or not nest.inner:
        return None
    if is_symbolic(columns) or columns < 2:
        return None
    split = _split(nest, columns)
    if split is None or product(split.inner) != product(shape):
        return None
    nest = split
    here = Index(contiguous_strides(nest.inner))
    loads = [value for value in nest.values if value.op in loop_nest.LOADS]
    of_tile = [value for value in loads if value.attr[0] == number]
    if any(value.args or value.attr[1] != here for value in of_tile):
        return None
    if any(value.args and value.op == "load" for value in loads):
        return None  # at positions that are values
    if any(index.strides[-1] not in (0, 1) for _buffer, index in loop_nest.accesses(nest)):
        return None
    if any(store.index.strides[-1] != 1 for store in nest.stores):
        return None
    return replace(nest, tiled=number)


def _split(nest: LoopNest, columns: int) -> LoopNest | None:
    """The nest with its last axis split into rows of `columns` elements."""
    last = nest.inner[-1]
    if last == columns:
        return nest
    rows = last // columns
    if rows * columns != last:
        return None

    def moved(index: Index) -> Index:
        step = index.strides[-1]
        return Index((*index.strides[:-1], step * columns, step), index.offset)

    return loop_nest.over(nest, nest.outer, (*nest.inner[:-1], rows, columns), moved)


def _with_tile_stored(nest: LoopNest, node: Node) -> LoopNest:
    """The nest that also stores the tile itself."""
    meta, number = node.meta, len(nest.buffers)
    buffer = loop_nest.Buffer(node.name, meta.dtype, meta.shape, meta.stride, written=True)
    value = next(
        place for place, one in enumerate(nest.values)
        if one.op == "load" and one.attr[0] == nest.tiled
    )  # fmt: skip
    store = loop_nest.Store(number, nest.values[value].attr[1], value)
    return replace(nest, buffers=(*nest.buffers, buffer), stores=(*nest.stores, store))
