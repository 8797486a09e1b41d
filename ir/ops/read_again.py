"""`graftjit::again`: an operator that is its operand, as a backward reads it when it runs.

No pass merges its result with the operand. `ir.trace.regions` and `ir.trace.custom_function` use it
for values that eager mode reads again during the backward, without a comparison of versions.
`ir.autograd.partition` and `regions.without_borders` remove it when all passes have run.
"""

from __future__ import annotations

import torch

from ..graph.opdef import OPS, OpDef

_LIBRARY = torch.library.Library("graftjit", "FRAGMENT")
_LIBRARY.define("again(Tensor self, int region) -> Tensor")
_LIBRARY.impl("again", lambda tensor, region: tensor.detach(), "CompositeExplicitAutograd")
again = torch.ops.graftjit.again.default
OPS[str(again)] = OpDef(str(again), "barrier", lambda op, tensor, region: tensor)
# the number of a region where the value belongs to none
NO_REGION = -1
