"""Models of `torch.ops._c10d_functional`: operators that begin a message and return new tensors.

In: a call of one, by its packet or its overload; also of `_c10d_functional_autograd`. Out: its
results, as values of the graph. `wait_tensor` waits for what has begun in memory that its argument
uses: in the graph if the frame has begun it, else by a call before the program. Where autograd
follows a call, and torch has a formula, it is a custom function (`exchanges`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.effects import sends_any
from ...ir.ops import collectives
from ...ir.ops.collectives import ONE
from ..breaks import Break
from ..torch_models import calls
from ..values import containers
from ..values.containers import NotConstant, as_constant
from ..values.effects import Called
from ..values.registry import Args, Kwargs, collective_operator, models
from ..values.value import Awaited, Const, Obj, Sequence, Tensor, Value
from . import collectives as messages
from . import process_groups
from .exchanges import Exchanged, How, begun, exchanged

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB103"
_SPACES = ("_c10d_functional", "_c10d_functional_autograd")
# torch's names of reductions -> those of `ReduceOp`.
_REDUCTIONS = {
    name: name.upper() for name in ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
}
# `torch.distributed` warns of the older names.
_GATHER, _SCATTER = (
    next(name for name in names if hasattr(torch.distributed, name))
    for names in (
        ("all_gather_single", "all_gather_into_tensor"),
        ("reduce_scatter_single", "reduce_scatter_tensor"),
    )
)


@dataclass(slots=True)
class Message:
    """A call of a function of `ir.ops.collectives.TABLE`. `several`: it takes lists of tensors."""

    name: str
    written: list[Value]
    read: list[Value]
    constants: tuple[Any, ...] = ()
    several: bool = False

    @property
    def how(self) -> str:
        parts = [self.written, self.read] if self.read else [self.written]
        counts = tuple([len(some) if self.several else ONE for some in parts])
        return repr((self.name, counts, self.constants))


# -- the calls -------------------------------------------------------------------------------------
@models(collective_operator)
def _functional(m: Machine, given: Args, kwargs: Kwargs) -> Value:
    """An operator of torch's that sends messages."""
    (called, *args) = given
    assert isinstance(called, Obj)
    packet = getattr(called.value, "overloadpacket", called.value)
    space, _, name = packet._qualified_op_name.partition("::")
    if space not in _SPACES or (name not in _MESSAGES and name != "wait_tensor"):
        raise Break(_CODE, f"operator {packet}, which sends messages to other processes")
    names = [argument.name for argument in packet.default._schema.arguments]
    named = dict(zip(names, args, strict=False)) | kwargs
    if len(args) > len(names) or named.keys() != set(names):
        raise Break("GB102", f"{packet}() with other arguments")
    parts = [named[one] for one in names if one != "group_name"]
    if name == "wait_tensor":
        return waited(m, parts[0])
    messages.require_place(m, name)
    place = place_by_name(m, name, named["group_name"])
    if _is_followed(parts):
        made = _followed(m, space, name, parts, place)
    else:
        message = _MESSAGES[name](m, *parts)
        ticket = messages.begin(m, name, (message.written, message.read), message.how, place)
        made = message.written
        _is_under_way(m, ticket, made, message.read)
    several = isinstance(parts[0], Sequence)
    return Sequence(list(made), list) if several else made[0]


def place_by_name(m: Machine, name: str, value: Value) -> str:
    if isinstance(value, Const) and isinstance(value.value, str):
        return value.value
    return process_groups.place_of(m, name, value)


def _is_followed(parts: list[Value]) -> bool:
    tensors = [one for part in parts for one in (part.items if _is_list(part) else [part])]  # type: ignore[attr-defined]
    asks = any(isinstance(one, Tensor) and one.ghost.requires_grad for one in tensors)
    return asks and torch.is_grad_enabled()


def _is_list(part: Value) -> bool:
    return isinstance(part, Sequence)


def _is_under_way(m: Machine, ticket: Tensor, written: list[Value], read: list[Value]) -> None:
    """Note what waits must wait for."""
    work = messages.work_under_way(m, ticket, (written, read), collectives.hand_over)
    for one in written:
        assert isinstance(one, Tensor)
        m.heap.pending.setdefault(id(one.ghost._store), []).append(work)


# -- waits -----------------------------------------------------------------------------------------
_WAIT = torch.ops._c10d_functional.wait_tensor.default


def waited(m: Machine, x: Value) -> Value:
    """wait_tensor(x)"""
    if not isinstance(x, Tensor):
        raise Break("GB102", "wait_tensor() of something that is no tensor")
    found: Tensor = x.settled() if isinstance(x, Awaited) else x
    wait_for(m, found)
    if _is_followed([found]) and _has_formula("_c10d_functional", "wait_tensor"):
        return calls.record(m, torch.Tensor.view_as, (calls.to_argument(m, found),) * 2, {})
    return found


