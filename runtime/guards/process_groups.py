"""What a graph knows of the process groups of `torch.distributed`, asked again at each call.

In: a function of `torch.distributed` and a group, or None for the default one. Out: a callable for
a "context" source: the function's value for the group, or None where it raises (no group exists).
The group is held weakly.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import distributed


class OfGroup:
    """The value of `function(group)`."""

    __slots__ = ("__name__", "_function", "_group")

    def __init__(self, group: Any, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._group = None if group is None else weakref.ref(group)
        self.__name__ = (
            f"{function.__name__}_of_{'a' if group is not None else 'the_default'}_group"
        )

    def __call__(self) -> Any:
        group = self._group and self._group()
        if group is None and self._group is not None:
            return None
        try:
            return self._function(group)
        except (RuntimeError, ValueError):
            return None


def name_of(group: Any) -> str | None:
    """The name of a group, by which a step of a graph finds it; None if this process is not in
    it."""
    found = distributed.group.WORLD if group is None else group
    return None if type(found) is not distributed.ProcessGroup else str(found.group_name)
