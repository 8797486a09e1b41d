"""Plain nans: values that are never a nan with a payload in its lower half. `renderer.Kernel`
rounds them to bfloat16 without a test for nan.

To round a float to bfloat16 is to add to its bits and to cut off the lower half. A nan whose lower
half is zero stays the same; another nan may become infinite or zero. The nans that arithmetic makes
have a zero lower half (x86: 0xffc00000, arm: 0x7fc00000) or are those of its operands, and values
loaded as bfloat16 have zeros there. Floats from memory and numbers of Python may have any payload.
"""

from __future__ import annotations

import torch

from ..loops.loop_nest import LoopNest, Value

# operators that return the nans of their operands or make those of arithmetic
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