def wait_for(m: Machine, x: Tensor) -> None:
    """Wait for the messages that write to the memory of x."""
    store = x.ghost._store
    works = list(m.heap.pending.get(id(store), ()))
    for work in works:
        messages.wait_for(m, work)
    for others in m.heap.pending.values():
        others[:] = [one for one in others if one not in works]
    if works or store.fresh or id(store) in m.heap.arrived:
        return
    given = next((one for one in m.inputs if one.ghost._store is store), None)
    if given is None:
        raise Break(_CODE, "wait_tensor() of memory from outside that is no argument")
    wait_before(m, _WAIT, given)


def wait_before(m: Machine, step: Any, given: Tensor) -> None:
    """Wait before the program, by step(given), for a message from before the frame."""
    messages.require_place(m, "wait_tensor")
    if sends_any(m.root_tracer.values()[1]):
        raise Break(_CODE, "wait_tensor() of what began before a message of this frame")
    m.activity += 1
    m.heap.arrived.add(id(given.ghost._store))
    m.journal.effects.append(Called(step, (given,), early=True))


# -- messages --------------------------------------------------------------------------------------
def _copied(m: Machine, value: Value) -> Value:
    named = {"memory_format": torch.contiguous_format}
    return calls.record(m, torch.clone, (messages.ghost_of(m, "clone", value),), named)


def _empty(m: Machine, like: Value, first: Any) -> Value:
    """A new tensor, of another size in its first dimension."""
    ghost = messages.ghost_of(m, "new_empty", like)
    return calls.record(m, torch.Tensor.new_empty, (ghost, (first, *ghost.shape[1:])), {})


def _own(m: Machine, name: str, value: Value) -> Value:
    """A tensor that a message reads or writes in place: older versions of torch refuse those that
    are not contiguous, and gloo those without a dimension."""
    ghost = messages.ghost_of(m, name, value)
    if not ghost.is_contiguous():
        raise Break("GB102", f"{name}() of a tensor that is not contiguous")
    return value


def _length(m: Machine, name: str, value: Value) -> Any:
    ghost = messages.ghost_of(m, name, _own(m, name, value))
    if not ghost.dim():
        raise Break("GB102", f"{name}() of a tensor without a dimension")
    return ghost.shape[0]


def _number(m: Machine, value: Value) -> int:
    found = _plain(m, value)
    if type(found) is not int:
        raise Break("GB102", "a collective with an argument that no graph holds")
    return found


def _plain(m: Machine, value: Value) -> Any:
    try:
        return as_constant(m, value)
    except NotConstant:
        raise Break("GB102", "a collective with an argument that no graph holds") from None


def _reduction(m: Machine, value: Value) -> str:
    name = _REDUCTIONS.get(value.value) if isinstance(value, Const) else None
    if name is None:
        raise Break("GB102", "a collective with an operator that no graph holds")
    return name


def _tensors(m: Machine, value: Value) -> list[Value]:
    if not isinstance(value, Sequence):
        raise Break("GB102", "a collective of something that is no list of tensors")
    found = containers.sequence_items(m, value)
    if any(isinstance(one, Tensor) and one.ghost.is_complex() for one in found):
        raise Break("GB102", "a message of several complex tensors")
    return found


def _reduced(m: Machine, x: Value, op: Value) -> Message:
    return Message("all_reduce", [_copied(m, x)], [], (_reduction(m, op),))


def _reduced_in_place(m: Machine, x: Value, op: Value) -> Message:
    return Message("all_reduce", [_own(m, "all_reduce_", x)], [], (_reduction(m, op),))


def _broadcast(m: Machine, x: Value, src: Value) -> Message:
    return Message("broadcast", [_copied(m, x)], [], (None, _number(m, src)))  # within the group


def _broadcast_in_place(m: Machine, x: Value, src: Value) -> Message:
    return Message("broadcast", [_own(m, "broadcast_", x)], [], (None, _number(m, src)))


def _gathered(m: Machine, x: Value, count: Value) -> Message:
    made = _empty(m, x, _number(m, count) * _length(m, "all_gather_into_tensor", x))
    return Message(_GATHER, [made], [x])


def _gathered_into(m: Machine, x: Value, count: Value, out: Value) -> Message:
    name = "all_gather_into_tensor_out"
    _number(m, count)
    return Message(_GATHER, [_own(m, name, out)], [_own(m, name, x)])


