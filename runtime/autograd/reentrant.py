"""The autograd node of a graph with checkpoints that have `use_reentrant=True`.

Eager mode computes the gradients of such a function by a backward inside, which is only possible if
autograd computes the gradients of all leaves: `torch.autograd.grad` is refused.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.trace.reentrant import asked, require_whole
from .passing import needed_inputs


class Refusing:
    """The part of a node's class that refuses; before a node of `joint_program` among the bases."""

    def apply(self: Any, *gradients: Any) -> Any:
        """As the node's own `apply`. Raises RuntimeError as eager mode does."""
        joint = self.joint
        valid = torch.autograd._is_checkpoint_valid()  # type: ignore[attr-defined]
        if not valid and any(map(needed_inputs(self, joint), joint.plan.refusing)):
            require_whole()
        with asked():
            return super().apply(*gradients)  # type: ignore[misc]
