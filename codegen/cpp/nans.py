"""Which values are not nan with a payload in their lower half: `cpp.Kernel` rounds those to bfloat16 without a look at nan.

To round a float to bfloat16 is to add to its bits and to cut off the lower half. A nan whose lower half is zero stays
as it is by that; another one may become infinite, or a zero. Arithmetic makes nans of zeros below (x86: 0xffc00000, arm:
0x7fc00000) or hands on those of its operands, and those that are loaded as bfloat16 have zeros there. Floats
from memory and Python's numbers may have anything.
"""

from __future__ import annotations

import torch

from ..loops.loop_nest import LoopNest, Value

# What hands on the nans of its operands, or makes those of arithmetic.
_ARITHMETIC = frozenset((
    "add", "sub", "mul", "div", "fma", "neg", "abs", "maximum", "minimum", "where", "sqrt", "rsqrt",
    "reciprocal", "floor", "ceil", "trunc", "round", "exp", "exp2", "expm1", "log", "log1p", "tanh",
    "erf", "sigmoid", "sin", "cos", "copysign",
))  # fmt: skip
_FOLDS = frozenset(("sum", "prod", "max", "min", "first max", "first min"))


def plain(nest: LoopNest) -> frozenset[int]:
    """The numbers of such values."""
    found: set[int] = set()
    for number, value in enumerate(nest.values):
        if _is_plain(nest, value, found):
            found.add(number)
    return frozenset(found)


def _is_plain(nest: LoopNest, value: Value, found: set[int]) -> bool:
    if value.dtype == torch.bfloat16 or not value.dtype.is_floating_point or value.op == "const":
        return True
    if value.dtype != torch.float32:
        return False
    if value.op == "cast":
        source = nest.values[value.args[0]].dtype
        return source == torch.bfloat16 or not source.is_floating_point
    known = value.op in _ARITHMETIC or (value.op == "reduce" and value.attr in _FOLDS)
    return known and all(arg in found for arg in value.args)
