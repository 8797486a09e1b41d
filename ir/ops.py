"""THE op table: every ATen operator whose results we can tell without asking torch.

`OPS` maps "aten.add.Tensor" to its row; the rows are written down by family in the `rules_*` files imported
here. Kinds of operators: `opdef.KINDS`.
"""

from __future__ import annotations

from . import rules_create, rules_index, rules_nn, rules_pointwise, rules_reduce, rules_views
from .opdef import KINDS, OPS, OpDef

FAMILIES = (
    rules_create,
    rules_index,
    rules_nn,
    rules_pointwise,
    rules_reduce,
    rules_views,
)

__all__ = ["FAMILIES", "KINDS", "OPS", "OpDef"]
