"""One pass over a row in C++: accumulators, loops, the body of an element, and the results of the
reductions.

In: a kernel being written (`renderer.Kernel`) and one of its passes. Out: lines, put to the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ...ir.symbolic.expr import greatest
from ..loops import loop_nest
from ..loops.extents import is_symbolic
from ..loops.loop_nest import Index, LoopNest
from . import epilogue, kept_values, scan, squares, zeros
from .dialect import identity, register
from .loop_plan import CHUNK, SPLIT_PARTS, SUM_BLOCK, Pass

if TYPE_CHECKING:
    from .renderer import Kernel


class PassWriter:
    """The writer of one pass."""

    def __init__(self, kernel: Kernel, one_pass: Pass, copies: int = 0) -> None:
        """`copies`: of each accumulator; 0: as many as pay."""
        self.kernel, self.one = kernel, one_pass
        self.nest, self.plan = kernel.nest, kernel.plan
        self.put = kernel.put
        self.cost = sum(kernel.cost_of(number) for number in one_pass.body)
        self.unroll = copies or (self._copies(self.cost) if one_pass.folds else 1)
        columns = self.nest.columns  # positions have 32 bits if that is enough
        self.place = "i64" if is_symbolic(columns) or columns >= 2**31 else "i32"
        self.sums = [
            n for n in one_pass.folds
            if self.nest.values[n].attr == "sum" and self.nest.values[n].dtype.is_floating_point
        ]  # fmt: skip

        self.row = ("0", "0", 0)  # first, last and length of the row that is reduced
        self.joined: set[int] = set()  # sums whose copies are already added to the first one

    def _copies(self, cost: int) -> int:
        """The number of copies of an accumulator: as many as additions run at the same time; a
        comparison that moves two registers takes longer.
        """
        kinds = [self.nest.values[number].attr for number in self.one.folds]
        places = len(kinds) == 1 and kinds[0] in loop_nest.PLACES and self.kernel.lanes >= 16
        return self.nest.hints.unroll or (8 if places and cost < 16 else 4 if cost < 16 else 2)

    def write(self, first: str, last: str, length: Any) -> None:
        plan = self.plan
        self.row = first, last, length
        if plan.split:
            self._write_split(length)
        else:
            self.declare()
            for number in scan.of(self.kernel, self.one):
                scan.begin(self.kernel, number)
            self.loops(first, last, length)
            self.finish()

    # Accumulators: a{value}_{copy}; argmax and argmin have a position k{value}_{copy} too.

    def registers(self, number: int) -> list[tuple[str, str, str]]:
        """(letter, register type, text of the start) of each register of an accumulator."""
        found = [("a", *self.accumulator(number))]
        if self.nest.values[number].attr in loop_nest.PLACES:
            found.append(("k", self.place, self.nowhere))
        return found

    def declare(self) -> None:
        for number in self.one.folds:
            for copy in range(self.unroll):
                for letter, kind, start in self.registers(number):
                    self.put(f"{kind} {letter}{number}_{copy} = {start};")

    @property
    def nowhere(self) -> str:
        """A position greater than all others: no element was better than the identity."""
        return {"i32": "splat<i32>(2147483647)", "i64": "splat<i64>(9223372036854775807ll)"}[
            self.place
        ]

    def accumulator(self, number: int) -> tuple[str, str]:
        """(register type, text of the identity)."""
        value = self.nest.values[number]
        dtype = self.nest.values[value.args[0]].dtype
        return register(dtype), identity(loop_nest.SCANS.get(value.attr, value.attr), dtype)

    def combine(self, number: int, value: str, position: str = "", later: bool = False) -> str:
        """The statement that takes a value (and its position) into an accumulator.

        `later`: the position is greater than those that the accumulator has met.
        """
        kind = self.nest.values[number].attr
        target = f"a{number}_0"
        if kind in loop_nest.PLACES:
            pick = ("later_" if later else "pick_") + kind.removeprefix("arg")
            return f"{pick}({target}, k{number}_0, {value}, {position});"
        return f"{target} = {combined(self.nest, number, target, value)};"

    def loops(self, first: str, last: str, length: Any) -> None:
        """Loops over the reduced axes; the innermost has several accumulators, and blocks
        for sums.
        """
        kernel, plan = self.kernel, self.plan
        axes = list(plan.folds)
        inner_axis = axes.pop() if plan.lanes_are_rows and axes else None
        size = length
        if plan.lanes_are_rows:
            size = 1 if inner_axis is None else kernel.sizes[inner_axis]
        blocked = self.blocked(size, 1 if plan.lanes_are_rows else kernel.lanes, bool(axes))
        with self._in_blocks(blocked), kernel.loops(axes):
            if plan.lanes_are_rows:
                name = "x" if inner_axis is None else f"x{inner_axis}"
                self._innermost(name, "0", kernel.n(size), size, 1, blocked)
            else:
                self._innermost("i", first, last, length, kernel.lanes, blocked)

    # Float sums of many terms go by blocks: plain additions inside a block; the sums of the blocks
    # are added together with their rounding errors (Knuth's two-sum), so that the error does not
    # grow with the length.

    def blocked(self, length: Any, step: int, again: bool) -> bool:
        many = is_symbolic(length) or length > SUM_BLOCK * step * self.unroll or again
        return bool(self.sums) and many

    def _copied_sums(self) -> list[tuple[int, int]]:
        return [(number, copy) for number in self.sums for copy in range(self.unroll)]

    @contextmanager
    def _in_blocks(self, blocked: bool) -> Iterator[None]:
        """Lines that add blocks; after them the copies of an accumulator are joined in the same
        way.
        """
        for number, copy in self._copied_sums() if blocked else ():
            self.put(f"auto e{number}_{copy} = {self.accumulator(number)[1]};")
        yield
        for number in self.sums if blocked else ():
            first, lost = f"a{number}_0", f"e{number}_0"
            for copy in range(1, self.unroll):
                self.put(f"two_sum({first}, {lost}, a{number}_{copy});")
                self.put(f"{lost} = {lost} + e{number}_{copy};")
            self.put(f"{first} = with_lost({first}, {lost});")
            self.joined.add(number)

    def _innermost(
        self, name: str, first: str, last: str, length: Any, step: int, blocked: bool
    ) -> None:
        kernel = self.kernel
        with kernel.block("{", "}"):
            if not blocked:
                self.body("body", "" if self.plan.lanes_are_rows else ", auto n", name)
                self._calls(first, last, length, step, blocked)
                return
            with kernel.in_blocks(first, last, str(SUM_BLOCK * step * self.unroll)):
                for number, copy in self._copied_sums():
                    self.put(f"auto s{number}_{copy} = {self.accumulator(number)[1]};")
                self.body("body", "" if self.plan.lanes_are_rows else ", auto n", name)
                self._calls("block", "end", length, step, blocked)
                for number, copy in self._copied_sums():
                    self.put(f"two_sum(a{number}_{copy}, e{number}_{copy}, s{number}_{copy});")

    def names(self, copy: int, blocked: bool) -> str:
        """The accumulators of one copy as further arguments of the body."""
        of_block = self.sums if blocked else ()
        names = [
            f", {'s' if number in of_block else letter}{number}_{copy}"
            for number in self.one.folds
            for letter, _kind, _start in self.registers(number)
        ]
        return "".join(names)

    def body(
        self,
        of: str,
        more: str,
        name: str,
        loaded: Mapping[int, str] | None = None,
        stored: Mapping[loop_nest.Store, str] | None = None,
    ) -> None:
        """A lambda for one vector of elements: (position, `more`, accumulators).

        `loaded`: the registers of loads that are made before; `stored`: the registers of values
        that are stored after it.
        """
        kernel = self.kernel
        parameters = "".join(
            f", {kind} &{letter}{number}_0"
            for number in self.one.folds
            for letter, kind, _start in self.registers(number)
        )
        with kernel.function(of, f"const i64_t {name}{more}{parameters}"):
            used = {arg for n in self.one.body for arg in self.nest.values[n].args}
            self.read_again(used.union(kernel.roots(self.one)))
            kernel.declare(self.one.body, loaded)
            for number in self.one.keeps:
                kept_values.write(kernel, number)
            for number in self.one.folds:
                self._take(number)
            for store, target in (stored or {}).items():
                self.put(f"{target} = v{store.value};")
            for store in self.one.stores:
                if not stored or store not in stored:
                    kernel.store(store)

    def read_again(self, used: set[int]) -> None:
        """Read back the values among `used` that an earlier pass kept."""
        for number in sorted(used & self.kernel.kept - set(self.one.body)):
            kept_values.read(self.kernel, number)

    def _take(self, number: int) -> None:
        value = self.nest.values[number]
        text = f"v{value.args[0]}"
        position = ""
        if not self.plan.lanes_are_rows:
            text = f"keep({text}, {self.accumulator(number)[1]}, n)"
        if value.attr in loop_nest.PLACES:
            position = self._position()
        self.put(self.combine(number, text, position, later=True))

    def _position(self) -> str:
        """The element's row-major position in the reduced axes, in all lanes."""
        kernel = self.kernel
        strides: list[Any] = [0] * len(kernel.sizes)
        below: Any = 1
        for axis in reversed(range(len(self.nest.outer), len(kernel.sizes))):
            strides[axis] = below
            below = below * kernel.sizes[axis]
        return kernel.affine(Index(tuple(strides)), row=False, kind=self.place)

    def _calls(self, first: str, last: str, length: Any, step: int, blocked: bool) -> None:
        """Call the body: unrolled, one by one, and for the rest."""
        lanes = not self.plan.lanes_are_rows
        count = ", full{}" if lanes else ""
        together = step * self.unroll
        unknown = is_symbolic(length)
        if self.nest.tiled is not None:
            epilogue.columns(self.kernel)
            return
        self.put(f"i64_t at = {first};")
        if self.plan.squares:
            squares.write(self, last, blocked)
        if self.unroll > 1 and (unknown or length >= together):
            self.put(f"for (; at + {together} <= {last}; at += {together}) {{")
            for copy in range(self.unroll):
                self.put(f"  body(at + {copy * step}{count}{self.names(copy, blocked)});")
            self.put("}")
        if unknown or (
            length >= step and (self.unroll == 1 or length % together >= step or length < together)
        ):
            self.put(
                f"for (; at + {step} <= {last}; at += {step})"
                f" body(at{count}{self.names(0, blocked)});"
            )
        if lanes and (unknown or length % step):
            known = first == "0" and not unknown
            rest = str(length % step) if known else f"int({last} - at)"
            self.put(f"if (at < {last}) body(at, {rest}{self.names(0, blocked)});")

    def join(self, number: int) -> None:
        """Join the copies of an accumulator to the first one."""
        zeros.settle(self, number)
        for copy in range(1, 1 if number in self.joined else self.unroll):
            self.put(self.combine(number, f"a{number}_{copy}", f"k{number}_{copy}"))

    def folded(self, number: int, function: str, vector: str) -> str:
        """The text that reduces all lanes, or all vectors of an array."""
        kind = self.accumulator(number)[0]
        joined = combined(self.nest, number, "a", "b")
        return f"{function}({vector}, []({kind} a, {kind} b) {{ return {joined}; }})"

    def finish(self) -> None:
        """Compute the row's value from the accumulators."""
        for number in self.one.folds:
            self.join(number)
            accumulator, place = f"a{number}_0", f"k{number}_0"
            kind = self.accumulator(number)[0]
            if self.nest.values[number].attr in loop_nest.PLACES:
                if not self.plan.lanes_are_rows:
                    self.put("#pragma GCC unroll 8")
                    self.put("for (int by = W / 2; by; by /= 2)")
                    turned = f"turned({accumulator}, by)", f"turned({place}, by)"
                    self.put("  " + self.combine(number, *turned))
                # 0 if no element is better than the identity
                self.put(f"{place} = {place} == {self.nowhere} ? {self.place}{{}} : {place};")
                self.put(f"const i64 v{number} = conv<i64>({place});")
            else:
                rows = self.plan.lanes_are_rows
                found = accumulator if rows else self.folded(number, "fold", accumulator)
                self.put(f"const {kind} v{number} = {found};")
            self.kernel.known.add(number)

    def _write_split(self, length: Any) -> None:
        """Threads share the columns: each chunk is reduced by itself, then the chunks in order."""
        kernel = self.kernel
        chunk = greatest(2 * CHUNK, -(-length // SPLIT_PARTS))
        chunk = -(-chunk // kernel.lanes) * kernel.lanes
        chunks = -(-length // chunk)
        size = SPLIT_PARTS if is_symbolic(chunks) else chunks
        for number in self.one.folds:
            for letter, kind, _start in self.registers(number):
                name = f"{_PARTS[letter]}{number}"
                self.put(f"{kind} {name}_[{size}], *const {name} = {name}_;")
        with kernel.each_item("c", chunks):
            self._part(chunk, length)
        self.row = "0", kernel.n(length), length
        if self.one.folds:
            unroll, self.unroll = self.unroll, 1
            self.declare()
            with kernel.loop("c", kernel.n(chunks)):
                for number in self.one.folds:
                    self.put(self.combine(number, f"part{number}[c]", f"place{number}[c]"))
            self.finish()
            self.unroll = unroll

    def _part(self, chunk: Any, length: Any) -> None:
        kernel = self.kernel
        step, last = kernel.n(chunk), kernel.n(length)
        kernel.part(f"c * {step}", step, last)
        self.row = "from", "to", length
        self.declare()
        blocked = self.blocked(length, kernel.lanes, False)
        with self._in_blocks(blocked):
            self._innermost("i", "from", "to", length, kernel.lanes, blocked)
        for number in self.one.folds:
            self.join(number)
            for letter, _kind, _start in self.registers(number):
                self.put(f"{_PARTS[letter]}{number}[c] = {letter}{number}_0;")


# The arrays that hold the registers of an accumulator, one element per chunk of a row.
_PARTS = {"a": "part", "k": "place"}

_COMBINED = {
    "sum": "{0} + {1}",
    "prod": "{0} * {1}",
    "max": "maximum({1}, {0})",
    "min": "minimum({1}, {0})",
    "first max": "maximum({1}, {0})",
    "first min": "minimum({1}, {0})",
    "any": "{0} | {1}",
    "all": "{0} & {1}",
}


def combined(nest: LoopNest, number: int, left: str, right: str) -> str:
    """The text that combines two values of a reduction."""
    kind = nest.values[number].attr
    if nest.values[number].dtype == torch.bool and kind in ("max", "min"):
        kind = "any" if kind == "max" else "all"
    return _COMBINED[kind].format(left, right)
