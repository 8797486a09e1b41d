"""Gradients as functions: `GradOperation`, `grad`, `value_and_grad`, `get_grad`, `stop_gradient`.

In: a function or cell, jitted or not. Out: a function of the same arguments that returns gradients.
No `.grad` is changed, each call differentiates only by what it names, and gradients of gradients
nest. In a compiled function, the function and its gradients become one graph with the surrounding
code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .runtime.autograd.differentiate import differentiate

Positions = int | tuple[int, ...] | None


def _weights_of(function: Any, weights: Any) -> list[torch.Tensor]:
    """The weights to differentiate by: the given ones, or the trainable ones of a cell."""
    if weights is None:
        owner = getattr(function, "__self__", function)
        if not isinstance(owner, torch.nn.Module):
            raise TypeError(
                "gradients of weights need a cell, or the weights as second argument; this is a"
                f" {type(function).__name__}"
            )
        return [parameter for parameter in owner.parameters() if parameter.requires_grad]
    listed = [weights] if isinstance(weights, torch.Tensor) else list(weights)
    for at in range(len(listed)):
        weight = listed[at]
        if not isinstance(weight, torch.Tensor):
            raise TypeError(
                f"weights are tensors with requires_grad=True: number {at} is a"
                f" {type(weight).__name__}"
            )
        if not weight.requires_grad:
            raise TypeError(
                f"weights are tensors with requires_grad=True: number {at}, of shape"
                f" {tuple(weight.shape)}, has requires_grad=False"
            )
    return listed


def _check_callable(function: Any) -> None:
    if not callable(function):
        raise TypeError(f"a function or a cell is needed, not a {type(function).__name__}")


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is True or False, not {value!r}")


def _check_position(position: Any) -> None:
    if isinstance(position, bool) or not isinstance(position, int):
        raise TypeError(
            f"grad_position is a number, a tuple of numbers or None: {position!r} is a"
            f" {type(position).__name__}"
        )
    if position < 0:
        raise ValueError(f"grad_position counts from 0: {position} is negative")


def _positions(grad_position: Any) -> tuple[int, ...]:
    """`grad_position` as a tuple. Raises TypeError and ValueError."""
    if grad_position is None:
        return ()
    positions = grad_position if isinstance(grad_position, (tuple, list)) else (grad_position,)
    if not positions:
        raise ValueError("grad_position is empty: use None for no argument")
    for position in positions:
        _check_position(position)
    return tuple(positions)


class GradOperation:
    """`GradOperation(...)(function, weights)(*args)`: gradients of the summed results of a function
    or cell.

    get_all       False: gradient of the first argument; True: a tuple with one gradient per tensor
                  among the positional arguments
    get_by_list   gradients of the weights as a tuple (the second argument of the first call, or all
                  trainable ones of a cell); with get_all: (gradients of the inputs, gradients of
                  the weights)
    sens_param    the last positional argument, or `sens=`, is the gradient of the results (a
                  tensor, or a tuple of them, with the shapes of the results) in place of ones; it
                  is not passed to the function

    A gradient has the shape and dtype of its tensor. Tensors that do not contribute to the results,
    and integer tensors, have zeros. Raises TypeError for arguments of a wrong type, for missing
    ones and for results without a tensor, ValueError if the shapes of `sens` are not those of the
    results.
    """

    def __init__(
        self, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False
    ) -> None:
        _check_flag("get_all", get_all)
        _check_flag("get_by_list", get_by_list)
        _check_flag("sens_param", sens_param)
        self.get_all = get_all
        self.get_by_list = get_by_list
        self.sens_param = sens_param

    def __call__(self, function: Any, weights: Any = None) -> Callable[..., Any]:
        """A function of the same arguments that returns the gradients."""
        _check_callable(function)

        def gradient(*args: Any, **kwargs: Any) -> Any:
            _, found = self.both(function, weights, args, kwargs)
            return found

        return gradient

    def both(self, function: Any, weights: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """(result, gradients) of one call."""
        sens = None
        if self.sens_param:
            args, kwargs, sens = _with_sens(args, kwargs)
        listed = _weights_of(function, weights) if self.get_by_list else []
        positions: tuple[int, ...] = () if self.get_by_list else (0,)
        if self.get_all:
            positions = tuple([at for at, arg in enumerate(args) if isinstance(arg, torch.Tensor)])
        elif positions and not args:
            raise TypeError("there is no positional argument to take the gradient of")
        result, of_inputs, of_weights = differentiate(
            function, args, kwargs, positions, listed, sens
        )
        if self.get_all and self.get_by_list:
            return result, (tuple(of_inputs), tuple(of_weights))
        if self.get_by_list:
            return result, tuple(of_weights)
        return result, tuple(of_inputs) if self.get_all else of_inputs[0]


def _with_sens(args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """(positional arguments without the sensitivity, keyword arguments, sensitivity)"""
    if "sens" in kwargs:
        return args, {key: kwargs[key] for key in kwargs if key != "sens"}, kwargs["sens"]
    if not args:
        raise TypeError("sens_param=True: pass the gradient of the results as the last argument")
    return args[:-1], kwargs, args[-1]


def value_and_grad(
    fn: Any,
    grad_position: Positions = 0,
    weights: Any = None,
    has_aux: bool = False,
    return_ids: bool = False,
) -> Callable[..., Any]:
    """A function of the same arguments that returns (result, gradients).

    grad_position   one position among the positional arguments (one gradient), a tuple of positions
                    (a tuple of gradients), or None (weights only)
    weights         tensors that require a gradient. The gradients are then (gradients of inputs,
                    tuple of gradients of weights), or without positions the latter alone; for a
                    single tensor that is not in a list, its gradient
    has_aux         only the first result is differentiated
    return_ids      each gradient is replaced by a pair (position or weight, gradient): see
                `get_grad`

    The gradients are those of the sum of all elements of the results. They have the shapes and
    dtypes of their tensors; tensors that do not contribute have zeros. Results are detached, unless
    this call runs in a function that is being differentiated. Raises TypeError for arguments of a
    wrong type, ValueError for a negative position and if neither a position nor weights are given,
    IndexError (when the returned function is called) for a position without an argument.
    """
    _check_callable(fn)
    _check_flag("has_aux", has_aux)
    _check_flag("return_ids", return_ids)
    if grad_position is None and weights is None:
        raise ValueError("grad_position=None needs weights")
    positions = _positions(grad_position)

    def both(*args: Any, **kwargs: Any) -> Any:
        for position in positions:
            if position >= len(args):
                raise IndexError(
                    f"grad_position {position} is out of range: {len(args)} positional arguments"
                )
        listed = _weights_of(fn, weights) if weights is not None else []
        result, of_inputs, of_weights = differentiate(
            fn, args, kwargs, positions, listed, None, has_aux
        )
        if return_ids:
            of_inputs = list(zip(positions, of_inputs, strict=True))
            of_weights = list(zip(listed, of_weights, strict=True))  # type: ignore[arg-type]
        inputs = of_inputs[0] if isinstance(grad_position, int) else tuple(of_inputs)
        listed_gradients = of_weights[0] if isinstance(weights, torch.Tensor) else tuple(of_weights)
        if weights is None:
            return result, inputs
        if grad_position is None:
            return result, listed_gradients
        return result, (inputs, listed_gradients)

    return both


def grad(
    fn: Any,
    grad_position: Positions = 0,
    weights: Any = None,
    has_aux: bool = False,
    return_ids: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradients alone; with `has_aux`, (gradients, other results).
    Arguments, shapes and errors are those of `value_and_grad`."""
    both = value_and_grad(fn, grad_position, weights, has_aux, return_ids)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        result, gradients = both(*args, **kwargs)
        return (gradients, tuple(result[1:])) if has_aux else gradients

    return gradient


