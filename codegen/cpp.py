"""The C++ renderer: loop nests -> one translation unit without any #include.

A kernel is `extern "C" void name(void **buffers, int threads)`. Values are vectors of W lanes along one axis
(see `_Plan`): the last inner axis as a rule, the last outer axis where that is the contiguous one or where rows
are short. The loops over what remains, the passes over a row (one a phase), accumulators, tails and the
OpenMP pragma are made here; expressions come from `expr` with the dialect of `cpp_dialect`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from . import expr, loops
from .cpp_dialect import DIALECT, SCALAR, TYPES, WIDTH, const, library_text, register, section_of
from .loops import Index, LoopNest, Value

PARALLEL_WORK = 32768  # light element operations below which one thread is faster
CHUNK = 8192  # elements a thread takes at a time along a long axis
SPLIT_COLUMNS = 65536  # a row is shared by threads from here on, when there are too few rows
SUM_BLOCK = 256  # additions after which a float accumulator is flushed into a second one
ROW_BUFFER_BYTES = 65536  # stack for values that are kept from one pass over a row to the next
KEEP_COST = 8  # recompute what is cheaper than this many flops

PREAMBLE = """\
typedef signed char i8_t; typedef unsigned char u8_t; typedef short i16_t; typedef unsigned short u16_t;
typedef int i32_t; typedef long long i64_t;
struct bf16_t { u16_t bits; };
struct f16_t { u16_t bits; };
struct bool_t { u8_t bits; };
struct full {};
"""

_LIBM1 = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
)  # fmt: skip
_LIBM2 = ("pow", "atan2", "hypot", "fmod")
LIBM = "".join(
    ['extern "C" {\n']
    + [f"double {name}(double); float {name}f(float);\n" for name in _LIBM1]
    + [f"double {name}(double, double); float {name}f(float, float);\n" for name in _LIBM2]
    + ["}\n"]
)


def render(nests: list[LoopNest], vector_bytes: int) -> str:
    """The whole unit; each nest's name is its symbol. Nothing of the user's program but its computation is in
    it: the same computation elsewhere is the same text."""
    parts = [PREAMBLE]
    wanted: dict[int, set[str]] = {}
    for nest in nests:
        found = wanted.setdefault(lane_count(nest, vector_bytes), {"memory"})
        for value in nest.values:
            dtype = nest.values[value.args[0]].dtype if value.args else value.dtype
            section = section_of(value, dtype)
            if section is not None:
                found.add(section)
    if any(_needs_libm(names) for names in wanted.values()):
        parts.append(LIBM)
    for lanes, names in wanted.items():
        kernels = [_Kernel(n, lanes).text() for n in nests if lane_count(n, vector_bytes) == lanes]
        header = f"namespace w{lanes} {{\nconstexpr int W = {lanes};\n"
        parts.append(header + library_text(names) + FOLD + "\n" + "\n".join(kernels) + "}\n")
    return "\n".join(parts)


# All lanes of one accumulator combined; the result is in all lanes.
FOLD = """
template <class V> inline V turned(V v, int by) { V r; for (int i = 0; i < W; ++i) r[i] = v[(i + by) & (W - 1)]; return r; }
template <class V, class F> inline V fold(V v, F f) {
#pragma GCC unroll 8
  for (int by = W / 2; by; by /= 2) v = f(v, turned(v, by));
  return v;
}
"""


def kernel_text(nest: LoopNest, vector_bytes: int) -> str:
    """One kernel by itself, with what it covers above it: for the report."""
    lines = "".join(f"// {line}\n" for line in nest.covers)
    return lines + _Kernel(nest, lane_count(nest, vector_bytes)).text()


def _needs_libm(names: set[str]) -> bool:
    return bool(names & {"libm", "libm64", "division", "sincos"})


def lane_count(nest: LoopNest, vector_bytes: int) -> int:
    """Lanes so that the widest register type of the nest fills one hardware vector."""
    widest = max((_width(nest, value) for value in nest.values), default=4)
    return max(vector_bytes // max(widest, 4), 2)


def _width(nest: LoopNest, value: Value) -> int:
    if value.op == "cast" and value.dtype == torch.uint8:
        return 8 if nest.values[value.args[0]].dtype.is_floating_point else 4
    return WIDTH[register(value.dtype)]


@dataclass(slots=True)
class _Plan:
    """Which axes are loops of what kind. Axis numbers are the nest's.

    rows    looped outside, in parallel; one iteration a combination
    folds   looped inside a row, one after the other, by each pass
    vector  the axis of the lanes (None: the nest has no axes at all)
    lanes_are_rows   the vector axis is an outer one: each lane is a row of its own
    split   columns of one row are shared by threads
    """

    rows: list[int]
    folds: list[int]
    vector: int | None
    lanes_are_rows: bool = False
    split: bool = False
    chunk: int = 0  # elements of the vector axis an item takes; 0: all of it
    chunk_major: bool = False


def _plan(nest: LoopNest, lanes: int) -> _Plan:
    outer = list(range(len(nest.outer)))
    inner = list(range(len(nest.outer), len(nest.outer) + len(nest.inner)))
    sizes = nest.outer + nest.inner
    if not nest.has_reduction:
        axes = outer + inner
        if not axes:
            return _Plan([], [], None)
        plan = _Plan(axes[:-1], [], axes[-1])
        strided = any(index.strides[axes[-1]] not in (0, 1) for index in loops.indices(nest))
        if strided and len(axes) > 1:
            plan.chunk, plan.chunk_major = 512, True
        elif sizes[axes[-1]] >= 2 * CHUNK:
            plan.chunk = CHUNK
        return plan
    if outer and _rows_in_lanes(nest, lanes):
        plan = _Plan(outer[:-1], inner, outer[-1], lanes_are_rows=True)
        plan.chunk = max(
            lanes * 4, min(CHUNK, PARALLEL_WORK // max(nest.columns, 1) // lanes * lanes)
        )
        return plan
    plan = _Plan(outer, inner[:-1], inner[-1] if inner else None)
    plan.split = len(inner) == 1 and nest.rows < 4 and nest.columns >= SPLIT_COLUMNS
    return plan


def _rows_in_lanes(nest: LoopNest, lanes: int) -> bool:
    """Is the last outer axis the better one for the lanes?"""
    last_outer, last = len(nest.outer) - 1, len(nest.outer) + len(nest.inner) - 1
    if nest.inner and nest.inner[-1] >= lanes:
        moving = [i for i in loops.indices(nest) if nest.moves_inner(i)]
        across = sum(i.strides[last_outer] == 1 for i in moving)
        along = sum(i.strides[last] == 1 for i in moving)
        return across > along and nest.outer[last_outer] >= lanes
    return nest.outer[last_outer] >= 2 * lanes


@dataclass(slots=True)
class _Pass:
    """One pass over the row: values to compute an element, those to fold, stores, values to keep."""

    phase: int
    folds: list[int] = field(default_factory=list)  # reduce values
    stores: list[loops.Store] = field(default_factory=list)
    body: list[int] = field(default_factory=list)
    keeps: list[int] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.folds or self.stores)


class _Kernel:
    """Writes one kernel. `lines` grows from top to bottom; `self.depth` is the indentation."""

    def __init__(self, nest: LoopNest, lanes: int) -> None:
        self.nest, self.lanes = nest, lanes
        self.sizes = nest.outer + nest.inner
        self.plan = _plan(nest, lanes)
        self.level, self.phase = loops.levels(nest), loops.phases(nest)
        self.lines: list[str] = []
        self.depth = 1
        self.kept: set[int] = set()
        self.known: set[int] = set()  # row values already declared
        self.passes = self._passes()
        self.pointers: dict[tuple[int, Index], str] = {}

    # --- what happens in which pass ---

    def _passes(self) -> list[_Pass]:
        nest = self.nest
        found = [_Pass(phase) for phase in range(max(self.phase, default=0) + 1)]
        for number, value in enumerate(nest.values):
            if value.op == "reduce":
                found[self.phase[number] - 1].folds.append(number)
        for store in nest.stores:
            if nest.moves_inner(store.index):
                found[self.phase[store.value]].stores.append(store)
        rows = frozenset(n for n, element in enumerate(self.level) if not element)
        self.wants_rows: set[int] = set()
        for number, one_pass in enumerate(found):
            roots = self._roots(one_pass)
            one_pass.body = loops.needed(nest, roots, rows | self.kept)
            for kept in self._worth_keeping(found[:number], one_pass, roots):
                self.kept.add(kept)
                next(p for p in found if kept in p.body).keeps.append(kept)
            one_pass.body = loops.needed(nest, roots, rows | self.kept)
        return found

    def _roots(self, one_pass: _Pass) -> list[int]:
        args = [self.nest.values[number].args[0] for number in one_pass.folds]
        return args + [store.value for store in one_pass.stores]

    def _worth_keeping(self, before: list[_Pass], now: _Pass, roots: list[int]) -> list[int]:
        """Values of earlier passes that this one needs again and that are dear to compute."""
        if self.plan.split:
            return []
        earlier = {number for one_pass in before for number in one_pass.body}
        again = earlier.intersection(now.body)
        fresh = set(now.body) - again
        border = {arg for number in fresh for arg in self.nest.values[number].args} | set(roots)
        width = self.lanes if self.plan.lanes_are_rows else 1
        chosen: list[int] = []
        for number in sorted(border & again):
            size = self._stack(len(self.kept) + len(chosen) + 1) * width
            if self._cost(number) > KEEP_COST and size <= ROW_BUFFER_BYTES:
                chosen.append(number)
        return chosen

    def _stack(self, arrays: int) -> int:
        return arrays * self.nest.columns * 8

    def _cost(self, number: int) -> int:
        rows = frozenset(n for n, element in enumerate(self.level) if not element)
        return sum(self._cost_of(n) for n in loops.needed(self.nest, [number], rows | self.kept))

    def _cost_of(self, number: int) -> int:
        value = self.nest.values[number]
        if value.op == "load":
            vector = self.plan.vector
            stride = 0 if vector is None else value.attr[1].strides[vector]
            return 1 if stride in (0, 1) else 10
        return expr.OPS[value.op].cost if value.op in expr.OPS else 1

    def work(self) -> int:
        cost = sum(self._cost_of(number) for number in range(len(self.nest.values)))
        return math.prod(self.sizes) * max(1, cost // 8)

    # --- text ---

    def put(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def text(self) -> str:
        nest = self.nest
        self.lines = [f'extern "C" void {nest.name}(void **buffers, int threads) {{']
        for number, buffer in enumerate(nest.buffers):
            qualifier = "" if buffer.written else "const "
            kind = f"{qualifier}{TYPES[buffer.dtype][1]} *"
            self.put(
                f"{kind}__restrict b{number} = ({kind})buffers[{number}];  // {_buffer_text(buffer)}"
            )
        if not self._parallel():
            self.put("(void)threads;")
        self._rows()
        self.lines.append("}")
        return "\n".join(self.lines) + "\n"

    def _parallel(self) -> bool:
        return self.work() >= PARALLEL_WORK

    def _pragma(self, items: int) -> None:
        if self._parallel() and items > 1:
            self.put("#pragma omp parallel for num_threads(threads) schedule(static)")

    def _rows(self) -> None:
        """The loop over items (rows, or chunks of rows), and what one item does."""
        plan = self.plan
        rows = math.prod(self.sizes[axis] for axis in plan.rows)
        length = 1 if plan.vector is None else self.sizes[plan.vector]
        chunks = -(-length // plan.chunk) if plan.chunk else 1
        items = rows * chunks
        if items > 1:
            if not plan.split:
                self._pragma(items)
            self.put(f"for (i64_t item = 0; item < {items}; ++item) {{")
            self.depth += 1
            row = "item"
            if chunks > 1:
                first = f"item / {rows}" if plan.chunk_major else f"item % {chunks}"
                row = f"item % {rows}" if plan.chunk_major else f"item / {chunks}"
                self.put(f"const i64_t from = ({first}) * {plan.chunk};")
                self.put(
                    f"const i64_t to = from + {plan.chunk} < {length} ? from + {plan.chunk} : {length};"
                )
            self._coordinates(row)
        self._pointers()
        if plan.lanes_are_rows:
            self._lanes_as_rows(chunks > 1, length)
        else:
            self._one_row(
                "from" if chunks > 1 else "0", "to" if chunks > 1 else str(length), length
            )
        if items > 1:
            self.depth -= 1
            self.put("}")

    def _coordinates(self, row: str) -> None:
        axes = [axis for axis in self.plan.rows if self.sizes[axis] > 1]
        below = 1
        for position, axis in reversed(list(enumerate(axes))):
            text = f"({row})" if below == 1 else f"({row}) / {below}"
            if position:
                text = f"{text} % {self.sizes[axis]}"
            self.put(f"const i64_t x{axis} = {text};")
            below *= self.sizes[axis]

    def _pointers(self) -> None:
        """One pointer for each index that is met, moved to the row."""
        loads = [value.attr for value in self.nest.values if value.op == "load"]
        stores = [(store.buffer, store.index) for store in self.nest.stores]
        for key in dict.fromkeys(loads + stores):
            number, index = key
            buffer = self.nest.buffers[number]
            name = f"p{len(self.pointers)}"
            self.pointers[key] = name
            moved = self._offset(index, self.plan.rows)
            qualifier = "" if buffer.written else "const "
            self.put(f"{qualifier}{TYPES[buffer.dtype][1]} *{name} = b{number}{moved};")

    def _offset(self, index: Index, axes: list[int], with_offset: bool = True) -> str:
        terms = [
            f"x{axis}" if index.strides[axis] == 1 else f"x{axis} * {index.strides[axis]}"
            for axis in axes
            if index.strides[axis] and self.sizes[axis] > 1
        ]
        if with_offset and index.offset:
            terms.append(str(index.offset))
        return "".join(f" + {term}" for term in terms)

    # --- one row ---

    def _lanes_as_rows(self, chunked: bool, length: int) -> None:
        first, last = ("from", "to") if chunked else ("0", str(length))
        self.put("auto rows = [&](const i64_t i, auto n) __attribute__((always_inline)) {")
        self.depth += 1
        self._one_row("0", "0", 0)
        self.depth -= 1
        self.put("};")
        self._walk("rows", first, last, length, "", self.lanes)

    def _walk(self, body: str, first: str, last: str, length: int, extra: str, step: int) -> None:
        """Call `body(i, n)` over first..last with whole vectors, then with the rest."""
        self.put(f"i64_t at = {first};")
        self.put(f"for (; at + {step} <= {last}; at += {step}) {body}(at, full{{}}{extra});")
        if length % step:
            rest = f"int({last} - at)" if first != "0" else str(length % step)
            self.put(f"if (at < {last}) {body}(at, {rest}{extra});")

    def _one_row(self, first: str, last: str, length: int) -> None:
        for one_pass in self.passes:
            self._row_values(one_pass.phase)
            for number in one_pass.keeps:
                width = self.lanes if self.plan.lanes_are_rows else 1
                kind = SCALAR[register(self.nest.values[number].dtype)]
                self.put(f"alignas(64) {kind} t{number}[{max(self.nest.columns, 1) * width}];")
            if not one_pass.empty:
                self._run_pass(one_pass, first, last, length)
        self._row_values(max(self.phase, default=0) + 1)
        for store in self.nest.stores:
            if not self.nest.moves_inner(store.index):
                self._store(store, row=True)

    def _row_values(self, phase: int) -> None:
        """Declare the row values that are known before the pass of this phase."""
        for number, value in enumerate(self.nest.values):
            if self.level[number] or number in self.known or self.phase[number] > phase:
                continue
            if value.op != "reduce":
                self.known.add(number)
                self.put(self._statement(number, row=True))

    def _statement(self, number: int, row: bool = False) -> str:
        value = self.nest.values[number]
        name = f"v{number}"
        if value.op == "load":
            return f"const {register(value.dtype)} {name} = {self._load(value, row)};"
        if value.op == "index":
            return f"const i64 {name} = {self._index(value.attr, row)};"
        args = tuple(f"v{arg}" for arg in value.args)
        dtypes = tuple(self.nest.values[arg].dtype for arg in value.args)
        return "const " + expr.statement(DIALECT, name, value, args, dtypes)

    def _where(self, index: Index, row: bool) -> tuple[str, int]:
        """(text of the element offset from the row's pointer, stride along the lanes)."""
        plan = self.plan
        text = "" if row else self._offset(index, plan.folds, with_offset=False)
        stride = 0 if plan.vector is None else index.strides[plan.vector]
        if row and not plan.lanes_are_rows:
            stride = 0
        if stride:
            text += " + i" if stride == 1 else f" + i * {stride}"
        return text, stride

    def _load(self, value: Value, row: bool) -> str:
        moved, stride = self._where(value.attr[1], row)
        pointer = self.pointers[value.attr] + moved
        if stride == 0:
            return f"one({pointer})"
        return f"ld({pointer}, n)" if stride == 1 else f"lds({pointer}, {stride}, n)"

    def _index(self, index: Index, row: bool) -> str:
        moved, stride = self._where(index, row)
        base = f"{index.offset}{self._offset(index, self.plan.rows, with_offset=False)}{moved}"
        if stride == 0:
            return f"splat<i64>({base})"
        return f"splat<i64>({base}) + lanes<i64>(0) * {stride}ll"

    def _store(self, store: loops.Store, row: bool = False) -> None:
        moved, stride = self._where(store.index, row)
        pointer = self.pointers[(store.buffer, store.index)] + moved
        value = f"v{store.value}"
        if stride == 0:
            size = 1 if self.plan.vector is None else self.sizes[self.plan.vector]
            lane = "1" if row or size else "0"
            self.put(f"st({pointer}, {value}, {lane});")
        elif stride == 1:
            self.put(f"st({pointer}, {value}, n);")
        else:
            self.put(f"sts({pointer}, {stride}, {value}, n);")

    # --- one pass ---

    def _run_pass(self, one_pass: _Pass, first: str, last: str, length: int) -> None:
        _PassWriter(self, one_pass).write(first, last, length)

    def kept_at(self, number: int) -> str:
        """Address of the current element of a kept value."""
        plan = self.plan
        position = ""
        for axis in plan.folds:
            position = f"({position}) * {self.sizes[axis]} + x{axis}" if position else f"x{axis}"
        if plan.lanes_are_rows:
            return f"t{number} + ({position or 0}) * {self.lanes}"
        if position and plan.vector is not None:
            position = f"({position}) * {self.sizes[plan.vector]} + "
        return f"t{number} + {position}i"


class _PassWriter:
    """Writes one pass: accumulators, the loops, the element's body, and what follows from the folds."""

    def __init__(self, kernel: _Kernel, one_pass: _Pass) -> None:
        self.kernel, self.one = kernel, one_pass
        self.nest, self.plan = kernel.nest, kernel.plan
        self.put = kernel.put
        cost = sum(kernel._cost_of(number) for number in one_pass.body)
        plain = all(self.nest.values[n].attr not in ("argmax", "argmin") for n in one_pass.folds)
        self.unroll = (4 if cost < 16 else 2) if one_pass.folds and plain else 1
        self.sums = [
            n for n in one_pass.folds
            if self.nest.values[n].attr == "sum" and self.nest.values[n].dtype.is_floating_point
        ]  # fmt: skip

    def write(self, first: str, last: str, length: int) -> None:
        plan = self.plan
        if plan.split:
            self._write_split(length)
        else:
            self.declare("")
            self._loops(first, last, length)
            self.finish("")

    # accumulators: a{value}_{copy}, with a position beside it for argmax and argmin

    def declare(self, prefix: str) -> None:
        for number in self.one.folds:
            value = self.nest.values[number]
            kind, start = self._accumulator(number)
            for copy in range(self.unroll):
                self.put(f"{kind} {prefix}a{number}_{copy} = {start};")
            if value.attr in ("argmax", "argmin"):
                self.put(f"i64 {prefix}k{number}_0 = splat<i64>(9223372036854775807ll);")

    def _accumulator(self, number: int) -> tuple[str, str]:
        """(register type, text of the identity)."""
        value = self.nest.values[number]
        dtype = self.nest.values[value.args[0]].dtype
        identity = loops.REDUCTIONS[value.attr].identity
        if math.isinf(identity) and not dtype.is_floating_point:
            if dtype == torch.bool:
                identity = int(identity > 0)
            else:
                limits = torch.iinfo(dtype)
                identity = limits.max if identity > 0 else limits.min
        return register(dtype), const(identity, dtype)

    def _combine(
        self, number: int, copy: int, value: str, position: str = "", prefix: str = ""
    ) -> str:
        """The statement that takes a value (and its position) into an accumulator."""
        kind = self.nest.values[number].attr
        target = f"{prefix}a{number}_{copy}"
        if kind in ("argmax", "argmin"):
            return f"{_pick(kind, self._is_float(number))}({target}, {prefix}k{number}_{copy}, {value}, {position});"
        return f"{target} = {_combined(kind, self._is_bool(number), target, value)};"

    def _is_float(self, number: int) -> bool:
        return self.nest.values[self.nest.values[number].args[0]].dtype.is_floating_point

    def _is_bool(self, number: int) -> bool:
        return self.nest.values[number].dtype == torch.bool

    def _loops(self, first: str, last: str, length: int) -> None:
        """Loops over the fold axes, the innermost with several accumulators and in blocks for sums."""
        kernel, plan = self.kernel, self.plan
        axes = list(plan.folds)
        inner_axis = axes.pop() if plan.lanes_are_rows and axes else None
        for axis in axes:
            self.put(f"for (i64_t x{axis} = 0; x{axis} < {kernel.sizes[axis]}; ++x{axis}) {{")
            kernel.depth += 1
        if plan.lanes_are_rows:
            size = 1 if inner_axis is None else kernel.sizes[inner_axis]
            name = "x" if inner_axis is None else f"x{inner_axis}"
            self._innermost(name, "0", str(size), size, 1, bool(axes))
        else:
            self._innermost("i", first, last, length, kernel.lanes, bool(axes))
        for _axis in axes:
            kernel.depth -= 1
            self.put("}")

    def _innermost(
        self, name: str, first: str, last: str, length: int, step: int, again: bool
    ) -> None:
        kernel = self.kernel
        block = SUM_BLOCK * step * self.unroll
        blocked = bool(self.sums) and (length > block or again)
        self.put("{")
        kernel.depth += 1
        if blocked:
            self.put(f"for (i64_t block = {first}; block < {last}; block += {block}) {{")
            kernel.depth += 1
            self.put(f"const i64_t end = block + {block} < {last} ? block + {block} : {last};")
            for number in self.sums:
                for copy in range(self.unroll):
                    self.put(f"auto s{number}_{copy} = {self._accumulator(number)[1]};")
            first, last = "block", "end"
        self._body(name, blocked)
        self._calls(first, last, length, step, blocked)
        if blocked:
            for number in self.sums:
                for copy in range(self.unroll):
                    self.put(f"a{number}_{copy} = a{number}_{copy} + s{number}_{copy};")
            kernel.depth -= 1
            self.put("}")
        kernel.depth -= 1
        self.put("}")

    def _names(self, copy: int, blocked: bool) -> str:
        """The accumulators of one copy as further arguments of the body."""
        names = []
        for number in self.one.folds:
            names.append(f"{'s' if blocked and number in self.sums else 'a'}{number}_{copy}")
            if self.nest.values[number].attr in ("argmax", "argmin"):
                names.append(f"k{number}_{copy}")
        return "".join(f", {name}" for name in names)

    def _body(self, name: str, blocked: bool) -> None:
        """A lambda for one element vector: (position, number of lanes, accumulators)."""
        kernel = self.kernel
        parameters = ""
        for number in self.one.folds:
            parameters += f", {self._accumulator(number)[0]} &a{number}_0"
            if self.nest.values[number].attr in ("argmax", "argmin"):
                parameters += f", i64 &k{number}_0"
        lanes = "" if self.plan.lanes_are_rows else ", auto n"
        self.put(
            f"auto body = [&](const i64_t {name}{lanes}{parameters}) __attribute__((always_inline)) {{"
        )
        kernel.depth += 1
        self._known_again()
        for number in self.one.body:
            self.put(kernel._statement(number))
        for number in self.one.keeps:
            self.put(f"put({kernel.kept_at(number)}, v{number}, full{{}});" if self.plan.lanes_are_rows
                     else f"put({kernel.kept_at(number)}, v{number}, n);")  # fmt: skip
        for number in self.one.folds:
            self._take(number)
        for store in self.one.stores:
            kernel._store(store)
        kernel.depth -= 1
        self.put("};")

    def _known_again(self) -> None:
        """Read back the values that an earlier pass kept."""
        kernel = self.kernel
        used = {arg for n in self.one.body for arg in self.nest.values[n].args}
        used |= set(kernel._roots(self.one))
        for number in sorted(used & kernel.kept - set(self.one.body)):
            kind = register(self.nest.values[number].dtype)
            count = "full{}" if self.plan.lanes_are_rows else "n"
            self.put(f"const {kind} v{number} = raw<{kind}>({kernel.kept_at(number)}, {count});")

    def _take(self, number: int) -> None:
        value = self.nest.values[number]
        text = f"v{value.args[0]}"
        position = ""
        if not self.plan.lanes_are_rows:
            text = f"keep({text}, {self._accumulator(number)[1]}, n)"
        if value.attr in ("argmax", "argmin"):
            inner = range(len(self.nest.outer), len(self.kernel.sizes))
            strides = [0] * len(self.kernel.sizes)
            below = 1
            for axis in reversed(inner):
                strides[axis] = below
                below *= self.kernel.sizes[axis]
            position = self.kernel._index(Index(tuple(strides)), row=False)
            if not self.plan.lanes_are_rows:
                position = f"keep({position}, splat<i64>(9223372036854775807ll), n)"
        self.put(self._combine(number, 0, text, position))

    def _calls(self, first: str, last: str, length: int, step: int, blocked: bool) -> None:
        """Call the body: unrolled, one by one, and for the rest."""
        lanes = not self.plan.lanes_are_rows
        count = ", full{}" if lanes else ""
        self.put(f"i64_t at = {first};")
        if self.unroll > 1 and length >= step * self.unroll:
            together = step * self.unroll
            self.put(f"for (; at + {together} <= {last}; at += {together}) {{")
            for copy in range(self.unroll):
                self.put(f"  body(at + {copy * step}{count}{self._names(copy, blocked)});")
            self.put("}")
        if length >= step and (
            self.unroll == 1 or length % (step * self.unroll) >= step or length < step * self.unroll
        ):
            self.put(
                f"for (; at + {step} <= {last}; at += {step}) body(at{count}{self._names(0, blocked)});"
            )
        if lanes and length % step:
            rest = str(length % step) if first == "0" else f"int({last} - at)"
            self.put(f"if (at < {last}) body(at, {rest}{self._names(0, blocked)});")

    def finish(self, prefix: str) -> None:
        """From accumulators to the value of the row."""
        for number in self.one.folds:
            value = self.nest.values[number]
            for copy in range(1, self.unroll):
                self.put(self._combine(number, 0, f"{prefix}a{number}_{copy}", prefix=prefix))
            accumulator = f"{prefix}a{number}_0"
            kind = self._accumulator(number)[0]
            if value.attr in ("argmax", "argmin"):
                if not self.plan.lanes_are_rows:
                    self.put("#pragma GCC unroll 8")
                    self.put("for (int by = W / 2; by; by /= 2)")
                    turned = f"turned({accumulator}, by)", f"turned({prefix}k{number}_0, by)"
                    self.put("  " + self._combine(number, 0, *turned, prefix=prefix))
                self.put(f"const i64 v{number} = {prefix}k{number}_0;")
            elif self.plan.lanes_are_rows:
                self.put(f"const {kind} v{number} = {accumulator};")
            else:
                joined = _combined(value.attr, self._is_bool(number), "a", "b")
                self.put(
                    f"const {kind} v{number} = fold({accumulator}, []({kind} a, {kind} b) {{ return {joined}; }});"
                )
            self.kernel.known.add(number)

    def _write_split(self, length: int) -> None:
        """Threads share the columns: each chunk folds by itself, then the chunks in order."""
        kernel = self.kernel
        chunk = max(2 * CHUNK, -(-length // 1024))
        chunk = -(-chunk // kernel.lanes) * kernel.lanes
        chunks = -(-length // chunk)
        for number in self.one.folds:
            kind = self._accumulator(number)[0]
            self.put(f"{kind} part{number}[{chunks}];")
            if self.nest.values[number].attr in ("argmax", "argmin"):
                self.put(f"i64 place{number}[{chunks}];")
        kernel._pragma(chunks)
        self.put(f"for (i64_t c = 0; c < {chunks}; ++c) {{")
        kernel.depth += 1
        self.put(f"const i64_t from = c * {chunk};")
        self.put(f"const i64_t to = from + {chunk} < {length} ? from + {chunk} : {length};")
        self.declare("")
        self._innermost("i", "from", "to", length, kernel.lanes, False)
        for number in self.one.folds:
            for copy in range(1, self.unroll):
                self.put(self._combine(number, 0, f"a{number}_{copy}"))
            self.put(f"part{number}[c] = a{number}_0;")
            if self.nest.values[number].attr in ("argmax", "argmin"):
                self.put(f"place{number}[c] = k{number}_0;")
        kernel.depth -= 1
        self.put("}")
        if self.one.folds:
            unroll, self.unroll = self.unroll, 1
            self.declare("")
            self.put(f"for (i64_t c = 0; c < {chunks}; ++c) {{")
            for number in self.one.folds:
                self.put("  " + self._combine(number, 0, f"part{number}[c]", f"place{number}[c]"))
            self.put("}")
            self.finish("")
            self.unroll = unroll


_COMBINED = {
    "sum": "{0} + {1}",
    "prod": "{0} * {1}",
    "max": "maximum({1}, {0})",
    "min": "minimum({1}, {0})",
    "any": "{0} | {1}",
    "all": "{0} & {1}",
}


def _combined(kind: str, of_bool: bool, left: str, right: str) -> str:
    if of_bool and kind in ("max", "min"):
        kind = "any" if kind == "max" else "all"
    return _COMBINED[kind].format(left, right)


def _pick(kind: str, _float: bool) -> str:
    return "pick_max" if kind == "argmax" else "pick_min"


def _buffer_text(buffer: loops.Buffer) -> str:
    kind = str(buffer.dtype).removeprefix("torch.")
    return f"{kind}{list(buffer.shape)} stride {list(buffer.stride)}"
