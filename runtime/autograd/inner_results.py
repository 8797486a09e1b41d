"""Results of a compiled region on which other results of it depend, and observers of their
gradients.

Consider `return y, (y * 2).sum()`. In eager the gradient of `y` passes through `y`: hooks on `y`
may change it and `retain_grad` stores it. All results of a compiled region share one autograd node,
so no gradient passes through `y`. That node therefore records hooks on `y`, and checks whether `y`
retains its gradient. Only if it does, the backward runs the forward's calls again under autograd,
with the hooks on the tensor that replaces `y`. A result that is a view has a node of torch's own,
whose hooks cannot be recorded: there the backward raises. `runtime.autograd.joint_program` uses
this module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ..errors import GraftError

Hooks = Mapping[Any, Callable[[Any], Any]]
WHY = "a hook or retain_grad on a result that another result depends on"


def refs(tensors: Sequence[Any], positions: Sequence[int]) -> list[weakref.ref[Any]]:
    """Weak references from a node to its results, to check at the backward whether they retain
    gradients."""
    return [weakref.ref(tensors[at]) for at in positions]


def is_watched(node: Any) -> bool:
    """Whether a hook or `retain_grad` observes an inner result. Raises if an observer of a view has
    already seen another gradient than in eager."""
    for seen in node.views:
        one = seen()
        if one is not None and (one._backward_hooks or one.retains_grad):
            raise _view_watched(node.joint.plan.name)
    for seen in node.seen:
        one = seen()
        if one is not None and one.retains_grad and one.grad_fn is node:
            return True
    return any(node.hooks.values())


def hang(node: Any, pieces: Mapping[int, Any], gradients: Sequence[Any]) -> None:
    """Attach the observers to `pieces`, which replace the results when the calls run again under
    autograd."""
    for at, hooks in node.hooks.items():
        if hooks:
            pieces[at].register_hook(partial(_run, hooks))
    for at, seen in zip(node.joint.plan.inner, node.seen, strict=True):
        one = seen()
        if one is not None and one.retains_grad and one.grad_fn is node:
            pieces[at].register_hook(partial(_retain, one, gradients[at]))


def register(node: Any, tensor: Any, to_autograd: Callable[[Any], None]) -> None:
    """Record the hooks of an inner result. Autograd calls them itself where the backward ends at
    that result."""
    hooks = tensor._backward_hooks
    node.hooks = {**node.hooks, tensor.output_nr: hooks}
    itself = weakref.ref(node)

    def last_stop(gradient: Any) -> Any:
        return None if gradient is None or _goes_on(itself()) else _run(hooks, gradient)

    _registered(tensor, last_stop, to_autograd)


def register_shared(tensor: Any, to_autograd: Callable[[Any], None]) -> None:
    """Register the hooks of a result that shares its node with others. Autograd runs the node where
    only another result has a gradient; in eager mode no hook of this one runs then."""
    hooks = tensor._backward_hooks

    def where_defined(gradient: Any) -> Any:
        return None if gradient is None else _run(hooks, gradient)

    _registered(tensor, where_defined, to_autograd)


def _registered(
    tensor: Any, hook: Callable[[Any], Any], to_autograd: Callable[[Any], None]
) -> None:
    """Register one hook in place of those of the tensor."""
    hooks = tensor._backward_hooks
    tensor._backward_hooks = {0: hook}
    to_autograd(tensor)
    tensor._backward_hooks = hooks


def _goes_on(node: Any) -> bool:
    """Whether the running backward executes nodes behind this one."""
    for behind, _ in node.next_functions:
        if behind is None:
            continue
        try:
            if torch._C._will_engine_execute_node(behind):  # type: ignore[attr-defined]
                return True
        # a leaf whose gradient is requested by name
        except RuntimeError:
            return True
    return False


def _run(hooks: Hooks, gradient: Any) -> Any:
    """Run the hooks of a tensor one after the other, as autograd does."""
    for hook in tuple(hooks.values()):
        changed = hook(gradient)
        if changed is not None:
            gradient = changed
    return gradient


def _retain(result: Any, part: Any, whole: torch.Tensor) -> None:
    """Replace `part`, which autograd added to the result's gradient (None: nothing), by `whole`."""
    held = result.grad
    if held is None or (part is not None and torch.equal(held, part)):
        result.grad = whole.clone()
    else:
        result.grad = held + (whole if part is None else whole - part)


def _view_watched(name: str) -> GraftError:
    return GraftError(
        f"a result of the compiled part {name} is a view, another result depends on it, and it has"
        " hooks or retains its gradient: these would see only a part of the gradient"
        " that eager gives",
        todo="return that result from one jitted function and compute the others from"
        " it in a second one",
    )
