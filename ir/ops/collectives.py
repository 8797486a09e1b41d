"""Operators that call `torch.distributed`: messages among processes as steps of a graph.

`collective(written, read, how, group)` is one call of a function of `TABLE`, which waits for its
end. `begin(...)` is the call with `async_op=True`; `wait(written, read, ticket)` waits for it.
They have the tag of random operators: like those they keep their order, and no pass drops, merges
or repeats one. What they write is what their schema says, so all other steps keep their place
around them.

`how` is the text of (name, counts, constants): `counts` has, for each parameter of the function
that is given tensors, their number, or `ONE` for a tensor that is no list.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import distributed

from ..dataclass import dataclass
from ..graph.schema import MESSAGES

ONE = -1


@dataclass(frozen=True, slots=True)
class Collective:
    """The parameters of a function of `torch.distributed`, beside `group` and `async_op`.

    written    tensors, or lists of them, that it writes
    read       tensors, or lists of them, that it only reads
    constants  what is fixed when the graph is captured
    begins     it has no `async_op`, and returns a `Work`
    """

    written: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    begins: bool = False


_GATHERED = Collective(("output_tensor",), ("input_tensor",))
_SCATTERED = Collective(("output",), ("input",), ("op",))
TABLE: dict[str, Collective] = {
    "all_reduce": Collective(("tensor",), (), ("op",)),
    "broadcast": Collective(("tensor",), (), ("src", "group_src")),
    "reduce": Collective(("tensor",), (), ("dst", "op", "group_dst")),
    "all_gather": Collective(("tensor_list",), ("tensor",)),
    "all_gather_into_tensor": _GATHERED,
    "all_gather_single": _GATHERED,
    "reduce_scatter": Collective(("output",), ("input_list",), ("op",)),
    "reduce_scatter_tensor": _SCATTERED,
    "reduce_scatter_single": _SCATTERED,
    "all_to_all": Collective(("output_tensor_list",), ("input_tensor_list",)),
    "all_to_all_single": Collective(
        ("output",), ("input",), ("output_split_sizes", "input_split_sizes")
    ),
    "gather": Collective(("gather_list",), ("tensor",), ("dst", "group_dst")),
    "scatter": Collective(("tensor",), ("scatter_list",), ("src", "group_src")),
    "send": Collective((), ("tensor",), ("dst", "tag", "group_dst")),
    "recv": Collective(("tensor",), (), ("src", "tag", "group_src")),
    "isend": Collective((), ("tensor",), ("dst", "tag", "group_dst"), begins=True),
    "irecv": Collective(("tensor",), (), ("src", "tag", "group_src"), begins=True),
    "barrier": Collective(),
    "allreduce_coalesced": Collective(("tensors",), (), ("op",), begins=True),
    "allgather_into_tensor_coalesced": Collective(("outputs",), ("inputs",), begins=True),
    "reduce_scatter_tensor_coalesced": Collective(("outputs",), ("inputs",), ("op",), begins=True),
}


# -- messages of several tensors, for which only groups have methods -------------------------------
def _all_reduced(tensors: list[torch.Tensor], op: Any, group: Any) -> Any:
    options = distributed.AllreduceCoalescedOptions()
    options.reduceOp = op
    return group.allreduce_coalesced(tensors, options)


def _all_gathered(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Any) -> Any:
    return group.allgather_into_tensor_coalesced(outputs, inputs)


def _scattered(outputs: list[torch.Tensor], inputs: list[torch.Tensor], op: Any, group: Any) -> Any:
    options = distributed.ReduceScatterOptions()
    options.reduceOp = op
    return group.reduce_scatter_tensor_coalesced(outputs, inputs, options)


_OF_GROUPS = {
    "allreduce_coalesced": _all_reduced,
    "allgather_into_tensor_coalesced": _all_gathered,
    "reduce_scatter_tensor_coalesced": _scattered,
}

_LIBRARY = torch.library.Library(MESSAGES, "DEF")
_SCHEMAS = (
    "collective(Tensor(a!)[] written, Tensor[] read, str how, str group) -> ()",
    "begin(Tensor(a!)[] written, Tensor[] read, str how, str group) -> Tensor",
    "wait(Tensor(a!)[] written, Tensor[] read, Tensor ticket) -> ()",
)
for _schema in _SCHEMAS:
    _LIBRARY.define(_schema, tags=(torch.Tag.nondeterministic_seeded,))
collective, begin, wait = (
    getattr(getattr(torch.ops, MESSAGES), name).default for name in ("collective", "begin", "wait")
)


@functools.cache
def _parsed(how: str) -> Any:
    name, counts, constants = ast.literal_eval(how)
    spec = TABLE[name]
    values = dict(zip(spec.constants, constants, strict=True))
    if "op" in values:
        values["op"] = getattr(distributed.ReduceOp, values["op"])
    later = {} if spec.begins else {"async_op": True}
    function = _OF_GROUPS.get(name) or getattr(distributed, name)
    return function, (*spec.written, *spec.read), counts, values, later


def _call(
    written: Sequence[torch.Tensor], read: Sequence[torch.Tensor], how: str, group: str, begin: bool
) -> Any:
    function, names, counts, constants, later = _parsed(how)
    tensors = iter([*written, *read])
    given = {
        name: next(tensors) if n == ONE else [next(tensors) for _ in range(n)]
        for name, n in zip(names, counts, strict=True)
        if n is not None
    }
    place = distributed.distributed_c10d._resolve_process_group(group)
    return function(**given, **constants, group=place, **(later if begin else {}))


def _collective(written: Any, read: Any, how: str, group: str) -> None:
    _call(written, read, how, group, begin=False)


def _ticket(*_: Any) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64)


def _begin(written: Any, read: Any, how: str, group: str) -> torch.Tensor:
    ticket = _ticket()
    ticket.work = _call(written, read, how, group, begin=True)  # type: ignore[attr-defined]
    return ticket


def work_of(ticket: Any, tensors: Any) -> Any:
    """The `Work` of a collective that has begun. `tensors`: what it reads and writes."""
    return ticket.work


def hand_over(ticket: Any, tensors: Any) -> None:
    """Let torch's `wait_tensor` wait for the work of a functional collective."""
    if isinstance(ticket.work, distributed.Work):  # else torch has begun it
        for written in tensors[0]:
            torch._C._distributed_c10d._register_work(written, ticket.work)


def wrapped(elem: torch.Tensor, completed: bool) -> torch.Tensor:
    """An `AsyncCollectiveTensor`, as torch makes it."""
    functions = sys.modules["torch.distributed._functional_collectives"]
    with torch.set_grad_enabled(elem.requires_grad):
        made: Any = functions._wrap_tensor_autograd(elem)
    made.completed = completed
    return made  # type: ignore[no-any-return]


def _wait(written: Any, read: Any, ticket: Any) -> None:
    ticket.work.wait()


def _nothing(*_: Any) -> None:
    """The rule of an operator without a result."""


for _name, _body, _rule in (
    ("collective", _collective, _nothing),
    ("begin", _begin, _ticket),
    ("wait", _wait, _nothing),
):
    _LIBRARY.impl(_name, _body, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{MESSAGES}::{_name}", lib=_LIBRARY)(_rule)
