"""Results whose history a backward inside of their graph has used up.

`SpentProgram(program, spent)` is the program of such a graph: it runs without gradients, as what it computed of them is
in its results, and gives the results named in `spent` a node of autograd that says what eager's says when it is asked
to go backward again. What the graph was given is behind that node, as it is in eager.
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
    """The node in autograd's graph."""

    def apply(self, *_gradients: Any) -> Any:
        raise _used_up()


class Spent(torch.autograd.Function):
    """`apply(box, *origins)`: the tensor in the box, with a history that is used up and leads to those."""

    @staticmethod
    def forward(node: Any, box: list[torch.Tensor], *origins: torch.Tensor) -> torch.Tensor:
        return box[0]


@functools.cache
def _node_called(name: str) -> Any:
    """`Spent.apply` in C++, whose nodes are of a class of that name."""
    back = type(name, (SpentBackward,), {})
    made = type("Spent", (Spent,), {})
    made._backward_cls = back  # type: ignore[attr-defined]  # the metaclass has made another
    return torch._C._FunctionBase.__dict__["apply"].__get__(None, made)


@functools.cache
def _leaf() -> torch.Tensor:
    return torch.zeros((), requires_grad=True, device="cpu")


def _used_up() -> BaseException:
    """What torch raises at a second backward, in its own words."""
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
    """See the module's docstring. `spent`: (position among the results, the name of its node)."""

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
