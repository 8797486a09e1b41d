"""Results whose autograd history was freed by a backward inside their graph.

`SpentProgram(program, spent)` runs the program of such a graph without gradients, since the program
has computed those already. The results named in `spent` get an autograd node that raises torch's
error if a second backward reaches it. The inputs of the graph are behind that node, as in eager.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from ..errors import Begun

Tensors = tuple[torch.Tensor, ...]


class SpentBackward(BackwardCFunction):
    """The autograd node of a freed history."""

    def apply(self, *_gradients: Any) -> Any:
        raise used_up()


class Spent(torch.autograd.Function):
    """`apply(box, *origins)`: the tensor in the box, with a freed history that leads to the
    origins."""

    @staticmethod
    def forward(node: Any, box: list[torch.Tensor], *origins: torch.Tensor) -> torch.Tensor:
        return box[0]


@functools.cache
def _node_called(name: str) -> Any:
    """`Spent.apply` in C++, with nodes of a class of this name."""
    back = type(name, (SpentBackward,), {})
    made = type("Spent", (Spent,), {})
    # This replaces the class that the metaclass made.
    made._backward_cls = back  # type: ignore[attr-defined]
    return torch._C._FunctionBase.__dict__["apply"].__get__(None, made)


@functools.cache
def _leaf() -> torch.Tensor:
    return torch.zeros((), requires_grad=True, device="cpu")


def data_with_history(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor.data`, behind a node that leads to `tensor` if that requires a gradient.

    A program that writes through `.data` gets it in place of `tensor`, whose version must stay. A
    backward inside needs a history of it, and the results with a freed history lead to `tensor`.
    """
    if not tensor.requires_grad:
        return tensor.data
    with torch.enable_grad():
        return _node_called("DataBackward")([tensor.data], tensor)  # type: ignore[no-any-return]


def used_up() -> BaseException:
    """The exception that torch raises at a second backward, with torch's own text."""
    with torch.enable_grad():
        leaf = torch.ones((), requires_grad=True, device="cpu")
        product = leaf * leaf
    torch.autograd.grad(product, leaf)
    try:
        torch.autograd.grad(product, leaf)
    except RuntimeError as error:
        return error.with_traceback(None)
    return RuntimeError("Trying to backward through the graph a second time")


class SpentProgram:
    """See the module's docstring. `spent` has (position of the result, name of its node)."""

    def __init__(self, program: Callable[..., Tensors], spent: Sequence[tuple[int, str]]) -> None:
        self._program, self.tells_begun = program, getattr(program, "tells_begun", False)
        self._spent = [(at, _node_called(name)) for at, name in spent]

    def __call__(self, *inputs: Any) -> Tensors:
        with torch.no_grad():
            found = self._program(*inputs)
        if not self._spent:
            return found
        if not self.tells_begun:
            return self._with_histories(found, inputs)
        try:
            return self._with_histories(found, inputs)
        except Exception as error:
            raise Begun(error) from None

    def _with_histories(self, found: Tensors, inputs: Sequence[Any]) -> Tensors:
        results = list(found)
        origins = [one for one in inputs if isinstance(one, torch.Tensor) and one.requires_grad]
        with torch.enable_grad():
            for at, node in self._spent:
                results[at] = node([results[at]], *origins or [_leaf()])
        return tuple(results)
