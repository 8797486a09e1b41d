"""Reductions in Triton text: a tile reduced to one value per row, and long rows walked in blocks.

`fold` writes a reduction of a row that a tile holds as a whole. `walk` writes the passes over a row
that is longer than its tile: one loop over blocks of columns per phase.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch

from ..loops import loop_nest, online_reductions
from ..loops.online_reductions import Pair
from . import memory
from .dialect import COMBINE, TYPES, fold_of, identity
from .tiling import Dim, Plan

if TYPE_CHECKING:
    from .body import Writer


def fold(writer: Writer, number: int) -> None:
    """One value per row of a tile that holds the row."""
    value = writer.nest.values[number]
    tile = f"v{value.args[0]}"
    full = {"r", "c"} if value.attr in loop_nest.PLACES else {"c"}
    if not full <= writer.along[value.args[0]]:
        tile = f"tl.broadcast_to({tile}, {writer.plan.shape})"
    dtype = writer.nest.values[value.args[0]].dtype
    _finish(writer, number, _masked(writer, value.attr, dtype, tile), _column_numbers(writer))


def paired(plan: Plan) -> dict[int, Pair]:
    """The pairs of reductions that one pass over a row computes. Lanes count their elements in
    blocks, which is only possible if the blocks are those of one axis.
    """
    found = online_reductions.find(plan.nest)
    return {n: one for n, one in found.items() if one.what == "exp" or plan.around is None}


def walk(writer: Writer, columns: Dim) -> None:
    """A loop over blocks of columns for each phase."""
    for step in range(max(writer.phase, default=0) + 1):
        _pass(writer, columns, step)


def scan(writer: Writer, number: int) -> None:
    """The reduction up to each element of a tile. In a walk over blocks, `acc` holds that of all
    blocks before.
    """
    value = writer.nest.values[number]
    kind = loop_nest.SCANS[value.attr]
    combine, acc = COMBINE[kind], f"acc{number}"
    columns = writer.plan.dims[-1]
    tile = f"v{value.args[0]}"
    if "c" not in writer.along[value.args[0]]:
        tile = f"tl.broadcast_to({tile}, {writer.plan.shape})"
    if columns.block == 1:
        if columns.looped:
            writer.body.put(f"{acc} = {combine}({acc}, {tile})")
        writer.body.put(f"v{number} = {acc if columns.looped else tile}")
        return
    writer.body.put(f"x{number} = {_masked(writer, kind, value.dtype, tile)}")
    found = f"tl.associative_scan(x{number}, 1, {combine})"
    if not columns.looped:
        writer.body.put(f"v{number} = {found}")
        return
    writer.body.put(f"v{number} = {combine}({acc}, {found})")
    whole = f"tl.reduce(x{number}, 1, {combine}, keep_dims=True)"
    writer.body.put(f"{acc} = {combine}({acc}, {whole})")


def _masked(writer: Writer, kind: str, dtype: torch.dtype, tile: str) -> str:
    """A reduction's argument with the identity after the end of the row."""
    if not writer.plan.dims[-1].masked:
        return tile
    if kind == "any":
        return f"({tile} & c_mask)"
    if kind == "all":
        return f"({tile} | ~c_mask)"
    neutral = identity(kind, dtype)
    return f"tl.where(c_mask, {tile}, {neutral})"


def _column_numbers(writer: Writer) -> str:
    kind = ".to(tl.int64)" if writer.plan.wide else ""
    before = ""
    if writer.plan.around is not None:
        before = f"k * {writer.numbers.text(writer.plan.dims[-1].extent)} + "
    return f"tl.broadcast_to({before}c{kind}, {writer.plan.shape})"


def _finish(writer: Writer, number: int, tile: str, position: str) -> None:
    """Reduce a tile to one value per row."""
    value = writer.nest.values[number]
    fold = fold_of(value.attr, writer.nest.values[value.args[0]].dtype)
    kind = TYPES[value.dtype][0]
    if value.attr in loop_nest.PLACES:
        pair = fold.finish.format(x=f"({tile}, {position})")
        writer.body.put(f"w{number}, v{number} = {pair}")
        writer.body.put(f"v{number} = v{number}.to({kind})")
        return
    text = fold.finish.format(x=tile)
    narrow = value.dtype in (torch.int8, torch.int16, torch.uint8)  # tl.sum and tl.max widen these
    writer.body.put(f"v{number} = ({text}).to({kind})" if narrow else f"v{number} = {text}")


