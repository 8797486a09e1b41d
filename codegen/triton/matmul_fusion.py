"""Fused products on a GPU: a plan's products that graftjit's kernel computes together with their
epilogues.

`Hosts` maps calls of ATen that are products to the `matmul.Configuration` of their kernel.
`schedule` plans with them; `fusion.epilogue` makes a pointwise kernel that reads such a product its
epilogue. `inputs` are the tensors that the kernel reads, `text` is its text. Measurement decides
which products are worth it (`codegen.tuning.gpu`, level O2); all others, and those without a
pointwise consumer, stay the library's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...ir.dataclass import dataclass
from ...ir.graph.layout import contiguous_strides
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import is_symbolic
from ..analysis.dataflow import memory_of
from ..kernels.matmul_f32 import FACTORS, operands
from ..loops.kernel import Kernel, Prologue
from ..loops.loop_nest import Index, LoopNest, over
from . import matmul
from .matmul import FLOATS, Configuration, Product, plain_factor
from .renderer import TritonKernel

_NAMES = ("factor_left", "factor_right", "added")


@dataclass(frozen=True, slots=True)
class Host:
    """A product with a kernel of graftjit, and the configuration of the kernel."""

    way: Configuration

    def columns(self, node: Node) -> int:
        """The columns of the right factor."""
        return int(node.meta.shape[-1])


Hosts = Mapping[Node, Host]


def takes(node: Node) -> bool:
    """Whether this call of ATen is a product that `product_of` can describe: known sizes, on a GPU,
    unscaled, contiguous result.
    """
    if node.op != "call" or node.target not in FACTORS:
        return False
    metas = [one.meta for one in (node, *operands(node)) if one is not None]
    if is_symbolic([(meta.shape, meta.stride, meta.offset) for meta in metas]):
        return False
    first = metas[0]
    if first.device.type != "cuda" or first.dtype not in FLOATS:
        return False
    if any(meta.dtype != first.dtype or meta.device != first.device for meta in metas):
        return False
    scaled = any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta"))
    every = all(size > 0 for meta in metas for size in meta.shape)
    return not scaled and every and first.stride == contiguous_strides(first.shape)


def product_of(node: Node, prologues: Sequence[Prologue] = ()) -> tuple[Product, tuple[Node, ...]]:
    """The product, and the tensors behind its nests in order. `prologues`: factors that
    are computed.
    """
    left, right, added = operands(node)
    computed = {one.place: one for one in prologues}
    bases: list[Node] = []
    nests: list[LoopNest] = []
    for place, one in enumerate((left, right, added)):
        if one is None:
            continue
        made = factor(node, computed[place]) if place in computed else None
        if made is not None:
            bases += computed[place].kernel.reads
            nests.append(made)
            continue
        base, offset = memory_of(one)
        space = _space(node, place)
        bases.append(base)
        strides = _strides(one.meta, space)
        nests.append(plain_factor(_NAMES[place], one.meta.dtype, space, strides, offset))
    batch, m, n = _space(node, 2)
    k = int(left.meta.shape[-1])
    more = nests[2] if added is not None else None
    found = Product(batch, m, n, k, node.meta.dtype, nests[0], nests[1], more)
    return found, tuple(bases)


def _space(node: Node, place: int) -> tuple[int, int, int]:
    """The axes of the left factor (0), the right one (1), or the result (2)."""
    shape = node.meta.shape
    batch = int(shape[0]) if len(shape) == 3 else 1
    m, n, k = int(shape[-2]), int(shape[-1]), int(operands(node)[0].meta.shape[-1])
    return ((batch, m, k), (batch, k, n), (batch, m, n))[place]


def factor(node: Node, prologue: Prologue) -> LoopNest | None:
    """The prologue's nest over the axes of the factor that it computes; None if it walks its memory
    in another order.
    """
    nest, operand = prologue.kernel.nest, operands(node)[:2][prologue.place]
    assert operand is not None
    store = nest.stores[0]
    _base, offset = memory_of(operand)
    if offset or store.index.offset or not nest.inner:
        return None
    space = _space(node, prologue.place)
    moves: list[tuple[int, int, int]] = []  # size, axis of the nest, steps along it
    for size, stride in zip(space, _strides(operand.meta, space), strict=True):
        walked = _walked(nest, store.index, size, int(stride))
        if walked is None:
            return None
        moves += walked
    for axis, size in enumerate(nest.inner):
        if sum((count - 1) * steps for count, along, steps in moves if along == axis) >= size:
            return None

    def moved(index: Index) -> Index:
        return Index(
            tuple([index.strides[axis] * steps for _size, axis, steps in moves]), index.offset
        )

    return over(nest, nest.outer, [size for size, _axis, _steps in moves], moved)


def _walked(
    nest: LoopNest, place: Index, size: int, stride: int
) -> list[tuple[int, int, int]] | None:
    """How a nest that stores at this position moves when its memory is walked in `size` steps of
    `stride` elements: along a part of one axis, or along whole axes, each of which continues the
    one before.
    """
    if size == 1:
        return [(1, 0, 0)]
    if stride <= 0:
        return None
    for axis, (extent, step) in enumerate(zip(nest.inner, place.strides, strict=True)):
        if step > 0 and stride % step == 0 and stride * (size - 1) < step * extent:
            return [(size, axis, stride // step)]
    found: list[tuple[int, int, int]] = []
    covered = 1
    while covered < size:
        here = [
            a for a, n in enumerate(nest.inner) if n > 1 and place.strides[a] == stride * covered
        ]
        if not here or (here[0] in [axis for _size, axis, _steps in found]):
            return None
        found.insert(0, (int(nest.inner[here[0]]), here[0], 1))
        covered *= int(nest.inner[here[0]])
    return found if covered == size else None


def _strides(meta: Meta, space: tuple[int, int, int]) -> Any:
    """The strides along the three axes: 0 if a dimension is missing or has one element for all."""
    missing = 3 - len(meta.shape)
    strides = (0,) * missing + tuple(meta.stride)
    sizes = (1,) * missing + tuple(meta.shape)
    return tuple(
        0 if size == 1 and wanted != 1 else stride
        for size, stride, wanted in zip(sizes, strides, space, strict=True)
    )


def inputs(kernel: Kernel) -> tuple[Node, ...]:
    """The tensors that the kernel reads: the product's factors, and those that its epilogue reads
    beside the tile.
    """
    assert kernel.host is not None
    _product, bases = product_of(kernel.host, kernel.prologues)
    used = matmul.touched(kernel.nest)
    return (*bases, *(node for place, node in enumerate(kernel.reads) if place in used))


def given(kernel: Kernel) -> tuple[Node, ...]:
    """The tensors of a kernel on a GPU, in the order of its pointers."""
    read = kernel.reads if kernel.host is None else inputs(kernel)
    return (*read, *kernel.stores)


def text(
    kernel: Kernel, nest: LoopNest, way: Configuration, aligned: Collection[int]
) -> TritonKernel:
    """The kernel of a product with this nest as its epilogue. `aligned`: positions among
    `given`.
    """
    assert kernel.host is not None
    product, _bases = product_of(kernel.host, kernel.prologues)
    return matmul.render(product, nest, way, tuple(aligned))
