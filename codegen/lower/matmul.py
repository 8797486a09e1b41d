"""Lowering of matrix products: a multiplication and a sum over k, where a loop nest is faster than
the library's call.

The iteration of a product is (batch, m, n, k) with k reduced: its result is one value per row, and
the operators after it (bias, activation, residual) are computed there. Sums are in float32 for
bfloat16 and float16, rounded once at the end. `pays` chooses the products; the others stay ATen
steps. The table `LETTERS` is the summation convention.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...ir.graph.nodes import Node
from ..analysis.products import LETTERS, factors, measured, sizes, work
from ..kernels import matmul_bf16, matmul_f32
from ..loops import affine
from ..loops.extents import estimated, is_symbolic, positive, surely
from .builder import At, Scalar, fill

aten = torch.ops.aten

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# Where a nest is faster than MKL and oneDNN as an ATen step, measured on an AVX-512 machine with
# two threads, nest / library in us:
#
#    float32 linear   1 x 512 x 784: 9 / 25    8 x 1024 x 1024: 77 / 193
#                     4 x 64 x 64: 1.2 / 3.5    16 x 16 x 16: 1.8 / 2.1
#    bfloat16         1 x 1024 x 1024: 46 / 87    8 x 256 x 256: 18 / 29
#                     2 x 4096 x 1024: 287 / 188
#
# and on another one without instructions for half precision:
#
#    float32 linear   12 x 256 x 512: 18 / 35   256 x 512 x 10: 14 / 37
#                     2048 x 64 x 1: 4.2 / 10   16 x 1024 x 1024: 227 / 328
#    bfloat16         12 x 512 x 64: 11 / 17    12 x 256 x 512: 41 / 34
#                     2048 x 64 x 4: 28 / 26    1 x 4096 x 4096: 611 / 1783
#    float32, a weight that is contiguous along n
#                     1 x 64 x 64: 1.9 / 2.0    1 x 256 x 256: 30 / 5
#
# Nothing is packed: a write through numpy, dlpack or a storage changes neither the version nor the
# pointer that would identify a packed copy. oneDNN with a weight packed beforehand, and gelu (batch
# x 768 x 768; ATen's / nest / packed, AVX-512): float32 1: 51 / 15 / 46, 4: 123 / 20 / 42, 16: 216
# / 74 / 83; bfloat16 1: 71 / 14 / 30, 4: 74 / 60 / 32, 16: 96 / 87 / 47. `matmul_bf16` now computes
# bfloat16 products that are not tiny, where there are instructions for them.

# rows that share each element of the larger factor; registers do not suffice for more
TOGETHER = 8
THIN = 12  # rows or columns up to which a nest is better
LONG = 64  # k from which on the reduction of a sum's lanes does not matter
# bytes of an element -> multiplications that take less time than the call
SMALL = {4: 4096, 8: 4096, 2: 16384}
HALF_WORK = 1 << 20  # multiplications from which on the library's half precision instructions win
SCATTERED_BYTES = 1 << 14  # bytes of a factor that may be read out of the order of its memory


def space(node: Node) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """(sizes of the iteration, reduced dimensions)."""
    result = LETTERS[node.target][3]
    found = sizes(node)
    return tuple(found[letter] for letter in result + "k"), (len(result),)


def _large(node: Node) -> dict[str, Any]:
    """Letter -> stride of the larger factor."""
    _first, left, right, _result = LETTERS[node.target]
    pairs = zip(factors(node), (left, right), strict=True)
    factor, letters = max(pairs, key=lambda pair: estimated(pair[0].meta.shape))
    return dict(zip(letters, factor.meta.stride, strict=True))


def rows_in_order(node: Node) -> list[int]:
    """The result's dimensions from the outermost loop to the innermost.

    The larger factor is read once and in order, if its elements along k are contiguous.
    """
    result, strides = LETTERS[node.target][3], _large(node)
    found = list(range(len(result)))
    if strides["k"] == 1:
        found.sort(key=lambda dim: -strides.get(result[dim], 0))
    return found


def rows_together(node: Node) -> bool:
    """Whether the rows of the innermost loop are computed side by side, so that the larger factor
    is read once for all.
    """
    order, result = rows_in_order(node), LETTERS[node.target][3]
    if not order or result[order[-1]] in _large(node):
        return False
    return 1 < sizes(node)[result[order[-1]]] <= TOGETHER


def _product(at: At) -> Scalar:
    first, left, right, result = LETTERS[at.node.target]
    forms = dict(zip(result, at.where, strict=True))
    forms["k"] = affine.axis_form(at.builder.n_outer, len(at.builder.axes))
    a, b = (
        at.full(factor, tuple(forms[letter] for letter in letters)).to(at.math)
        for factor, letters in zip(factors(at.node), (left, right), strict=True)
    )
    total = (a * b).reduce("sum")
    if first == 0:
        return total
    alpha, beta = (at.node.kwargs.get(name, 1) for name in ("alpha", "beta"))
    if alpha != 1:
        total = total * alpha
    if beta == 0:  # the operand that is not added may be nan
        return total
    added = at.get(at.arg(0), at.math)
    return total + (added if beta == 1 else added * beta)


def possible(node: Node) -> bool:
    """Whether the factors are floats of one dtype on the CPU."""
    metas = [factor.meta for factor in factors(node)]
    plain = all(
        meta.dtype == node.meta.dtype and meta.dtype in FLOATS and meta.device.type == "cpu"
        for meta in metas
    )
    return plain and all(positive(meta.shape) for meta in metas)


def _lowered(node: Node) -> bool:
    return possible(node) and pays(node)


def pays(node: Node) -> bool:
    """Whether a nest over rows and columns, or over rows alone, is faster than the
    library's call.
    """
    known = measured(node)
    if known is not None:
        return known
    found = sizes(node)
    if unrolled(found, LETTERS[node.target][3]):
        return True
    if is_symbolic([(factor.meta.shape, factor.meta.stride) for factor in factors(node)]):
        return False
    width = node.meta.dtype.itemsize
    count = work(found)
    if count > SMALL[width] and (matmul_bf16.takes(node) or matmul_f32.leaves_weight(node)):
        return False
    least = min(found.get("m", 1), found.get("n", 1))
    thin = least <= THIN and found["k"] >= LONG
    half = HALF_WORK if least <= TOGETHER else HALF_WORK // 2
    bound = thin and (width > 2 or count <= half or least == 1)
    return in_order(node) and (count <= SMALL[width] or bound)


def unrolled(found: dict[str, Any], result: str) -> bool:
    """Whether there are so few columns that each multiplication of a row may be a value of its own
    (see `rowwise`).
    """
    if not result:
        return False
    rest = [size for letter, size in found.items() if letter != result[0]]
    if is_symbolic(rest) or max(rest) > 32:
        return False
    few_rows = surely("<=", found[result[0]], 256)
    return math.prod(rest) <= (128 if few_rows else 64)


def in_order(node: Node) -> bool:
    """Whether the large factors are contiguous along k."""
    _first, left, right, _result = LETTERS[node.target]
    for factor, letters in zip(factors(node), (left, right), strict=True):
        meta = factor.meta
        nbytes = meta.dtype.itemsize
        for size in meta.shape:
            nbytes *= size
        along = dict(zip(letters, meta.stride, strict=True))["k"]
        if along != 1 and meta.shape[letters.index("k")] != 1 and nbytes > SCATTERED_BYTES:
            return False
    return True


fill(_lowered, dict.fromkeys(LETTERS, _product), kind="product", space=space)
