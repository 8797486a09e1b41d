"""Python functions that stand for torch's control flow, written as Python's own.

In: what `torch.cond`, `while_loop` and `scan` take. Out: what they return. They are walked in the
place of torch's functions (`control_flow`), which would compile their branches and bodies with
torch.compile. A break in one of them is like a break in the program's code: a resume function goes
on after it.
"""

from __future__ import annotations

from typing import Any

import torch


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """One of the two branches."""
    check(pred, operands, true_fn, false_fn)
    if pred:
        return true_fn(*operands)
    return false_fn(*operands)


def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
    """The body, as long as the condition holds; copies of the inputs if it never does."""
    check(None, carried_inputs, cond_fn, body_fn)
    if not cond_fn(*carried_inputs):
        return tuple([one.clone() for one in carried_inputs])
    carried = body_fn(*carried_inputs)
    while cond_fn(*carried):
        carried = body_fn(*carried)
    return carried


def scan(combine_fn: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    """The function over the slices of one tensor: the last carried value, and all results."""
    check(None, (init, xs), combine_fn)
    dim = dim + xs.dim() if dim < 0 else dim
    check_dim(dim)
    xs = torch.movedim(xs, dim, 0)
    if reverse:
        xs = torch.flip(xs, [0])
    results = []
    for part in xs.unbind(0):
        init, made = combine_fn(init, part)
        results.append(made)
    return init, stacked(results, dim, reverse)


def stacked(results: list[Any], dim: int, reverse: bool) -> Any:
    """The results of a scan as one, tensor by tensor."""
    first = results[0]
    if isinstance(first, dict):
        return {key: stacked([one[key] for one in results], dim, reverse) for key in first}
    if isinstance(first, (list, tuple)):
        parts = [stacked(list(some), dim, reverse) for some in zip(*results, strict=True)]
        return type(first)(parts)
    if not isinstance(first, torch.Tensor):
        return first
    made = torch.stack(results)
    if reverse:
        made = torch.flip(made, [0])
    return torch.movedim(made, 0, dim) if dim < made.dim() else made


def check(pred: Any, operands: Any, *functions: Any) -> None:
    """Break for what torch refuses, or differentiates in its own way."""


def check_dim(dim: int) -> None:
    """Break for a dimension along which this version of torch stacks results otherwise."""
