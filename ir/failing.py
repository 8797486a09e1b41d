"""Which operators may raise because of the data in their operands.

In: a node. Out: whether a run of it can fail although its shapes and dtypes are fine (an index out of range, a
singular matrix, an integer divided by zero). Asked by capture, which keeps what can fail apart from what cannot
be taken back.
"""

from __future__ import annotations

import torch

from .graph import Node
from .opdef import OPS

_KINDS = frozenset({"index", "loss"})
_INTEGER_DIVISIONS = frozenset({"div", "floor_divide", "remainder", "fmod", "pow"})
_SAFE = frozenset(
    {"copy_", "fill_", "zero_", "bernoulli_", "uniform_", "normal_", "random_", "exponential_"}
)


def may_raise(node: Node) -> bool:
    """See the module's docstring; an operator that the table does not have may."""
    if node.op != "call":
        return False
    name = str(node.target)
    _, short, _ = name.split(".")
    row = OPS.get(name) or OPS.get(name.replace("_.", ".", 1))
    if short in _SAFE:
        return False
    if row is None or row.kind in _KINDS:
        return True
    return row.kind == "pointwise" and short.rstrip("_") in _INTEGER_DIVISIONS and not _floats(node)


def _floats(node: Node) -> bool:
    dtype = getattr(node.meta, "dtype", None)
    return isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype.is_complex)
