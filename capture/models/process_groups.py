"""Models of what `torch.distributed` tells of process groups: ranks, sizes, names, backends.

In: a call of such a function. Out: its answer, under a guard that asks again at each call
(`runtime.guards.process_groups`). Where Python would raise, and where a group would be made, the
call is a break.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import distributed
from torch.distributed import distributed_c10d as c10d

from ...runtime.guards import process_groups
from ...runtime.guards.process_groups import Of, OfGroup
from ...runtime.guards.sources import Source
from ..breaks import Break
from ..data_model import attributes
from ..exact_type import is_kind
from ..values.containers import NotConstant, as_constant
from ..values.registry import NONE, Args, Kwargs, group_attribute, models
from ..values.value import Const, Method, Obj, Sequence, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def group_of(m: Machine, value: Value) -> Any:
    """The real group of an argument; None for the default one."""
    if isinstance(value, Const) and value.value is None:
        return None
    if not isinstance(value, Obj) or not is_kind(value.value, distributed.ProcessGroup):
        raise Break("GB103", "a process group that this process is not in, or of another kind")
    m.same_object(value)
    return value.value


def place_of(m: Machine, name: str, value: Value) -> str:
    """The name of a group, under a guard."""
    source = m.heap.question(OfGroup, group_of(m, value), process_groups.name_of)
    place: str | None = source.key()
    if place is None:
        raise Break("GB102", f"{name}() before there is a process group")
    m.guard("equals", source, place)
    return place


def _answer(m: Machine, name: str, source: Source) -> Value:
    found = source.key()
    if found is None:
        raise Break("GB102", f"{name}() before there is a process group, or of none such")
    if type(found) is tuple:
        m.guard("equals", source, found)
        return Sequence([Const(one) for one in found], list)
    return m.wrap(found, source)


def _constant(m: Machine, name: str, value: Value) -> Any:
    try:
        found = as_constant(m, value)
    except NotConstant:
        raise Break("GB102", f"{name}() with an argument that is not a constant") from None
    return tuple(found) if isinstance(found, list) else found


def _question(function: Callable[..., Any], asked: Callable[..., Any] | None = None) -> None:
    """The model of a function of a group and constants, or of constants alone. `asked`: gives the
    answer as a constant, or as a tuple for a list."""
    name, parameters = function.__name__, inspect.signature(function)

    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        try:
            bound = parameters.bind(*args, **kwargs)
        except TypeError:
            raise Break("GB102", f"{name}() with other arguments") from None
        given: dict[str, Any] = dict(bound.arguments)
        about = [one for one in ("group", "pg") if one in parameters.parameters]
        group = group_of(m, given.pop(about[0], NONE)) if about else None
        more = [_constant(m, name, one) for one in given.values()]
        if about:
            source = m.heap.question(OfGroup, group, asked or function, *more)
        else:
            source = m.heap.question(Of, asked or function, *more)
        return _answer(m, name, source)

    models(function)(model)


for _function in (
    *(c10d.get_rank, c10d.get_world_size, c10d.get_backend),
    *(c10d.get_global_rank, c10d.get_group_rank, c10d._get_group_tag),
):
    _question(_function)
_question(c10d.get_process_group_ranks, process_groups.ranks_of)
_question(c10d._resolve_group_name_by_ranks_and_tag, process_groups.name_by_ranks)
_question(c10d._find_or_create_pg_by_ranks_and_tag, process_groups.found_by_ranks)


@models(c10d._get_group_size_by_name)
def _size(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) != 1:
        raise Break("GB102", "_get_group_size_by_name() with other arguments")
    if isinstance(args[0], Const):
        about = m.heap.question(Of, process_groups.size_by_name, _constant(m, "size", args[0]))
    else:
        about = m.heap.question(OfGroup, group_of(m, args[0]), c10d.get_world_size)
    return _answer(m, "_get_group_size_by_name", about)


# -- attributes ------------------------------------------------------------------------------------
class _Methods:
    """Replaces those of a group."""

    def size(self) -> int:
        """Replaces `ProcessGroup.size`."""
        raise NotImplementedError

    def rank(self) -> int:
        """Replaces `ProcessGroup.rank`."""
        raise NotImplementedError


@models(group_attribute)
def _attribute(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    group, name = args
    assert isinstance(group, Obj) and isinstance(name, Const)
    if name.value == "group_name":
        return Const(place_of(m, "a group", group))
    if name.value in vars(_Methods) and type(group.value) is distributed.ProcessGroup:
        return Method(Obj(vars(_Methods)[name.value]), group)
    return attributes.generic_attr(m, group, name.value, type(group.value))


def _of_method(method: Any, function: Any) -> None:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if kwargs or len(args) != 1:
            raise Break("GB102", f"ProcessGroup.{method.__name__}() with other arguments")
        source = m.heap.question(OfGroup, group_of(m, args[0]), function)
        return _answer(m, method.__name__, source)

    models(method)(model)


_of_method(_Methods.size, c10d.get_world_size)
_of_method(_Methods.rank, c10d.get_rank)


@models(c10d.new_group)
def _new(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break("GB103", "new_group(), for which all processes wait for each other")
