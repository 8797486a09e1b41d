"""Teams: the programs that hold one long row together, each a piece of it in registers.

A row that is longer than the registers of a program would be read once per pass. The programs of a
team read it once, hand their partial reductions to each other through memory, and wait for those of
the others. `team` returns the nests of such a kernel, `places` and `rows` write its text. Behind
the tensors of the nest is a buffer of words, one per partial result, row and member, which a kernel
of its own sets to zero. The pairs of `codegen.loops.online_reductions` take one exchange: softmax
and layer norm wait once. Elements exp(x - max) are computed about the maximum of the piece first,
and scaled when that of the row is known.

If there are many rows of elements that take few registers, there are as many teams as the device
holds at a time, and each takes rows in turn. It loads its next row into registers before it works
on the current one: otherwise nothing would be loaded while all wait for the exchange.

Programs begin in the order of their numbers, as CUB's scans with a look-back rely on too (Merrill,
Garland, "Single-pass parallel prefix scan with decoupled look-back", 2016). The members of a team
have consecutive numbers, and teams wait for no other team. So only the last team that has begun can
miss members. Every other one has them all, takes its rows to the end, and leaves its space to
programs that have not begun: no team waits for ever if a device has space for one (`SHARE`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ...ir.symbolic.expr import is_symbolic
from ..loops import loop_nest, online_reductions
from ..loops.loop_nest import Buffer, Index, LoopNest, Store, Value
from ..loops.online_reductions import Pair
from . import memory, tiling
from .dialect import TYPES, fold_of, identity
from .split_reduction import Between, Split
from .tiling import Dim

if TYPE_CHECKING:
    from .body import Writer

KINDS = ("sum", "prod", "max", "min")  # reductions whose partial results are of the same kind
TURNS = True  # whether teams take many rows in turn, and load the next one early
SHARE = 4  # a team is at most one program for so many multiprocessors


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
    held = tiling.team_of(nest) if _repeats(nest) else None
    if held is None or not all(_is_exchanged(nest.values[number]) for number in folds):
        return None
    members = held.team
    if members * SHARE > multiprocessors or nest.rows * members < multiprocessors:
        return None
    told = sum(map(len, _told(nest, *_phased(nest)).values()))
    own, size = len(nest.buffers), told * nest.rows * members
    words = Buffer("between", torch.int64, (size,), (1,), True)
    if TURNS and any(_is_ahead(nest, value) for value in nest.values):
        held = tiling.taking_turns(nest, held, multiprocessors)
    hints = replace(nest.hints, tiling=held)
    whole = replace(nest, buffers=(*nest.buffers, words), hints=hints)
    zeros = LoopNest(
        f"{nest.name}_zeros", (), (size,), (words,), (Value("const", (), words.dtype, 0),),
        (Store(0, Index((1,)), 0),), nest.covers,
    )  # fmt: skip
    places = ((own,), tuple(range(own + 1)))
    return Split((zeros, whole), (Between(words.dtype, size),), places)


def _phased(nest: LoopNest) -> tuple[Mapping[int, Pair], tuple[int, ...]]:
    pairs = online_reductions.find(nest)
    return pairs, online_reductions.phases(nest, pairs)


def _told(
    nest: LoopNest, pairs: Mapping[int, Pair], phase: Sequence[int]
) -> dict[int, list[tuple[int, str]]]:
    """For each phase the partial results that its exchange takes: (reduction, "" or "mean"). The
    sum of a pair's elements has their means, if it is there anyway.
    """
    found: dict[int, list[tuple[int, str]]] = {}
    for number in _folds(nest):
        found.setdefault(phase[number], []).append((number, ""))
    for number, pair in pairs.items():
        here = found[phase[number]]
        if pair.what == "squares" and _sum_of(nest, here, pair) is None:
            here.append((number, "mean"))
    return dict(sorted(found.items()))


def _sum_of(nest: LoopNest, told: Sequence[tuple[int, str]], pair: Pair) -> int | None:
    """The sum of the elements of a pair among these partial results."""
    wanted = ("sum", (pair.element,))
    found = (n for n, _what in told if (nest.values[n].attr, nest.values[n].args) == wanted)
    return next(found, None)


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
    _pairs, phase = _phased(nest)
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
    """Declare the variables of a program: its team or its only row, and which member it is."""
    turns = writer.plan.dims[0].shared
    writer.body.put("pid = tl.program_id(0)")
    writer.body.put(f"member = pid % {columns.programs}")
    writer.body.put(f"{'team' if turns else 'row'} = pid // {columns.programs}")
    writer.place(columns, "member")
    if not turns:
        _place_row(writer, "row")


def _place_row(writer: Writer, row: str) -> None:
    """Declare the variables that differ between rows."""
    writer.place(writer.plan.dims[0], row)
    writer.shift()


def rows(writer: Writer) -> None:
    """The values and stores of a program's row, or of all rows of its team."""
    dim, body, nest = writer.plan.dims[0], writer.body, writer.nest
    if not dim.shared:
        _values(writer, {})
        writer.stores(nest.stores)
        return
    ahead = [number for number, value in enumerate(nest.values) if _is_ahead(nest, value)]

    def load(row: str) -> None:
        _place_row(writer, row)
        for number in ahead:
            body.put(f"h{number} = {memory.load(writer, nest.values[number])}")

    load("team")
    with body.block(f"for row in range(team, {dim.extent}, {dim.shared}):"):
        held = {number: f"g{number}" for number in ahead}
        for number, name in held.items():
            body.put(f"{name} = h{number}")
        # After a team's last row it loads that of all rows, which needs no mask.
        body.put(f"ahead = tl.minimum(row + {dim.shared}, {dim.extent - 1})")
        load("ahead")
        _place_row(writer, "row")
        _values(writer, held)
        writer.stores(nest.stores)


