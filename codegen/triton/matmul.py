"""Matrix products with their prologues and epilogues, as one Triton kernel.

In: a `Product`, whose factors and added term are loop nests with one stored value (a plain load, or
a computation on loads: a cast, a scale, a whole chain), and a `tiled` nest, the epilogue for each
element of the result. Out: a `TritonKernel`: a loop over blocks of k, in which the factors are
computed as they are loaded; sums in float32, rounded to the product's own dtype as the library's
are; and the nest over the tile while it is in registers. `CONFIGURATIONS` are the possible tilings;
measurement chooses one of them, or the library's call (level O2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ...ir.dataclass import dataclass
from ...ir.symbolic.expr import is_symbolic
from ...runtime.errors import BuildError
from ..loops import loop_nest
from ..loops.lines import Lines
from ..loops.loop_nest import Index, LoopNest, Value
from . import memory
from .arguments import Numbers
from .body import Writer
from .dialect import TYPES
from .renderer import TritonKernel, assemble, names
from .tiling import Dim, Plan

LEAST = 16  # the smallest side of a block that `tl.dot` takes
GROUP = 8  # rows of tiles whose programs run side by side, for the second-level cache
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Sides of a tile of the result, the step along k, warps of a program, stages of the pipelined
    loop.
    """

    rows: int
    columns: int
    step: int
    warps: int
    stages: int


# From large tiles (most work per loaded byte) to small ones (most programs): `configurations` takes
# those that fit.
CONFIGURATIONS = (
    Configuration(128, 256, 64, 8, 3),
    Configuration(256, 128, 64, 8, 3),
    Configuration(128, 128, 64, 8, 3),
    Configuration(128, 128, 32, 4, 4),
    Configuration(128, 64, 64, 4, 4),
    Configuration(64, 128, 64, 4, 4),
    Configuration(64, 64, 64, 4, 4),
    Configuration(32, 128, 64, 4, 4),
    Configuration(32, 64, 128, 4, 4),
    Configuration(16, 128, 128, 4, 4),
    Configuration(16, 64, 128, 4, 5),
)


@dataclass(frozen=True, slots=True)
class Product:
    """result[b, m, n] = round(sum over k of left[b, m, k] * right[b, k, n] + added[b, m, n]) to
    `dtype`.

        left, right, added  nests over the axes (b, m, k), (b, k, n), (b, m, n) without reductions,
                            each with one store: its value is the factor's element, already of the
                            factors' common dtype (of any float dtype for `added`)
    """

    batch: int
    m: int
    n: int
    k: int
    dtype: torch.dtype
    left: LoopNest
    right: LoopNest
    added: LoopNest | None = None

    @property
    def nests(self) -> tuple[LoopNest, ...]:
        found = (self.left, self.right, self.added)
        return tuple(nest for nest in found if nest is not None)


def plain_factor(
    name: str,
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    stride: tuple[int, int, int],
    offset: int = 0,
) -> LoopNest:
    """The nest of a factor, or of an added term, that is loaded from memory without computation."""
    buffer = loop_nest.Buffer(name, dtype, shape, stride)
    load = Value("load", (), dtype, (0, Index(stride, offset)))
    out = loop_nest.Buffer("value", dtype, shape, stride, written=True)
    return LoopNest(
        name, (), shape, (buffer, out), (load,), (loop_nest.Store(1, Index(stride, offset), 0),)
    )


def result(product: Product) -> LoopNest:
    """The nest that only stores the product's elements."""
    shape = (product.batch, product.m, product.n)
    stride = (product.m * product.n, product.n, 1)
    tile = loop_nest.Buffer("tile", product.dtype, shape, stride)
    out = loop_nest.Buffer("out", product.dtype, shape, stride, written=True)
    load = Value("load", (), product.dtype, (0, Index(stride)))
    store = loop_nest.Store(1, Index(stride), 0)
    return LoopNest("product", (), shape, (tile, out), (load,), (store,), tiled=0)


def configurations(product: Product) -> list[Configuration]:
    """The configurations that are worth a measurement.

    No tile is more than twice as large as the result. float32 factors in full precision, which use
    no tensor cores, have small tiles.
    """
    full = product.left.values[product.left.stores[0].value].dtype == torch.float32
    found = [
        one
        for one in CONFIGURATIONS
        if (one.rows == LEAST or one.rows < 2 * product.m)
        and (one.columns == 64 or one.columns < 2 * product.n)
        and not (full and one.rows * one.columns * one.step > 128 * 64 * 64)
    ]
    return found or [CONFIGURATIONS[-1]]


