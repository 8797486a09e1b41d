"""The op table: every ATen operator whose results have a rule of ours.

`OPS` maps "aten.add.Tensor" to its row. The modules imported here register the rows, by family.
Kinds of operators: `opdef.KINDS`.
"""

from __future__ import annotations

from ..graph.opdef import KINDS, OPS, OpDef
from . import creation as rules_create
from . import indexing as rules_index
from . import nn as rules_nn
from . import pointwise as rules_pointwise
from . import reduction as rules_reduce
from . import views as rules_views

FAMILIES = (
    rules_create,
    rules_index,
    rules_nn,
    rules_pointwise,
    rules_reduce,
    rules_views,
)

__all__ = ["FAMILIES", "KINDS", "OPS", "OpDef"]
