"""The body of a Triton kernel: the lines that compute one tile.

Every axis of the nest gets an index variable from its dimension of the tile
(`codegen.triton.tiling`). Strides, broadcasts and masks then follow from one rule: a pointer moves
along the dimensions of the axes in its index, and takes their masks. Reductions are in
`codegen.triton.reductions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from ...ir.symbolic.expr import Expr
from ..loops import loop_nest, online_reductions, operators
from ..loops.lines import Lines
from ..loops.loop_nest import Index, Store, Value
from . import column_folds, memory, reductions, teams
from .arguments import Numbers, kind_of
from .dialect import DIALECT
from .rounding import Rounding
from .tiling import Dim, Plan


class Writer:
    """The writer of one program's lines.

    `along`: for each value, the dimensions along which its tile has more than one element.
    `spreads`: whether pointers that are the same in each row of a tile get the shape of the whole
    tile (`memory.spread`).
    """

    spreads = True

    def __init__(self, plan: Plan, parameters: Sequence[str], numbers: Numbers) -> None:
        self.numbers = numbers
        self.plan = plan
        self.nest = plan.nest
        self.parameters = parameters
        self.body = Lines("    ")
        self.level = loop_nest.levels(self.nest)
        parted = any(dim.looped or dim.team for dim in plan.dims)
        self.pairs = reductions.paired(plan) if parted else {}
        self.phase = online_reductions.phases(self.nest, self.pairs)
        self.sizes = self.nest.outer + self.nest.inner
        self.dim_of = {axis: dim for dim in plan.dims for axis in dim.axes}
        self.split = {
            axis
            for index in loop_nest.indices(self.nest)
            for dim in plan.dims
            if memory.straight(index, dim, self.sizes) is None
            for axis in dim.axes
            if index.strides[axis]
        }
        self.axis_name: dict[int, str] = {}
        self.along = self._along()
        self.asserted: set[int] = set()
        self.rounding = Rounding(self.nest)

    def write(self) -> Lines:
        self._places()
        if self.plan.shared is not None:
            self.spreads = False  # what all rows share is loaded before there is a row
            column_folds.walk(self, self.plan.shared)
            return self.body
        looped = next((dim for dim in self.plan.dims if dim.looped and dim.constant), None)
        if looped is not None:
            reductions.walk(self, looped)
            return self.body
        line = self.plan.split_by
        if line is not None:
            pid = "tl.program_id(0)" + ".to(tl.int64)" * line.wide
            end = self.numbers.text(line.extent)
            masked, self.plan = self.plan, replace(self.plan, dims=(replace(line, full=True),))
            with self.body.block(f"if ({pid} + 1) * {line.constant} <= {end}:"):
                self._tile()
            self.plan = masked
        with nullcontext() if line is None else self.body.block("else:"):
            self._tile()
        return self.body

    def _tile(self) -> None:
        """The values and stores of a tile that holds all the work of a program."""
        self.asserted.clear()  # the assertions were written in another branch
        if self.plan.team is None:
            for number in range(len(self.nest.values)):
                self.value(number)
        else:
            teams.rows(self)
            return
        self.stores(self.nest.stores)

    def stores(self, stores: Sequence[Store]) -> None:
        """The stores of a tile. Those of groups of 16 bytes leave the elements at both ends of a
        row (`alignment`), which only some tiles of a walk or a team have.
        """
        for store in stores:
            self.body.put(memory.store(self, store))
        left = [one for one in stores if memory.in_groups(self, one.buffer, one.index)]
        if not left:
            return
        columns = self.plan.dims[-1]
        start = "start" if columns.looped else f"member * {columns.constant}"
        ends = f"if ({start} == 0) | ({start} + {columns.constant} > {columns.extent}):"
        several = columns.looped or columns.team
        with self.body.block(ends) if several else nullcontext():
            if columns.team:
                self._edge_anew(columns)
            for store in left:
                self.body.put(memory.store(self, store, columns="edge"))

    # --- positions: the element of each dimension and of each axis ---

    def _places(self) -> None:
        """Declare the variables of all dimensions that follow from the program's number."""
        if self.plan.team is not None:
            teams.places(self, self.plan.team)
            return
        spread = [dim for dim in self.plan.dims if not (dim.looped or dim.shared)]
        number = "tl.program_id(0)"
        several = [dim for dim in spread if not dim.single]
        if len(several) > 1:
            self.body.put(f"pid = {number}")
            number = "pid"
        for dim in reversed(spread):
            part = "0"
            if not dim.single:
                part = number
                if dim is not several[0]:
                    count = self._narrow(
                        f"tl.cdiv({self.numbers.text(dim.extent)}, {dim.constant})", dim.extent
                    )
                    self.body.put(f"{dim.name}_pid = {number} % {count}")
                    part = f"{dim.name}_pid"
                    rest = f"{number} // {count}"
                    if dim is several[1]:
                        number = rest
                    else:
                        self.body.put(f"pid = {rest}")
            self.place(dim, part)
        self.shift()

    def shift(self) -> None:
        """Where the rows of a tile, which have been placed, start in groups of elements."""
        columns, shift = self.plan.dims[-1], self.plan.shift
        if shift is None:
            return
        terms = [f"{step} * ({name} % {shift.lanes})" for name, step in shift.steps if step]
        terms += [str(shift.offset)] if shift.offset or not terms else []
        self.body.put(f"{columns.name}_shift = ({' + '.join(terms)}) % {shift.lanes}")
        if not columns.looped:
            self._shifted(columns)

    def _shifted(self, dim: Dim) -> None:
        """The columns of a tile that starts with a group, and its masks: of elements, of groups
        that touch the row, of groups that are inside it, of elements outside those.
        """
        name, end = dim.name, dim.extent
        self.body.put(f"{name} = {name}_at - {name}_shift")
        self.body.put(f"{name}_mask = ({name} >= 0) & ({name} < {end})")
        self.body.put(f"{name}_group = {name}_at // {dim.shift} * {dim.shift} - {name}_shift")
        self.body.put(f"{name}_near = {name}_group < {end}")
        inside = f"({name}_group >= 0) & ({name}_group <= {end - dim.shift})"
        self.body.put(f"{name}_whole = {inside}")
        if not dim.team:
            self.body.put(f"{name}_edge = {name}_mask & ~{name}_whole")
        self._axes(dim)

    def _edge_anew(self, dim: Dim) -> None:
        """The elements at the ends of a row that a team holds. What masks have in common with those
        before the exchange, compilers would keep meanwhile, in a register for each element: only
        this text knows that there is one program along another axis.
        """
        name, end = dim.name, dim.extent
        self.body.put(f"{name}_new_shift = {name}_shift * tl.num_programs(1)")
        self.body.put(f"{name}_new_at = {name}_at - {name}_new_shift")
        group = f"{name}_at // {dim.shift} * {dim.shift} - {name}_new_shift"
        self.body.put(f"{name}_new_group = {group}")
        there = f"({name}_new_at >= 0) & ({name}_new_at < {end})"
        whole = f"({name}_new_group >= 0) & ({name}_new_group <= {end - dim.shift})"
        self.body.put(f"{name}_edge = {there} & ~({whole})")

    def place(self, dim: Dim, part: str) -> None:
        if not dim.constant:
            # it comes from a loop variable, whose type is that of the loop
            whole = f"tl.full((), {part}, tl.int64)"
            self.body.put(f"{dim.name} = {whole if dim.looped else part}")
        else:
            part = f"({part})" if "//" in part else part
            walked = dim.looped or dim.shared
            part = f"{part}.to(tl.int64)" if dim.wide and not walked else part
            base = "" if part == "0" else f"{part} * {dim.constant} + "
            base = f"{part} + " if walked else base
            line = f"{base}{self._lanes(dim)}{dim.view}"
            wide = ".to(tl.int64)" if dim.wide and walked else ""
            name = f"{dim.name}_at" if dim.shift else dim.name
            self.body.put(f"{name} = ({line}){wide}" if wide else f"{name} = {line}")
        if dim.shift:
            if dim.looped:
                self._shifted(dim)
            return
        if dim.masked:
            self.body.put(f"{dim.name}_mask = {dim.name} < {self.numbers.text(dim.extent)}")
        self._axes(dim)

    def _lanes(self, dim: Dim) -> str:
        """The elements of a dimension in a tile. A thread that keeps sums over rows takes as many
        neighbours as it stores sums at a time: with wider loads of narrow elements, each row would
        change threads by way of shared memory.
        """
        lanes = f"tl.arange(0, {dim.constant})"
        if self.plan.shared is None or dim.shared or dim.block < column_folds.NEIGHBOURS:
            return lanes
        return f"tl.max_contiguous({lanes}, {column_folds.NEIGHBOURS})"

    def _narrow(self, text: str, *of: Any) -> str:
        """A scalar in 32 bits: a number of programs fits, even if the numbers that it is computed
        from may not.
        """
        wide = any(isinstance(one, Expr) and kind_of(one) != "i32" for one in of)
        return f"{text}.to(tl.int32)" if wide else text

    def _axes(self, dim: Dim) -> None:
        """Split a dimension's number into those of its axes."""
        if len(dim.axes) == 1:
            self.axis_name[dim.axes[0]] = dim.name
            return
        below: Any = 1
        for position, axis in reversed(list(enumerate(dim.axes))):
            if axis in self.split:
                text = dim.name if _is_one(below) else f"{dim.name} // {self._divisor(dim, below)}"
                if position:
                    text += f" % {self._divisor(dim, self.sizes[axis])}"
                self.axis_name[axis] = f"i{axis}"
                self.body.put(f"i{axis} = {text}")
            below = below * self.sizes[axis]

    def _divisor(self, dim: Dim, number: Any) -> str:
        text = self.numbers.text(number)
        return text if dim.wide else self._narrow(text, number)

    # --- values ---

    def _along(self) -> list[frozenset[str]]:
        """For each value: the dimensions along which its tile has more than one element."""
        found: list[frozenset[str]] = []
        for value in self.nest.values:
            forms: Iterable[Index] = loop_nest.indices_of(value)
            args = value.args
            if value.op == "inside":
                asked = memory.comparisons(self, value)
                forms, args = [one[0] for one in asked or ()], args if asked is not None else ()
            moved = frozenset(
                self.dim_of[axis].name
                for form in forms
                for axis, stride in enumerate(form.strides)
                if stride
            )
            moved = moved.union(*(found[arg] for arg in args))
            moved = moved | {"c"} if value.op == "scan" else moved
            found.append(moved - {"c", "k"} if value.op == "reduce" else moved)
        return found

    def value(self, number: int) -> None:
        value = self.nest.values[number]
        if number in self.rounding.unused:
            return
        if value.op in _WRITERS:
            _WRITERS[value.op](self, number)
        elif value.op in _TEXTS:
            self.body.put(f"v{number} = {_TEXTS[value.op](self, value)}")
        else:
            text = self.rounding.text(number)
            text = text or operators.expression(DIALECT, self.nest.values, number)
            self.body.put(f"v{number} = {text}")


def _checked(writer: Writer, number: int) -> None:
    if number not in writer.asserted:  # once, even if several passes over a row use it
        writer.asserted.add(number)
        writer.body.put(memory.checked(writer, number))
    writer.body.put(f"v{number} = v{writer.nest.values[number].args[0]}")


def _number(writer: Writer, value: Value) -> str:
    return writer.numbers.scalar(value.attr, value.dtype)


# The values that depend on the tile: those that are one expression, and those that take lines.
_TEXTS: dict[str, Callable[[Writer, Value], str]] = {
    "load": memory.load,
    "load_if": memory.load,
    "inside": memory.inside,
    "index": memory.position,
    "number": _number,
}
_WRITERS: dict[str, Callable[[Writer, int], None]] = {
    "checked": _checked,
    "reduce": reductions.fold,
    "scan": reductions.scan,
}


def _is_one(number: Any) -> bool:
    return not isinstance(number, Expr) and number == 1
