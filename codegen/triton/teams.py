"""Teams: the programs that hold one long row together, each a piece of it in registers.

A row that is longer than the registers of a program would be read once per pass. The programs of a
team read it once, hand their partial reductions to each other through memory, and wait for those of
the others. `team` returns the nests of such a kernel, `places` and `values` write its text. Behind
the tensors of the nest is a buffer of words, one per reduction, row and member, which a kernel of
its own sets to zero.

Programs begin in the order of their numbers, as CUB's scans with a look-back rely on too (Merrill,
Garland, "Single-pass parallel prefix scan with decoupled look-back", 2016). So only the last row
that has begun can miss members, and one begins as soon as any program has ended: no row waits for
ever if a device has space for one team (`SHARE`).
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
    """The nests by which teams compute this one: zeros in the words, then the nest itself. None:
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
    own, size = len(nest.buffers), len(folds) * nest.rows * members
    words = Buffer("between", torch.int64, (size,), (1,), True)
    hints = replace(nest.hints, tiling=Tiling(columns=columns, team=True))
    whole = replace(nest, buffers=(*nest.buffers, words), hints=hints)
    zeros = LoopNest(
        f"{nest.name}_zeros", (), (size,), (words,), (Value("const", (), words.dtype, 0),),
        (Store(0, Index((1,)), 0),), nest.covers,
    )  # fmt: skip
    places = ((own,), tuple(range(own + 1)))
    return Split((zeros, whole), (Between(words.dtype, size),), places)


def _folds(nest: LoopNest) -> list[int]:
    return [number for number, value in enumerate(nest.values) if value.op == "reduce"]


def _is_exchanged(fold: Value) -> bool:
    return fold.attr in KINDS and fold.dtype in (torch.float32, torch.int32)


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
    writer.body.put("pid = tl.program_id(0)")
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
        _exchange(writer, here)
    compute(store.value for store in nest.stores)


def _is_early(nest: LoopNest, value: Value) -> bool:
    return value.op in loop_nest.LOADS and any(value.attr[1].strides[: len(nest.outer)])


def _exchange(writer: Writer, folds: list[int]) -> None:
    """Replace the reductions of a piece by those of the row."""
    nest, members = writer.nest, writer.plan.dims[-1].programs
    base = {
        number: f"{writer.parameters[-1]} + {place * nest.rows * members} + 0 * r + row * {members}"
        for place, number in enumerate(_folds(nest))
    }
    for number in folds:
        writer.body.put(f"_tell({base[number]} + member, v{number})")
    every = f"tl.arange(0, {1 << (members - 1).bit_length()})[None, :]"
    for number in folds:
        value = nest.values[number]
        kind = TYPES[value.dtype][0]
        text = f"_hear({base[number]} + {every}, {every} < {members}, {kind})"
        if members & (members - 1):
            text = f"tl.where({every} < {members}, {text}, {identity(value.attr, value.dtype)})"
        writer.body.put(f"v{number} = {fold_of(value.attr, value.dtype).finish.format(x=text)}")
