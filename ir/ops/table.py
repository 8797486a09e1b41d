"""The op table: every ATen operator whose results have a rule of ours.

`OPS` maps "aten.add.Tensor" to its row. The modules imported here register the rows, by family.
Kinds of operators: `opdef.KINDS`.
"""

from __future__ import annotations

from ..graph.opdef import KINDS, OPS, OpDef
from . import creation, indexing, nn, pointwise, reduction, views

FAMILIES = (
    creation,
    indexing,
    nn,
    pointwise,
    reduction,
    views,
)

__all__ = ["FAMILIES", "KINDS", "OPS", "OpDef"]
