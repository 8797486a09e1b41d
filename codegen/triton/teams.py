"""Teams: the programs that hold one long row together, each a piece of it in registers.

A row that is longer than the registers of a program would be read once per pass. The programs of a
team read it once: they exchange their partial reductions through memory and wait for each other.
`team` returns the nests of such a kernel, `places` and `values` write its text. In memory behind
the tensors of the nest are counters (one that gives programs their numbers, then one per phase and
row) and, per reduction, the partial results of all programs. A kernel of its own sets the counters
to zero.

Programs take their numbers as they begin, so all programs with lower numbers have begun. Only the
last row that has begun can miss members, and a member begins as soon as any program has ended: no
row waits for ever if a device has space for one team (`SHARE`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ...ir.symbolic.expr import is_symbolic
from ..loops import loop_nest, online_reductions
from ..loops.loop_nest import Buffer, Index, LoopNest, Store, Value
from . import tiling
from .dialect import TYPES, fold_of, identity
from .split_reduction import Between, Split
from .tiling import Dim, Tiling

if TYPE_CHECKING:
    from .body import Writer

KINDS = ("sum", "prod", "max", "min")  # reductions whose partial results are of the same kind
SHARE = 2  # a team is at most one program for so many multiprocessors


def team(nest: LoopNest, multiprocessors: int) -> Split | None:
    """The nests by which teams compute this one: zeros in the counters, then the nest itself. None:
    its rows are short, are read in one pass, or have too many or too few programs.
    """
    forms = [(index.strides, index.offset) for index in loop_nest.indices(nest)]
    if nest.hints.tiling is not None or nest.tiled is not None or nest.scatters:
        return None
    if is_symbolic([nest.outer, nest.inner, *forms]):
        return None
    nest = loop_nest.collapse(nest)
    folds = _folds(nest)
    columns = tiling.piece(nest) if _repeats(nest) else 0
    if not columns or not all(_is_exchanged(nest.values[number]) for number in folds):
        return None
    members = -(-nest.columns // columns)
    if members * SHARE > multiprocessors or nest.rows * members < multiprocessors:
        return None
    between = [Between(torch.int32, 1 + nest.rows * max(loop_nest.phases(nest)))]
    between += [Between(nest.values[number].dtype, nest.rows * members) for number in folds]
    own = len(nest.buffers)
    more = [
        Buffer(f"between{n}", one.dtype, (one.size,), (1,), True) for n, one in enumerate(between)
    ]
    hints = replace(nest.hints, tiling=Tiling(columns=columns, team=True))
    whole = replace(nest, buffers=(*nest.buffers, *more), hints=hints)
    places = ((own,), tuple(range(own + len(more))))
    return Split((_zeros(nest, more[0]), whole), tuple(between), places)


def _zeros(nest: LoopNest, counters: Buffer) -> LoopNest:
    return LoopNest(
        f"{nest.name}_zeros", (), counters.shape, (counters,),
        (Value("const", (), counters.dtype, 0),), (Store(0, Index((1,)), 0),), nest.covers,
    )  # fmt: skip


def _folds(nest: LoopNest) -> list[int]:
    return [number for number, value in enumerate(nest.values) if value.op == "reduce"]


def _is_exchanged(fold: Value) -> bool:
    return fold.attr in KINDS and fold.dtype != torch.bool


def _repeats(nest: LoopNest) -> bool:
    """Whether a walk would load elements in several passes, and whether a team can load before its
    first exchange all that differs between rows: later it might find what another program has
    stored.
    """
    values, level = nest.values, loop_nest.levels(nest)
    if any(value.op == "scan" for value in values):
        return False
    order = loop_nest.phases(nest)
    if any(value.op in loop_nest.LOADS and order[n] for n, value in enumerate(values)):
        return False
    phase = online_reductions.phases(nest, online_reductions.find(nest))
    rows = frozenset(number for number in range(len(values)) if not level[number])
    passes: dict[int, list[int]] = {}
    for number in _folds(nest):
        passes.setdefault(phase[number] - 1, []).append(values[number].args[0])
    for store in nest.stores:
        if level[store.value]:
            passes.setdefault(phase[store.value], []).append(store.value)
    loaded: set[tuple[int, int]] = set()
    for step, roots in passes.items():
        for number in loop_nest.needed(nest, roots, rows):
            if values[number].op in loop_nest.LOADS and nest.moves_inner(values[number].attr[1]):
                loaded.add((step, number))
    return len({number for _step, number in loaded}) < len(loaded)


# --- text ---


def places(writer: Writer, columns: Dim) -> None:
    """Declare the variables of a program: its row, and which member of the row's team it is."""
    counters = _buffers(writer)[0]
    writer.body.put(f'pid = tl.atomic_add({counters}, 1, sem="relaxed")')
    writer.body.put(f"member = pid % {columns.programs}")
    writer.body.put(f"row = pid // {columns.programs}")
    writer.place(columns, "member")
    writer.place(writer.plan.dims[0], "row")


def values(writer: Writer) -> None:
    """All values. The reductions of a phase take one exchange; everything loaded that differs
    between rows comes before the first one, and all else where it is first needed.
    """
    nest, phase = writer.nest, writer.phase
    folds, known = _folds(nest), set[int]()

    def compute(roots: Iterable[int]) -> None:
        found = loop_nest.needed(nest, roots, frozenset(known))
        for number in found:
            writer.value(number)
        known.update(found)

    compute(number for number, value in enumerate(nest.values) if _is_early(nest, value))
    for step in range(1, max(phase) + 1):
        here = [number for number in folds if phase[number] == step]
        compute(here)
        _exchange(writer, here, step)
    compute(store.value for store in nest.stores)


def _is_early(nest: LoopNest, value: Value) -> bool:
    return value.op in loop_nest.LOADS and any(value.attr[1].strides[: len(nest.outer)])


def _exchange(writer: Writer, folds: list[int], step: int) -> None:
    """Replace the reductions of a piece by those of the row."""
    counters, *partial = _buffers(writer)
    place = dict(zip(_folds(writer.nest), partial, strict=True))
    columns = writer.plan.dims[-1]
    members = columns.programs
    for number in folds:
        writer.body.put(f"tl.store({place[number]} + 0 * r + row * {members} + member, v{number})")
    first = 1 + (step - 1) * writer.nest.rows
    writer.body.put(f"_meet({counters} + {first} + row, {members})")
    block = 1 << (members - 1).bit_length()
    every = f"tl.arange(0, {block})[None, :]"
    for number in folds:
        value = writer.nest.values[number]
        pointer = f"{place[number]} + 0 * r + row * {members} + {every}"
        there = 'cache_modifier=".cg"'
        if block > members:
            there += f", mask={every} < {members}, other={identity(value.attr, value.dtype)}"
        text = fold_of(value.attr, value.dtype).finish.format(x=f"tl.load({pointer}, {there})")
        writer.body.put(f"v{number} = ({text}).to({TYPES[value.dtype][0]})")


def _buffers(writer: Writer) -> list[str]:
    """The counters, and the partial results of each reduction."""
    return list(writer.parameters[-1 - len(_folds(writer.nest)) :])
