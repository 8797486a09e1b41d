"""Products of a plan on a GPU that a kernel of ours does together with what follows them.

`Hosts` says for calls of ATen that are products which `triton_product.Configuration` their kernel has; `schedule.hosting`
plans with them, `epilogue` makes a pointwise kernel that reads such a product its epilogue. `operands` is what the kernel
is given, `text` what it is. Which products are worth it is measured (`codegen.tune_gpu`, level O2); all others, and those
that nothing pointwise follows, stay the library's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from ..ir.dataclass import dataclass
from ..ir.graph import Meta, Node
from ..ir.layout import contiguous_strides
from ..ir.symbols import is_symbolic
from . import triton_product
from .flow import memory_of
from .loops import LoopNest
from .nest import Kernel
from .products import FACTORS, operands
from .triton import TritonKernel
from .triton_product import FLOATS, Configuration, Product, plain_factor


@dataclass(frozen=True, slots=True)
class Host:
    """A product with a kernel of ours, cut in this way."""

    way: Configuration

    def columns(self, node: Node) -> int:
        """Those of the right factor."""
        return int(node.meta.shape[-1])


Hosts = Mapping[Node, Host]


def takes(node: Node) -> bool:
    """Is this call of ATen a product that `product_of` can say? Sizes known, on a GPU, nothing scaled, the result in order."""
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


def product_of(node: Node) -> tuple[Product, tuple[Node, ...]]:
    """The product, and the tensors behind its nests in order."""
    left, right, added = operands(node)
    shape = node.meta.shape
    batch = int(shape[0]) if len(shape) == 3 else 1
    m, n, k = int(shape[-2]), int(shape[-1]), int(left.meta.shape[-1])
    given = [("factor_left", left, (batch, m, k)), ("factor_right", right, (batch, k, n))]
    if added is not None:
        given.append(("added", added, (batch, m, n)))
    bases, nests = [], []
    for name, one, space in given:
        base, offset = memory_of(one)
        bases.append(base)
        nests.append(plain_factor(name, one.meta.dtype, space, _strides(one.meta, space), offset))
    more = nests[2] if added is not None else None
    found = Product(batch, m, n, k, node.meta.dtype, nests[0], nests[1], more, _tf32(node))
    return found, tuple(bases)


def _strides(meta: Meta, space: tuple[int, int, int]) -> Any:
    """Along the three axes: 0 where a dimension is missing or one element for all."""
    missing = 3 - len(meta.shape)
    strides = (0,) * missing + tuple(meta.stride)
    sizes = (1,) * missing + tuple(meta.shape)
    return tuple(
        0 if size == 1 and wanted != 1 else stride
        for size, stride, wanted in zip(sizes, strides, space, strict=True)
    )


def _tf32(node: Node) -> bool:
    """May the library round float32 factors?"""
    return node.meta.dtype == torch.float32 and bool(torch.backends.cuda.matmul.allow_tf32)


def inputs(kernel: Kernel) -> tuple[Node, ...]:
    """What the kernel reads: the product's factors, and what its epilogue reads beside the tile."""
    assert kernel.host is not None
    _product, bases = product_of(kernel.host)
    tile = kernel.nest.tiled
    return (*bases, *(node for place, node in enumerate(kernel.reads) if place != tile))


def given(kernel: Kernel) -> tuple[Node, ...]:
    """The tensors of a kernel on a GPU, in the order of its pointers."""
    read = kernel.reads if kernel.host is None else inputs(kernel)
    return (*read, *kernel.stores)


def text(
    kernel: Kernel, nest: LoopNest, way: Configuration, aligned: Collection[int]
) -> TritonKernel:
    """The kernel of a product with this nest as its epilogue. `aligned`: places among `given`."""
    assert kernel.host is not None
    product, _bases = product_of(kernel.host)
    return triton_product.render(product, nest, way, tuple(aligned))
