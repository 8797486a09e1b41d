"""What the Python functions of an operator keep outside of themselves.

In: the kernels of a custom operator, or the functions of its formula. Out: the containers and
assigned globals that they name, by the names that their code has. A kernel that keeps a list of its
calls is no step of a graph around which the program reads that list.
"""

from __future__ import annotations

import dis
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

_CONTAINERS = (list, dict, set, bytearray, deque)
Key = tuple[int, str]  # of a container: (its address, ""); of a global: (address of its dict, name)


def state_of(functions: Iterable[Any]) -> dict[Key, str]:
    """What the functions, and the functions of their modules that they name, keep -> its name."""
    found: dict[Key, str] = {}
    pending: list[Any] = [one for one in functions if isinstance(one, types.FunctionType)]
    seen: set[int] = set()
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        for name, value in named(function.__code__, function.__globals__, function.__closure__):
            if isinstance(value, _CONTAINERS):
                found[id(value), ""] = name
            elif getattr(value, "__globals__", None) is function.__globals__:
                pending.append(value)
        for name in _assigned(function.__code__):
            found[id(function.__globals__), name] = name
    return found


def named(
    code: types.CodeType, names: dict[str, Any], cells: tuple[Any, ...] | None
) -> Iterator[tuple[str, Any]]:
    """(name, value) of the globals and closure cells that code mentions."""
    for name in _globals_of(code):
        if name in names:
            yield name, names[name]
    for name, cell in zip(code.co_freevars, cells or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is empty
            continue


def _inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _inner(one)


def _globals_of(code: types.CodeType) -> set[str]:
    return {name for one in _inner(code) for name in one.co_names}


def _assigned(code: types.CodeType) -> set[str]:
    return {
        step.argval
        for one in _inner(code)
        for step in dis.get_instructions(one)
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
    }
