"""Products of float32 matrices by graftjit's kernel, on processors that are not Intel's.

ATen gives float32 products to MKL, which there uses at most AVX2, and waits for each weight that is
not in a cache (`hardware.slow_mkl`). Products of a certain size are launches of one kernel,
matmul_f32.h: it blocks, packs on the way, keeps nothing, and its sums start with the bias.
`registry` uses `takes` to choose the calls, and `launch` for the arguments of the kernel.

Measured on such a machine with AVX-512 and two threads, MKL / graftjit in us (errors against
float64 are equal):

    64 x 512 x 512: 204 / 92      512 x 768 x 768: 3151 / 1503
    256 x 1024 x 256: 713 / 342   2048 x 64 x 64: 102 / 43
    64 x 64 x 64: 10 / 3          16 x 1024 x 1024: 297 / 149
    64 x 10 x 512: 12 / 16

On one with AVX2 and one thread, in 10^9 operations a second (of 94), the weights one after another
out of 100 MB, rows x depth x columns:

    128 x 768 x 768: 55 / 73      128 x 768 x 3072: 53 / 78     128 x 3072 x 768: 64 / 68
    197 x 384 x 1536: 46 / 57     32 x 768 x 768: 38 / 64       16 x 1024 x 1024: 25 / 51
    8 x 1024 x 1024: 13 / 27      4 x 1024 x 4096: 6 / 13
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.graph.layout import contiguous_strides
from ...ir.graph.nodes import Meta, Node
from ...runtime.process import hardware
from ..analysis.dataflow import memory_of
from ..loops.extents import estimate, estimated, positive

aten = torch.ops.aten
SYMBOL, FILE = "product_f32", "matmul_f32.h"
PANEL = 32  # columns that the kernel computes together
FILLED = 0.6  # the least used part of its panels; below it MKL is as fast
ROWS = 4  # the fewest rows; with fewer, reading the weight takes the time
SERIAL = 1 << 17  # as in matmul_f32.h: from here on it has a way of its own for few rows
WORK = 1 << 14  # the fewest multiplications; below, the call itself takes the time

# operator -> position of the left factor; the operand before it is added
FACTORS = {aten.mm.default: 0, aten.addmm.default: 1, aten.bmm.default: 0, aten.baddbmm.default: 1}


def takes(node: Node) -> bool:
    """Whether the kernel can compute this call of ATen, and pays."""
    if node.target not in FACTORS or not hardware.slow_mkl():
        return False
    if torch.get_float32_matmul_precision() != "highest":
        return False  # then ATen may round the factors to fewer bits
    return plain(node, torch.float32) and readable(node) and _pays(node)


def leaves_weight(node: Node) -> bool:
    """Whether the kernel takes the product, and reads a weight of `Linear` once and in its order.

    Then it is faster than a nest also for few rows: eight rows of six blocks 1024-4096-1024 in 33
    ms for 38 to 50, five in 29 for 31 (AVX2, one thread).
    """
    if not takes(node) or len(node.meta.shape) != 2 or _work(node) < SERIAL:
        return False
    return operands(node)[1].meta.stride[-2] == 1


def operands(node: Node) -> tuple[Node, Node, Node | None]:
    """Left factor, right factor, and the operand that is added."""
    at = FACTORS[node.target]
    left, right = node.args[at : at + 2]
    return left, right, node.args[0] if at else None


def plain(node: Node, dtype: torch.dtype) -> bool:
    """Whether all is non-empty, of this dtype, on the CPU and unscaled, with a contiguous
    result.
    """
    metas = [one.meta for one in (node, *operands(node)) if one is not None]
    simple = all(
        meta.dtype is dtype and meta.device.type == "cpu" and positive(meta.shape) for meta in metas
    )
    scaled = any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta"))
    return simple and not scaled and node.meta.stride == contiguous_strides(node.meta.shape)


def readable(node: Node) -> bool:
    """Whether the left factor is contiguous along k, the right one along k or n, the added one
    along n.
    """
    left, right, added = operands(node)
    if left.meta.stride[-1] != 1 or 1 not in right.meta.stride[-2:]:
        return False
    if added is None:
        return True
    meta = added.meta
    return bool(meta.shape and meta.shape[-1] == node.meta.shape[-1] and meta.stride[-1] == 1)


def _pays(node: Node) -> bool:
    columns = estimate(node.meta.shape[-1])
    filled = columns / (-(-columns // PANEL) * PANEL)
    return _work(node) >= WORK and filled >= FILLED and estimate(node.meta.shape[-2]) >= ROWS


def _work(node: Node) -> int:
    return estimated((*node.meta.shape, operands(node)[0].meta.shape[-1]))


def launch(node: Node) -> tuple[list[Node], tuple[Any, ...]]:
    """The tensors that the kernel reads (its result follows them), and its numbers.

    The numbers are: offsets of the left factor, the right factor and the added operand (before that
    of the latter: 0 if there is none), batches and sizes m, n, k, strides.
    """
    left, right, added = operands(node)
    reads = [memory_of(one) for one in (left, right, left if added is None else added)]
    (_x, x_at), (_w, w_at), (_b, b_at) = reads
    x, w = left.meta, right.meta
    batch, *_rest = node.meta.shape if len(node.meta.shape) == 3 else (1,)
    numbers = (
        x_at, w_at, int(added is not None), b_at,
        batch, *node.meta.shape[-2:], x.shape[-1],
        _outer(x, 3), x.stride[-2], _outer(w, 3), w.stride[-1], w.stride[-2],
        *((0, 0) if added is None else (_outer(added.meta, 3), _outer(added.meta, 2))),
    )  # fmt: skip
    return [base for base, _at in reads], numbers


def _outer(meta: Meta, place: int) -> Any:
    """The stride of a dimension counted from the last; 0 if it is missing or has size 1."""
    if len(meta.shape) < place or meta.shape[-place] == 1:
        return 0
    return meta.stride[-place]


def columns(node: Node) -> Any:
    """The columns of the right factor."""
    return node.meta.shape[-1]
