"""From a fused unit to a loop nest: the values of its members, the loads of tensors in memory, the
stores.

`build` needs the value of each member that is stored; `lower.builder.Builder` and the rules add the
values that it depends on. The axes are the unit's dimensions: first the kept ones, in the order of
the output's memory, then the reduced ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...ir.graph.nodes import Meta, Node
from ...ir.ops.may_raise import may_raise
from ..analysis.dataflow import base_of, is_plain_view
from ..analysis.products import LETTERS
from ..loops import affine, axis_order, loop_nest
from ..loops.affine import Map
from ..loops.extents import estimate
from ..loops.kernel import CPU, Kernel
from ..loops.loop_nest import Index, LoopNest
from ..loops.values import unroll
from ..lower.builder import At, Builder, scatters
from ..lower.matmul import rows_in_order, rows_together
from ..lower.reduction import addend
from . import column_folds
from .fuse import Fusion, Unit
from .places import identity


class NotAffine(Exception):
    """A value would be computed where it is read, but the view between them is not affine."""


class _NestBuilder:
    def __init__(self, fusion: Fusion, unit: Unit, stored: set[Node]) -> None:
        assert unit.shape is not None
        self.fusion, self.unit, self.stored = fusion, unit, stored
        shape, folded = unit.shape, unit.folded or ()
        kept = [dim for dim in range(len(shape)) if dim not in folded]
        self.products = [node for node in unit.nodes if node.target in LETTERS]
        self.together = bool(self.products) and rows_together(self.products[0])
        if self.products:
            kept = rows_in_order(self.products[0])
        elif not any(map(scatters, unit.nodes)):
            kept.sort(key=lambda dim: -_memory_stride(unit, dim))
        self.order = [*kept, *folded]  # axis -> dimension
        self.reduces = unit.folded is not None
        axes = tuple(shape[dim] for dim in self.order)
        n_outer = len(kept) if self.reduces else 0
        self.outer, self.inner = axes[:n_outer], axes[n_outer:]
        self.axes = axes
        self.builder = Builder(axes, n_outer, self.element, self.fetch)
        self.buffers: list[loop_nest.Buffer] = []
        self.loads: dict[Node, int] = {}
        self.results: dict[tuple[Node, Map, Any], tuple[int, ...]] = {}
        self.moving = False  # whether a far operand is being computed where it is read
        self.guard: int | None = None  # the mask under which it is computed

    def to_axes(self, where: Map) -> Map:
        """Forms over the unit's dimensions -> forms over the nest's axes."""
        return tuple(
            Index(tuple([form.strides[dim] for dim in self.order]), form.offset, form.terms)
            for form in where
        )

    def element(self, node: Node, where: Map) -> int:
        """The value of a node's element: computed here if it is a member, else loaded."""
        return self.followed(node, where) if self.inside(node) else self.load(node, where)

    def inside(self, node: Node) -> bool:
        source = self.fusion.source(node)
        if source in self.unit.where or self.fusion._inlined(source):
            return True
        return source not in self.stored and self.fusion.copied(node, self.unit, self.moving)

    def followed(self, node: Node, where: Map) -> int:
        source = self.fusion.source(node)
        while is_plain_view(node):
            moved = affine.through_view(node, where, self.axes)
            if moved is None:
                if source in self.unit.where:
                    raise AssertionError(f"{node} in {self.unit.nodes} is no affine view")
                if not self.fusion._inlined(source):
                    raise NotAffine(source)
                return self.constant(source)
            node = node.alias  # type: ignore[assignment]
            where = affine.clean(moved, node.meta.shape, self.axes)
        if node.op == "get":
            call = node.args[0]
            return self.computed(call, where)[node.target]
        return self.computed(node, where)[0]

    def constant(self, node: Node) -> int:
        """A created tensor behind a view that is not affine: all its elements are equal."""
        return self.computed(node, identity(node.meta.shape))[0]

    def computed(self, node: Node, where: Map) -> tuple[int, ...]:
        key = (node, where, self.guard)
        known = self.results.get(key)
        if known is None:
            if isinstance(node.meta, tuple) and node in self.unit.where:
                where_first = self.to_axes(self.unit.where[node])
            else:
                where_first = where
            rule, at = self.fusion.rules[node], At(self.builder, node, where_first)
            # Not `rule.results`: a long chain of operators is as deep a recursion.
            known = rule.cast(at, rule.build(at))
            self.results[key] = known
        return known

    def fetch(self, node: Node, where: Map, guard: tuple[int, ...]) -> int:
        """The value of a far operand's element: loaded, or computed where it is read."""
        where = affine.clean(where, node.meta.shape, self.axes)
        before = self.moving, self.guard
        if guard:
            guard = (self.builder.both(self.guard, guard[0]), guard[1])
            self.guard = guard[0]
        self.moving = True
        value = self.followed(node, where) if self.inside(node) else None
        self.moving, self.guard = before
        if value is None:
            return self.load(node, where, guard)
        if not guard:
            return value
        # outside of the mask the value of the load does not matter
        made = self.builder.values[value]
        if made.op == "load_if" and made.args[0] == guard[0]:
            return self.builder.add(replace(made, args=(*guard, *made.args[2:])))
        return self.builder.apply("where", guard[0], value, guard[1])

    def memory(self, node: Node) -> tuple[int, Any]:
        """See `memory_of`."""
        return memory_of(node, self.loads, self.buffers)

    def load(self, node: Node, where: Map, guard: tuple[int, ...] = ()) -> int:
        number, offset = self.memory(node)
        index = affine.address(where, node.meta.stride, offset, len(self.axes))
        offsets = self.builder.offsets(index.terms)
        index = Index(index.strides, index.offset)
        if self.guard is not None and not guard:
            guard = self.guard, self.builder.const(False, node.meta.dtype)
        op = "load_if" if guard else "load"
        args = (*guard, *offsets)
        return self.builder.add(loop_nest.Value(op, args, node.meta.dtype, (number, index)))

    def stored_value(self, node: Node) -> tuple[Node, Map, int]:
        """(the node, where it is stored, the value)."""
        if node in self.fusion.across:
            assert self.unit.shape is not None
            place = column_folds.result_place(self.fusion, node, self.unit.shape)
            where = affine.clean(self.to_axes(place), node.meta.shape, self.axes)
            element = self.to_axes(identity(self.unit.shape))
            return node, where, addend(At(self.builder, node, where), element).number
        where = affine.clean(self.to_axes(self.unit.where[node]), node.meta.shape, self.axes)
        return node, where, self.element(node, where)

    def scattered(self, node: Node) -> tuple[int, Index, loop_nest.Scatter]:
        """(value, index, the rest) of the store of a scatter."""
        assert self.unit.shape is not None
        rule, where = self.fusion.rules[node], self.to_axes(identity(self.unit.shape))
        value, place, how = rule.build(At(self.builder, node, where))
        index = affine.address(place, node.meta.stride, 0, len(self.axes))
        offset = self.builder.offset(index.terms)
        below = rule.far(node) if rule.far is not None else ()
        filled, copied = None, None
        if not below:
            filled = self.builder.const(0, node.meta.dtype)
        elif self.fusion._inlined(self.fusion.source(below[0])):
            filled = self.constant(self.fusion.source(below[0]))
        else:
            copied = self.memory(below[0])
        scatter = loop_nest.Scatter(offset, how, filled, copied)
        return value.number, Index(index.strides, index.offset), scatter

    def left_out(self, node: Node) -> bool:
        """Whether a member that may raise would not run, because none of its elements is used."""
        return (
            bool(self.fusion.far(node))
            and may_raise(node)
            and not any(key[0] is node for key in self.results)
        )

    def members(self) -> list[Node]:
        """The nodes that it computes, in the order of the program."""
        found = list(self.unit.nodes)
        for other, readers in self.fusion.absorbed.items():
            if self.unit in readers:
                found += other.nodes
        return sorted(found, key=self.fusion.position.__getitem__)

    def build(self, name: str, stored: list[Node]) -> Kernel:
        placed = [(node, *self.scattered(node)) for node in stored if scatters(node)]
        stores = [self.stored_value(node) for node in stored if not scatters(node)]
        stores += [
            self.stored_value(node)
            for node in self.unit.nodes
            if not scatters(node) and self.left_out(node)
        ]
        reads = tuple(self.loads)
        written = []
        for node, where, value in stores:
            meta, whole = node.meta, self.fusion.flow.memory(node).meta
            buffer = loop_nest.Buffer(node.name, meta.dtype, meta.shape, meta.stride, written=True)
            index = affine.address(where, meta.stride, meta.offset - whole.offset, len(self.axes))
            across = node in self.fusion.across
            written.append(loop_nest.Store(len(self.buffers), index, value, None, across))
            self.buffers.append(buffer)
        for node, value, index, scatter in placed:
            meta = node.meta
            buffer = loop_nest.Buffer(node.name, meta.dtype, meta.shape, meta.stride, written=True)
            written.append(loop_nest.Store(len(self.buffers), index, value, scatter))
            self.buffers.append(buffer)
        flow = self.fusion.flow
        calls = dict.fromkeys(flow.call(node) for node in self.members() if node.op == "call")
        nest = LoopNest(
            name, self.outer, self.inner, tuple(self.buffers), tuple(self.builder.values),
            tuple(written), tuple(describe(node) for node in calls),
        )  # fmt: skip
        if self.together:
            nest = unroll(nest, len(self.outer) - 1)
        elif not self.products:
            nest = axis_order.in_memory(nest)
        written_to = (
            *(flow.memory(node) for node, _where, _value in stores),
            *(flow.memory(node) for node, *_rest in placed),
        )
        moved = [flow.call(node) for node, _where, _value in stores if flow.is_store(node)]
        writes = tuple(base_of(write) for write in moved for _ in range(flow.moved_by(write)))
        device = self.unit.device or CPU
        return Kernel(
            loop_nest.collapse(nest), reads, written_to, tuple(calls), None, writes, device
        )


