"""Split reductions: a nest of few long rows becomes several nests, which reduce parts of the rows
and then the results of the parts.

`split` returns plain nests in order: for each phase "part" (its rows are parts of rows; it stores
partial results) and "whole" (it reduces those and stores row values), and last "rest", the elements
that need them. A GPU runs as many programs as a nest has rows to share; the planner calls this if
they would leave the GPU idle. Sums and extremes have partial results of their own kind; argmax has
a pair (value, position); the pairs of `codegen.loops.online_reductions` have partial sums relative
to a value of their part. So softmax takes three nests, and a variance or a cross-entropy of one row
two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.layout import contiguous_strides
from ...ir.symbolic.expr import is_symbolic
from ..loops import axis_order, loop_nest, online_reductions
from ..loops.loop_nest import REDUCTIONS, Buffer, Index, LoopNest, Store, Value
from ..loops.values import Values
from .arguments import DIVISOR
from .tiling import THREADS, WARP, plan_of

LONG = 8192  # row length from which on one program should not reduce a row alone
MUCH = 65536  # elements that one program should not read alone
SHORT = 1024  # the fewest elements of a part
ROUNDS = 4  # programs of the first nest per multiprocessor
ACROSS_MUCH = 8192  # as MUCH, where the elements of a row are not contiguous
ACROSS_SHORT = 128  # as SHORT, there: rows side by side make the programs wide


@dataclass(frozen=True, slots=True)
class Between:
    """A buffer that one nest writes and later ones read: `size` contiguous elements."""

    dtype: torch.dtype
    size: int


@dataclass(frozen=True, slots=True)
class Split:
    """The result of `split`. `nests`: in order. `places`: for each nest the numbers of its buffers:
    those of the nest that was split, followed by those of `between`.
    """

    nests: tuple[LoopNest, ...]
    between: tuple[Between, ...]
    places: tuple[tuple[int, ...], ...]


def split(nest: LoopNest, multiprocessors: int, longest: int = LONG) -> Split | None:
    """The nests that replace this one if its programs are too few and do too much each,
    else None.
    """
    sizes = [
        nest.outer,
        nest.inner,
        *((index.strides, index.offset) for index in loop_nest.indices(nest)),
    ]
    folds = any(value.op == "reduce" for value in nest.values)
    if not folds or is_symbolic(sizes) or nest.tiled is not None or nest.may_fail:
        return None
    if any(value.op == "scan" for value in nest.values) or nest.scatters or nest.folds_across:
        return None
    nest = loop_nest.collapse(nest)
    plan = plan_of(nest)
    programs, threads = plan.programs, plan.programs * plan.warps * WARP
    much = nest.rows * nest.columns // max(1, programs)
    if plan.across:  # programs of few warps: only threads say whether they fill the device
        if threads >= THREADS * multiprocessors or much <= ACROSS_MUCH * longest // LONG:
            return None
        wanted = -(-ROUNDS * THREADS * multiprocessors // threads)
        shortest = max(1, ACROSS_SHORT * longest // LONG)
    else:
        short = nest.columns <= longest and much <= MUCH * longest // LONG
        if programs >= 2 * multiprocessors or short:
            return None
        wanted = -(-ROUNDS * multiprocessors // programs)
        shortest = SHORT * longest // LONG
    parts = _parts(nest, wanted, shortest)
    return None if parts is None else _Splitter(nest, parts).split()


@dataclass(frozen=True, slots=True)
class Parts:
    """How the reduced axes are cut: the first `whole` axes and the `pieces` of the next axis number
    the parts; each piece has `length` elements.
    """

    whole: int
    pieces: int
    length: int
    uneven: bool

    def outer(self, inner: tuple[int, ...]) -> tuple[int, ...]:
        return (*inner[: self.whole], self.pieces)

    def inner(self, inner: tuple[int, ...]) -> tuple[int, ...]:
        return (self.length, *inner[self.whole + 1 :])


def _parts(nest: LoopNest, wanted: int, shortest: int) -> Parts | None:
    """Parts of equal length, if a number near the wanted one allows them."""
    wanted = min(wanted, nest.columns // max(1, shortest))
    if wanted < 2:
        return None
    whole, count = 0, 1
    while whole + 1 < len(nest.inner) and count * nest.inner[whole] <= wanted:
        count *= nest.inner[whole]
        whole += 1
    size = nest.inner[whole]
    pieces = min(size, max(1, wanted // count))
    if count * pieces < 2:
        return None
    fewest = max(1 if count > 1 else 2, pieces // 2)
    near = [n for n in range(fewest, min(size, 2 * pieces) + 1) if size % n == 0]
    if near:
        pieces = min(near, key=lambda n: ((size // n) % DIVISOR != 0, abs(n - pieces)))
        return Parts(whole, pieces, size // pieces, False)
    length = -(-size // pieces)
    if length >= 4 * DIVISOR:  # parts begin at addresses where wide loads are possible
        length = -(-length // DIVISOR) * DIVISOR
    return Parts(whole, -(-size // length), length, True)


class _Splitter:
    def __init__(self, nest: LoopNest, parts: Parts) -> None:
        self.nest, self.parts = nest, parts
        self.level = loop_nest.levels(nest)
        self.pairs = online_reductions.find(nest)
        self.phase = online_reductions.phases(nest, self.pairs)
        self.between: list[Between] = []
        # a value of the row -> the buffer that holds it for later nests
        self.rows: dict[int, int] = {}
        self.counts = parts.outer(nest.inner)
        folded = (n for n, phase in enumerate(self.phase) if phase and not self.level[n])
        self.known = frozenset(folded)  # values of the row that depend on a reduction

    def split(self) -> Split | None:
        nest, last = self.nest, max(self.phase)
        along = [s for s in nest.stores if self.level[s.value] or nest.moves_inner(s.index)]
        early = [s for s in along if not self.phase[s.value] and self.level[s.value]]
        if self.parts.uneven or any(buffer.shared for buffer in nest.buffers):
            early = []  # stores over an operand must be the last ones
        rest = [store for store in along if store not in early]
        of_rows = [store for store in nest.stores if store not in along]
        if rest and any(nest.buffers[store.buffer].shared for store in of_rows):
            return None
        made = [self._rest(rest)] if rest else []
        for phase in range(last, 0, -1):
            stores = [s for s in of_rows if max(1, self.phase[s.value]) == phase]
            partial = self._places_of_partials(phase)
            made.append(self._whole(phase, stores, partial))
            made.append(self._part(phase, early if phase == 1 else [], partial))
        nests = [one.nest() for one in reversed(made)]
        places = tuple(tuple(one.places) for one in reversed(made))
        return Split(tuple(nests), tuple(self.between), places)

    # --- buffers between nests ---

    def new(self, dtype: torch.dtype, size: int) -> int:
        self.between.append(Between(dtype, size))
        return len(self.nest.buffers) + len(self.between) - 1

    def row_buffer(self, number: int) -> int:
        """The buffer in which later nests find a value of the row."""
        if number not in self.rows:
            self.rows[number] = self.new(self.nest.values[number].dtype, self.nest.rows)
        return self.rows[number]

    def folds(self, phase: int) -> list[int]:
        values = self.nest.values
        return [n for n, v in enumerate(values) if v.op == "reduce" and self.phase[n] == phase]

    def partials(self, number: int) -> list[tuple[str, int]]:
        """The partial results, (name, of which element or reduction), from which a reduction is
        computed.
        """
        value, pair = self.nest.values[number], self.pairs.get(number)
        if pair is not None and pair.what == "exp":
            return [("max", pair.element), ("exp", number)]
        if pair is not None:
            return [("sum", pair.element), ("squares", number)]
        if value.attr in loop_nest.PLACES:
            return [(value.attr[3:], value.args[0]), (value.attr, value.args[0])]
        return [(value.attr, value.args[0])]

    def _places_of_partials(self, phase: int) -> dict[tuple[str, int], int]:
        size = math.prod(self.counts) * self.nest.rows
        found: dict[tuple[str, int], int] = {}
        for number in self.folds(phase):
            for key in self.partials(number):
                if key not in found:
                    dtype = self.nest.values[key[1]].dtype
                    dtype = torch.int64 if key[0].startswith("arg") else dtype
                    found[key] = self.new(dtype, size)
        return found

    # --- the nests ---

    def _rest(self, stores: list[Store]) -> _Nest:
        """The elements that need reduced values."""
        made = _Nest(self, "rest", (), self.nest.outer + self.nest.inner, 0)
        made.copy([store.value for store in stores])
        for store in stores:
            made.store(store.buffer, store.index, made.get(store.value))
        return made

    def _whole(self, phase: int, stores: list[Store], partial: dict[tuple[str, int], int]) -> _Nest:
        """The reductions of the partial results, and the row values that follow from them."""
        outer = self.nest.outer
        made = _Nest(self, "whole", outer, self.counts, 0)
        wanted = [number for number in self.rows if self.phase[number] == phase]
        folds = frozenset(self.folds(phase))
        queue, needed = [*wanted, *(store.value for store in stores)], set()
        while queue:
            number = queue.pop()
            if number not in needed and self.phase[number] in (0, phase):
                needed.add(number)
                pair = self.pairs.get(number)
                shift = () if pair is None else (pair.shift,)
                queue += shift if number in folds else self.nest.values[number].args
        for number in sorted(needed):
            if number in folds:
                made.numbers[number] = _combined(made, number, partial)
            else:
                made.copied(number)
        for number in wanted:
            made.store(self.rows[number], made.row_index(), made.get(number))
        for store in stores:
            strides = store.index.strides[: len(outer)] + (0,) * len(self.counts)
            made.store(store.buffer, replace(store.index, strides=strides), made.get(store.value))
        return made

    def _part(self, phase: int, stores: list[Store], partial: dict[tuple[str, int], int]) -> _Nest:
        """Partial results, one row per part of a row."""
        outer = (*self.counts, *self.nest.outer)
        inner = self.parts.inner(self.nest.inner)
        made = _Nest(self, "part", outer, inner, len(self.counts), cut=True)
        for (kind, number), place in partial.items():
            made.store(place, made.part_index(), _partial(made, kind, number))
        made.copy([store.value for store in stores])
        for store in stores:
            made.store(store.buffer, made.moved(store.index), made.get(store.value))
        return made


class _Nest(Values):
    """A nest that is made of values of the split nest. `rows_at`: its first axis that counts rows;
    `cut`: its rows are parts.
    """

    def __init__(
        self,
        owner: _Splitter,
        suffix: str,
        outer: tuple[int, ...],
        inner: tuple[int, ...],
        rows_at: int,
        cut: bool = False,
    ) -> None:
        self.owner, self.suffix = owner, suffix
        self.outer, self.inner, self.rows_at, self.cut = outer, inner, rows_at, cut
        super().__init__()
        self.numbers: dict[int, int] = {}  # a value of the split nest -> its number here
        self.guarded: dict[tuple[int, str], int] = {}
        self.buffers: list[Buffer] = []
        self.places: list[int] = []
        self.stores: list[Store] = []
        self.inside = self._inside() if cut and owner.parts.uneven else None

    def nest(self) -> LoopNest:
        nest = self.owner.nest
        found = LoopNest(
            f"{nest.name}_{self.suffix}", self.outer, self.inner, tuple(self.buffers),
            tuple(self.values), tuple(self.stores), nest.covers,
        )  # fmt: skip
        return found if self.outer or self.cut else _as_stored(found)

    # --- axes and buffers ---

    def moved(self, index: Index) -> Index:
        """An index of the split nest, over the axes of this one."""
        n_outer, parts = len(self.owner.nest.outer), self.owner.parts
        rows, along = index.strides[:n_outer], index.strides[n_outer:]
        if self.cut:
            piece = along[parts.whole]
            counts = (*along[: parts.whole], piece * parts.length)
            return Index((*counts, *rows, *along[parts.whole :]), index.offset)
        rest = along if self.suffix == "rest" else (0,) * len(self.inner)
        return Index((*rows, *rest), index.offset)

    def index(self, first: int, strides: tuple[int, ...]) -> Index:
        after = len(self.outer) + len(self.inner) - first - len(strides)
        return Index((0,) * first + strides + (0,) * after)

    def row_index(self) -> Index:
        return self.index(self.rows_at, contiguous_strides(self.owner.nest.outer))

    def part_index(self) -> Index:
        """The index of a partial result: rows are contiguous."""
        counts, rows = self.owner.counts, self.owner.nest.outer
        strides = contiguous_strides((*counts, *rows))
        if self.cut:
            return self.index(0, strides)
        return Index((*strides[len(counts) :], *strides[: len(counts)]))

    def buffer(self, place: int, written: bool = False) -> int:
        if place not in self.places:
            known = self.owner.nest.buffers
            if place < len(known):
                self.buffers.append(known[place])
            else:
                one = self.owner.between[place - len(known)]
                name = f"between{place - len(known)}"
                self.buffers.append(Buffer(name, one.dtype, (one.size,), (1,), written))
            self.places.append(place)
        return self.places.index(place)

    def store(self, place: int, index: Index, value: int) -> None:
        self.stores.append(Store(self.buffer(place, True), index, value))

    # --- values ---

    def add(self, value: Value) -> int:
        if value.op == "reduce" and value in self.values:
            return self.values.index(value)
        self.values.append(value)
        return len(self.values) - 1

    def load(self, place: int, index: Index) -> int:
        buffer = self.buffer(place)
        return self.add(Value("load", (), self.buffers[buffer].dtype, (buffer, index)))

    def get(self, number: int) -> int:
        """The value; a value of the row that earlier nests computed is loaded."""
        if number not in self.numbers:
            place = self.owner.row_buffer(number)
            self.numbers[number] = self.load(place, self.row_index())
        return self.numbers[number]

    def copy(self, roots: Iterable[int]) -> None:
        """Copy these values and those that they need, down to the values that earlier
        nests computed.
        """
        known = self.owner.known
        for number in loop_nest.needed(self.owner.nest, roots, known):
            self.copied(number)

    def copied(self, number: int) -> None:
        if number in self.numbers:
            return
        value = self.owner.nest.values[number]
        args = tuple(self.get(arg) for arg in value.args)
        value = replace(loop_nest.with_indices(value, self.moved), args=args)
        if value.op in loop_nest.LOADS:
            buffer, index = value.attr
            value = replace(value, attr=(self.buffer(buffer), index))
            if self.inside is not None and index.strides[self._piece()]:
                value = self._load_if(value)
        self.numbers[number] = self.add(value)

    def _load_if(self, value: Value) -> Value:
        """A load of an element that may be after the end of the row."""
        assert self.inside is not None
        if value.op == "load_if":
            both = self.apply("and", self.inside, value.args[0])
            return replace(value, args=(both, *value.args[1:]))
        other = self.const(0, value.dtype)
        return replace(value, op="load_if", args=(self.inside, other, *value.args))

    def _piece(self) -> int:
        """The first axis along a part."""
        return len(self.outer)

    def _inside(self) -> int:
        parts = self.owner.parts
        strides = [0] * (len(self.outer) + len(self.inner))
        strides[parts.whole], strides[self._piece()] = parts.length, 1
        form = (Index(tuple(strides)), 0, self.owner.nest.inner[parts.whole])
        return self.add(Value("inside", (), torch.bool, (form,)))

    def kept(self, value: int, kind: str) -> int:
        """The value where the row has an element, elsewhere the identity of a reduction of
        this kind.
        """
        if self.inside is None:
            return value
        if (value, kind) not in self.guarded:
            dtype = self.dtype(value)
            other = self.const(REDUCTIONS[kind].start(dtype), dtype)
            self.guarded[value, kind] = self.apply("where", self.inside, value, other)
        return self.guarded[value, kind]

    def reduce(self, kind: str, number: int, dtype: torch.dtype | None = None) -> int:
        return super().reduce(kind, self.kept(number, kind), dtype)

    def count(self, dtype: torch.dtype) -> int:
        """The number of elements of a part."""
        parts, inner = self.owner.parts, self.owner.nest.inner
        rest = math.prod(inner[parts.whole + 1 :])
        if not parts.uneven:
            return self.const(float(parts.length * rest), dtype)
        first = 0 if self.cut else len(self.outer)
        strides = [0] * (len(self.outer) + len(self.inner))
        strides[first + parts.whole] = -parts.length * rest
        form = Index(tuple(strides), inner[parts.whole] * rest)
        left = self.add(Value("index", (), torch.int64, form))
        most = self.const(parts.length * rest, torch.int64)
        return self.cast(self.apply("minimum", left, most), dtype)


def _partial(made: _Nest, kind: str, number: int) -> int:
    """The partial result for a part of a row: `number` is the element, or the second reduction of a
    pair.
    """
    owner = made.owner
    pair = owner.pairs.get(number)
    element = number if pair is None or kind not in ("exp", "squares") else pair.element
    made.copy([element])
    value = made.get(element)
    if kind in loop_nest.PLACES:
        parts, inner = owner.parts, owner.nest.inner
        strides = contiguous_strides(inner)[: parts.whole + 1]
        strides = (*strides[:-1], strides[-1] * parts.length)
        first = made.add(Value("index", (), torch.int64, made.index(0, strides)))
        return made.apply("add", made.reduce(kind, value, torch.int64), first)
    if kind == "exp":
        away = made.apply("sub", value, _finite(made, made.reduce("max", value)))
        return made.reduce("sum", made.apply("exp", away))
    if kind == "squares":
        total = made.reduce("sum", value)
        mean = made.apply("div", total, made.count(made.dtype(value)))
        away = made.apply("sub", value, mean)
        return made.reduce("sum", made.apply("mul", away, away))
    return made.reduce(kind, value)


def _finite(made: _Nest, top: int) -> int:
    zero = made.const(0.0, made.dtype(top))
    return made.apply("where", made.apply("isinf", top), zero, top)


def _combined(made: _Nest, number: int, partial: dict[tuple[str, int], int]) -> int:
    """A reduction of the row, from the partial results of its parts."""
    owner = made.owner
    value, pair = owner.nest.values[number], owner.pairs.get(number)
    keys = owner.partials(number)
    loaded = [made.load(partial[key], made.part_index()) for key in keys]
    if pair is not None and pair.what == "exp":
        top, total = loaded
        shift = made.get(pair.shift)
        scale = made.apply("exp", made.apply("sub", _finite(made, top), shift))
        direct = made.apply("exp", made.apply("sub", top, shift))  # 0, infinity or nan
        scaled = made.apply("mul", total, scale)
        return made.reduce("sum", made.apply("where", made.apply("isinf", top), direct, scaled))
    if pair is not None:
        total, squares = loaded
        count = made.count(value.dtype)
        gap = made.apply("sub", made.apply("div", total, count), made.get(pair.shift))
        moved = made.apply("mul", count, made.apply("mul", gap, gap))
        return made.reduce("sum", made.apply("add", squares, moved))
    if value.attr in loop_nest.PLACES:
        found, place = loaded
        best = made.reduce(value.attr[3:], found)
        taken = made.apply("eq", found, best)
        if made.dtype(found).is_floating_point:
            taken = made.apply("or", taken, made.apply("isnan", found))
        beyond = made.const(torch.iinfo(torch.int64).max, torch.int64)
        return made.reduce("min", made.apply("where", taken, place, beyond))
    return made.reduce(value.attr, loaded[0])


def _as_stored(nest: LoopNest) -> LoopNest:
    """A nest without reductions, with its axes in the order of its stores."""
    steps = nest.stores[0].index.strides
    return axis_order.permuted(nest, sorted(range(len(steps)), key=lambda axis: -abs(steps[axis])))
