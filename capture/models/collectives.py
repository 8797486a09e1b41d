"""Models of `torch.distributed`: messages to other processes as steps of the graph.

In: a call of a function of `ir.ops.collectives.TABLE`. Out: None, or a `Work` for `async_op=True`,
whose `wait` is a step too. The steps run once each, in the program's order. A break is what a graph
cannot promise: a tensor with a history (torch's own call has no gradient), a handler in the frame
for what the call raises, a region that a backward computes again.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from ...ir.ops import collectives
from ...ir.ops.collectives import ONE, TABLE, Collective
from ...ir.trace import library_operators  # noqa: F401 (the route of such operators)
from ..breaks import Break
from ..data_model import attributes
from ..exact_type import is_kind
from ..torch_models import calls
from ..values import containers
from ..values.effects import Called
from ..values.handled import is_observed
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Instance, Obj, Sequence, Tensor, Value
from .process_groups import place_of

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB103"  # messages to other processes have their place
Tensors = tuple[list[Value], list[Value]]  # those that a call writes, and those that it reads


class Pending:
    """Replaces the `Work` of a call with `async_op=True`.

    `ticket` is the result of the step that has begun it, `tensors` a tuple of those that it writes,
    and one of those that it reads.
    """

    __slots__ = ("tensors", "ticket")

    def wait(self, timeout: Any = None) -> bool:
        """Replaces `Work.wait`."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Replaces all else that a `Work` has."""
        raise NotImplementedError


attributes.STAND_INS[Pending] = (_CODE, "the work of a collective is looked at")
attributes.REAL_BASES[Pending] = distributed.Work
attributes.BUILT_BY_CALL[Pending] = (collectives.work_of, ("ticket", "tensors"))


# -- the calls -------------------------------------------------------------------------------------
def _collective(name: str, spec: Collective) -> Any:
    function = getattr(distributed, name)
    signature = inspect.signature(function)
    defaults = signature.parameters

    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        try:
            given: dict[str, Any] = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError:
            raise Break("GB102", f"{name}() with other arguments") from None
        require_place(m, name)
        place = place_of(m, name, given.pop("group", NONE))
        later = _constant(m, name, given.pop("async_op", Const(spec.begins)))
        tensors, counts = _operands(m, name, spec, given)
        constants = [
            _constant(m, name, given.pop(one)) if one in given else defaults[one].default
            for one in spec.constants
        ]
        if given:
            raise Break("GB102", f"{name}() with {', '.join(given)}")
        how = repr((name, counts, tuple(map(_spelled, constants))))
        if later:
            ticket = begin(m, name, tensors, how, place)
            return work_under_way(m, ticket, tensors, collectives.work_of)
        ghosts = _ghosts(m, name, tensors)
        if name == "recv" and type(constants[0]) is not int:
            raise Break("GB102", "recv() from any process")
        calls.record(m, collectives.collective, (*ghosts, how, place), {})
        return Const(constants[0]) if name == "recv" else NONE

    return model


def begin(m: Machine, name: str, tensors: Tensors, how: str, place: str) -> Tensor:
    """The ticket of a call that has begun."""
    ticket = calls.record(m, collectives.begin, (*_ghosts(m, name, tensors), how, place), {})
    assert isinstance(ticket, Tensor)
    return ticket


def work_under_way(m: Machine, ticket: Tensor, tensors: Tensors, left: Any) -> Value:
    """The work of a call that has begun. `left`: called with its ticket and tensors, which outlive
    the graph, unless a step waits for it."""
    made = Instance(Obj(Pending))
    kept = Sequence([Sequence(list(some), tuple) for some in tensors], tuple)
    m.heap.overlay[made] = {"ticket": ticket, "tensors": kept}
    m.journal.effects.append(Called(left, (ticket, kept)))
    return made


