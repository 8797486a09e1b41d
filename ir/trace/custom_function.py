"""A custom `torch.autograd.Function` in a trace, as one call.

In: the graphs of its forward and of its backward, which capture has walked. Out: `Applied`, the
target of the recorded call. Over ghosts it runs a Function of its own (`traced`), whose forward and
backward replay these graphs, so torch's autograd makes the node, saves the tensors and checks what
it checks for any Function. On real tensors (replays, comparisons with eager) it is the program's
own Function.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..dataclass import dataclass
from ..errors import Unsupported
from ..graph.interpreter import replay
from ..graph.nodes import Graph
from .ghost import Ghost

_Place = tuple[str, int]  # (kind of value, position among the values of that kind)


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor in the form of a result: its position among the outputs of the forward's graph."""

    index: int


@dataclass(frozen=True, slots=True)
class Backward:
    """The backward for one set of gradients that are present.

    graph      its graph, without outputs for gradients that are None
    inputs     what its inputs are: ("saved", position), ("held", position), ("gradient", position)
    gradients  for each tensor argument of the Function, the output that is its gradient, or None
    switches   whether it switches grad mode, so that its own derivative would be another graph's
    """

    graph: Graph
    inputs: tuple[_Place, ...]
    gradients: tuple[int | None, ...]
    switches: bool


@dataclass(frozen=True, slots=True)
class Walked:
    """A custom Function for arguments of one kind. Positions are those of the forward's outputs.

    name         the name of the class
    forward      the graph of the forward
    inputs       what its inputs are: ("argument", position among the tensor arguments), ("other",
                 position among the other tensors that it reads)
    result       the form of the result: a Slot, or a tuple of Slots and constants
    saved        what the forward saves with `save_for_backward`
    held         other tensors of the forward that the backward reads, from attributes of `ctx`
    dirty, plain what is marked as dirty, and as not differentiable
    materialize  whether a missing gradient of a tensor is zeros
    backwards    whether each gradient is present -> the backward
    """

    name: str
    forward: Graph
    inputs: tuple[_Place, ...]
    result: Any
    saved: tuple[int | None, ...]
    held: tuple[int, ...]
    dirty: tuple[int, ...]
    plain: tuple[int, ...]
    materialize: bool
    backwards: Mapping[tuple[bool, ...], Backward]


def traced(walked: Walked) -> Any:
    """The Function that replays the walked forward and backward."""

    def forward(ctx: Any, others: Sequence[Any], *tensors: Any) -> Any:
        given = {"argument": tensors, "other": others}
        made = replay(walked.forward, [given[kind][at] for kind, at in walked.inputs])
        ctx.save_for_backward(*[None if at is None else made[at] for at in walked.saved])
        ctx.held = [made[at] for at in walked.held]
        ctx.set_materialize_grads(walked.materialize)
        if walked.plain:
            ctx.mark_non_differentiable(*[made[at] for at in walked.plain])
        if walked.dirty:
            ctx.mark_dirty(*[made[at] for at in walked.dirty])
        if type(walked.result) is Slot:
            return made[walked.result.index]
        return tuple([made[one.index] if type(one) is Slot else one for one in walked.result])

    def backward(ctx: Any, *gradients: Any) -> Any:
        one = walked.backwards.get(tuple([gradient is not None for gradient in gradients]))
        if one is None:
            raise Unsupported("custom-function", f"{walked.name} without one of its gradients")
        if one.switches and torch.is_grad_enabled():
            raise Unsupported("custom-function", f"a derivative of the backward of {walked.name}")
        given = {"saved": ctx.saved_tensors, "held": ctx.held, "gradient": gradients}
        operands = [given[kind][at] for kind, at in one.inputs]
        present = [gradient for gradient in gradients if gradient is not None]
        if present:
            present[0]._owner.custom.append(tuple([gradient._node for gradient in present]))
        made = replay(one.graph, operands)
        return (None, *[None if at is None else made[at] for at in one.gradients])

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(walked.name, (torch.autograd.Function,), members)


class Applied:
    """`F.apply(*args)`, as the trace records it. `others` are the tensors that F reads besides.

    `reads`: what backward reads from outside (`runtime.autograd.custom_function.Reads`).
    """

    def __init__(self, cls: type, walked: Walked, reads: Any) -> None:
        self.reads = reads
        self._cls = weakref.ref(cls)  # a class of the program may end; its entries end with it
        self._traced = traced(walked)
        self.__name__ = walked.name

    def __call__(self, args: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        """The tensors of the result."""
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        cls: Any = self._cls()
        if cls is None or any(type(one) is Ghost for one in tensors):
            found = self._traced.apply(others, *tensors)
        else:
            found = cls.apply(*args)
        parts = found if isinstance(found, tuple) else (found,)
        return tuple([one for one in parts if isinstance(one, torch.Tensor)])
