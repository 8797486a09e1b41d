"""Inputs that a node keeps beside the saved ones, for a backward that is itself differentiated or
runs under autocast.

In: the inputs of a call, before anything is written. Out: `Held`, from which
`runtime.autograd.joint_program` finds the inputs again as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import GraftError
from . import saving_hooks

# Input, the tensor with its history, a tensor with its memory and version counter, that version. If
# saved-tensor hooks were active: input, a `saving_hooks.Packed`, None, 0.
Held = list[tuple[int, Any, torch.Tensor | None, int]]

_SAME = torch.ops.aten._unsafe_view.default  # the same memory, but no view for autograd


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the memory and the history of this one, which no later write changes."""
    return _SAME(tensor, tensor.shape)  # type: ignore[no-any-return]


class Holder:
    """Keeps inputs that the backward does not read, for the case that it is itself differentiated.

    It keeps their memory and their place in the autograd graph, but not the tensors themselves,
    whose history may later lead to this node.
    """

    def __init__(
        self, positions: Sequence[int], parameters: Sequence[int], before: Sequence[int]
    ) -> None:
        """`positions`: the inputs that are kept, `parameters`: those that live as long as a module;
        `before`: inputs of which a copy is kept."""
        self._before = before
        self._parameters = [at for at in positions if at in parameters]
        self._loose = [at for at in positions if at not in parameters]
        self.is_empty = not positions and not before

    def __call__(self, inputs: Sequence[Any]) -> Held:
        """Keep the inputs. Called without gradients, before anything is written."""
        held: Held = [(at, one := inputs[at], one, one._version) for at in self._parameters]
        hooks = saving_hooks.active() if self._loose else None
        for at in self._loose:
            tensor = inputs[at]
            if tensor.is_leaf and tensor.requires_grad:
                held.append((at, tensor, tensor, tensor._version))
                continue
            if hooks is not None:
                held.append((at, saving_hooks.Packed(tensor, hooks), None, 0))
                continue
            bare = tensor.detach()
            known = _again(alias, tensor) if tensor.requires_grad else bare
            held.append((at, known, bare, bare._version))
        for at in self._before:
            copy = _again(torch.clone, inputs[at])
            held.append((at, copy, copy, copy._version))
        return held


def _again(make: Callable[..., Any], tensor: Any, *args: Any) -> Any:
    """A tensor with the memory or value of this one, whose history leads to the same place."""
    torch._C._set_grad_enabled(True)
    try:
        return make(tensor, *args)
    finally:
        torch._C._set_grad_enabled(False)


def inputs_of(held: Held, saved: dict[int, Any]) -> tuple[dict[int, Any], frozenset[int]]:
    """The inputs by position, saved ones included, and those that were written to since."""
    lost = []
    found = saved
    for at, tensor, seen, version in held:
        found[at] = tensor.tensor() if seen is None else tensor
        if seen is not None and seen._version != version:
            lost.append(at)
    return found, frozenset(lost)


def gone(name: str, at: int) -> GraftError:
    """The error for an input that was written to."""
    return GraftError(
        f"the backward of the compiled part {name} is itself differentiated or runs under autocast,"
        f" and input {at} was written to after the forward",
        todo="write to the inputs of the compiled part only after that backward, or run"
        " it in plain Python",
    )
