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
from ..graph.interpreter import bind_results, replay
from ..graph.nodes import Graph, Node, Ref
from ..ops.region_borders import NO_REGION, again
from ..symbolic.expr import Expr
from ..symbolic.symnode import to_torch
from .ghost import Ghost
from .joint_graph import CustomBackward

_Place = tuple[str, int]  # (kind of value, position among the values of that kind)


@dataclass(frozen=True, slots=True)
class Backward:
    """The backward for one set of gradients that are present.

    graph      its graph, without outputs for gradients that are None
    inputs     what its inputs are: ("saved", position), ("held", position), ("gradient", position)
    gradients  for each tensor argument of the Function, the output that is its gradient, or None
    switches   whether it switches grad mode or asks for it, so that its own derivative would be
               another graph's
    dense      whether it has asked if a tensor is contiguous: then its gradients are
    """

    graph: Graph
    inputs: tuple[_Place, ...]
    gradients: tuple[int | None, ...]
    switches: bool
    dense: bool


@dataclass(frozen=True, slots=True)
class Walked:
    """A custom Function for arguments of one kind. Positions are those of the forward's outputs.

    name         the name of the class
    forward      the graph of the forward
    inputs       what its inputs are: ("argument", position among the tensor arguments), ("other",
                 position among the other tensors that it reads)
    result       the tensors of the result
    saved        what the forward saves with `save_for_backward`
    held         other tensors of the forward that the backward reads, from attributes of `ctx`
    later        what others can write to until the backward reads it from `held`: inputs of the
                 forward, and its results
    dirty, plain what is marked as dirty, and as not differentiable
    materialize  whether a missing gradient of a tensor is zeros
    backwards    whether each gradient is present -> the backward
    """

    name: str
    forward: Graph
    inputs: tuple[_Place, ...]
    result: tuple[int, ...]
    saved: tuple[int | None, ...]
    held: tuple[int, ...]
    later: frozenset[int]
    dirty: tuple[int, ...]
    plain: tuple[int, ...]
    materialize: bool
    backwards: Mapping[tuple[bool, ...], Backward]


def traced(walked: Walked) -> Any:
    """The Function that replays the walked forward and backward."""

    def forward(ctx: Any, others: Sequence[Any], *tensors: Any) -> Any:
        given = {"argument": tensors, "other": others}
        made = _run(walked.forward, [given[kind][at] for kind, at in walked.inputs])
        ctx.save_for_backward(*[None if at is None else made[at] for at in walked.saved])
        ctx.held = [made[at] for at in walked.held]
        ctx.set_materialize_grads(walked.materialize)
        if walked.plain:
            ctx.mark_non_differentiable(*[made[at] for at in walked.plain])
        if walked.dirty:
            ctx.mark_dirty(*[made[at] for at in walked.dirty])
        return tuple([made[at] for at in walked.result])

    def backward(ctx: Any, *gradients: Any) -> Any:
        return _gradients(walked, ctx, ctx.saved_tensors, ctx.held, gradients)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(walked.name, (torch.autograd.Function,), members)


def _gradients(
    walked: Walked, ctx: Any, saved: Sequence[Any], held: Sequence[Any], gradients: Sequence[Any]
) -> Any:
    """What the backward of the Function returns."""
    one = walked.backwards.get(tuple([gradient is not None for gradient in gradients]))
    if one is None:
        raise Unsupported("custom-function", f"{walked.name} without one of its gradients")
    if one.switches and torch.is_grad_enabled():
        raise Unsupported("custom-function", f"a derivative of the backward of {walked.name}")
    if one.dense:
        gradients = tuple([each if each is None else each.contiguous() for each in gradients])
    if not torch.is_grad_enabled():  # else autograd follows the read
        held = [
            again(made, NO_REGION) if at in walked.later and type(made) is Ghost else made
            for at, made in zip(walked.held, held, strict=True)
        ]
    given = {"saved": saved, "held": held, "gradient": gradients}
    operands = [given[kind][at] for kind, at in one.inputs]
    present = [gradient for gradient in gradients if gradient is not None]
    asked = list(zip(ctx.needs_input_grad[1:], one.gradients, strict=False))
    made = _run(one.graph, operands)
    if present and type(present[0]) is Ghost:
        owner = present[0]._owner
        owner.withheld |= any(need and at is None for need, at in asked)
        found = [made[at] for need, at in asked if need and at is not None]
        used = [at for kind, at in one.inputs if kind == "saved"]
        unused = [each for at, each in enumerate(saved) if at not in used and type(each) is Ghost]
        parts = map(_nodes, (present, found, unused if used else ()))
        owner.custom.append(CustomBackward(*parts))
    return (None, *[None if at is None else made[at] for at in one.gradients])


