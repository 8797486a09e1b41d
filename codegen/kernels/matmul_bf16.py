"""Products of few bfloat16 rows by a weight that is contiguous along k, as in a linear layer, by
graftjit's kernel.

ATen gives them to oneDNN, which packs the weight anew at each call; with few rows that is most of
the work. The kernel, matmul_bf16.h, reads the weight in its own layout, each row along k, so it
keeps nothing between calls that could be stale. It needs vdpbf16ps (`avx512_bf16`), which oneDNN
uses too: products are exact, sums are float32, denormals count as zero, the result is rounded once.
`registry` uses `takes` to choose the calls, and `launch` for the arguments of the kernel. Products
that are not tiny go to this kernel rather than to a nest, too (`lower.matmul.pays`).

Measured on an AMD EPYC of two cores with two threads, rows x columns x depth, linear alone, ATen /
graftjit in us:

    1 x 768 x 768: 46 / 9    4: 45 / 11   16: 70 / 29   32: 90 / 61   48: 104 / 82
    16 x 1024 x 4096: 281 / 190    2: 247 / 60
    32 x 256 x 1024: 46 / 23    32 x 1024 x 256: 60 / 36    64 x 16 x 256: 18 / 3
    32 x 3072 x 768: 265 / 202    4 x 4096 x 4096: 1035 / 746

A nest / this kernel:

    1 x 768 x 768: 13 / 9      1 x 256 x 256: 4.1 / 2.6
    8 x 256 x 256: 10.9 / 4.8  12 x 512 x 64: 18 / 6

bmm of 8 x 16 x 128 x 64: 24 / 9, of 8 x 128 x 128 x 64: 45 / 47, of 8 x 256 x 256 x 64: 112 / 182
"""

from __future__ import annotations

import torch

from ...ir.graph.nodes import Node
from ...runtime.process import hardware
from ..loops.extents import estimate, estimated, is_symbolic, surely
from . import matmul_f32

SYMBOL, FILE = "product_bf16", "matmul_bf16.h"
# elements of the weight -> rows up to which the kernel is as fast as the library
ROWS = ((1 << 15, 512), (1 << 18, 128), (1 << 22, 48))
BATCHED = 48  # the most rows of a batched product, where the library makes one call for all
LARGE = 12  # the most rows with larger weights, which come from memory
# depth of one pass of the kernel; with weights up to this depth it is never much slower
DEPTH = 1024

launch, columns = matmul_f32.launch, matmul_f32.columns


def takes(node: Node) -> bool:
    """Whether the kernel can compute this call of ATen, and pays."""
    if node.target not in matmul_f32.FACTORS or "avx512_bf16" not in hardware.cpu().features:
        return False
    if hardware.cpu().isa != "avx512" or not matmul_f32.plain(node, torch.bfloat16):
        return False
    _left, right, _added = matmul_f32.operands(node)
    along = right.meta.stride[-2] == 1 or right.meta.shape[-2] == 1
    return along and matmul_f32.readable(node) and _pays(node)


def _pays(node: Node) -> bool:
    _left, right, _added = matmul_f32.operands(node)
    depth, width = right.meta.shape[-2:]
    rows, weight = node.meta.shape[-2], estimated((depth, width))
    most = next((most for size, most in ROWS if weight <= size), LARGE)
    if len(node.meta.shape) == 3:
        return estimate(rows) <= min(most, BATCHED)
    if is_symbolic(rows) and surely("<=", depth, DEPTH):
        # many rows cost a twentieth more than with the library, few rows a fifth
        return most > LARGE
    return estimate(rows) <= most
