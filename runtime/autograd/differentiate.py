"""Gradients of a function, as `graftjit.gradients` returns them.

In: a function, its arguments, and the arguments and weights to differentiate by. Out: its result
and the gradients. They are computed by `torch.autograd.grad`, which changes no `.grad`; each call
differentiates only by what it names. In a graph, capture walks `steps`, and records `watched` and
`gradients` like torch calls (`capture.torch_models.differentiate`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch


class _Depth(threading.local):
    value = 0


_DEPTH = _Depth()


def nested() -> bool:
    """Whether this thread runs inside a function that is being differentiated, so that its
    computations need an autograd history."""
    return _DEPTH.value > 0


def differentiate(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    positions: Sequence[int],
    weights: Sequence[torch.Tensor],
    sens: Any = None,
    has_aux: bool = False,
) -> tuple[Any, list[Any], list[torch.Tensor]]:
    """(result, gradients at the positions, gradients of the weights).

    positions   arguments to differentiate by; the gradient is zeros for a tensor that is not of a
                floating-point or complex dtype, None for an argument that is no tensor
    weights     tensors that require a gradient
    sens        gradients of the result's tensors, in the same nesting; None: ones
    has_aux     only the first item of the result is differentiated

    Inputs that do not contribute to the result have zero gradients. Results and gradients have a
    history only if this call runs inside a function that is being differentiated, or if an argument
    requires a gradient. Raises TypeError and ValueError.
    """
    within = nested()
    _DEPTH.value += 1
    try:
        return steps(function, args, kwargs, positions, weights, sens, has_aux, within)
    finally:
        _DEPTH.value -= 1


def steps(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    positions: Sequence[int],
    weights: Sequence[torch.Tensor],
    sens: Any = None,
    has_aux: bool = False,
    within: bool = False,
) -> tuple[Any, list[Any], list[torch.Tensor]]:
    """`differentiate`. `within`: the call runs inside a function that is being differentiated."""
    taped = within or any(leaf.requires_grad for leaf in leaves([*args, *kwargs.values()]))
    asked = [at for at in positions if differentiable(args[at])]
    if torch.is_grad_enabled():
        result, found = _found(function, args, kwargs, asked, weights, sens, has_aux, taped)
    else:
        with torch.enable_grad():
            result, found = _found(function, args, kwargs, asked, weights, sens, has_aux, taped)
    of_inputs: dict[int, Any] = dict(zip(asked, found, strict=False))
    return (
        result if taped else released(result),
        [of_inputs[at] if at in of_inputs else nothing(args[at]) for at in positions],
        list(found[len(asked) :]),
    )


def _found(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    asked: list[int],
    weights: Sequence[torch.Tensor],
    sens: Any,
    has_aux: bool,
    taped: bool,
) -> tuple[Any, Sequence[torch.Tensor]]:
    """(result, gradients of the `asked` arguments and of the weights)"""
    given = list(args)
    for at in asked:
        given[at] = separate(args[at])
    result = function(*given, **kwargs)
    outputs = leaves(_first(result) if has_aux else result)
    if not outputs:
        raise TypeError(f"the result has no tensor, it is a {type(result).__name__}")
    seeds = _seeds(outputs, sens)
    wanted = [*[given[at] for at in asked], *weights]
    return result, gradients(outputs, wanted, seeds, taped) if wanted else ()


def separate(value: torch.Tensor) -> torch.Tensor:
    """The argument as a tensor of its own in the autograd graph, so that one tensor passed twice
    has two gradients. It stays connected to the outer graph, so that gradients nest."""
    return value.view_as(value) if value.requires_grad else value.detach().requires_grad_()


def gradients(
    outputs: Sequence[torch.Tensor],
    wanted: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor],
    taped: bool,
) -> tuple[torch.Tensor, ...]:
    """Gradients of the sum of the outputs weighted by the seeds; zeros for unused inputs."""
    pairs = [pair for pair in zip(outputs, seeds, strict=True) if pair[0].requires_grad]
    found: Sequence[Any] = [None] * len(wanted)
    if pairs:
        found = torch.autograd.grad(
            [output for output, _ in pairs],
            list(wanted),
            [seed for _, seed in pairs],
            create_graph=taped,
            allow_unused=True,
        )
    return tuple(
        [torch.zeros_like(w) if g is None else g for g, w in zip(found, wanted, strict=True)]
    )


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors inside nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, (tuple, list)):
        return []
    found = []
    for item in value:
        found += leaves(item)
    return found


def released(value: Any) -> Any:
    """The same nest of tuples, lists and dicts with detached tensors."""
    if isinstance(value, torch.Tensor):
        return value.detach() if value.requires_grad else value
    if isinstance(value, dict):
        return {key: released(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [released(item) for item in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return tuple(items) if isinstance(value, tuple) else items
    return value


def differentiable(value: Any) -> bool:
    """Whether a value can have a gradient."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def nothing(value: Any) -> Any:
    """The result in place of a gradient for a value that has none."""
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else None


def _first(result: Any) -> Any:
    if not isinstance(result, (tuple, list)) or not result:
        raise TypeError(
            "has_aux=True: the function must return a tuple, first the value to differentiate;"
            f" it returned a {type(result).__name__}"
        )
    return result[0]


def _seeds(outputs: Sequence[torch.Tensor], sens: Any) -> list[torch.Tensor]:
    if sens is None:
        return [torch.ones_like(output) for output in outputs]
    seeds = leaves(sens)
    if len(seeds) != len(outputs):
        raise ValueError(f"sens has {len(seeds)} tensors, the result has {len(outputs)}")
    for at in range(len(seeds)):
        if seeds[at].shape != outputs[at].shape:
            raise ValueError(
                f"sens has shape {tuple(seeds[at].shape)} where the result has"
                f" {tuple(outputs[at].shape)}"
            )
    return seeds