def pointers(product: Product, nest: LoopNest) -> list[tuple[int, int]]:
    """The kernel's pointers, in order: (position among the product's nests and, last, `nest`;
    number of the buffer).
    """
    found = [
        (place, number)
        for place, one in enumerate(product.nests)
        for number, buffer in enumerate(one.buffers)
        if not buffer.written
    ]
    last = len(product.nests)
    return found + [(last, number) for number in sorted(touched(nest))]


def touched(nest: LoopNest) -> set[int]:
    """The buffers that an epilogue loads from or stores to, without the tile."""
    return {number for number, _index in loop_nest.accesses(nest) if number != nest.tiled}


def render(
    product: Product, nest: LoopNest, way: Configuration, aligned: Sequence[int] = ()
) -> TritonKernel:
    """The kernel of a product and the nest over its result. `aligned`: positions among `pointers`.

    BuildError: sizes that are expressions, a dtype without tensor cores or accumulators, an
    epilogue whose axes do not split where the product's do.
    """
    _check(product, nest)
    nests = (*product.nests, nest)
    places = pointers(product, nest)
    found = names([nests[place].buffers[number] for place, number in places])
    parameters: list[list[str]] = [[""] * len(one.buffers) for one in nests]
    for (place, number), name in zip(places, found, strict=True):
        parameters[place][number] = name
    template = _Template(product, nest, way, parameters)
    body, numbers = template.write(), template.numbers
    kinds = [
        (name, "*" + TYPES[nests[place].buffers[number].dtype][1])
        for (place, number), name in zip(places, found, strict=True)
    ]
    kinds += numbers.arguments
    constants = {"YBLOCK": way.rows, "XBLOCK": way.columns, "KBLOCK": way.step}
    tiles = -(-product.m // way.rows) * -(-product.n // way.columns)
    kernel = assemble(nest.name, nest.covers, kinds, constants, body.lines, product.batch * tiles)
    return replace(
        kernel,
        warps=way.warps,
        stages=way.stages,
        aligned=tuple(sorted(aligned)),
        numbers=tuple(numbers.names),
    )


def _check(product: Product, nest: LoopNest) -> None:
    sizes = (product.batch, product.m, product.n, product.k)
    if is_symbolic(sizes) or any(
        is_symbolic([one.inner, *((i.strides, i.offset) for i in loop_nest.indices(one))])
        for one in (*product.nests, nest)
    ):
        raise BuildError("Triton products are made for known sizes only", found=nest.name)
    if any(_dtype(one) not in FLOATS for one in (product.left, product.right)):
        raise BuildError("Triton products take float32, bfloat16 and float16", found=nest.name)
    if nest.has_reduction or nest.scatters or nest.may_fail or nest.outer or not all(sizes):
        raise BuildError("what follows a product is done element by element", found=nest.name)


def _dtype(nest: LoopNest) -> torch.dtype:
    return nest.values[nest.stores[0].value].dtype


class _Part(Writer):
    """The writer of one of the nests, over dimensions whose positions come from outside."""

    spreads = False  # a tile of tensor cores has a layout of its own

    def __init__(
        self, template: _Template, nest: LoopNest, dims: Sequence[Dim], place: int
    ) -> None:
        plan = Plan(nest, tuple(dims), 4)
        super().__init__(plan, template.parameters[place], template.numbers)
        self.body = template.body

    def places(self, parts: dict[str, str]) -> None:
        for dim in self.plan.dims:
            self.place(dim, parts[dim.name])

    def element(self, whole: bool = True) -> str:
        """Write the lines of a factor's value; return its text, for a whole tile."""
        wanted = self.nest.stores[0].value
        for number in loop_nest.needed(self.nest, [wanted]):
            self.value(number)
        tile = {dim.name for dim in self.plan.dims if dim.constant}
        if not whole or tile <= self.along[wanted]:
            return f"v{wanted}"
        return f"tl.broadcast_to(v{wanted}, {self.plan.shape})"


class _Epilogue(_Part):
    def value(self, number: int) -> None:
        value = self.nest.values[number]
        if value.op == "load" and value.attr[0] == self.nest.tiled:
            self.body.put(f"v{number} = tile")
        else:
            super().value(number)


class _Template:
    def __init__(
        self, product: Product, nest: LoopNest, way: Configuration, parameters: list[list[str]]
    ) -> None:
        product = replace(
            product,
            left=_still(product.left),
            right=_still(product.right),
            added=None if product.added is None else _still(product.added),
        )
        self.product, self.nest, self.way, self.parameters = product, _still(nest), way, parameters
        self.body, self.numbers = Lines("    "), Numbers()
        self.rows = Dim("y", (1,), product.m, way.rows, "YBLOCK", "[:, None]")
        self.columns = Dim("x", (2,), product.n, way.columns, "XBLOCK", "[None, :]")
        self.batch = Dim("z", (0,), product.batch, 1)
        walk = Dim("k", (2,), product.k, way.step, "KBLOCK", "[None, :]", looped=True)
        down = replace(walk, view="[:, None]")
        self.left = _dims_of(self.product.left, self.batch, self.rows, walk)
        self.right = _dims_of(self.product.right, self.batch, down, self.columns)
        self.over = _dims_of(self.nest, self.batch, self.rows, self.columns)

    def write(self) -> Lines:
        product, body = self.product, self.body
        self._programs()
        parts = {"y": "y_pid", "x": "x_pid", "z": "z_pid", "k": "start"}
        body.put("acc = tl.zeros((YBLOCK, XBLOCK), tl.float32)")
        body.put(f"for start in range(0, {product.k}, KBLOCK):")
        body.depth += 1
        for name, nest, dims, place in (
            ("left", product.left, self.left, 0),
            ("right", product.right, self.right, 1),
        ):
            part = _Part(self, nest, dims, place)
            part.places(parts)
            text = part.element()
            if any(dim.looped and dim.masked for dim in dims):
                text = f"tl.where(k_mask, {text}, 0.0)"
                text = f"({text}).to({TYPES[_dtype(nest)][0]})"
            body.put(f"{name} = {text}")
        # Full precision: that the library may round float32 factors is a setting that can change
        # while kernels are kept.
        body.put('acc = tl.dot(left, right, acc, input_precision="ieee")')
        body.depth -= 1
        if product.added is not None:
            over = _dims_of(product.added, self.batch, self.rows, self.columns)
            part = _Part(self, product.added, over, 2)
            part.places(parts)
            body.put(f"acc += {part.element(whole=False)}.to(tl.float32)")
        body.put(f"tile = acc.to({TYPES[product.dtype][0]})")
        last = _Epilogue(self, self.nest, self.over, len(product.nests))
        last.places(parts)
        for number in loop_nest.needed(self.nest, [store.value for store in self.nest.stores]):
            last.value(number)
        for store in self.nest.stores:
            body.put(memory.store(last, store))
        return body

    def _programs(self) -> None:
        """From a program's number to its tile: in groups of `GROUP` rows of tiles, tiles are taken
        column by column.
        """
        body, product = self.body, self.product
        rows, columns = self.rows.programs, self.columns.programs
        body.put("pid = tl.program_id(0)")
        if product.batch > 1:
            body.put(f"z_pid = pid // {rows * columns}")
            body.put(f"pid = pid % {rows * columns}")
        if rows == 1 or columns == 1:
            body.put(f"y_pid = {'pid' if columns == 1 else '0'}")
            body.put(f"x_pid = {'0' if columns == 1 else 'pid'}")
            return
        group = min(GROUP, rows)
        body.put(f"first = pid // {group * columns} * {group}")
        body.put(
            f"beside = {group}" if rows % group == 0 else f"beside = min({rows} - first, {group})"
        )
        body.put(f"y_pid = first + pid % {group * columns} % beside")
        body.put(f"x_pid = pid % {group * columns} // beside")


def _still(nest: LoopNest) -> LoopNest:
    """The nest without strides along axes of one element."""

    def moved(index: Index) -> Index:
        steps = zip(index.strides, nest.inner, strict=True)
        return replace(index, strides=tuple(stride if size > 1 else 0 for stride, size in steps))

    return loop_nest.over(nest, nest.outer, nest.inner, moved)


def _dims_of(nest: LoopNest, *dims: Dim) -> tuple[Dim, ...]:
    """The dimensions over the axes of the nest: batches, then rows, then columns; each has one axis
    or more.
    """
    found: list[Dim] = []
    at = 0
    for dim in dims:
        axes: list[int] = []
        covered = 1
        while at < len(nest.inner) and covered * nest.inner[at] <= dim.extent:
            covered *= nest.inner[at]
            axes += [at] if nest.inner[at] > 1 else []
            at += 1
        if covered != dim.extent:
            raise BuildError("the axes do not part where the product's do", found=nest.name)
        found.append(replace(dim, axes=tuple(axes)))
    if at != len(nest.inner):
        raise BuildError("the axes do not part where the product's do", found=nest.name)
    return tuple(dim for dim in found if dim.constant or dim.extent > 1)
