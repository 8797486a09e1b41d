"""The C++ renderer: from loop nests to one translation unit without any #include.

A kernel is `extern "C" void name(void **buffers, int threads)`. If sizes are expressions, `const
i64_t *numbers` follows: each expression that the text needs, also a product or a quotient of
others, is such a number. Values are vectors of W lanes along one axis (see `loop_plan.Plan`):
mostly the last inner axis; the last outer axis if that is the contiguous one or if rows are short.
This file writes the loops over the other axes, the passes over a row (one per phase), accumulators,
tails and the OpenMP pragma; expressions come from `loops.operators` with the table of `dialect`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch

from ...ir.symbolic.expr import Expr
from ..loops import loop_nest, operators
from ..loops.lines import Lines, Numbers
from ..loops.loop_nest import Index, LoopNest
from . import (
    epilogue,
    families,
    kept_values,
    loads,
    masks,
    nans,
    rows_in_lanes,
    scalars,
    scan,
    scatter,
    squares,
    turn,
)
from .dialect import (  # fmt: skip
    DIALECT,
    TYPES,
    argument,
    library_text,
    register,
    rounded_plain,
    section_of,
)
from .loop_plan import PARALLEL_WORK, Pass, lane_count, make_plan, of_bytes
from .row_pass import PassWriter

PREAMBLE = """\
typedef signed char i8_t; typedef unsigned char u8_t; typedef short i16_t; typedef unsigned short u16_t;
typedef int i32_t; typedef long long i64_t;
struct bf16_t { u16_t bits; };
struct f16_t { u16_t bits; };
struct bool_t { u8_t bits; };
struct full {};
"""

_LIBM1 = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
)  # fmt: skip
_LIBM2 = ("pow", "atan2", "hypot", "fmod")
LIBM = "".join(
    ['extern "C" {\n']
    + [f"double {name}(double); float {name}f(float);\n" for name in _LIBM1]
    + [f"double {name}(double, double); float {name}f(float, float);\n" for name in _LIBM2]
    + ["}\n"]
)


def render(
    nests: list[LoopNest],
    vector_bytes: int,
    numbers: dict[str, tuple[Any, ...]] | None = None,
    symbols: dict[str, str] | None = None,
    texts: dict[str, str] | None = None,
) -> str:
    """The text of the whole unit.

    A nest's name is its symbol. Equal kernels (those of a model's equal layers) are written once;
    `symbols` gets the name of the written one for each nest. The text depends only on the
    computation, not on other parts of the user's program: the same computation elsewhere gives the
    same text. `numbers` gets the expressions that each kernel takes, `texts` the text of each.
    """
    numbers, symbols, texts = (_or_new(one) for one in (numbers, symbols, texts))
    first: dict[Any, LoopNest] = {}  # of nests with equal content
    likes = [first.setdefault(one.content, one).name for one in families.opened(nests)]
    text = _text(list(first.values()), vector_bytes, numbers, symbols, texts)
    wanted = {like: numbers[like] for like in likes}
    for nest, like in zip(nests, likes, strict=True):
        numbers[nest.name] = families.closed(wanted[like], nest.columns)
        if nest.name != like:
            symbols[nest.name] = symbols[like]
            texts[nest.name] = texts[like].replace(f" {like}(", f" {nest.name}(", 1)
    return text


def _or_new(given: dict[str, Any] | None) -> dict[str, Any]:
    return {} if given is None else given


def _text(
    nests: list[LoopNest],
    vector_bytes: int,
    numbers: dict[str, tuple[Any, ...]],
    symbols: dict[str, str],
    texts: dict[str, str],
) -> str:
    """The text of nests of different content; see `render`."""
    parts = [PREAMBLE]
    # (lanes, whether all registers are bytes) -> sections; `fold` reduces all lanes of a register
    wanted: dict[tuple[int, bool], set[str]] = {}
    for nest in nests:
        found = wanted.setdefault(
            (lane_count(nest, vector_bytes), of_bytes(nest)), {"memory", "fold"}
        )
        for value in nest.values:
            dtype = nest.values[value.args[0]].dtype if value.args else value.dtype
            section = section_of(value, dtype)
            if section is not None:
                found.add(section)
        if nest.scatters:
            found.add("scatter")
    if any(_needs_libm(names) for names in wanted.values()):
        parts.append(LIBM)
    for (lanes, narrow), names in wanted.items():
        writers = [
            Kernel(nest, lanes)
            for nest in nests
            if (lane_count(nest, vector_bytes), of_bytes(nest)) == (lanes, narrow)
        ]
        if any(
            writer.plan.tile is not None or writer.plan.turned or writer.plan.squares
            for writer in writers
        ):
            names.add("tile")
        kernels = _distinct(writers, symbols, texts)
        numbers.update({writer.nest.name: tuple(writer.numbers.names) for writer in writers})
        text = library_text(names) + "\n" + "\n".join(kernels)
        header = f"namespace w{lanes} {{\nconstexpr int W = {lanes};\n"
        if narrow:
            header = f"#define BYTES\n{header.replace(' {', '_bytes {', 1)}"
        parts.append(header + text + "}\n" + "#undef BYTES\n" * narrow)
    return "\n".join(parts)


def _distinct(writers: list[Kernel], symbols: dict[str, str], texts: dict[str, str]) -> list[str]:
    """The texts of these kernels, each once."""
    first: dict[str, str] = {}  # a text without its name -> the name
    for writer in writers:
        name, text = writer.nest.name, writer.text()
        symbols[name] = first.setdefault(text.replace(f" {name}(", " (", 1), name)
        texts[name] = text
    return [texts[name] for name in first.values()]


def _needs_libm(names: set[str]) -> bool:
    return bool(names & {"libm64", "division", "sincos", "tan", "pow", "fmod"})


class Kernel(Lines):
    """The writer of one kernel."""

    def __init__(self, nest: LoopNest, lanes: int) -> None:
        super().__init__("  ", depth=1)
        self.nest, self.lanes = nest, lanes
        self.sizes = nest.outer + nest.inner
        self.plan = make_plan(nest, lanes)
        axes = [] if self.plan.vector is None else [self.plan.vector]
        self.along = loop_nest.moving(nest, axes)  # whether the value differs between lanes
        self.level = loop_nest.levels(nest) if nest.has_reduction else self.along
        if self.plan.folds and not nest.has_reduction:
            self.level = loop_nest.moving(nest, [*self.plan.folds, *axes])
        self.phase = loop_nest.phases(nest)
        # `inside` values that only loads use: the loads write them
        self.spans = loads.only_spans(nest, self.along)
        self.plain = nans.plain(nest)
        self.kept: set[int] = set()
        # kept values that are kept where this store writes later
        self.homes: dict[int, loop_nest.Store] = {}
        self.known: set[int] = set()  # row values already declared
        self.group = ""  # with several vectors of rows: the subscript of the current one
        self.passes = self._passes()
        self.scalars = scalars.of(self)
        apart = self.kept | self.scalars
        self.wide = masks.wide(nest, lambda number: self.level[number] and number not in apart)
        self.spans |= scalars.only_literals(self)
        if self.plan.lanes_are_rows:
            self.plan.side_by_side(rows_in_lanes.groups(self), self.sizes, lanes)
        self.pointers: dict[tuple[int, Index], str] = {}
        self.numbers = Numbers()
        self.n = self.numbers.text

    # --- which pass computes what ---

    def _passes(self) -> list[Pass]:
        nest = self.nest
        found = [Pass(phase) for phase in range(max(self.phase, default=0) + 1)]
        for number, value in enumerate(nest.values):
            if value.op == "reduce":
                found[self.phase[number] - 1].folds.append(number)
        for store in nest.stores:
            if store.scatter is not None or nest.moves_inner(store.index):
                found[self.phase[store.value]].stores.append(store)
        rows = frozenset(n for n, element in enumerate(self.level) if not element)
        self.wants_rows: set[int] = set()
        for number, one_pass in enumerate(found):
            roots = self.roots(one_pass)
            one_pass.body = loop_nest.needed(nest, roots, rows | self.kept)
            kept_values.choose(self, found[:number], one_pass, roots)
            body = loop_nest.needed(nest, roots, rows | self.kept)
            one_pass.body = [n for n in body if n not in self.spans]
        return found

    def roots(self, one_pass: Pass) -> list[int]:
        args = [self.nest.values[number].args[0] for number in one_pass.folds]
        return args + [number for store in one_pass.stores for number in store.needs]

    def cost_of(self, number: int) -> int:
        value = self.nest.values[number]
        if value.op == "scan":
            return scan.COST
        if value.op in loop_nest.LOADS:
            vector = self.plan.vector
            stride = 0 if vector is None else value.attr[1].strides[vector]
            apart = stride not in (0, 1, -1) or any(
                self.along[arg] and self.nest.values[arg].dtype == torch.int64 for arg in value.args
            )
            return 10 if apart else 1
        return operators.OPS[value.op].cost if value.op in operators.OPS else 1

    def work(self) -> Any:
        cost = sum(self.cost_of(number) for number in range(len(self.nest.values)))
        return math.prod(self.sizes) * max(1, cost // 8)

    # --- text ---

    def text(self) -> str:
        nest = self.nest
        for number, buffer in enumerate(nest.buffers):
            qualifier = "" if buffer.written else "const "
            kind = f"{qualifier}{TYPES[buffer.dtype][1]} *"
            restrict = "" if buffer.shared else "__restrict "
            self.put(
                f"{kind}{restrict}b{number} = ({kind})buffers[{number}];  // {_buffer_text(buffer)}"
            )
        if nest.may_fail:
            self.put(f"int *const trouble = (int *)buffers[{len(nest.buffers)}];")
        if nest.tiled is not None:
            epilogue.write(self)
            more = epilogue.ARGUMENTS
        else:
            if self.parallel() is False:
                self.put("(void)threads;")
            self._rows()
            more = ", int threads" + ", const i64_t *numbers" * bool(self.numbers.names)
        head = [f'extern "C" void {nest.name}(void **buffers{more}) {{']
        for place, (value, name) in enumerate(self.numbers.names.items()):
            kind, source = (
                ("double", "(const double *)") if value.kind == "float" else ("i64_t", "")
            )
            head.append(f"  const {kind} {name} = ({source}numbers)[{place}];")
        return "\n".join([*head, *self.lines, "}"]) + "\n"

    def parallel(self) -> bool | None:
        """Whether there is work for several threads; None: it depends on the sizes."""
        work = self.work()
        return None if isinstance(work, Expr) else work >= PARALLEL_WORK

    def function(self, name: str, parameters: str) -> AbstractContextManager[None]:
        """The definition of a function inside the kernel."""
        head = f"auto {name} = [&]({parameters}) __attribute__((always_inline)) {{"
        return self.block(head, "};")

    def loop(self, name: str, last: str, first: str = "0") -> AbstractContextManager[None]:
        """A loop in steps of one."""
        head = f"for (i64_t {name} = {first}; {name} < {last}; ++{name}) {{"
        return self.block(head, "}")

    @contextmanager
    def loops(self, axes: list[int]) -> Iterator[None]:
        """A loop over each of these axes, one inside the other."""
        with ExitStack() as stack:
            for axis in axes:
                stack.enter_context(self.loop(f"x{axis}", self.n(self.sizes[axis])))
            yield

    @contextmanager
    def in_blocks(self, first: str, last: str, length: str) -> Iterator[None]:
        """A loop over blocks of a row, each from `block` to `end`."""
        head = f"for (i64_t block = {first}; block < {last}; block += {length}) {{"
        with self.block(head, "}"):
            self.put(f"const i64_t end = block + {length} < {last} ? block + {length} : {last};")
            yield

    def part(self, first: str, length: Any, last: str) -> None:
        """Declare from and to, the ends of a part of an axis that ends at `last`."""
        self.put(f"const i64_t from = {first};")
        self.put(f"const i64_t to = from + {length} < {last} ? from + {length} : {last};")

    @contextmanager
    def each_item(self, name: str, items: Any) -> Iterator[None]:
        """The loop over items that threads may share."""
        several = self.parallel()
        pragma = "#pragma omp parallel for num_threads(threads) schedule(static)"
        loop = f"for (i64_t {name} = 0; {name} < {self.n(items)}; ++{name})"
        if several is not None:
            if several:
                self.put(pragma)
            with self.block(loop + " {", "}"):
                yield
            return
        self.put("{")
        head = f"const auto each_{name} = [=](const i64_t {name}) __attribute__((noinline)) {{"
        with self.block(head, "};"):
            yield
        self.put(f"if (threads > 1 && {self.n(self.work())} >= {PARALLEL_WORK}) {{")
        self.put(pragma)
        self.put(f"{loop} each_{name}({name});")
        self.put(f"}} else {loop} each_{name}({name});")
        self.put("}")

    def _rows(self) -> None:
        """The loop over items (rows, or chunks of rows), and the work of one item."""
        plan = self.plan
        if plan.tile is not None:
            squares.write_tiles(self)
            return
        if plan.turned:
            turn.write(self)
            return
        if self.nest.scatters:
            scatter.write(self)
            return
        rows = math.prod(self.sizes[axis] for axis in plan.rows)
        length = 1 if plan.vector is None else self.sizes[plan.vector]
        chunks = -(-length // plan.chunk) if plan.chunk else 1
        items = rows * chunks
        if items == 1:
            self._item(rows, chunks, length)
        elif plan.split:  # threads share the columns, not the rows
            with self.loop("item", self.n(items)):
                self._item(rows, chunks, length)
        else:
            with self.each_item("item", items):
                self._item(rows, chunks, length)

    def _item(self, rows: Any, chunks: Any, length: Any) -> None:
        plan = self.plan
        chunked = chunks != 1
        if rows != 1 or chunked:
            row = "item"
            if chunked:
                last = self.n(length)
                first, row = f"item / {self.n(rows)}", f"item % {self.n(rows)}"
                if not plan.chunk_major:
                    first, row = f"item % {self.n(chunks)}", f"item / {self.n(chunks)}"
                self.part(f"({first}) * {plan.chunk}", plan.chunk, last)
            self.coordinates(row)
        self.move_pointers()
        ends = ("from", "to") if chunked else ("0", self.n(length))
        if plan.lanes_are_rows:
            rows_in_lanes.write(self, *ends, length)
        else:
            self.one_row(*ends, length)

    def coordinates(self, row: str, kind: str = "const i64_t", last: int | None = None) -> None:
        """Declare x0, x1, ... of the rows' axes, or of the first of them."""
        axes = [axis for axis in self.plan.rows[:last] if self.sizes[axis] != 1]
        below: Any = 1
        for position, axis in reversed(list(enumerate(axes))):
            text = f"({row})" if below == 1 else f"({row}) / {self.n(below)}"
            if position:
                text = f"{text} % {self.n(self.sizes[axis])}"
            self.put(f"{kind} x{axis} = {text};")
            below = below * self.sizes[axis]

    def move_pointers(self) -> None:
        """Declare one pointer, moved to the row, per (buffer, index) of loads and stores."""
        for key in dict.fromkeys(loop_nest.accesses(self.nest)):
            number, index = key
            buffer = self.nest.buffers[number]
            name = f"p{len(self.pointers)}"
            self.pointers[key] = name
            start = f"b{number}{self.offset(index, self.plan.rows)}"
            if number == self.nest.tiled:
                start = epilogue.row(TYPES[buffer.dtype][1])
            qualifier = "" if buffer.written else "const "
            self.put(f"{qualifier}{TYPES[buffer.dtype][1]} *{name} = {start};")

    def offset(self, index: Index, axes: list[int], with_offset: bool = True) -> str:
        terms = [
            f"x{axis}" if index.strides[axis] == 1 else f"x{axis} * {self.n(index.strides[axis])}"
            for axis in axes
            if index.strides[axis] and self.sizes[axis] != 1
        ]
        if with_offset and index.offset:
            terms.append(self.n(index.offset))
        return "".join(f" + {term}" for term in terms)

    # --- one row ---

    def one_row(self, first: str, last: str, length: Any) -> None:
        for one_pass in self.passes:
            self._row_values(one_pass.phase)
            for number in one_pass.keeps:
                kept_values.declare(self, number)
            if not one_pass.empty:
                PassWriter(self, one_pass).write(first, last, length)
        self._row_values(max(self.phase, default=0) + 1)
        for store in self.nest.stores:
            if store.scatter is None and not self.nest.moves_inner(store.index):
                self.store(store, row=True)
        kept_values.free(self)

    def _row_values(self, phase: int) -> None:
        """Declare the row values that are known before the pass of this phase."""
        for number, value in enumerate(self.nest.values):
            if self.level[number] or number in self.known or self.phase[number] > phase:
                continue
            if value.op != "reduce" and number not in self.spans:
                self.known.add(number)
                self.put(self.statement(number, row=True))

    def declare(
        self, numbers: Iterable[int], registers: Mapping[int, str] | None = None, row: bool = False
    ) -> None:
        """Declare these values. `registers`: the texts of those that are in registers already."""
        for number in numbers:
            if registers and number in registers:
                kind = register(self.nest.values[number].dtype)
                self.put(f"const {kind} v{number} = {registers[number]};")
            else:
                self.put(self.statement(number, row))

    def statement(self, number: int, row: bool = False) -> str:
        if number in self.scalars:
            return scalars.statement(self, number, row)
        kind = "i64" if number in self.wide else register(self.nest.values[number].dtype)
        return f"const {kind} v{number} = {self.text_of(number, row)};"

    def text_of(self, number: int, row: bool) -> str:
        """The expression of a value that is not a scalar."""
        value = self.nest.values[number]
        if value.op in _TEXTS:
            return _TEXTS[value.op](self, number, row)
        if value.op == "cast" and value.dtype == torch.bfloat16 and value.args[0] in self.plain:
            (arg,) = value.args
            return rounded_plain(f"v{arg}", self.nest.values[arg].dtype)
        wide = masks.text(value) if number in self.wide else None
        return wide or operators.expression(DIALECT, self.nest.values, number)

    def where(self, index: Index, row: bool) -> tuple[str, Any]:
        """(text of the element offset from the row's pointer, stride along the lanes)."""
        plan = self.plan
        text = "" if row else self.offset(index, plan.folds, with_offset=False)
        stride = 0 if plan.vector is None else index.strides[plan.vector]
        if row and not plan.lanes_are_rows:
            stride = 0
        if stride:
            text += " + i" if stride == 1 else f" + i * {self.n(stride)}"
        return text, stride

    def position(self, index: Index, row: bool) -> tuple[str, Any]:
        """(text of the affine form at the first lane, its step along the lanes)."""
        moved, stride = self.where(index, row)
        rows = self.offset(index, self.plan.rows, with_offset=False)
        return f"{self.n(index.offset)}{rows}{moved}", stride

    def affine(self, index: Index, row: bool, kind: str) -> str:
        base, stride = self.position(index, row)
        if stride == 0:
            return f"splat<{kind}>({base})"
        literal = "ll" if kind == "i64" else ""
        step = self.n(stride) if isinstance(stride, Expr) else f"{stride}{literal}"
        return f"splat<{kind}>({base}) + lanes<{kind}>(0) * {step}"

    def store(self, store: loop_nest.Store, row: bool = False) -> None:
        moved, stride = self.where(store.index, row)
        pointer = self.pointers[(store.buffer, store.index)] + moved
        value = f"v{store.value}"
        if store.scatter is not None:
            self.put(scatter.store(self, store, pointer, stride))
            return
        if stride == 0:
            size = 1 if self.plan.vector is None else self.sizes[self.plan.vector]
            lane = "1" if row or size != 0 else "0"
            self.put(f"st({pointer}, {value}, {lane});")
        elif stride == 1:
            self.put(f"st({pointer}, {value}, n);")
        else:
            self.put(f"sts({pointer}, {self.n(stride)}, {value}, n);")


def _index(kernel: Kernel, number: int, row: bool) -> str:
    value = kernel.nest.values[number]
    return kernel.affine(value.attr, row, register(value.dtype))


def _number(kernel: Kernel, number: int, row: bool) -> str:
    value = kernel.nest.values[number]
    return argument(kernel.n(value.attr), value.dtype)


# The values that depend on the loops around them.
_TEXTS: dict[str, Callable[[Kernel, int, bool], str]] = {
    "load": loads.load,
    "load_if": loads.load,
    "inside": loads.mask,
    "checked": loads.check,
    "scan": scan.element,
    "index": _index,
    "number": _number,
}


def _buffer_text(buffer: loop_nest.Buffer) -> str:
    kind = str(buffer.dtype).removeprefix("torch.")
    shape, stride = (_sizes_text(sizes) for sizes in (buffer.shape, buffer.stride))
    return f"{kind}[{shape}] stride [{stride}]"


def _sizes_text(sizes: tuple[Any, ...]) -> str:
    """The text of sizes without names of expressions: another graph may name the same expressions
    differently.
    """
    return ", ".join("?" if isinstance(size, Expr) else str(size) for size in sizes)
