"""The autograd node of a graph with custom functions.

The backward of a custom `torch.autograd.Function` is Python code that eager runs when autograd
reaches it. Its gradients may depend on globals and closure cells at that time, and need not be
linear in the gradients that it is given. So before the compiled backward runs, the node asks
whether what the code reads is still what capture found there (`Reads`), and whether each backward
that runs is given the gradients that it was captured with (`Plan.met`). Where it is given less,
another program computes the gradients (`second_order`); otherwise, and where there is none, the
graph's calls run again under autograd, with the program's own Function.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Iterable, Set
from typing import Any

import torch


class Unreachable(Exception):
    """A place that cannot be read again without keeping its owner alive."""


class Reads:
    """What a backward reads from globals, closure cells and classes.

    It holds neither the function nor what its code reads, so that they end when the program drops
    them.
    """

    def __init__(self, method: types.FunctionType, read: Iterable[tuple[Any, str]]) -> None:
        """`read`: (globals dict, name), (class, name) and (cell, "") pairs. Raises Unreachable."""
        self._method = weakref.ref(method)
        self._rows = []
        for holder, name in read:
            find = self._finder(method, holder, name)
            self._rows.append((find, _reference(find())))

    def _finder(self, method: Any, holder: Any, name: str) -> Callable[[], Any]:
        if isinstance(holder, type):
            owner = weakref.ref(holder)
            return lambda: getattr(owner(), name)
        if isinstance(holder, dict):
            module = str(holder.get("__name__"))
            if getattr(sys.modules.get(module), "__dict__", None) is holder:
                return lambda: vars(sys.modules[module]).get(name)
        for depth, function in enumerate(_chain(method)):
            if function.__globals__ is holder:
                return lambda: self._at(depth).__globals__.get(name)
            for at, cell in enumerate(function.__closure__ or ()):
                if cell is holder:
                    return lambda: self._at(depth).__closure__[at].cell_contents
        raise Unreachable(name)

    def _at(self, depth: int) -> Any:
        return list(_chain(self._method()))[depth]

    def changed(self) -> bool:
        """Whether some place has another content. One that cannot be read any more has not."""
        if self._method() is None:
            return False
        for find, expected in self._rows:
            try:
                if not _is(find(), expected()):
                    return True
            except (ValueError, KeyError, IndexError, AttributeError):
                return True
        return False


def _is_given_less(met: Any, missing: Set[int]) -> bool:
    """Whether a backward of a custom function may run without a gradient that it was captured with
    (`met`: see `Plan`). One that is given nothing does not run."""
    if met is None:
        return True
    for given in met:
        absent = [results <= missing for results in given]
        if any(absent) and not all(absent):
            return True
    return False


def _chain(function: Any) -> Iterable[Any]:
    """A function and those that its decorators wrap."""
    while isinstance(function, types.FunctionType):
        yield function
        function = function.__dict__.get("__wrapped__")


def _reference(value: Any) -> Callable[[], Any]:
    if isinstance(value, (type, types.FunctionType, types.ModuleType)):
        return weakref.ref(value)
    return lambda: value


def _is(found: Any, expected: Any) -> bool:
    return found is expected or (
        type(found) is type(expected) and isinstance(found, _PLAIN) and found == expected
    )


_PLAIN = (int, float, str, bytes)


class Following:
    """The part of a node's class that follows custom functions; before a node of `joint_program`
    among the bases."""

    def gradients_of(self: Any, gradients: Any) -> Any:
        """As the node's own."""
        if torch.is_grad_enabled():
            return super().gradients_of(gradients)  # type: ignore[misc]
        plan = self.joint.plan
        why, traced = "", False
        missing = {number for number, at in enumerate(plan.results) if gradients[at] is None}
        if missing and _is_given_less(plan.met, missing):
            why, traced = "a custom function, and some results have no gradient", True
        if any(reads.changed() for reads in plan.custom):
            why = "what the backward of a custom function reads has changed since the forward"
            traced = False
        if not why:
            return super().gradients_of(gradients)  # type: ignore[misc]
        with torch.enable_grad():
            found = self.joint.again(self, gradients, False, why, traced=traced)
        self.joint.release(self, gradients)
        return found
