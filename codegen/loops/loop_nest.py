"""The loop IR: what one fused kernel computes, independent of C++ and Triton.

A `LoopNest` is a flat list of values (SSA: arguments are numbers of earlier values) over an
iteration space of `outer` axes (rows) and `inner` axes. A "reduce" value reduces its argument over
the inner axes to one value per row. Later values may use that row value together with elements, so
softmax and layer norm are one nest. A "scan" value is the reduction of a row up to its element.
Stores are the results. The nest has no loops and no passes: a renderer derives them from `levels`
and `phases` (C++: one pass over the row per phase; Triton: straight code on a tile that holds the
row).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...ir.dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class Buffer:
    """A kernel parameter, by position: its element type and the layout of the tensor behind it.

    The kernel gets the pointer to the tensor's first element (storage offset included). `written`:
    some store goes to it; the same nest never loads from a written buffer. `shared`: another buffer
    has the same memory; each element of that buffer is loaded before it is stored
    (`schedule.inplace`).
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    written: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """offset + sum(strides[a] * i[a]) in elements; a counts the axes, outer ones first.

    `terms` exists only while a nest is being made: (number of an int64 value, factor) to be added.
    A finished nest has none: a load takes such an offset as an operand.
    """

    strides: tuple[int, ...]
    offset: int = 0
    terms: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Value:
    """One value. `op` is a key of `operators.OPS` or one of these:

        load     attr = (buffer number, Index); args = int64 or int32 values, in elements, that are
                 added to the index
        load_if  attr as of load, args = (bool value, value, offsets as of load): a load where the
                 bool holds; elsewhere that value, without access to memory
        inside   a bool: attr = ((Index, low, high), ...), args = bool values: true where
                 low <= form < high for each form and all args hold
        checked  args = (int64 value,), attr = (low, high): the value, which must be in [low, high).
                 If it is not: low, and the kernel reports an error to its caller
        const    attr = a Python bool, int or float (inf and nan too)
        number   attr = an expression (`ir.symbolic.expr`), a run-time argument of the kernel, as
                 `dtype`
        index    attr = an Index; the value of that affine form (arange, positions): int64, or an
                 int32 that can hold it
        cast     args = (value,); converts to `dtype`, with the rounding of torch's `.to`
        reduce   args = (value,), attr = a key of `REDUCTIONS`; `dtype` is also the accumulator's
                 type. The argument has that type already; for argmax and argmin the argument has
                 its own type, and `dtype` is int64
        scan     args = (value,), attr = a key of `SCANS`: the reduction of the elements of the row
                 up to this one, so it differs per element; `dtype` is that of the argument. The
                 nest has at most one inner axis

    Values of dtype bfloat16 and float16 are operands of load, cast, where and store only:
    arithmetic on them is a cast to float32, the operator, and a cast back. bool is a type of its
    own with and/or/xor/not.
    """

    op: str
    args: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    attr: Any = None


LOADS = frozenset(("load", "load_if"))
FOLDS = frozenset(("reduce", "scan"))


@dataclass(frozen=True, slots=True)
class Scatter:
    """A store at data-dependent positions. Elements are stored in the order of the axes.

    offset   number of an int64 value, in elements, that is added to the index
    how      a key of `MERGES`: how the stored element and the value are combined
    filled   number of the value that fills the whole buffer before, or
    copied   (buffer number, offset) of the tensor that the buffer is a copy of before; both
             have the same layout
    """

    offset: int
    how: str = "set"
    filled: int | None = None
    copied: tuple[int, Any] | None = None


