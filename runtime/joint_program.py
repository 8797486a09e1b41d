"""A forward and a backward program as one node of autograd.

`JointProgram(plan, forward, backward, replay)` is called like any program. The forward runs without gradients inside of
a node (`torch.autograd.Function`'s C++ part, without its Python wrapping), which saves what the backward reads; the
backward is built when autograd first asks for it. In a backward that is itself to be differentiated, or has gradients
for some results only, the torch-level calls are run again (`replay`) under autograd.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.autograd.function import BackwardCFunction

from ..ir.dataclass import dataclass
from .errors import GraftError

_version = operator.attrgetter("_version")

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How the programs hang together. Positions are of the graph's inputs and outputs.

    node        the name of the node: that of the operator in eager, as printed tensors show it
    n_tensors   inputs that are tensors; numbers follow them
    n_outputs   of the forward program's results these are the graph's, the rest is made for the backward
    results     outputs with a gradient; `orders`: the dimensions of each one's memory, None where
                they are in order
    wanted      inputs that ask for one; `gradients`: theirs, by position among the backward program's results, or None
    saved       what the backward program reads, in order: see `ir.halves.Halves`
    witnesses   outputs whose versions must not change before the backward
    passed      outputs that are inputs handed back: output -> input
    parameters  inputs that live as long as a module
    numbers     where the numbers that the backward program takes come from, as in `Graph.symbols`
    random      the graph draws random numbers
    written     inputs that it writes
    """

    name: str
    node: str
    n_tensors: int
    n_outputs: int
    results: tuple[int, ...]
    orders: tuple[tuple[int, ...] | None, ...]
    wanted: tuple[int, ...]
    gradients: tuple[int | None, ...]
    saved: tuple[tuple[str, Any], ...]
    witnesses: tuple[int, ...]
    passed: dict[int, int]
    parameters: tuple[int, ...]
    numbers: tuple[tuple[Any, ...], ...]
    random: bool
    written: tuple[int, ...]


class Twin(Protocol):
    """Eager beside the programs, under GRAFTJIT_CHECK."""

    def begin(self, inputs: Sequence[Any]) -> Any:
        """What eager computes of the inputs, with a history of its own."""

    def compare(self, begun: Any, given: Sequence[Any], found: Sequence[Any]) -> None:
        """Raises CheckError if gradients of the inputs (None: not asked for) are not those of eager."""


class GraftBackward(BackwardCFunction):
    """The node in autograd's graph. `joint` is the program that made it."""

    joint: JointProgram

    def apply(self, *gradients: Any) -> Any:
        """Gradients of the results (None where there is none) to those of the inputs. Called by autograd's engine."""
        if torch.is_grad_enabled():
            return self.joint.again(self, gradients, create_graph=True)
        return self.joint.backwards(self, gradients)


class Graft(torch.autograd.Function):
    """`apply(program, *inputs)`: the results of the program's forward, with a history."""

    @staticmethod
    def forward(node: Any, joint: JointProgram, *inputs: Any) -> Any:
        node.joint = joint
        return joint.forwards(node, inputs)


@functools.cache
def _node_called(name: str) -> Any:
    """`Graft.apply` in C++, whose nodes are of a class of that name."""
    back = type(name, (GraftBackward,), {})
    made = type("Graft", (Graft,), {})
    made._backward_cls = back  # type: ignore[attr-defined]  # the metaclass has made another
    return torch._C._FunctionBase.__dict__["apply"].__get__(None, made)