def leveled(walked: Walked, batches: bool) -> Any:
    """As `traced`, in the form that torch's transforms take: a forward without a context, and a
    `setup_context`, which has what the forward saves among its results. `batches`: torch may derive
    its rule for vmap."""
    refs, n_inputs, n_result = walked.forward.call_outputs, len(walked.inputs), len(walked.result)
    kept = [*walked.saved, *walked.held]
    further = sorted(
        {at for at in kept if at is not None and refs[at].index >= n_inputs} - set(walked.result)
    )
    places = {at: number for number, at in enumerate([*walked.result, *further])}

    def forward(others: Sequence[Any], *tensors: Any) -> Any:
        given = {"argument": tensors, "other": others}
        made = _run(walked.forward, [given[kind][at] for kind, at in walked.inputs])
        return tuple([made[at] for at in (*walked.result, *further)])

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        given = {"argument": inputs[1:], "other": inputs[0]}

        def value(at: int | None) -> Any:
            if at is None:
                return None
            if refs[at].index < n_inputs:
                kind, place = walked.inputs[refs[at].index]
                return given[kind][place]
            return output[places[at]]

        ctx.save_for_backward(*[value(at) for at in kept])
        ctx.set_materialize_grads(walked.materialize)
        ctx.mark_non_differentiable(*[output[places[at]] for at in (*walked.plain, *further)])

    def backward(ctx: Any, *gradients: Any) -> Any:
        saved, n = ctx.saved_tensors, len(walked.saved)
        return _gradients(walked, ctx, saved[:n], saved[n:], gradients[:n_result])

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup_context),
        "backward": staticmethod(backward),
        "generate_vmap_rule": batches,
    }
    return type(walked.name, (torch.autograd.Function,), members)


def _is_wrapped(tensor: torch.Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _innermost(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor below all levels of torch's transforms."""
    while _is_wrapped(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def _nodes(ghosts: Sequence[Any]) -> tuple[Node, ...]:
    return tuple([ghost._node for ghost in ghosts])


def _run(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """`replay`; over ghosts, an expression is a number of torch's."""
    facts = next((one._owner.facts for one in inputs if type(one) is Ghost), None)
    if facts is None or not facts.symbols:
        return replay(graph, inputs)
    values: dict[int, Any] = {**graph.constants, **dict(enumerate(inputs))}

    def bound(value: Any) -> Any:
        kind = type(value)
        if kind is Ref:
            return values[value.index]
        if kind is tuple or kind is list:
            return kind([bound(item) for item in value])
        if kind is dict:
            return {key: bound(item) for key, item in value.items()}
        if kind is slice:
            return slice(bound(value.start), bound(value.stop), bound(value.step))
        return to_torch(facts.form(value), facts) if isinstance(value, Expr) else value

    for call in graph.calls:
        bind_results(call.results, call.target(*bound(call.args), **bound(call.kwargs)), values)
    return [values[ref.index] for ref in graph.call_outputs]


@dataclass(frozen=True, slots=True)
class Unowned:
    """An object of the program, which may end; the graph's entry ends with it."""

    ref: weakref.ref[Any]


class Applied:
    """`F.apply(*args)`, as the trace records it. `others` are the tensors that F reads besides.

    `reads`: what backward reads from outside (`runtime.autograd.custom_function.Reads`).
    """

    def __init__(self, cls: type, walked: Walked, reads: Any) -> None:
        self.reads = reads
        self._cls = Unowned(weakref.ref(cls))
        self._traced = traced(walked)
        self._leveled = leveled(walked, bool(getattr(cls, "generate_vmap_rule", False)))
        self._n_result = len(walked.result)
        self.__name__ = walked.name

    def __call__(self, args: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        """The tensors of the result."""
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        cls: Any = self._cls.ref()
        given = [one.ref() if type(one) is Unowned else one for one in args]
        pairs = zip(given, args, strict=True)
        ended = cls is None or any(one is None and was is not None for one, was in pairs)
        if ended or any(type(_innermost(one)) is Ghost for one in tensors):
            wrapped = any(_is_wrapped(one) for one in tensors)
            found = (self._leveled if wrapped else self._traced).apply(others, *tensors)
            if wrapped:
                found = found[: self._n_result]
        else:
            found = cls.apply(*given)
        parts = found if isinstance(found, tuple) else (found,)
        return tuple([one for one in parts if isinstance(one, torch.Tensor)])
