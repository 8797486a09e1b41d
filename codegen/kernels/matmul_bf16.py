"""Products of few rows of bfloat16 by a weight that lies along k, as that of a linear layer does, by a kernel of ours.

ATen gives them to oneDNN, which lays the weight out anew at each call; with few rows that is most of the work. The kernel,
matmul_bf16.h, reads the weight where it lies, each row along k, so nothing is kept between calls that could be stale. It needs
vdpbf16ps (`avx512_bf16`), which is what oneDNN uses there: products are exact, sums are float32, denormals count as zero,
the result is rounded once. `replaced` asks which calls it `takes`; `launch` says what the kernel is given. Products that are not
tiny come here rather than to a nest, too (`lower_product.pays`).

Measured on an AMD EPYC of two cores with two threads, rows x columns x depth, linear alone, ATen / ours in us:
  1 x 768 x 768: 46 / 9    4: 45 / 11   16: 70 / 29   32: 90 / 61   48: 104 / 82    16 x 1024 x 4096: 281 / 190    2: 247 / 60
  32 x 256 x 1024: 46 / 23    32 x 1024 x 256: 60 / 36    64 x 16 x 256: 18 / 3    32 x 3072 x 768: 265 / 202    4 x 4096 x 4096: 1035 / 746
and a nest / ours: 1 x 768 x 768: 13 / 9    1 x 256 x 256: 4.1 / 2.6    8 x 256 x 256: 10.9 / 4.8    12 x 512 x 64: 18 / 6
bmm of 8 x 16 x 128 x 64: 24 / 9, of 8 x 128 x 128 x 64: 45 / 47, of 8 x 256 x 256 x 64: 112 / 182
"""

from __future__ import annotations

import torch

from ...ir.graph.nodes import Node
from ...runtime.process import hardware as device
from ..loops.extents import estimate, estimated, is_symbolic, surely
from . import matmul_f32 as products

SYMBOL, FILE = "product_bf16", "matmul_bf16.h"
# elements of the weight -> rows that the kernel is as fast as the library for
ROWS = ((1 << 15, 512), (1 << 18, 128), (1 << 22, 48))
BATCHED = 48  # of each, at most: there the call is one for all
LARGE = 12  # of larger weights, which come from memory
DEPTH = 1024  # of a pass of the kernel; weights of no more depth it is never much slower for

launch, columns = products.launch, products.columns


def takes(node: Node) -> bool:
    """Is this call of ATen one for the kernel?"""
    if node.target not in products.FACTORS or "avx512_bf16" not in device.cpu().features:
        return False
    if device.cpu().isa != "avx512" or not products.plain(node, torch.bfloat16):
        return False
    _left, right, _added = products.operands(node)
    along = right.meta.stride[-2] == 1 or right.meta.shape[-2] == 1
    return along and products.readable(node) and _pays(node)


def _pays(node: Node) -> bool:
    _left, right, _added = products.operands(node)
    depth, width = right.meta.shape[-2:]
    rows, weight = node.meta.shape[-2], estimated((depth, width))
    most = next((most for size, most in ROWS if weight <= size), LARGE)
    if len(node.meta.shape) == 3:
        return estimate(rows) <= min(most, BATCHED)
    if is_symbolic(rows) and surely("<=", depth, DEPTH):
        return most > LARGE  # many cost a twentieth more than by the library, few a fifth
    return estimate(rows) <= most
