"""Models of `torch.distributed`: messages to other processes as steps of the graph.

In: a call of a function of `ir.ops.collectives.TABLE`. Out: None, or a `Work` for `async_op=True`,
whose `wait` is a step too. The steps run once each, in the program's order. A break is what a graph
cannot promise: a tensor with a history (torch's own call has no gradient), a handler in the frame
for what the call raises, a region that a backward computes again. The sizes and ranks of groups
are questions that each call asks again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from ...ir.ops import collectives
from ...ir.ops.collectives import ONE, TABLE, Collective
from ...ir.trace import library_operators  # noqa: F401 (the route of such operators)
from ...runtime.guards.process_groups import OfGroup, name_of
from ..breaks import Break
from ..data_model import attributes
from ..exact_type import is_kind
from ..torch_models import calls
from ..values import containers
from ..values.effects import Called
from ..values.handled import is_observed
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Instance, Obj, Sequence, Tensor, Value

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


def _group(m: Machine, value: Value) -> Any:
    """The real group of an argument; None for the default one."""
    if isinstance(value, Const) and value.value is None:
        return None
    if not isinstance(value, Obj) or not is_kind(value.value, distributed.ProcessGroup):
        raise Break(_CODE, "a process group that this process is not in, or of another kind")
    m.same_object(value)
    return value.value


def _question(function: Callable[..., Any]) -> Any:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        given = dict(zip(("group",), args, strict=False)) | kwargs
        if len(args) > 1 or not given.keys() <= {"group"}:
            raise Break("GB102", f"{function.__name__}() with other arguments")
        group = _group(m, given.get("group", NONE))
        source = m.heap.question(OfGroup, group, function)
        found = source.key()
        if type(found) is not int:
            raise Break("GB102", f"{function.__name__}() before there is a process group")
        return m.wrap(found, source)

    return model


for _function in (distributed.get_rank, distributed.get_world_size):
    models(_function)(_question(_function))


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
        _require_place(m, name)
        place = _place(m, name, given.pop("group", NONE))
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
            return _begun(m, name, tensors, how, place)
        ghosts = _ghosts(m, name, tensors)
        if name == "recv" and type(constants[0]) is not int:
            raise Break("GB102", "recv() from any process")
        calls.record(m, collectives.collective, (*ghosts, how, place), {})
        return Const(constants[0]) if name == "recv" else NONE

    return model


def _place(m: Machine, name: str, value: Value) -> str:
    """The name of a group, under a guard."""
    of_group = m.heap.question(OfGroup, _group(m, value), name_of)
    place: str | None = of_group.key()
    if place is None:
        raise Break("GB102", f"{name}() before there is a process group")
    m.guard("equals", of_group, place)
    return place


def _begun(
    m: Machine, name: str, tensors: Tensors, how: str, place: str, left: Any = collectives.work_of
) -> Value:
    """The work of a call that has begun. `left`: called with its ticket and tensors, which outlive
    the graph, unless a step waits for it."""
    ticket = calls.record(m, collectives.begin, (*_ghosts(m, name, tensors), how, place), {})
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
    _wait_for(m, work)
    return Const(True)


def _wait_for(m: Machine, work: Value) -> None:
    _require_place(m, "wait")
    held = m.heap.overlay[work]
    kept, ticket = held["tensors"], held["ticket"]
    assert isinstance(kept, Sequence) and isinstance(ticket, Tensor)
    written, read = (some.items for some in kept.items if isinstance(some, Sequence))
    calls.record(m, collectives.wait, (*_ghosts(m, "wait", (written, read)), ticket.ghost), {})
    m.journal.effects[:] = [
        one for one in m.journal.effects if not (isinstance(one, Called) and ticket in one.items)
    ]


def _require_place(m: Machine, name: str) -> None:
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
    return [[_ghost(m, name, one) for one in some] for some in tensors]


def _ghost(m: Machine, name: str, value: Value) -> Any:
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


# -- functional collectives ------------------------------------------------------------------------
# `torch.ops._c10d_functional`: each begins its message and returns its result, a new tensor;
# `wait_tensor` waits. The coalesced forms send other messages than these do one by one.


def _place_by_name(m: Machine, name: str, value: Value) -> str:
    if isinstance(value, Const) and type(value.value) is str:
        return value.value
    return _place(m, name, value)


def _copied(m: Machine, value: Value) -> Value:
    named = {"memory_format": torch.contiguous_format}
    return calls.record(m, torch.clone, (_ghost(m, "clone", value),), named)


def _empty(m: Machine, like: Value, first: Any) -> Value:
    """A new tensor, of another size in its first dimension."""
    ghost = _ghost(m, "new_empty", like)
    return calls.record(m, torch.Tensor.new_empty, (ghost, (first, *ghost.shape[1:])), {})


def _read(m: Machine, name: str, value: Value) -> Any:
    """The ghost of a tensor that a functional collective sends: older versions of torch refuse
    those that are not contiguous."""
    ghost = _ghost(m, name, value)
    if not ghost.is_contiguous():
        raise Break("GB102", f"{name}() of a tensor that is not contiguous")
    return ghost


def _returned(m: Machine, name: str, tensors: Tensors, constants: Any, group: Value) -> Value:
    """Begin the call, and return the tensor that it writes."""
    _require_place(m, name)
    how = repr((name, (ONE,) * (len(tensors[0]) + len(tensors[1])), constants))
    (made,) = tensors[0]
    place = _place_by_name(m, name, group)
    m.heap.pending[made] = _begun(m, name, tensors, how, place, collectives.hand_over)
    return made


def _reduced(m: Machine, x: Value, op: Value, group: Value) -> Value:
    return _returned(m, "all_reduce", ([_copied(m, x)], []), (_operator(op),), group)


def _broadcast(m: Machine, x: Value, src: Value, group: Value) -> Value:
    constants = None, _constant(m, "broadcast", src)  # a rank within the group
    return _returned(m, "broadcast", ([_copied(m, x)], []), constants, group)


def _gathered(m: Machine, x: Value, count: Value, group: Value) -> Value:
    name = "all_gather_into_tensor"
    made = _empty(m, x, _constant(m, name, count) * _read(m, name, x).shape[0])
    return _returned(m, name, ([made], [x]), (), group)


def _scattered(m: Machine, x: Value, op: Value, count: Value, group: Value) -> Value:
    name = "reduce_scatter_tensor"
    made = _empty(m, x, _read(m, name, x).shape[0] // _constant(m, name, count))
    return _returned(m, name, ([made], [x]), (_operator(op),), group)


def _operator(value: Value) -> str:
    """The name of an operator in `ReduceOp`."""
    name = value.value.upper() if isinstance(value, Const) and type(value.value) is str else ""
    if not isinstance(getattr(distributed.ReduceOp, name, None), distributed.ReduceOp.RedOpType):
        raise Break("GB102", "a collective with an operator that no graph holds")
    return name


def _waited(m: Machine, x: Value) -> Value:
    work = m.heap.pending.pop(x, None)
    if work is None:
        raise Break("GB102", "wait_tensor() of a tensor that this frame has not begun")
    _wait_for(m, work)
    return x


_BY_NAME: dict[str, Callable[..., Value]] = {
    "all_reduce": _reduced,
    "broadcast": _broadcast,
    "all_gather_into_tensor": _gathered,
    "reduce_scatter_tensor": _scattered,
    "wait_tensor": _waited,
}


@models(calls.collective_operator)
def _functional(m: Machine, given: Args, kwargs: Kwargs) -> Value:
    """An operator of torch's that sends messages."""
    (called, *args) = given
    assert isinstance(called, Obj)
    packet = getattr(called.value, "overloadpacket", called.value)
    space, _, name = packet._qualified_op_name.partition("::")
    model = _BY_NAME.get(name) if space == "_c10d_functional" else None
    if model is None:
        raise Break(_CODE, f"operator {packet}, which sends messages to other processes")
    names = [argument.name for argument in packet.default._schema.arguments]
    named = dict(zip(names, args, strict=False)) | kwargs
    if len(args) > len(names) or [*named] != names:
        raise Break("GB102", f"{packet}() with other arguments")
    return model(m, *named.values())