def _scattered(m: Machine, x: Value, op: Value, count: Value) -> Message:
    made = _empty(m, x, _length(m, "reduce_scatter_tensor", x) // _number(m, count))
    return Message(_SCATTER, [made], [x], (_reduction(m, op),))


def _scattered_into(m: Machine, x: Value, op: Value, count: Value, out: Value) -> Message:
    name = "reduce_scatter_tensor_out"
    _number(m, count)
    return Message(_SCATTER, [_own(m, name, out)], [_own(m, name, x)], (_reduction(m, op),))


def _exchanged(m: Machine, x: Value, theirs: Value, ours: Value) -> Message:
    """`theirs`, `ours`: the sizes of the parts that arrive, and of those that leave."""
    name = "all_to_all_single"
    _length(m, name, x)
    sizes = tuple([tuple([int(one) for one in _plain(m, some) or ()]) for some in (theirs, ours)])
    made = _empty(m, x, sum(sizes[0]))
    return Message(name, [made], [x], tuple(map(list, sizes)))


def _all_reduced(m: Machine, xs: Value, op: Value) -> Message:
    made = [_copied(m, one) for one in _tensors(m, xs)]
    return Message("allreduce_coalesced", made, [], (_reduction(m, op),), True)


def _all_reduced_in_place(m: Machine, xs: Value, op: Value) -> Message:
    name = "allreduce_coalesced"
    made = [_own(m, "all_reduce_coalesced_", one) for one in _tensors(m, xs)]
    return Message(name, made, [], (_reduction(m, op),), True)


def _all_gathered(m: Machine, xs: Value, count: Value) -> Message:
    name, read, n = "allgather_into_tensor_coalesced", _tensors(m, xs), _number(m, count)
    return Message(
        name, [_empty(m, one, n * _length(m, name, one)) for one in read], read, (), True
    )


def _all_scattered(m: Machine, xs: Value, op: Value, count: Value) -> Message:
    name, read, n = "reduce_scatter_tensor_coalesced", _tensors(m, xs), _number(m, count)
    made = [_empty(m, one, _length(m, name, one) // n) for one in read]
    return Message(name, made, read, (_reduction(m, op),), True)


# By the operator's name: the message of its arguments, without the group.
_MESSAGES: dict[str, Callable[..., Message]] = {
    "all_reduce": _reduced,
    "all_reduce_": _reduced_in_place,
    "all_reduce_coalesced": _all_reduced,
    "all_reduce_coalesced_": _all_reduced_in_place,
    "broadcast": _broadcast,
    "broadcast_": _broadcast_in_place,
    "all_gather_into_tensor": _gathered,
    "all_gather_into_tensor_out": _gathered_into,
    "all_gather_into_tensor_coalesced": _all_gathered,
    "reduce_scatter_tensor": _scattered,
    "reduce_scatter_tensor_out": _scattered_into,
    "reduce_scatter_tensor_coalesced": _all_scattered,
    "all_to_all_single": _exchanged,
}


# -- gradients -------------------------------------------------------------------------------------
def _gathering_back(name: str, count: int) -> How:
    return name.replace("all_gather_into_tensor", "reduce_scatter_tensor"), "sum", count


def _scattering_back(name: str, op: str, count: int) -> How:
    return name.replace("reduce_scatter_tensor", "all_gather_into_tensor"), count


# By the operator's name: what its gradient sends.
_BACK: dict[str, Callable[..., How]] = {
    "all_reduce": lambda name, op: (name, op),
    "all_reduce_coalesced": lambda name, op: (name, op),
    "all_gather_into_tensor": _gathering_back,
    "all_gather_into_tensor_coalesced": _gathering_back,
    "reduce_scatter_tensor": _scattering_back,
    "reduce_scatter_tensor_coalesced": _scattering_back,
    "all_to_all_single": lambda name, theirs, ours: (name, ours, theirs),
}


def _has_formula(space: str, name: str) -> bool:
    """Whether torch differentiates the operator: it registers its formulas where the program
    imports them."""
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(f"{space}::{name}", "Autograd"))


def _followed(m: Machine, space: str, name: str, parts: list[Value], place: str) -> list[Value]:
    """The results of an operator that autograd follows."""
    if name not in _BACK or not _has_formula(space, name):
        raise Break(_CODE, f"{name}() of a tensor that requires a gradient")
    first, *more = parts
    constants = [_frozen(_plain(m, one)) for one in more]
    if any(isinstance(one, str) and one != "sum" for one in constants):
        raise Break(_CODE, f"{name}() by an operator for which torch refuses a gradient")
    back = _BACK[name](name, *constants)
    tensors = _tensors(m, first) if isinstance(first, Sequence) else [first]
    how = Const((name, *constants)), Const(back), Const(place)
    apply = Obj(Exchanged.apply.__func__)  # type: ignore[attr-defined]
    result = m.call(apply, [Obj(Exchanged), *how, *tensors], {})
    assert isinstance(result, Sequence)
    ticket, *made = result.items
    assert isinstance(ticket, Tensor)
    _is_under_way(m, ticket, made, tensors)
    return made


def _frozen(constant: Any) -> Any:
    return tuple(constant) if isinstance(constant, list) else constant


def _in_function(m: Machine, given: Args) -> tuple[Tensor, Message]:
    """The ticket of a message that a method of `Exchanged` begins."""
    how, place, tensors = given
    name, *constants = as_constant(m, how)
    xs = _tensors(m, tensors)
    first = Sequence(list(xs), list) if name.endswith("coalesced") else xs[0]
    message = _MESSAGES[name](m, first, *map(containers.from_constant, constants))
    written = message.written, message.read
    return messages.begin(m, name, written, message.how, as_constant(m, place)), message


@models(begun)
def _begun(m: Machine, given: Args, kwargs: Kwargs) -> Value:
    ticket, message = _in_function(m, given)
    return Sequence([ticket, *message.written], list)


@models(exchanged)
def _ended(m: Machine, given: Args, kwargs: Kwargs) -> Value:
    ticket, message = _in_function(m, given)
    messages.record_wait(m, ticket, (message.written, message.read))
    return Sequence(list(message.written), list)