def _memory_stride(unit: Unit, dim: int) -> int:
    """The stride of a dimension in the memory of the unit's last full-size member."""
    for node in reversed(unit.nodes):
        if isinstance(node.meta, Meta) and node.meta.shape == unit.shape:
            return estimate(node.meta.stride[dim])
    size = 1
    for extent in unit.shape[dim + 1 :]:  # type: ignore[index]
        size *= estimate(extent)
    return size


def memory_of(
    node: Node, loads: dict[Node, int], buffers: list[loop_nest.Buffer]
) -> tuple[int, Any]:
    """The buffer of a node's memory, added if it is new, and the offset of the node in it, in
    elements."""
    base = base_of(node)
    number = loads.get(base)
    if number is None:
        number = loads[base] = len(buffers)
        meta = base.meta
        buffers.append(loop_nest.Buffer(base.name, meta.dtype, meta.shape, meta.stride))
    return number, node.meta.offset - base.meta.offset


def describe(node: Node) -> str:
    """An operator and its source line: `gelu  model.py:12`."""
    name = str(node.target).removeprefix("aten.").removesuffix(".default")
    if node.where is None:
        return name
    return f"{name}  {node.where.file.rsplit('/', 1)[-1]}:{node.where.line}"


def build(
    fusion: Fusion, unit: Unit, name: str, stored: list[Node], everywhere: set[Node]
) -> Kernel:
    """The kernel of a unit that stores these members; `everywhere`: what all units
    together store.
    """
    return _NestBuilder(fusion, unit, everywhere).build(name, stored)
