"""From a row-wise unit (`rowwise`) to a nest over the rows only; every column is a value of its
own.

The rules are those of any nest. Where a rule reduces, the positions along its reduced dimensions
are axes that exist only here: a value at such positions is *deferred* (a tensor and a map), until
`_at` fixes it to one column after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ...ir.graph.nodes import Meta, Node
from ..analysis.dataflow import is_plain_view
from ..analysis.products import LETTERS, sizes
from ..loops import affine, loop_nest
from ..loops.affine import Map
from ..loops.kernel import Kernel
from ..loops.loop_nest import Index, LoopNest, Value
from ..loops.values import renumbered
from ..lower.builder import At, Builder, first_meta
from .fuse import Fusion, Unit
from .nest_builder import describe, memory_of
from .rowwise import FOLDED, is_flat, leading

_AXES = 1 + FOLDED  # the rows, and the reduced dimensions
_ROW = affine.axis_form(0, _AXES)
_JOIN = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "first max": "maximum",
    "first min": "minimum",
}  # fmt: skip


def _constant(column: int) -> Index:
    return Index((0,) * _AXES, column)


def _deferred(where: Map) -> bool:
    return any(any(form.strides[1:]) for form in where)


def _no_place(*_arguments: Any) -> int:
    raise AssertionError("an operator that asks for places is no part of a unit over rows")


class _Columns(Builder):
    """A builder whose reductions are unrolled. `folded`: the sizes that the current rule
    reduces.
    """

    def __init__(self, rows: Any, element: Callable[[Node, Map], int]) -> None:
        super().__init__((rows, *(0,) * FOLDED), 1, element, _no_place)
        self.folded: tuple[int, ...] = ()
        self._fixed: dict[tuple[int, tuple[int, ...]], int] = {}

    def element(self, node: Node, where: Map) -> int:
        if _deferred(where):
            return self.add(Value("deferred", (), node.meta.dtype, (node, where)))
        return super().element(node, where)

    def reduce(self, kind: str, number: int, dtype: torch.dtype | None = None) -> int:
        places = itertools.product(*(range(size) for size in self.folded))
        parts = [self.at(number, place) for place in places]
        if kind == "sum" and all(self._is_product(part) for part in parts):
            parts = self._accumulated(parts)
        op = _JOIN[kind]
        while len(parts) > 1:  # by halves: short chains, small errors
            pairs = list(zip(parts[::2], parts[1::2], strict=False))
            if op in ("maximum", "minimum"):  # of two zeros the second operand stays
                pairs = [(b, a) for a, b in pairs]
            joined = [self.apply(op, a, b) for a, b in pairs]
            parts = joined + parts[len(joined) * 2 :]
        return parts[0]

    def _is_product(self, number: int) -> bool:
        value = self.values[number]
        return value.op == "mul" and value.dtype.is_floating_point

    def _accumulated(self, products: list[int]) -> list[int]:
        """Partial sums with one rounding per product, as the library's: four at a time, for short
        chains.
        """
        sums: list[int] = []
        for start in range(0, len(products), 4):
            total, *rest = products[start : start + 4]
            for product in rest:
                total = self.apply("fma", *self.values[product].args, total)
            sums.append(total)
        return sums

    def index(self, form: Index, dtype: torch.dtype = torch.int64) -> int:
        return _no_place()

    def at(self, number: int, place: tuple[int, ...]) -> int:
        """The same value at one position of the reduced dimensions."""
        found = self._fixed.get((number, place))
        if found is None:
            found = self._fixed[(number, place)] = self._at(number, place)
        return found

    def _at(self, number: int, place: tuple[int, ...]) -> int:
        value = self.values[number]
        if value.op == "deferred":
            node, where = value.attr
            return self.element(node, tuple(_placed(form, place) for form in where))
        args = tuple(self.at(arg, place) for arg in value.args)
        if args == value.args:
            return number
        return (
            self.cast(args[0], value.dtype)
            if value.op == "cast"
            else self.add(replace(value, args=args))
        )


def _placed(form: Index, place: tuple[int, ...]) -> Index:
    moved = sum(step * at for step, at in zip(form.strides[1:], place, strict=False))
    return Index((form.strides[0], *(0,) * FOLDED), form.offset + moved)


class _RowNest:
    def __init__(self, fusion: Fusion, unit: Unit) -> None:
        self.fusion, self.unit, self.count = fusion, unit, unit.rows
        self.builder = _Columns(self.count, self.element)
        self.buffers: list[loop_nest.Buffer] = []
        self.loads: dict[Node, int] = {}
        self.results: dict[Node, dict[int, tuple[int, ...]]] = {}

    # --- elements ---

    def element(self, node: Node, where: Map) -> int:
        """The value of a tensor's element at any row and one column."""
        source = self.fusion.source(node)
        if self.fusion._inlined(source):
            made = tuple(_constant(0) for _ in source.meta.shape)
            return self.fusion.rules[source].results(At(self.builder, source, made))[0]
        if source not in self.unit.where:
            return self.load(node, where)
        column = self.column(node, where)
        while is_plain_view(node):
            node, column = self.through(node, column)
        if node.op != "get":
            return self.results[node][column][0]
        call = node.args[0]
        # reduced dimensions are kept, with size 1
        where = self.place(node.meta.shape, self.lead(node), column)
        return self.results[call][self.column(call, where)][int(node.target)]

    def column(self, node: Node, where: Map) -> int:
        """The number of a column, counted row-major."""
        shape = first_meta(node).shape
        found = 0
        for dim in range(self.lead(node), len(shape)):
            found = found * shape[dim] + where[dim].offset
        return found

    def lead(self, node: Node) -> int:
        lead = leading(first_meta(node).shape, self.count)
        assert lead is not None
        return lead

    def place(self, shape: tuple[Any, ...], lead: int, column: int) -> Map:
        """The map of a column of a tensor of this shape."""
        forms: list[Index] = []
        for size in reversed(shape[lead:]):
            forms.append(_constant(column % size))
            column //= size
        return (*(_ROW,) * lead, *reversed(forms))

    def through(self, view: Node, column: int) -> tuple[Node, int]:
        """The element of a view's base."""
        base: Node = view.alias  # type: ignore[assignment]
        if is_flat(view):
            return base, column
        lead = self.lead(view)
        rows = (affine.zero(_AXES),) * lead
        where = rows + self.place(view.meta.shape, lead, column)[lead:]
        moved = affine.through_view(view, where, self.builder.axes)
        assert moved is not None
        return base, self.column(base, moved)

    def load(self, node: Node, where: Map) -> int:
        number, offset = memory_of(node, self.loads, self.buffers)
        index = self.address(where, node.meta, offset)
        return self.builder.add(Value("load", (), node.meta.dtype, (number, index)))

    def address(self, where: Map, meta: Meta, offset: Any) -> Index:
        """The index of an element. Rows have a constant distance: the stride of the last row
        dimension.
        """
        stride: Any = 0
        for form, step, size in zip(where, meta.stride, meta.shape, strict=True):
            if form.strides[0] and size != 1:
                stride = step
            offset = offset + form.offset * step
        return Index((stride,), offset)

    # --- members ---

    def compute(self, call: Node) -> None:
        """Compute all columns of one member."""
        rule = self.fusion.rules[call]
        dims: tuple[int, ...] = ()
        self.builder.folded = ()
        if call.target in LETTERS:
            self.builder.folded = (sizes(call)["k"],)
        elif rule.folds is not None:
            operand, dims, _keep = rule.folds(call)  # type: ignore[misc]
            self.builder.folded = tuple(operand.meta.shape[dim] for dim in dims)
        shape, lead = first_meta(call).shape, self.lead(call)
        found: dict[int, tuple[int, ...]] = {}
        for column in range(math.prod(shape[lead:])):
            forms = list(self.place(shape, lead, column))
            place: tuple[int, ...] = ()
            if rule.kind == "normalize":  # its result is at the reduced positions themselves
                place = tuple(forms[dim].offset for dim in dims)
                for number, dim in enumerate(dims):
                    forms[dim] = affine.axis_form(1 + number, _AXES)
            values = rule.results(At(self.builder, call, tuple(forms)))
            if place:
                values = tuple(self.builder.at(number, place) for number in values)
            found[column] = values
        self.results[call] = found

    def build(self, name: str, stored: list[Node]) -> Kernel:
        calls = [node for node in self.unit.nodes if node.op == "call"]
        for call in calls:
            self.compute(call)
        memory = self.fusion.flow.memory
        stores: list[tuple[Index, int]] = []
        written: list[loop_nest.Buffer] = []
        buffers: list[int] = []
        for node in stored:
            meta, lead = node.meta, self.lead(node)
            offset = meta.offset - memory(node).meta.offset
            for column in range(math.prod(meta.shape[lead:])):
                where = self.place(meta.shape, lead, column)
                stores.append((self.address(where, meta, offset), self.element(node, where)))
                buffers.append(len(self.loads) + len(written))
            written.append(
                loop_nest.Buffer(node.name, meta.dtype, meta.shape, meta.stride, written=True)
            )
        roots = [value for _index, value in stores]
        values, numbers = renumbered(self.builder.values, roots)
        covers = dict.fromkeys(map(memory, calls))
        nest = LoopNest(
            name,
            (),
            (self.count,),
            (*self.buffers, *written),
            values,
            tuple(
                loop_nest.Store(b, index, numbers[value])
                for b, (index, value) in zip(buffers, stores, strict=True)
            ),
            tuple(describe(node) for node in covers),
        )
        return Kernel(
            loop_nest.collapse(nest), tuple(self.loads), tuple(map(memory, stored)), tuple(covers)
        )


def build(fusion: Fusion, unit: Unit, name: str, stored: list[Node]) -> Kernel:
    """The kernel of a row-wise unit that stores these members."""
    return _RowNest(fusion, unit).build(name, stored)