def get_grad(gradients: Any, identifier: Any) -> torch.Tensor:
    """The gradient of one position or weight in a result of `return_ids=True`. Raises TypeError if
    the identifier is neither, ValueError if the result does not contain it."""
    if isinstance(identifier, bool) or not isinstance(identifier, (int, torch.Tensor)):
        raise TypeError(
            f"identifier must be a position or a weight, not a {type(identifier).__name__}"
        )
    found = _found(gradients, identifier)
    if found is None:
        raise ValueError("there is no gradient of that position or weight")
    return found


def _found(gradients: Any, identifier: Any) -> Any:
    if not isinstance(gradients, tuple):
        return None
    if len(gradients) == 2 and isinstance(gradients[1], torch.Tensor):
        key = gradients[0]
        same = key is identifier or (
            type(key) is int and type(identifier) is int and key == identifier
        )
        return gradients[1] if same else None
    for part in gradients:
        found = _found(part, identifier)
        if found is not None:
            return found
    return None


def stop_gradient(value: Any) -> Any:
    """The same values, detached from the autograd graph; tensors share memory with the given ones.
    Tuples and lists are walked, other objects are returned unchanged."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if type(value) is tuple or type(value) is list:
        items = [stop_gradient(item) for item in value]
        return tuple(items) if type(value) is tuple else items
    return value