@models(Pending.__getattr__)
def _looked_at(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break(*attributes.STAND_INS[Pending])


@models(Pending.wait)
def _wait(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    work, *timeout = args
    if kwargs or any(not isinstance(one, Const) or one.value is not None for one in timeout):
        raise Break(_CODE, "wait() with a time limit")
    wait_for(m, work)
    return Const(True)


def wait_for(m: Machine, work: Value) -> None:
    """Wait for what has begun in this frame."""
    require_place(m, "wait")
    held = m.heap.overlay[work]
    kept, ticket = held["tensors"], held["ticket"]
    assert isinstance(kept, Sequence) and isinstance(ticket, Tensor)
    written, read = (some.items for some in kept.items if isinstance(some, Sequence))
    record_wait(m, ticket, (written, read))
    m.journal.effects[:] = [
        one for one in m.journal.effects if not (isinstance(one, Called) and ticket in one.items)
    ]


def record_wait(m: Machine, ticket: Tensor, tensors: Tensors) -> None:
    """The step that waits. Autograd does not follow it: it changes nothing that has been read."""
    ghosts = [[_without_history(m, one) for one in some] for some in tensors]
    calls.record(m, collectives.wait, (*ghosts, calls.to_argument(m, ticket)), {})


def _without_history(m: Machine, value: Value) -> Any:
    ghost = calls.to_argument(m, value)
    if not (ghost.requires_grad and torch.is_grad_enabled()):
        return ghost
    return calls.to_argument(m, calls.record(m, torch.Tensor.detach, (ghost,), {}))


def require_place(m: Machine, name: str) -> None:
    if any(not one.custom for one in m.inner) or m.modes or is_observed(m):
        raise Break(_CODE, f"{name}() inside of a handler, a transform or a mode")
    regions = m.tracer.regions
    if regions is not None and regions.within:
        raise Break(_CODE, f"{name}() in a function that a backward computes again")


def _operands(
    m: Machine, name: str, spec: Collective, given: dict[str, Any]
) -> tuple[Tensors, tuple[int | None, ...]]:
    """The tensors that the call writes, and those that it reads; and how many each parameter gets,
    `ONE` for a tensor that is no list, None for no argument."""
    found: Tensors = [], []
    counts: list[int | None] = []
    for kind, names in zip(found, (spec.written, spec.read), strict=True):
        for one in names:
            value = given.pop(one, NONE)
            if isinstance(value, Const) and value.value is None:
                counts.append(None)
                continue
            listed = isinstance(value, Sequence) and value.cls is list
            items = containers.sequence_items(m, value) if listed else [value]
            kind += items
            counts.append(len(items) if listed else ONE)
    return found, tuple(counts)


def _ghosts(m: Machine, name: str, tensors: Tensors) -> list[list[Any]]:
    return [[ghost_of(m, name, one) for one in some] for some in tensors]


def ghost_of(m: Machine, name: str, value: Value) -> Any:
    """The ghost of a tensor that a message reads or writes."""
    if not isinstance(value, Tensor):
        raise Break("GB102", f"{name}() of something that is no tensor")
    ghost = calls.to_argument(m, value)
    if ghost.requires_grad and torch.is_grad_enabled():
        raise Break(_CODE, f"{name}() of a tensor that requires a gradient")
    return ghost


def _constant(m: Machine, name: str, value: Value) -> Any:
    if isinstance(value, Sequence):
        return [_constant(m, name, item) for item in containers.sequence_items(m, value)]
    if isinstance(value, Obj) and is_kind(value.value, distributed.ReduceOp.RedOpType):
        m.same_object(value)
        return value.value
    if not isinstance(value, Const) or type(value.value) not in (int, bool, type(None)):
        raise Break("GB102", f"{name}() with an argument that no graph holds")
    return value.value


def _spelled(constant: Any) -> Any:
    """A constant as text that `ir.ops.collectives` reads."""
    return constant.name if isinstance(constant, distributed.ReduceOp.RedOpType) else constant


for _name, _spec in TABLE.items():
    if hasattr(distributed, _name):
        models(getattr(distributed, _name))(_collective(_name, _spec))