MERGES: dict[str, str] = {
    "set": "the value; of several the last one", "sum": "integers wrap", "prod": "integers wrap",
    "max": "nan if either is nan", "min": "nan if either is nan",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[index] = value, once per row if the index is constant in the inner axes, else per
    element.

    The value has the buffer's dtype. `scatter`: the positions depend on data; no reductions.

    across  what is stored is the sum of the value over the outer axes, along which the index does
            not move. The value has the accumulator's type, and the sum is cast to the buffer's.
            GPUs only (`triton.column_folds`)
    """

    buffer: int
    index: Index
    value: int
    scatter: Scatter | None = None
    across: bool = False

    @property
    def needs(self) -> tuple[int, ...]:
        """The values that one stored element needs."""
        return (self.value,) if self.scatter is None else (self.value, self.scatter.offset)


@dataclass(frozen=True, slots=True)
class Reduction:
    """`identity` is for floats; `law` says what nan and ties give."""

    identity: float
    law: str

    def start(self, dtype: torch.dtype) -> bool | int | float:
        """The identity in this type."""
        if dtype.is_floating_point:
            return self.identity
        if dtype == torch.bool:
            return self.identity > 0
        if math.isinf(self.identity):
            limits = torch.iinfo(dtype)
            return limits.max if self.identity > 0 else limits.min
        return int(self.identity)


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(0, "integers wrap; float sums in blocks, the errors between blocks collected"),
    "prod": Reduction(1, "integers wrap"),
    "max": Reduction(-math.inf, "nan if any is nan; integers: lowest of the type is the identity"),
    "min": Reduction(math.inf, "nan if any is nan; integers: highest of the type is the identity"),
    "first max": Reduction(
        -math.inf, "max of floats; of zeros of both signs the first in the row on the CPU"
    ),
    "first min": Reduction(
        math.inf, "min of floats; of zeros of both signs the first in the row on the CPU"
    ),
    "any": Reduction(0, "of bool"),
    "all": Reduction(1, "of bool"),
    "argmax": Reduction(
        -math.inf, "row-major position in the inner axes; first one wins; nan counts as largest"
    ),
    "argmin": Reduction(
        math.inf, "row-major position in the inner axes; first one wins; nan counts as smallest"
    ),
}

# Reductions that give the position of an element; those whose result depends on it.
PLACES = ("argmax", "argmin")
OF_PLACES = (*PLACES, "first max", "first min")

# Reductions that a scan may use, as keys of REDUCTIONS. "in turn": one element after the other,
# because another order might overflow where eager does not.
SCANS: dict[str, str] = {
    "sum": "sum", "prod": "prod", "max": "max", "min": "min", "sum in turn": "sum",
    "prod in turn": "prod",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hints:
    """What measurement chose for a nest (`codegen.tuning.cpu`); 0: the renderer's rules decide.

    Hints change only the speed of a kernel and the order of a sum. A renderer may ignore them.

        unroll    copies of each accumulator of a reduction
        groups    at most this many vectors of rows side by side, where lanes are rows
        chunk     elements of the axis of the lanes that a thread takes at a time
        tiling    `triton.tiling.Tiling`, on a GPU; None: the rules decide
    """

    unroll: int = 0
    groups: int = 0
    chunk: int = 0
    tiling: Any = None


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A kernel. `covers`: one line of text per operator fused here, for reports and for comments in
    the source.

    Pointwise kernels have no outer axes: all their axes are inner. A nest with reductions has its
    rows in `outer` (possibly none: one row) and the reduced axes in `inner`. Sizes may be 0 only in
    `inner` of a nest with reductions (an empty reduction gives the identity). Sizes, strides and
    offsets may be expressions; sizes that are expressions may also be 0 at run time. `tiled`: the
    nest is an epilogue. It is computed for some rows (all axes but the last one) and columns at a
    time, and this buffer is the tile of the kernel that calls it (`codegen.fusion.epilogue`).
    """

    name: str
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    values: tuple[Value, ...]
    stores: tuple[Store, ...]
    covers: tuple[str, ...] = field(default=(), compare=False)
    hints: Hints = Hints()
    tiled: int | None = None

    @property
    def rows(self) -> int:
        return math.prod(self.outer)

    @property
    def columns(self) -> int:
        return math.prod(self.inner)

    @property
    def has_reduction(self) -> bool:
        """Whether something is reduced along the inner axes, as a whole or up to each element."""
        return any(value.op in FOLDS for value in self.values)

    @property
    def may_fail(self) -> bool:
        """Whether it checks values and may report an error."""
        return any(value.op == "checked" for value in self.values)

    @property
    def scatters(self) -> bool:
        """Whether it stores at data-dependent positions."""
        return any(store.scatter is not None for store in self.stores)

    @property
    def folds_across(self) -> bool:
        """Whether it also reduces over its rows."""
        return any(store.across for store in self.stores)

    @property
    def content(self) -> Any:
        """A key: nests with equal keys differ in names only. 0.0 and -0.0 differ, as 1 and 1.0."""
        buffers = [(b.dtype, b.shape, b.stride, b.written, b.shared) for b in self.buffers]
        values = [
            (v.op, v.args, v.dtype, repr(v.attr) if v.op == "const" else v.attr)
            for v in self.values
        ]
        spaces = self.outer, self.inner, self.stores, self.hints, self.tiled
        return *spaces, tuple(buffers), tuple(values)

    def moves_inner(self, index: Index) -> bool:
        """Whether this index changes along the inner axes."""
        return any(index.strides[len(self.outer) :])


def levels(nest: LoopNest) -> tuple[bool, ...]:
    """For each value: True if it differs between the elements of a row, False if a row has one
    value.
    """
    return moving(nest, range(len(nest.outer), len(nest.outer) + len(nest.inner)))


def moving(nest: LoopNest, axes: Iterable[int]) -> tuple[bool, ...]:
    """For each value: whether it differs along some of these axes.

    A reduced value does not differ along the inner axes. It differs from row to row if its argument
    does.
    """
    axes = tuple(axes)
    rows = tuple(axis for axis in axes if axis < len(nest.outer))
    from_row_to_row = moving(nest, rows) if 0 < len(rows) < len(axes) else ()
    found: list[bool] = []
    for number, value in enumerate(nest.values):
        if value.op == "reduce" and len(rows) < len(axes):
            found.append(bool(rows) and from_row_to_row[number])
            continue
        moves = any(found[arg] for arg in value.args)
        moves = moves or (value.op == "scan" and len(rows) < len(axes))
        forms = () if moves else indices_of(value)
        found.append(moves or any(index.strides[axis] for index in forms for axis in axes))
    return tuple(found)


def phases(nest: LoopNest) -> tuple[int, ...]:
    """For each value: the length of the longest chain of reductions before it (its pass over the
    row).

    The phase of a reduce value is one more than its argument's: pass `phase - 1` reduces its
    argument.
    """
    found: list[int] = []
    for value in nest.values:
        phase = max((found[arg] for arg in value.args), default=0)
        found.append(phase + 1 if value.op == "reduce" else phase)
    return tuple(found)


def needed(nest: LoopNest, roots: Iterable[int], stop: frozenset[int] = frozenset()) -> list[int]:
    """The values that `roots` need, in order. Values in `stop` count as known; their arguments are
    not followed.
    """
    return reached(nest.values, roots, stop)


def reached(
    values: Sequence[Value], roots: Iterable[int], stop: frozenset[int] = frozenset()
) -> list[int]:
    """`needed`, for values that are not in a nest yet."""
    wanted: set[int] = set()
    queue = [root for root in roots if root not in stop]
    while queue:
        number = queue.pop()
        if number not in wanted:
            wanted.add(number)
            queue.extend(arg for arg in values[number].args if arg not in stop)
    return sorted(wanted)


def indices(nest: LoopNest) -> list[Index]:
    """Every index of the values and stores."""
    found = [index for value in nest.values for index in indices_of(value)]
    return found + [store.index for store in nest.stores]


def accesses(nest: LoopNest) -> list[tuple[int, Index]]:
    """(buffer, index) of every load and store."""
    found = [value.attr for value in nest.values if value.op in LOADS]
    return found + [(store.buffer, store.index) for store in nest.stores]


def indices_of(value: Value) -> tuple[Index, ...]:
    """The indices of one value."""
    if value.op in LOADS:
        return (value.attr[1],)
    if value.op == "inside":
        return tuple(form for form, _low, _high in value.attr)
    return (value.attr,) if value.op == "index" else ()


def with_indices(value: Value, change: Callable[[Index], Index]) -> Value:
    """The same value with `change` applied to each of its indices."""
    if value.op in LOADS:
        return replace(value, attr=(value.attr[0], change(value.attr[1])))
    if value.op == "inside":
        return replace(value, attr=tuple((change(f), a, b) for f, a, b in value.attr))
    return replace(value, attr=change(value.attr)) if value.op == "index" else value


def over(
    nest: LoopNest, outer: Sequence[Any], inner: Sequence[Any], change: Callable[[Index], Index]
) -> LoopNest:
    """The same nest over other axes, with `change` applied to each index."""
    return replace(
        nest,
        outer=tuple(outer),
        inner=tuple(inner),
        values=tuple([with_indices(value, change) for value in nest.values]),
        stores=tuple([replace(store, index=change(store.index)) for store in nest.stores]),
    )


def collapse(nest: LoopNest) -> LoopNest:
    """The same nest with as few axes as possible.

    Axes of size 1 are dropped. Neighbours are merged where every index walks both as one axis.
    Outer and inner axes are never merged with each other.
    """
    groups = [
        *_groups(nest, range(len(nest.outer)), nest.outer),
        *_groups(nest, range(len(nest.outer), len(nest.outer) + len(nest.inner)), nest.inner),
    ]
    sizes = nest.outer + nest.inner
    n_outer = sum(1 for group in groups if group[0] < len(nest.outer))

    def merged(index: Index) -> Index:
        return Index(tuple(index.strides[group[-1]] for group in groups), index.offset)

    new_sizes = [math.prod(sizes[axis] for axis in group) for group in groups]
    if n_outer == len(groups) and not nest.has_reduction:
        n_outer = 0  # rows of one element each, without reductions
    return over(nest, new_sizes[:n_outer], new_sizes[n_outer:], merged)


def _groups(nest: LoopNest, axes: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Runs of axes that merge into one; axes of size 1 are in no run."""
    everything = indices(nest)
    all_sizes = nest.outer + nest.inner
    groups: list[list[int]] = []
    for axis, size in zip(axes, sizes, strict=True):
        if size == 1:
            continue
        if groups and all(
            index.strides[groups[-1][-1]] == index.strides[axis] * all_sizes[axis]
            for index in everything
        ):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def check(nest: LoopNest) -> None:
    """Raise ValueError if the nest breaks a rule of this file."""
    n_axes = len(nest.outer) + len(nest.inner)
    for index in indices(nest):
        if len(index.strides) != n_axes:
            raise ValueError(f"{nest.name}: {index} does not fit {n_axes} axes")
        if index.terms:
            raise ValueError(f"{nest.name}: {index} has terms left")
    for number, value in enumerate(nest.values):
        if any(arg >= number for arg in value.args):
            raise ValueError(f"{nest.name}: value {number} uses a later one")
        if value.op == "reduce" and value.attr not in REDUCTIONS:
            raise ValueError(f"{nest.name}: no reduction {value.attr!r}")
        if value.op == "scan" and (value.attr not in SCANS or len(nest.inner) > 1):
            raise ValueError(f"{nest.name}: no scan {value.attr!r} along {len(nest.inner)} axes")
        if value.op in LOADS and nest.buffers[value.attr[0]].written:
            raise ValueError(f"{nest.name}: value {number} loads from a written buffer")
    for store in nest.stores:
        if store.across and any(store.index.strides[: len(nest.outer)]):
            raise ValueError(f"{nest.name}: {store} reduces over axes that it moves along")
        same = nest.values[store.value].dtype == nest.buffers[store.buffer].dtype
        if not same and not store.across:
            raise ValueError(f"{nest.name}: {store} stores another dtype than the buffer's")
        if store.scatter is not None and (nest.has_reduction or store.scatter.how not in MERGES):
            raise ValueError(f"{nest.name}: {store} cannot scatter")


def text(nest: LoopNest) -> str:
    """A nest as readable lines, for tests and the report."""
    lines = [f"nest {nest.name} outer={list(nest.outer)} inner={list(nest.inner)}"]
    lines += [f"  # {line}" for line in nest.covers]
    for number, value in enumerate(nest.values):
        kind = str(value.dtype).removeprefix("torch.")
        if value.op in LOADS:
            buffer, index = value.attr
            rest = " ".join(f" v{arg}" for arg in value.args)
            body = f"{value.op} {nest.buffers[buffer].name}{_index_text(index)}{rest}"
        elif value.op == "inside":
            parts = (f"{low} <= {_index_text(form)} < {high}" for form, low, high in value.attr)
            body = f"inside {' and '.join((*parts, *(f'v{arg}' for arg in value.args)))}"
        elif value.op == "index":
            body = f"index {_index_text(value.attr)}"
        else:
            body = " ".join([value.op, *(f"v{arg}" for arg in value.args)])
            body += "" if value.attr is None else f" {value.attr}"
        lines.append(f"  v{number}: {kind} = {body}")
    for store in nest.stores:
        to = f"{nest.buffers[store.buffer].name}{_index_text(store.index)}"
        said = "" if store.scatter is None else f" v{store.scatter.offset} {store.scatter.how}"
        said += " sum over rows" if store.across else ""
        lines.append(f"  {to}{said} = v{store.value}")
    return "\n".join(lines)


def _index_text(index: Index) -> str:
    terms = [f"{stride}*i{axis}" for axis, stride in enumerate(index.strides) if stride]
    if index.offset or not terms:
        terms.append(str(index.offset))
    return "[" + " + ".join(terms) + "]"
