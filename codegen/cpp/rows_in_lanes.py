"""Rows in lanes in C++: the loop over the vector axis where each lane is a row of its own.

In: a kernel being written (`renderer.Kernel`) whose plan has `lanes_are_rows`. Out: lines, put to
the kernel. `rows` does all passes over one vector of rows. `wide` does them for several vectors
side by side, if the plan has groups: a step down a column then reads a larger piece of memory that
is worth fetching, not 64 bytes of each line.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from ..loops import loop_nest
from ..loops.extents import estimate, is_symbolic
from . import scan
from .dialect import register
from .loop_plan import GROUPS, MANY_ROWS, SUM_BLOCK, Pass
from .row_pass import PassWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .renderer import Kernel


def write(kernel: Kernel, first: str, last: str, length: Any) -> None:
    """The rows first..last, of `length` in all: wide, by single vectors, and the rest."""
    lanes, together = kernel.lanes, kernel.lanes * kernel.plan.groups
    wide = together > lanes
    if wide:
        Wide(kernel).write()
    rest = is_symbolic(length) or length % together != 0 or not wide
    if rest:
        with kernel.function("rows", "const i64_t i, auto n"):
            kernel.one_row("0", "0", 0)
    kernel.put(f"i64_t at = {first};")
    if wide:
        kernel.put(f"for (; at + {together} <= {last}; at += {together}) wide(at);")
    if not rest:
        return
    left = f"int({last} - at)"
    if wide:  # few vectors: all with a mask, so that the text is compiled once
        kernel.put(f"for (; at < {last}; at += W) rows(at, {left} < W ? {left} : W);")
        return
    kernel.put(f"for (; at + {lanes} <= {last}; at += {lanes}) rows(at, full{{}});")
    if is_symbolic(length) or length % lanes:
        known = first == "0" and not is_symbolic(length)
        kernel.put(f"if (at < {last}) rows(at, {length % lanes if known else left});")


# Up to this many rows go by shorter blocks. Eager sums columns in four parts, so with few rows (a
# batch, the gradient of a bias) its errors are those of a quarter as many additions.
FEW_ROWS = 256


class _GroupPass(PassWriter):
    """A pass over several vectors of rows, whose row values may be arrays."""

    def __init__(self, wide: Wide, one: Pass) -> None:
        super().__init__(wide.kernel, one, copies=1)
        self.wide = wide

    def read_again(self, used: set[int]) -> None:
        self.wide.known_again(used)
        super().read_again(used)


class Wide:
    """The writer of `wide`. A row value is an array r{number}; an element is a vector, of
    group c.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.nest, self.put = kernel, kernel.nest, kernel.put
        self.groups = kernel.plan.groups
        self.arrays: set[int] = set()  # row values that are arrays: r{number}
        self.plain: set[int] = set()  # row values that are the same in all groups: v{number}

    def write(self) -> None:
        kernel = self.kernel
        with kernel.function("wide", "const i64_t start"):
            self.put("constexpr full n{};")
            for one_pass in kernel.passes:
                self.row_values(one_pass.phase)
                if not one_pass.empty:
                    self.one_pass(one_pass)
            self.row_values(max(kernel.phase, default=0) + 1)
            stores = [store for store in self.nest.stores if not self.nest.moves_inner(store.index)]
            if stores:
                with self.each_group({store.value for store in stores}):
                    for store in stores:
                        kernel.store(store, row=True)

    @contextmanager
    def each_group(self, used: Iterable[int]) -> Iterator[None]:
        """Lines for each group c, unrolled, with the row values in `used` declared."""
        with self.groups_of_lines():
            self.put("const i64_t i = start + c * W;")
            self.known_again(used)
            yield

    def groups_of_lines(self) -> AbstractContextManager[None]:
        """The unrolled loop over the groups."""
        self.put(f"#pragma GCC unroll {self.groups}")
        return self.kernel.block(f"for (int c = 0; c < {self.groups}; ++c) {{", "}")

    def for_groups(self, statement: str) -> None:
        self.put(f"#pragma GCC unroll {self.groups}")
        self.put(f"for (int c = 0; c < {self.groups}; ++c) {statement}")

    def known_again(self, used: Iterable[int]) -> None:
        for number in sorted(self.arrays.intersection(used)):
            self.put(f"const {self.kind(number)} v{number} = r{number}[c];")

    def kind(self, number: int) -> str:
        return register(self.nest.values[number].dtype)

    def row_values(self, phase: int) -> None:
        """Declare the row values that are known before the pass of this phase."""
        kernel = self.kernel
        fresh = [
            number for number, value in enumerate(self.nest.values)
            if not kernel.level[number] and kernel.phase[number] <= phase and value.op != "reduce"
            and number not in self.arrays | self.plain | kernel.spans
        ]  # fmt: skip
        varying: list[int] = []
        for number in fresh:
            args = self.nest.values[number].args
            if kernel.along[number] or not self.arrays.union(varying).isdisjoint(args):
                varying.append(number)
            else:
                self.plain.add(number)
                self.put(kernel.statement(number, row=True))
        if varying:
            for number in varying:
                self.put(f"{self.kind(number)} r{number}[{self.groups}];")
            with self.each_group({arg for n in varying for arg in self.nest.values[n].args}):
                for number in varying:
                    self.put(kernel.statement(number, row=True))
                    self.put(f"r{number}[c] = v{number};")
            self.arrays.update(varying)

    def one_pass(self, one: Pass) -> None:
        """Accumulators, the loops down the rows, and the results as arrays.

        The accumulators are a; for sums with many terms also their rounding errors, e, and the sums
        of the block, s.
        """
        kernel = self.kernel
        writer = _GroupPass(self, one)
        axes = list(kernel.plan.folds)
        last = axes.pop() if axes else None
        size = 1 if last is None else kernel.sizes[last]
        few, many = SUM_BLOCK // 4, SUM_BLOCK
        block = f"({kernel.n(size)} > {FEW_ROWS} ? {many} : {few})"
        if not is_symbolic(size):
            block = str(many if size > FEW_ROWS else few)
        blocked = bool(writer.sums) and (bool(axes) or is_symbolic(size) or size > few)
        for number in one.folds:
            self.put(f"{writer.accumulator(number)[0]} r{number}[{self.groups}];")
        with kernel.block("{", "}"):
            for number in one.folds:
                self.filled(writer, "a", number)
                if blocked and number in writer.sums:
                    self.filled(writer, "e", number)
            for number in scan.of(kernel, one):
                self.filled(writer, "c", number)
            with kernel.loops(axes):
                name = "x" if last is None else f"x{last}"
                kernel.group = "[c]"
                writer.body("body", ", const i64_t i, const int c", name)
                kernel.group = ""
                self.down(writer, kernel.n(size), block if blocked else "")
            for number in one.folds:
                found = f"a{number}[c]"
                if blocked and number in writer.sums:
                    found = f"with_lost({found}, e{number}[c])"
                self.for_groups(f"r{number}[c] = {found};")
        self.arrays.update(one.folds)

    def filled(self, writer: PassWriter, letter: str, number: int) -> None:
        """Declare a register of an accumulator for each group."""
        kind, start = writer.accumulator(number)
        self.put(f"{kind} {letter}{number}[{self.groups}];")
        self.for_groups(f"{letter}{number}[c] = {start};")

    def down(self, writer: PassWriter, size: str, block: str) -> None:
        """The innermost loop down the rows, in blocks of `block` if sums need that."""
        taken = "".join(
            f", {'s' if block and number in writer.sums else 'a'}{number}[c]"
            for number in writer.one.folds
        )

        def steps(first: str, last: str) -> None:
            with self.kernel.loop("at", last, first):
                self.for_groups(f"body(at, start + c * W, c{taken});")

        if not block:
            steps("0", size)
            return
        with self.kernel.in_blocks("0", size, block):
            for number in writer.sums:
                self.filled(writer, "s", number)
            steps("block", "end")
            with self.groups_of_lines():
                for number in writer.sums:
                    self.put(f"two_sum(a{number}[c], e{number}[c], s{number}[c]);")


def groups(kernel: Kernel) -> int:
    """The number of vectors of rows at a time.

    Fewer if a pass is expensive; one if a pass reads anything but neighbours or keeps something for
    each row.
    """
    nest, vector = kernel.nest, kernel.plan.vector
    assert vector is not None
    if any(index.strides[vector] not in (0, 1) for index in loop_nest.indices(nest)):
        return 1
    if any(
        value.args or value.op == "load_if" for value in nest.values if value.op in loop_nest.LOADS
    ):
        return 1
    # twice as many if threads still have enough items
    most = 2 * GROUPS if estimate(kernel.sizes[vector]) >= MANY_ROWS * kernel.lanes else GROUPS
    for one_pass in kernel.passes:
        if not kernel.homes.keys() >= set(one_pass.keeps):
            return 1
        if any(nest.values[number].attr in loop_nest.PLACES for number in one_pass.folds):
            return 1
        cost = sum(kernel.cost_of(number) for number in one_pass.body)
        registers = max(len(one_pass.folds) + len(scan.of(kernel, one_pass)), 1)
        dear = 1 if cost > 64 else GROUPS // 2 if cost > 16 else GROUPS if cost > 4 else most
        most = min(most, 2 * GROUPS // registers, dear)
    return nest.hints.groups or most
