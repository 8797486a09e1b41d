"""Gradients as functions: `GradOperation`, `grad`, `value_and_grad`, `stop_gradient`.

In: a function or cell, jitted or not. Out: a function of the same arguments that returns gradients. Built on
`torch.autograd.grad`: nobody's `.grad` is touched, each call differentiates with respect to what it was asked
for, and gradients of gradients nest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

_DEPTH = threading.local()


def _leaves(value: Any) -> list[torch.Tensor]:
    """The tensors inside nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [leaf for item in value for leaf in _leaves(item)]


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _watched(value: Any) -> Any:
    """The argument as an own node of the graph, so that the same tensor given twice has two gradients; still
    joined to the graph outside, so that gradients nest."""
    if not _differentiable(value):
        return value
    if value.requires_grad:
        return value.view_as(value)
    return value.detach().requires_grad_()


def _differentiate(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    positions: Iterable[int],
    weights: Sequence[torch.Tensor],
    sens: Any = None,
    has_aux: bool = False,
) -> tuple[Any, list[Any], list[torch.Tensor]]:
    """(result, gradients at the positions, gradients of the weights). What does not take part has zeros;
    an argument that is not a floating-point tensor has zeros of its shape, or None."""
    positions = tuple(positions)
    depth = getattr(_DEPTH, "value", 0)
    nested = depth > 0 or any(leaf.requires_grad for leaf in _leaves([*args, *kwargs.values()]))
    watched = [_watched(arg) if i in positions else arg for i, arg in enumerate(args)]
    _DEPTH.value = depth + 1
    try:
        with torch.enable_grad():
            result = function(*watched, **kwargs)
    finally:
        _DEPTH.value = depth
    outputs = _leaves(result[0] if has_aux else result)
    wanted = [watched[i] for i in positions if _differentiable(watched[i])] + list(weights)
    seeds = _leaves(sens) if sens is not None else [torch.ones_like(leaf) for leaf in outputs]
    if len(seeds) != len(outputs):
        raise ValueError(f"sens has {len(seeds)} tensors, the result has {len(outputs)}")
    pairs = [(leaf, seed) for leaf, seed in zip(outputs, seeds, strict=True) if leaf.requires_grad]
    found: Sequence[Any] = [None] * len(wanted)
    if pairs and wanted:
        found = torch.autograd.grad(
            [leaf for leaf, _ in pairs],
            wanted,
            [seed for _, seed in pairs],
            create_graph=nested,
            allow_unused=True,
        )
    gradients = [
        torch.zeros_like(w) if g is None else g for g, w in zip(found, wanted, strict=True)
    ]
    of_inputs = iter(gradients[: len(wanted) - len(weights)])
    return (
        result,
        [next(of_inputs) if _differentiable(watched[i]) else _nothing(args[i]) for i in positions],
        gradients[len(wanted) - len(weights) :],
    )


def _nothing(arg: Any) -> Any:
    return torch.zeros_like(arg) if isinstance(arg, torch.Tensor) else None


def _weights_of(function: Any, weights: Any) -> list[torch.Tensor]:
    if weights is None:
        owner = getattr(function, "__self__", function)
        if not isinstance(owner, torch.nn.Module):
            raise TypeError("gradients of weights need a cell, or the weights as second argument")
        weights = [p for p in owner.parameters() if p.requires_grad]
    if isinstance(weights, torch.Tensor):
        weights = [weights]
    weights = list(weights)
    for weight in weights:
        if not isinstance(weight, torch.Tensor) or not weight.requires_grad:
            raise TypeError("weights are tensors with requires_grad=True")
    return weights


def _check_callable(function: Any) -> None:
    if not callable(function):
        raise TypeError(f"a function or a cell is needed, not {type(function).__name__}")


class GradOperation:
    """`GradOperation(...)(function)(*args)`: gradients of a function or cell; its outputs are summed.

    get_all       False: of the first argument; True: a tuple, one a tensor argument
    get_by_list   of the weights (second argument of the first call, or all trainable ones of a cell), as a
                  tuple; with get_all: (gradients of the inputs, gradients of the weights)
    sens_param    the last argument is the gradient of the outputs, in place of ones
    """

    def __init__(
        self, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False
    ) -> None:
        for name, value in (
            ("get_all", get_all), ("get_by_list", get_by_list), ("sens_param", sens_param),
        ):  # fmt: skip
            if not isinstance(value, bool):
                raise TypeError(f"{name} is True or False, not {value!r}")
        self.get_all = get_all
        self.get_by_list = get_by_list
        self.sens_param = sens_param

    def __call__(self, function: Any, weights: Any = None) -> Callable[..., Any]:
        _check_callable(function)

        def gradient(*args: Any, **kwargs: Any) -> Any:
            sens = None
            if self.sens_param:
                sens = kwargs.pop("sens", None)
                if sens is None:
                    if not args:
                        raise TypeError("sens_param=True: the last argument is the sensitivity")
                    *args, sens = args  # type: ignore[assignment]
            listed = _weights_of(function, weights) if self.get_by_list else []
            if self.get_all:
                positions = tuple(i for i, a in enumerate(args) if isinstance(a, torch.Tensor))
            else:
                positions = () if self.get_by_list else (0,)
            if positions == (0,) and not args:
                raise TypeError("there is no argument to take the gradient of")
            _, of_inputs, of_weights = _differentiate(
                function, args, kwargs, positions, listed, sens
            )
            if self.get_all and self.get_by_list:
                return tuple(of_inputs), tuple(of_weights)
            if self.get_by_list:
                return tuple(of_weights)
            return tuple(of_inputs) if self.get_all else of_inputs[0]

        return gradient


def value_and_grad(
    fn: Any,
    grad_position: int | tuple[int, ...] | None = 0,
    weights: Any = None,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """A function that returns (result, gradients).

    grad_position: one position (one gradient), a tuple of them (a tuple), or None (weights only).
    weights: (gradients of inputs, tuple of gradients of weights), or the latter alone without positions.
    has_aux: only the first of the results is differentiated.
    """
    _check_callable(fn)
    if grad_position is None and weights is None:
        raise ValueError("grad_position=None needs weights")
    single = isinstance(grad_position, int)
    positions = (grad_position,) if isinstance(grad_position, int) else tuple(grad_position or ())

    def both(*args: Any, **kwargs: Any) -> Any:
        for position in positions:
            if not 0 <= position < len(args):
                raise IndexError(f"grad_position {position} of {len(args)} positional arguments")
        listed = _weights_of(fn, weights) if weights is not None else []
        result, of_inputs, of_weights = _differentiate(
            fn, args, kwargs, positions, listed, has_aux=has_aux
        )
        inputs = of_inputs[0] if single else tuple(of_inputs)
        listed_gradients = of_weights[0] if isinstance(weights, torch.Tensor) else tuple(of_weights)
        if weights is None:
            return result, inputs
        if grad_position is None:
            return result, listed_gradients
        return result, (inputs, listed_gradients)

    return both


def grad(
    fn: Any,
    grad_position: int | tuple[int, ...] | None = 0,
    weights: Any = None,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradients alone; with `has_aux`, (gradients, the other results)."""
    both = value_and_grad(fn, grad_position, weights, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        result, gradients = both(*args, **kwargs)
        return (gradients, tuple(result[1:])) if has_aux else gradients

    return gradient


def stop_gradient(value: Any) -> Any:
    """The same values, cut off from the graph."""
    return value.detach()