def _is_ahead(nest: LoopNest, value: Value) -> bool:
    """Whether a load of a row needs nothing but the row's number."""
    return value.op == "load" and not value.args and _is_early(nest, value)


def _values(writer: Writer, held: Mapping[int, str]) -> None:
    """All values of a row. The reductions of a phase take one exchange; everything loaded that
    differs between rows comes before the first one, and all else where it is first needed.
    `held`: the names of what has been loaded.
    """
    nest, pairs, known = writer.nest, writer.pairs, set(held)
    for number, name in held.items():
        writer.body.put(f"v{number} = {name}")

    def compute(roots: Iterable[int]) -> None:
        found = loop_nest.needed(nest, roots, frozenset(known))
        for number in _by_use(nest, found):
            writer.value(number)
        known.update(found)

    compute(number for number, value in enumerate(nest.values) if _is_early(nest, value))
    base = 0
    for told in _told(nest, pairs, writer.phase).values():
        plain = [n for n, what in told if not what and n not in pairs]
        seconds = [pairs[n] for n, what in told if not what and n in pairs]
        compute(plain)
        compute(pair.element for pair in seconds)
        for pair in seconds:
            _piece_of(writer, pair, _sum_of(nest, told, pair))
        _exchange(writer, told, base)
        base += len(told) * nest.rows * writer.plan.dims[-1].programs
        for number in plain:
            value = nest.values[number]
            text = fold_of(value.attr, value.dtype).finish.format(x=f"w{number}")
            writer.body.put(f"v{number} = {text}")
        for pair in seconds:
            compute([pair.shift])
            _row_of(writer, pair, _sum_of(nest, told, pair))
            known.add(pair.number)
            for power in set(_power(writer, pair)) - known:
                writer.body.put(f"v{power} = v{power} * _exp_scale(t{pair.number}, v{pair.shift})")
                known.add(power)
    compute(store.value for store in nest.stores)


def _by_use(nest: LoopNest, numbers: Sequence[int]) -> list[int]:
    """These values in an order in which each load, with its cast, comes right before its first use:
    a load fills registers from there on.
    """
    values, found, late = nest.values, list[int](), set[int]()
    used = {arg for number in numbers for arg in values[number].args}
    for number in numbers:
        cast = values[number].op == "cast" and late.issuperset(values[number].args)
        if number in used and (cast or values[number].op in loop_nest.LOADS):
            late.add(number)

    def take(number: int) -> None:
        for arg in sorted(late.intersection(values[number].args)):
            late.discard(arg)
            take(arg)
        found.append(number)

    for number in numbers:
        if number not in late:
            take(number)
    return found


def _is_early(nest: LoopNest, value: Value) -> bool:
    return value.op in loop_nest.LOADS and any(value.attr[1].strides[: len(nest.outer)])


def _power(writer: Writer, pair: Pair) -> tuple[int, ...]:
    """The elements exp(x - shift) of a pair."""
    return writer.nest.values[pair.number].args if pair.what == "exp" else ()


