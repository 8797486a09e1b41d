"""Epilogues in C++: the function that the kernel of a product or a convolution calls for each tile
of its result.

In: a kernel being written (`renderer.Kernel`) whose nest is `tiled`. Out: its lines. The rows are
all axes of the nest but the last, counted as one axis; the last axis is the columns. Row values
that take long to compute (the deviation of a batch norm) are computed first for all rows of the
tile, one row per lane. The caller's type is `Epilogue` in kernels/common.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..loops import loop_nest, operators
from .dialect import SCALAR, register

if TYPE_CHECKING:
    from .renderer import Kernel

# the most rows and columns of a tile; each row of a tile takes COLUMNS elements
ROWS, COLUMNS = 256, 32
ARGUMENTS = (
    ", const i64_t *numbers, const float *tile, i64_t first, i64_t last, i64_t from, i64_t to"
)
LONG = 8  # flops from which on a row value is computed before the loop over the rows


def write(kernel: Kernel) -> None:
    """The loop over the rows of the tile, which steps the coordinates from row to row."""
    nest = kernel.nest
    early = _early(kernel)
    axes = [axis for axis in kernel.plan.rows if kernel.sizes[axis] != 1]
    kernel.coordinates("first", "i64_t")
    if early:
        _before(kernel, early, axes)
    head = f"for (i64_t item = first; item < last; ++item{_next(kernel, axes)}) {{"
    with kernel.block(head, "}"):
        kernel.move_pointers()
        for number in early:
            kind = register(nest.values[number].dtype)
            kernel.put(f"const {kind} v{number} = splat<{kind}>(e{number}[item - first]);")
        left = loop_nest.needed(nest, [store.value for store in nest.stores], frozenset(early))
        kernel.known = set(range(len(nest.values))).difference(left)
        kernel.one_row("from", "to", kernel.sizes[-1])


def columns(kernel: Kernel) -> None:
    """The calls of a row's body; most tiles have all their columns."""
    whole = "".join(f" body(from + {at}, full{{}});" for at in range(0, COLUMNS, kernel.lanes))
    kernel.put(f"if (to - from == {COLUMNS}) {{{whole} }}")
    part = "body(at, int(to - at < W ? to - at : W))"
    kernel.put(f"else for (i64_t at = from; at < to; at += W) {part};")


def row(kind: str) -> str:
    """The start of a row of the tile, as if the row had all columns."""
    tile = "tile" if kind == "float" else f"(const {kind} *)tile"
    return f"{tile} + (item - first) * {COLUMNS} - from"


def _next(kernel: Kernel, axes: list[int]) -> str:
    """The step from the coordinates of a row to those of the next one."""
    text = ""
    for place, axis in enumerate(axes):
        text = (
            f"++x{axis} == {kernel.n(kernel.sizes[axis])} && (x{axis} = 0, {text})"
            if place
            else f"++x{axis}"
        )
    return text and f", {text}"


def _early(kernel: Kernel) -> list[int]:
    """The row values that elements or stores use and that take long to compute."""
    nest, level = kernel.nest, kernel.level
    used = [arg for n, value in enumerate(nest.values) if level[n] for arg in value.args]
    used += [store.value for store in nest.stores]
    return sorted({number for number in used if not level[number] and _pays(nest, number)})


def _pays(nest: loop_nest.LoopNest, number: int) -> bool:
    if nest.values[number].dtype not in (torch.float32, torch.float64):
        return False
    values = [nest.values[each] for each in loop_nest.needed(nest, [number])]
    known = all(
        v.op in operators.OPS or v.op in ("load", "const", "number", "cast") for v in values
    )
    plain = known and not any(v.args and v.op == "load" for v in values)
    return plain and sum(operators.OPS[v.op].cost for v in values if v.op in operators.OPS) >= LONG


def _before(kernel: Kernel, early: list[int], axes: list[int]) -> None:
    nest = kernel.nest
    for number in early:
        kernel.put(f"{SCALAR[register(nest.values[number].dtype)]} e{number}[{ROWS} + W];")
    numbers = loop_nest.needed(nest, early)
    loads = [number for number in numbers if nest.values[number].op == "load"]
    with kernel.block("for (i64_t at = first; at < last; at += W) {", "}"):
        for number in loads:
            kernel.put(f"{register(nest.values[number].dtype)} v{number};")
        _load_before(kernel, loads, axes)
        kernel.declare([number for number in numbers if number not in loads], row=True)
        for number in early:
            kernel.put(f"__builtin_memcpy(e{number} + (at - first), &v{number}, sizeof v{number});")


def _load_before(kernel: Kernel, loads: list[int], axes: list[int]) -> None:
    """The loads of row values, one row per lane: vector loads where the rows are neighbours along
    one axis.
    """
    places = {n: kernel.nest.values[n].attr for n in loads}
    last = axes[-1] if axes else None
    steps = {n: 0 if last is None else index.strides[last] for n, (_b, index) in places.items()}
    near = all(step in (0, 1) for step in steps.values())
    if near:
        whole = (
            f"x{axes[-1]} + last - first <= {kernel.n(kernel.sizes[axes[-1]])}" if axes else "true"
        )
        kernel.put(f"if ({whole}) {{")
        for number, (buffer, index) in places.items():
            start = f"b{buffer}{kernel.offset(index, kernel.plan.rows)}"
            text = f"one({start})"
            if steps[number]:
                text = f"ld({start} + (at - first), int(last - at < W ? last - at : W))"
            kernel.put(f"  v{number} = {text};")
        kernel.put("} else")
    with kernel.block("for (int lane = 0; lane < W; ++lane) {", "}"):
        kernel.put("const i64_t item = at + lane < last ? at + lane : last - 1;")
        kernel.coordinates("item")
        for number, (buffer, index) in places.items():
            start = f"b{buffer}{kernel.offset(index, kernel.plan.rows)}"
            kernel.put(f"v{number}[lane] = one({start})[0];")
