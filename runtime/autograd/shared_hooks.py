"""Hooks on results of a compiled region that share one autograd node.

Autograd runs the node, and with it all hooks on its results, where only one result has a gradient.
In eager mode the hooks of the others do not run then. `runtime.autograd.joint_program` uses this
module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def register(tensor: Any, to_autograd: Callable[[Any], None]) -> None:
    """Register the hooks of a result with its node, in a function that runs them where the result
    has a gradient."""
    hooks = tensor._backward_hooks

    def where_defined(gradient: Any) -> Any:
        if gradient is None:
            return None
        for hook in tuple(hooks.values()):
            changed = hook(gradient)
            if changed is not None:
                gradient = changed
        return gradient

    tensor._backward_hooks = {0: where_defined}
    to_autograd(tensor)
    tensor._backward_hooks = hooks