def _piece_of(writer: Writer, pair: Pair, total: int | None) -> None:
    """The second reduction of a pair in a piece, about the piece's own maximum or mean. `total`: a
    reduction that is the sum of its elements.
    """
    number, put, columns = pair.number, writer.body.put, writer.plan.dims[-1]
    if pair.what == "exp":
        put(f"t{number} = v{pair.first}")
        # Powers after the end of the row are 0: the sum needs no mask of its own, which would take
        # registers meanwhile.
        kept = f"v{pair.element}"
        kept = f'tl.where(c_mask, {kept}, float("-inf"))' if columns.masked else kept
        for power in _power(writer, pair):
            put(f"v{power} = libdevice.exp({kept} - _exp_about(t{number}))")
            put(f"v{number} = tl.sum(v{power}, 1, keep_dims=True)")
        return
    whole = f"v{pair.element}"
    kept = f"tl.where(c_mask, {whole}, 0.0)" if columns.masked else whole
    put(f"n{number} = {_held(columns, 'member')}")
    text = f"tl.sum({kept}, 1, keep_dims=True)" if total is None else f"v{total}"
    put(f"m{number} = tl.div_rn({text}, tl.maximum(n{number}, 1).to(tl.float32))")
    put(f"a{number} = {whole} - m{number}")
    square = f"a{number} * a{number}"
    kept = f"tl.where(c_mask, {square}, 0.0)" if columns.masked else square
    put(f"v{number} = tl.sum({kept}, 1, keep_dims=True)")


def _row_of(writer: Writer, pair: Pair, total: int | None) -> None:
    """The second reduction of a pair in the row, about the shift, which is known now. `total` as in
    `_piece_of`.
    """
    number, put = pair.number, writer.body.put
    if pair.what == "exp":
        known = f"w{pair.first}, w{number}, v{pair.first}, v{pair.shift}"
        put(f"v{number} = _exp_out({known})")
        return
    columns = writer.plan.dims[-1]
    put(f"n{number} = ({_held(columns, _members(columns))}).to(tl.float32)")
    if total is not None:
        put(f"u{number} = tl.div_rn(w{total}, tl.maximum(n{number}, 1.0))")
    put(f"v{number} = _squares_out(u{number}, w{number}, n{number}, v{pair.shift})")


def _held(columns: Dim, member: str) -> str:
    """How many elements of a row a member holds. The first one of a row that starts inside a group
    lacks some, and the last one may have none (`alignment`).
    """
    first = f"{member} * {columns.constant}"
    if not columns.shift:
        left = f"{columns.extent} - {first}"
        return f"tl.maximum(tl.minimum({columns.constant}, {left}), 0)"
    first = f"{first} - {columns.name}_shift"
    end = f"tl.minimum({first} + {columns.constant}, {columns.extent})"
    return f"tl.maximum({end} - tl.maximum({first}, 0), 0)"


def _members(columns: Dim) -> str:
    return f"tl.arange(0, {_block(columns.programs)})[None, :]"


def _block(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _exchange(writer: Writer, told: list[tuple[int, str]], base: int) -> None:
    """Hand partial results to the other members, and wait for theirs: w{reduction} has them all,
    u{reduction} their means.
    """
    columns, put = writer.plan.dims[-1], writer.body.put
    count, members, every = len(told), columns.programs, _members(columns)
    place = f"{writer.parameters[-1]} + {base} + row * {count * members}"
    for step, (number, what) in enumerate(told):
        mine = f"{place} + {step * members} + 0 * r + member"
        put(f"_tell({mine}, {'m' if what else 'v'}{number})")
    there = f"{every} < {members}"
    at = [f"{place} + {step * members} + 0 * r + {every}" for step in range(count)]
    for step in range(0, count - 1, 2):
        put(f"x{step}, x{step + 1} = _hear_two({at[step]}, {at[step + 1]}, {there})")
    if count % 2:
        put(f"x{count - 1} = _hear({at[-1]}, {there})")
    for step, (number, what) in enumerate(told):
        value = writer.nest.values[number]
        text = f"x{step}.to({TYPES[value.dtype][0]}, bitcast=True)"
        if _block(members) > members:
            text = f"tl.where({there}, {text}, {identity(value.attr, value.dtype)})"
        put(f"{'u' if what else 'w'}{number} = {text}")
