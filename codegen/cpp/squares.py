"""Squares in C++: rows in lanes whose elements are contiguous along each row. Squares of W x W
elements are transposed in registers.

In: a kernel being written (`renderer.Kernel`) whose plan has `squares`: its lanes are rows, and
some loads or stores are contiguous along a row. Out: lines, put to the kernel. W rows by W columns
are loaded as vectors along the rows and transposed; each vector is then a column of W rows, one per
lane. Stores across the lanes are collected and transposed back. This reduces short rows without
moves between lanes. Rows that are read in one order of memory and written in another access each
line of it once. `pays` decides; `tile` does the same for nests without reductions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loops import loop_nest
from ..loops.extents import estimate, is_symbolic
from ..loops.loop_nest import LoopNest
from .dialect import register

if TYPE_CHECKING:
    from .renderer import Kernel
    from .row_pass import PassWriter

# vectors of a short row; in longer rows the lane-by-lane reduction of the last vector hardly counts
SHORT = 4
APART = frozenset(("load_if", "inside", "checked", "scan", "index"))
WRITTEN_OUT = 160  # operators of a square up to which its loop is unrolled


def crosses(index: loop_nest.Index, row: int, column: int) -> bool:
    return index.strides[column] == 1 and index.strides[row] not in (0, 1, -1)


def pays(nest: LoopNest, lanes: int) -> bool:
    """Whether the nest has rows of known length along one axis, all read and written along rows or
    along columns, that are short or accessed in both ways.
    """
    if not nest.outer or len(nest.inner) != 1 or not 4 <= lanes <= 16:
        return False
    columns, row = nest.inner[0], len(nest.outer) - 1
    if is_symbolic(columns) or columns < lanes or estimate(nest.outer[row]) < lanes:
        return False
    if any(value.op in APART or (value.op == "load" and value.args) for value in nest.values):
        return False
    met = [index for index in loop_nest.indices(nest) if nest.moves_inner(index)]
    across = [index for index in met if crosses(index, row, row + 1)]
    along = [index for index in met if index.strides[row] == 1]
    if not across or not all(index in across or index.strides[row] in (0, 1) for index in met):
        return False
    return bool(along) or columns <= SHORT * lanes


def write(writer: PassWriter, last: str, blocked: bool) -> None:
    """The columns from `at` on by squares, if all lanes are rows; the plain loop does the rest."""
    kernel, put = writer.kernel, writer.put
    row, column = kernel.plan.vector, len(kernel.nest.outer)
    assert row is not None
    loads = [n for n in writer.one.body if kernel.nest.values[n].op == "load"
             and crosses(kernel.nest.values[n].attr[1], row, column)]  # fmt: skip
    stores = [store for store in writer.one.stores if crosses(store.index, row, column)]
    if not loads and not stores:
        return
    put("if constexpr (__is_same(decltype(n), full)) {")
    kernel.depth += 1
    for number in loads:
        put(f"{_kind(kernel, number)} t{number}_[W];")
    for place, store in enumerate(stores):
        put(f"{_kind(kernel, store.value)} s{place}_[W];")
    _body(writer, loads, stores)
    put(f"for (; at + W <= {last}; at += W) {{")
    for number in loads:
        start = _start(kernel, kernel.nest.values[number].attr)
        put(f"  for (int k = 0; k < W; ++k) t{number}_[k] = ld({start}, n);")
        put(f"  turn_over(t{number}_);")
    copies = min(writer.unroll, kernel.lanes)
    if writer.cost * kernel.lanes <= WRITTEN_OUT:
        put(f"  #pragma GCC unroll {kernel.lanes}")
    put(f"  for (int k = 0; k < W; k += {copies}) {{")
    for copy in range(copies):
        put(f"    square(at + k + {copy}, k + {copy}{writer.names(copy, blocked)});")
    put("  }")
    for place, store in enumerate(stores):
        put(f"  turn_over(s{place}_);")
        start = _start(kernel, (store.buffer, store.index))
        put(f"  for (int k = 0; k < W; ++k) st({start}, s{place}_[k], n);")
    put("}")
    kernel.depth -= 1
    put("}")


def _kind(kernel: Kernel, number: int) -> str:
    return register(kernel.nest.values[number].dtype)


def _start(kernel: Kernel, key: tuple[int, loop_nest.Index]) -> str:
    """The start of row k of the square."""
    assert kernel.plan.vector is not None
    stride = kernel.n(key[1].strides[kernel.plan.vector])
    return f"{kernel.pointers[key]} + at + (i + k) * {stride}"


def _body(writer: PassWriter, loads: list[int], stores: list[loop_nest.Store]) -> None:
    """A lambda for one column of a square."""
    kernel = writer.kernel
    writer.head("square", ", const int k")
    for number in writer.one.body:
        if number in loads:
            writer.put(f"const {_kind(kernel, number)} v{number} = t{number}_[k];")
        else:
            writer.put(kernel._statement(number))
    writer.taken()
    for place, store in enumerate(stores):
        writer.put(f"s{place}_[k] = v{store.value};")
    for store in writer.one.stores:
        if store not in stores:
            kernel._store(store)
    kernel.depth -= 1
    writer.put("};")