class JointProgram:
    """The callable for one graph. It takes the graph's tensors and numbers and returns a tuple of its outputs."""

    def __init__(
        self,
        plan: Plan,
        forward: Callable[..., Tensors],
        backward: Callable[[], Callable[..., Tensors]],
        replay: Callable[..., Tensors],
        tell: Callable[[str], None],
        twin: Twin | None = None,
    ) -> None:
        self.plan, self.replay, self._tell = plan, replay, tell
        self._twin = twin
        self._node = _node_called(plan.node)
        self._forward, self._build = forward, backward
        self._backward: Callable[..., Tensors] | None = None
        inside = [at for at in range(plan.n_outputs) if at not in plan.passed]
        place = {at: number for number, at in enumerate(inside)}
        self._inside = None if len(inside) == plan.n_outputs else inside
        self._place = place
        self._results = tuple(place[at] for at in plan.results)
        self._plain = tuple(place[at] for at in inside if at not in plan.results)
        held = {at for kind, at in plan.saved if kind == "input"}.union(plan.parameters)
        self._loose = tuple(at for at in range(plan.n_tensors) if at not in held)
        # gradients come for the program's own argument first
        pairs = zip(plan.wanted, plan.gradients, strict=True)
        self._gradients = [(at + 1, number) for at, number in pairs if number is not None]

    @property
    def n_inputs(self) -> int:
        return self.plan.n_tensors

    def __call__(self, *inputs: Any) -> Any:
        if torch.is_grad_enabled():
            found = self._node(self, *inputs)
        else:
            with torch.enable_grad():
                found = self._node(self, *inputs)
        if self._inside is None:
            return found
        place, passed = self._place, self.plan.passed
        outputs = range(self.plan.n_outputs)
        return tuple([inputs[passed[at]] if at in passed else found[place[at]] for at in outputs])

    # -- forward

    def forwards(self, node: Any, inputs: Sequence[Any]) -> Tensors:
        """The results, with what the backward reads saved in the node."""
        plan = self.plan
        if plan.random:
            node.random = torch.get_rng_state()
        if self._twin is not None:
            node.begun = self._twin.begin(inputs)
        made = self._forward(*inputs)
        outputs = made[: plan.n_outputs]
        kinds = {"input": inputs, "output": outputs, "made": made[plan.n_outputs :]}
        node.to_save = (
            *[at if kind == "constant" else kinds[kind][at] for kind, at in plan.saved],
            *[outputs[at] for at in plan.witnesses],
        )
        node.materialize_grads = False
        node.numbers = [_number(where, inputs) for where in plan.numbers]
        node.parameters = [inputs[at] for at in plan.parameters]
        node.loose = [weakref.ref(inputs[at]) for at in self._loose]
        node.versions = list(map(_version, inputs[: plan.n_tensors]))
        node.further = inputs[plan.n_tensors :]
        given = outputs if self._inside is None else tuple([outputs[at] for at in self._inside])
        if self._plain:
            node.non_differentiable = tuple([given[at] for at in self._plain])
        return given

    # -- backward

    def backwards(self, node: Any, gradients: Sequence[Any]) -> Sequence[Any]:
        """Gradients of all inputs. What hangs only on a result without a gradient has none: rare, and left to eager."""
        plan = self.plan
        given = [gradients[place] for place in self._results]
        if any(one is None for one in given):  # a tensor in `None in given` would be compared
            with torch.enable_grad():
                return self.again(node, gradients, create_graph=False)
        saved = node.saved_tensors[: len(plan.saved)]
        if self._backward is None:
            self._backward = self._build()
        found = self._backward(*saved, *map(_laid_out, given, plan.orders), *node.numbers)
        asked = node.needs_input_grad
        returned: list[Any] = [None] * len(asked)
        for at, number in self._gradients:
            if asked[at]:
                returned[at] = found[number]
        if self._twin is not None:
            self._twin.compare(node.begun, given, returned[1:])
        return tuple(returned)

    # -- a backward that is itself differentiated

    def again(self, node: Any, gradients: Sequence[Any], create_graph: bool) -> Sequence[Any]:
        """Gradients of all inputs, with a history: the calls are run again under autograd, and that is differentiated."""
        plan = self.plan
        inputs = self._inputs_again(node)
        for at, tensor in enumerate(inputs[: plan.n_tensors]):
            if at in plan.written:
                inputs[at] = tensor.detach().clone()
            elif tensor.requires_grad:
                inputs[at] = tensor.view_as(tensor)
        outputs = self._replayed(node, inputs)
        pairs = [
            (outputs[at], gradients[place])
            for at, place in zip(plan.results, self._results, strict=True)
            if gradients[place] is not None
        ]
        asked = [at for at in plan.wanted if node.needs_input_grad[at + 1]]
        returned: list[Any] = [None] * len(node.needs_input_grad)
        if pairs and asked:
            found = torch.autograd.grad(
                [one for one, _ in pairs],
                [inputs[at] for at in asked],
                [gradient for _, gradient in pairs],
                create_graph=create_graph,
                allow_unused=True,
            )
            for at, gradient in zip(asked, found, strict=True):
                returned[at + 1] = gradient
        return tuple(returned)

    def _replayed(self, node: Any, inputs: Sequence[Any]) -> Tensors:
        """The calls once more, with the random numbers of the first time."""
        if not self.plan.random:
            return self.replay(*inputs)
        before = torch.get_rng_state()
        try:
            torch.set_rng_state(node.random)
            return self.replay(*inputs)
        finally:
            torch.set_rng_state(before)

    def _inputs_again(self, node: Any) -> list[Any]:
        """The inputs of the call, from what the node saved and what is still alive."""
        plan = self.plan
        inputs: list[Any] = [None] * plan.n_tensors
        for (kind, at), tensor in zip(plan.saved, node.saved_tensors, strict=False):
            if kind == "input":
                inputs[at] = tensor
        for at, tensor in zip(plan.parameters, node.parameters, strict=True):
            inputs[at] = tensor
        for at, find in zip(self._loose, node.loose, strict=True):
            inputs[at] = find()
        for at, (tensor, version) in enumerate(zip(inputs, node.versions, strict=True)):
            if tensor is None:
                raise _gone(plan.name, at, "no longer exists")
            if tensor._version != version and at not in plan.written:
                raise _gone(plan.name, at, "was written to since")
        self._tell("a backward with create_graph=True, or with gradients for some results only")
        return [*inputs, *node.further]


def _gone(name: str, at: int, what: str) -> GraftError:
    return GraftError(
        f"a backward through the compiled part {name} is to be differentiated, and input {at} of it {what}",
        todo="keep the inputs of the compiled part as they are until then, or leave this part to plain Python",
    )


def _number(where: tuple[Any, ...], inputs: Sequence[Any]) -> Any:
    what, position, *dim = where
    value = inputs[position]
    if what == "number":
        return value
    return value.size(dim[0]) if what == "size" else value.stride(dim[0])


def _laid_out(gradient: torch.Tensor, order: tuple[int, ...] | None) -> torch.Tensor:
    """The gradient in memory as its program takes it: no holes, dimensions in this order (None: as they are)."""
    if order is None:
        return gradient.contiguous()
    turned = gradient.permute(order)
    if turned.is_contiguous():
        return gradient
    return turned.contiguous().permute([order.index(dim) for dim in range(len(order))])
