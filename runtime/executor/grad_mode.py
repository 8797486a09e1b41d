"""Operators that ask for the grad mode beside their arguments: what they keep for their backward they make only where it is on.

Programs run with it off, for the graph has its own backward. `saves(step)`: does the graph read what the operator keeps?
Then it is called by `keeping(op)`: with the grad mode on and autograd left out, so that it records nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..program.program import Aten

# operator -> the result that is for its backward
_KEPT = {"aten.mkldnn_rnn_layer.default": 3}


def saves(step: Aten) -> bool:
    """See the module's docstring."""
    place = _KEPT.get(str(step.op))
    return place is not None and step.results[place] is not None


def keeping(op: Any) -> Callable[..., Any]:
    """The operator, as it is called with gradients asked for."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            return op(*args, **kwargs)

    return call
