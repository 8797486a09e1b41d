"""Operators whose results depend on the grad mode: they save tensors for their backward only if it
is on.

Programs run with grad mode off, since the graph contains its own backward. Where the graph reads a
saved tensor (`saves(step)`), the operator is called through `keeping(op)`: with grad mode on and
below autograd, so that autograd records nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..program.program import Aten

# operator -> index of the result that it saves for its backward
_KEPT = {"aten.mkldnn_rnn_layer.default": 3}


def saves(step: Aten) -> bool:
    """Whether the graph reads the tensor that the operator saves for its backward."""
    place = _KEPT.get(str(step.op))
    return place is not None and step.results[place] is not None


def keeping(op: Any) -> Callable[..., Any]:
    """The operator, called with grad mode on and below autograd."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            return op(*args, **kwargs)

    return call
