"""Hooks on leaves to which a node of several results gives no gradient.

Autograd runs all edges of a node, and the hooks behind them, where only some of the node's results
have a gradient. In eager mode no path leads from these results to leaves that only the others
depend on, so the hooks of these leaves do not run. `runtime.autograd.joint_program` uses this
module: until the end of the backward, hooks on such a leaf run only if it gets a gradient.
Hooks on AccumulateGrad nodes and on tensors with a history are left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

_ACCUMULATES = torch._C._functions.AccumulateGrad  # type: ignore[attr-defined]
# Its hooks on several tensors count the runs, with and without a gradient.
_COUNTING = "torch.autograd.graph"
Hooks = Mapping[Any, Any] | None


class _Gated(dict[Any, Any]):
    """What takes the place of a leaf's hooks."""


def hold_back(node: Any, gradients: Sequence[Any]) -> None:
    """Hold back the hooks of leaves among the node's edges whose gradient is None."""
    for (function, _), gradient in zip(node.next_functions, gradients, strict=False):
        if gradient is None and type(function) is _ACCUMULATES:
            leaf = function.variable
            before, after = leaf._backward_hooks, leaf._post_accumulate_grad_hooks
            if (before or after) and type(before) is not _Gated:
                _gate(leaf, before, after)


def _gate(leaf: Any, before: Hooks, after: Hooks) -> None:
    defined = False

    def run_before(gradient: Any) -> Any:
        nonlocal defined
        defined = gradient is not None
        for hook in tuple((before or {}).values()):
            if defined or getattr(hook, "__module__", "") == _COUNTING:
                changed = hook(gradient)
                gradient = gradient if changed is None else changed
        return gradient

    def run_after(one: Any) -> None:
        for hook in tuple((after or {}).values()) if defined else ():
            hook(one)

    def restore() -> None:
        leaf._backward_hooks, leaf._post_accumulate_grad_hooks = before, after

    leaf._backward_hooks = _Gated({0: run_before})
    if after:
        leaf._post_accumulate_grad_hooks = {0: run_after}
    torch.autograd.Variable._execution_engine.queue_callback(restore)  # type: ignore[attr-defined]
