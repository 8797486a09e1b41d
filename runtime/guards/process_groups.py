"""What a graph knows of the process groups of `torch.distributed`, asked again at each call.

In: a function of `torch.distributed`, a group (None for the default one), and constants. Out: a
callable for a "context" source: the function's value, or None where it raises (no group exists).
The group is held weakly.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import distributed


class OfGroup:
    """The value of `function(group, *more)`."""

    __slots__ = ("__name__", "_function", "_group", "_more")

    def __init__(self, group: Any, function: Callable[..., Any], *more: Any) -> None:
        self._function, self._more = function, more
        self._group = None if group is None else weakref.ref(group)
        self.__name__ = (
            f"{function.__name__}_of_{'a' if group is not None else 'the_default'}_group"
        )

    def __call__(self) -> Any:
        group = self._group and self._group()
        if group is None and self._group is not None:
            return None
        return _asked(self._function, group, *self._more)


class Of:
    """The value of `function(*given)`."""

    __slots__ = ("__name__", "_function", "_given")

    def __init__(self, function: Callable[..., Any], *given: Any) -> None:
        self._function, self._given = function, given
        self.__name__ = f"{function.__name__}{given}"

    def __call__(self) -> Any:
        return _asked(self._function, *self._given)


def _asked(function: Callable[..., Any], *given: Any) -> Any:
    try:
        return function(*given)
    except (RuntimeError, ValueError, KeyError, AssertionError):
        return None


def name_of(group: Any) -> str | None:
    """The name of a group, by which a step of a graph finds it; None if this process is not in
    it."""
    found = distributed.group.WORLD if group is None else group
    return None if type(found) is not distributed.ProcessGroup else str(found.group_name)


def ranks_of(group: Any) -> tuple[int, ...]:
    """The global ranks of a group, in the order of those within it."""
    return tuple(distributed.get_process_group_ranks(group))


def size_by_name(name: str) -> int:
    """The size of the group with this name."""
    return int(distributed.distributed_c10d._get_group_size_by_name(name))


def name_by_ranks(ranks: tuple[int, ...], tag: str) -> str:
    """The name of the group of these ranks."""
    found = distributed.distributed_c10d._resolve_group_name_by_ranks_and_tag(list(ranks), tag)
    return str(found)


def found_by_ranks(tag: str, ranks: tuple[int, ...], stride: int) -> Any:
    """The group of these ranks; None if there is none yet."""
    parts = [list(ranks[at : at + stride]) for at in range(0, len(ranks), stride)]
    mine = next((part for part in parts if distributed.get_rank() in part), None)
    return mine and distributed.distributed_c10d._find_pg_by_ranks_and_tag(tag, mine)