def _pass(writer: Writer, columns: Dim, step: int) -> None:
    """Row values of this phase, then one pass over the row: reductions of the next phase,
    and stores.
    """
    values = writer.nest.values
    rows = frozenset(n for n in range(len(values)) if not writer.level[n])
    for number in sorted(rows):
        if writer.phase[number] == step:
            if number in writer.pairs:
                _moved_to(writer, columns, writer.pairs[number])
            elif values[number].op != "reduce":
                writer.value(number)
    folds = [n for n in rows if values[n].op == "reduce" and writer.phase[n] == step + 1]
    stores = [s for s in writer.nest.stores if writer.phase[s.value] == step]
    along = [s for s in stores if writer.level[s.value] or writer.nest.moves_inner(s.index)]
    for store in stores:
        if store not in along:
            writer.body.put(memory.store(writer, store))
    if not folds and not along:
        return
    folds.sort()
    seconds = [writer.pairs[n] for n in folds if n in writer.pairs]
    folds = [n for n in folds if n not in writer.pairs]
    roots = [values[n].args[0] for n in folds] + [store.value for store in along]
    roots += [pair.element for pair in seconds]
    inside = loop_nest.needed(writer.nest, roots, rows)
    for number in folds:
        _accumulator(writer, number)
    for pair in seconds:
        _about_nothing(writer, pair)
    for number in inside:
        if values[number].op == "scan":
            _before(writer, number)
    around = writer.plan.around
    with ExitStack() as loops:
        if around is not None:
            head = f"for outside in range(0, {writer.numbers.text(around.extent)}):"
            loops.enter_context(writer.body.block(head))
            writer.place(around, "outside")
        end = writer.numbers.text(columns.reach)
        head = f"for start in range(0, {end}, {columns.constant}):"
        loops.enter_context(writer.body.block(head))
        writer.place(columns, "start")
        for number in inside:
            writer.value(number)
        for pair in seconds:  # before the other reductions, whose accumulators they read
            _about_so_far(writer, pair)
        for number in folds:
            _fold_in(writer, number)
        writer.stores(along)
    for number in folds:
        _finish(writer, number, f"acc{number}", f"at{number}")


def _accumulator(writer: Writer, number: int) -> None:
    value = writer.nest.values[number]
    start = identity(value.attr, writer.nest.values[value.args[0]].dtype)
    kind = TYPES[writer.nest.values[value.args[0]].dtype][0]
    writer.body.put(f"acc{number} = tl.full({writer.plan.shape}, {start}, {kind})")
    # greater than all positions: an equal value in the row comes first
    if value.attr in loop_nest.PLACES:
        whole, beyond = ("int64", 2**63 - 1) if writer.plan.wide else ("int32", 2**31 - 1)
        writer.body.put(f"at{number} = tl.full({writer.plan.shape}, {beyond}, tl.{whole})")


def _before(writer: Writer, number: int) -> None:
    """The start of a scan in a row."""
    value = writer.nest.values[number]
    start = identity(loop_nest.SCANS[value.attr], value.dtype)
    shape = f"({writer.plan.dims[-2].constant}, 1)"
    writer.body.put(f"acc{number} = tl.full({shape}, {start}, {TYPES[value.dtype][0]})")


def _fold_in(writer: Writer, number: int) -> None:
    value = writer.nest.values[number]
    argument = value.args[0]
    dtype = writer.nest.values[argument].dtype
    tile = _masked(writer, value.attr, dtype, f"v{argument}")
    fold = fold_of(value.attr, dtype)
    acc, at = f"acc{number}", f"at{number}"
    step = fold.step.format(acc=acc, position=at, x=tile, c=_column_numbers(writer))
    target = f"{acc}, {at}" if value.attr in loop_nest.PLACES else acc
    writer.body.put(f"{target} = {step}")


# --- the second reductions of pairs, relative to the state of the first ones ---


def _about_nothing(writer: Writer, pair: Pair) -> None:
    kind, shape = TYPES[writer.nest.values[pair.number].dtype][0], writer.plan.shape
    writer.body.put(f"acc{pair.number} = tl.full({shape}, 0.0, {kind})")
    if pair.what == "squares":  # means of lanes, and the number of blocks in them
        writer.body.put(f"u{pair.number} = tl.full({shape}, 0.0, {kind})")
        writer.body.put(f"k{pair.number} = tl.full((), 0.0, {kind})")


def _about_so_far(writer: Writer, pair: Pair) -> None:
    """Add a block's elements, each to its lane's sum."""
    number, tile = pair.number, f"v{pair.element}"
    if pair.what == "exp":
        tile = _masked(writer, "max", writer.nest.values[pair.element].dtype, tile)
        writer.body.put(f"acc{number} = _exp_in(acc{pair.first}, acc{number}, {tile})")
        return
    writer.body.put(f"k{number} += 1.0")
    old, new = f"u{number}, acc{number}", f"m{number}, s{number}"
    step = f"_squares_in({old}, {tile}, k{number})"
    if not writer.plan.dims[-1].masked:
        writer.body.put(f"{old} = {step}")
        return
    writer.body.put(f"{new} = {step}")
    writer.body.put(f"u{number} = tl.where(c_mask, m{number}, u{number})")
    writer.body.put(f"acc{number} = tl.where(c_mask, s{number}, acc{number})")


def _moved_to(writer: Writer, columns: Dim, pair: Pair) -> None:
    """The sum relative to the shift, which is known now, from the sums of all lanes."""
    number = pair.number
    if pair.what == "exp":
        rows = f"v{pair.first}, v{pair.shift}"
        text = f"_exp_out(acc{pair.first}, acc{number}, {rows})"
    else:
        lanes = f"tl.arange(0, {columns.constant}){columns.view}"
        last = f"{writer.numbers.text(columns.extent)} - 1 - {lanes} + {columns.constant}"
        kind = TYPES[writer.nest.values[number].dtype][0]
        writer.body.put(f"h{number} = (({last}) // {columns.constant}).to({kind})")
        text = f"_squares_out(u{number}, acc{number}, h{number}, v{pair.shift})"
    writer.body.put(f"v{number} = {text}")
