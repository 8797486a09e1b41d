"""Scatters on a GPU: stores at data-dependent positions. Separate kernels write the initial content
of a buffer.

`split` turns a nest that scatters into several nests that run one after the other: fills and
copies, then the scatter over their result. Programs run in no order, so merges are atomic
operations of memory, in float32, float64, int32 and int64; of several elements set at one position
any one stays, as in eager's kernels on a GPU. `form` is the text of such a store; `memory` uses it.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ...ir.dataclass import dataclass
from ...ir.symbolic.expr import product
from ...runtime.errors import BuildError
from ..loops import loop_nest
from ..loops.loop_nest import Buffer, Index, LoopNest, Scatter, Store, Value
from ..loops.values import renumbered
from ..lower.scatter import ATOMIC

_ATOMICS = {"sum": "add", "max": "max", "min": "min"}
_NAN_SIGN = {"max": 1.0, "min": -1.0}


@dataclass(frozen=True, slots=True)
class Part:
    """One of several nests that run in order. `buffers`: the numbers of its buffers in the
    whole nest.
    """

    nest: LoopNest
    buffers: tuple[int, ...]


def form(scatter: Scatter, dtype: torch.dtype) -> str:
    """The text of the store, over {0} pointers, {1} the value, {2} the mask. BuildError: memory
    cannot merge this way.
    """
    if scatter.filled is not None or scatter.copied is not None:
        raise BuildError("a Triton kernel scatters over what another one has written: split it")
    if scatter.how == "set":
        return "tl.store({0}, {1}{2})"
    if scatter.how not in _ATOMICS or dtype not in ATOMIC:
        raise BuildError(
            f"no atomic operation merges by {scatter.how}",
            expected=", ".join(f"{name} of 32 or 64 bits" for name in _ATOMICS),
            found=str(dtype),
        )
    return f'tl.atomic_{_ATOMICS[scatter.how]}({{0}}, {{1}}{{2}}, sem="relaxed")'


def split(nest: LoopNest) -> tuple[Part, ...]:
    """The nests of a nest that scatters: each reads and writes buffers of the whole. One Part if no
    initial content is needed.
    """
    before: list[Part] = []
    values, stores = list(nest.values), list(nest.stores)
    for place, store in enumerate(stores):
        scatter = store.scatter
        if scatter is None or (scatter.filled is None and scatter.copied is None):
            continue
        before.append(_base(nest, store, scatter, f"{nest.name}_before{len(before) or ''}"))
        value = _of_one_nan(values, store.value, scatter.how)
        rest = replace(scatter, filled=None, copied=None)
        stores[place] = replace(store, value=value, scatter=rest)
    whole = replace(nest, values=tuple(values), stores=tuple(stores))
    return (*before, _pruned(whole))


def _of_one_nan(values: list[Value], number: int, how: str) -> int:
    """The value, with one sign for all nans: in the order of the bits, which atomic operations use,
    such a nan is the greatest or the least float.
    """
    dtype, at = values[number].dtype, len(values)
    if how not in _NAN_SIGN or not dtype.is_floating_point:
        return number
    values += [
        Value("isnan", (number,), torch.bool),
        Value("const", (), dtype, float("nan")),
        Value("const", (), dtype, _NAN_SIGN[how]),
        Value("copysign", (at + 1, at + 2), dtype),
        Value("where", (at, at + 3, number), dtype),
    ]
    return at + 4


def _base(nest: LoopNest, store: Store, scatter: Scatter, name: str) -> Part:
    """A nest that writes the initial content of a buffer: a constant, or a copy of a tensor with
    the same layout.
    """
    buffer = nest.buffers[store.buffer]
    count = product(buffer.shape)
    out = Buffer(buffer.name, buffer.dtype, (count,), (1,), written=True)
    if scatter.copied is not None:
        source, offset = scatter.copied
        values = [Value("load", (), buffer.dtype, (0, Index((1,), offset)))]
        buffers: tuple[Buffer, ...] = (nest.buffers[source], out)
        numbers: tuple[int, ...] = (source, store.buffer)
    else:
        assert scatter.filled is not None
        values = list(renumbered(nest.values, [scatter.filled])[0])
        values = [loop_nest.with_indices(value, _still) for value in values]
        buffers, numbers = (out,), (store.buffer,)
        if any(value.op in loop_nest.LOADS for value in values):
            raise BuildError("what is scattered over is filled with a number", found=nest.name)
    value = _of_one_nan(values, len(values) - 1, scatter.how)
    stores = (Store(len(buffers) - 1, Index((1,)), value),)
    made = LoopNest(name, (), (count,), buffers, tuple(values), stores, nest.covers)
    return Part(made, numbers)


def _still(index: Index) -> Index:
    return Index((0,), index.offset)


def _pruned(nest: LoopNest) -> Part:
    """The nest without values and buffers that nothing in it needs. Checks are needed."""
    checks = [number for number, value in enumerate(nest.values) if value.op == "checked"]
    roots = [number for store in nest.stores for number in store.needs]
    values, new = renumbered(nest.values, [*roots, *checks])
    used = {value.attr[0] for value in values if value.op in loop_nest.LOADS}
    used |= {store.buffer for store in nest.stores}
    numbers = tuple(sorted(used))
    position = {number: place for place, number in enumerate(numbers)}

    def moved(value: Value) -> Value:
        if value.op not in loop_nest.LOADS:
            return value
        return replace(value, attr=(position[value.attr[0]], value.attr[1]))

    def stored(store: Store) -> Store:
        scatter = store.scatter and replace(store.scatter, offset=new[store.scatter.offset])
        return replace(
            store, buffer=position[store.buffer], value=new[store.value], scatter=scatter
        )

    buffers = tuple(nest.buffers[number] for number in numbers)
    stores = tuple(stored(store) for store in nest.stores)
    made = replace(nest, buffers=buffers, values=tuple(map(moved, values)), stores=stores)
    return Part(made, numbers)
