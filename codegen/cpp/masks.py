"""Wide masks: bools of a C++ kernel that stay as wide as the compared values. `renderer.Kernel`
declares them as i64, not as masks.

A bool is a mask of four bytes per lane. Comparisons of doubles and of int64 give eight, and a
`where` of eight bytes needs eight. A mask between the two is narrowed and widened again, which
takes as long as the comparison. So a bool that is such a comparison, or a combination of such
bools, stays at eight bytes if only such a `where` or combination reads it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..loops.loop_nest import LoopNest, Value
from ..loops.operators import COMPARISONS, INFIX

_WIDE = (torch.float64, torch.int64)
_COMBINED = frozenset(("and", "or", "xor", "not"))


def wide(nest: LoopNest, element: Callable[[int], bool]) -> frozenset[int]:
    """The numbers of such values. `element`: whether a value is only in a register for one
    vector.
    """
    found = {number for number, value in enumerate(nest.values) if _begins(nest, value)}
    found = {number for number in found if element(number)}
    found -= {number for store in nest.stores for number in store.needs}
    while True:
        left = found - {
            arg
            for reader, value in enumerate(nest.values)
            for place, arg in enumerate(value.args)
            if not (
                reader in found or (value.op == "where" and place == 0 and value.dtype in _WIDE)
            )
        }
        left -= {
            number for number in left
            if nest.values[number].op in _COMBINED and not left.issuperset(nest.values[number].args)
        }  # fmt: skip
        if left == found:
            return frozenset(found)
        found = left


def _begins(nest: LoopNest, value: Value) -> bool:
    if value.dtype != torch.bool:
        return False
    if value.op in _COMBINED:
        return True
    return (value.op in COMPARISONS or value.op == "isnan") and nest.values[
        value.args[0]
    ].dtype in _WIDE


def text(value: Value) -> str | None:
    """The text of a comparison in this width; None: write it as usual."""
    if value.op == "isnan":
        return INFIX["ne"].format(*[f"v{value.args[0]}"] * 2)
    if value.op in COMPARISONS:
        return INFIX[value.op].format(*[f"v{arg}" for arg in value.args])
    return None
