"""Results of a compiled part that other results of it depend on, and who watches their gradients.

`return y, (y * 2).sum()`: in eager the gradient of `y` passes through `y`, hooks on it may change it and `retain_grad`
notes it. All results of a part have one node of autograd, so nothing passes through `y`. The node of such a part knows
who registers hooks on `y` and whether it retains its gradient; then, and only then, the backward runs the forward's
calls again under autograd, whose graph has `y` in it, with those hooks on the tensor that stands for `y`. A result that is a view has a node of
torch's own, which nobody can ask: there the backward raises. Used by `runtime.autograd.joint_program`.
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
    """What a node keeps of its results: whether they retain their gradient is asked when it goes backward."""
    return [weakref.ref(tensors[at]) for at in positions]


def is_watched(node: Any) -> bool:
    """Whether anybody watches. Raises where who watches has already seen something else than in eager."""
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
    """Lets the watchers see the gradients of `pieces`, which stand for the results in a graph of autograd's own."""
    for at, hooks in node.hooks.items():
        if hooks:
            pieces[at].register_hook(partial(_run, hooks))
    for at, seen in zip(node.joint.plan.inner, node.seen, strict=True):
        one = seen()
        if one is not None and one.retains_grad and one.grad_fn is node:
            pieces[at].register_hook(partial(_retain, one, gradients[at]))


def register(node: Any, tensor: Any, to_autograd: Callable[[Any], None]) -> None:
    """Notes the hooks of an inner result. Autograd itself calls them where it goes no further than to that result."""
    hooks = tensor._backward_hooks
    node.hooks = {**node.hooks, tensor.output_nr: hooks}
    itself = weakref.ref(node)

    def last_stop(gradient: Any) -> Any:
        return None if _goes_on(itself()) else _run(hooks, gradient)

    tensor._backward_hooks = {0: last_stop}
    to_autograd(tensor)
    tensor._backward_hooks = hooks


def _goes_on(node: Any) -> bool:
    """Whether the backward under way runs what comes behind the node."""
    for behind, _ in node.next_functions:
        if behind is None:
            continue
        try:
            if torch._C._will_engine_execute_node(behind):  # type: ignore[attr-defined]
                return True
        except RuntimeError:  # a leaf whose gradient is asked for by name
            return True
    return False


def _run(hooks: Hooks, gradient: Any) -> Any:
    """As autograd runs the hooks of a tensor, one after the other."""
    for hook in tuple(hooks.values()):
        changed = hook(gradient)
        if changed is not None:
            gradient = changed
    return gradient


def _retain(result: Any, part: Any, whole: torch.Tensor) -> None:
    """Autograd has added `part` of the gradient (None: nothing) to the result's; makes it `whole`."""
    held = result.grad
    if held is None or (part is not None and torch.equal(held, part)):
        result.grad = whole.clone()
    else:
        result.grad = held + (whole if part is None else whole - part)


def _view_watched(name: str) -> GraftError:
    return GraftError(
        f"a result of the compiled part {name} is a view, another result depends on it, and it has hooks or retains its"
        " gradient: they see less than the gradient that eager gives",
        todo="return that result from one jitted function and compute the others of it in a second one",
    )
