"""What a graph knows of an operator that the program has registered, asked again at each call.

In: an operator. Out: whether its fake rule and its formula for the gradient are those of the
capture, and no run has found the rule untrue since. Kernels are not asked for: a graph calls the
operator, which finds them. A guard calls these objects ("context" sources).
"""

from __future__ import annotations

import weakref
from typing import Any

from ...ir.ops.python_kernels import registrations, untrue


class Registered:
    """Whether an operator is registered as it was when this object was made."""

    __slots__ = ("__name__", "_op", "_parts", "_untrue")

    def __init__(self, op: Any) -> None:
        self._op, self._untrue = op, untrue(op)
        self._parts = tuple(map(_reference, registrations(op)))
        self.__name__ = f"registrations_of_{str(op).replace('.', '_')}"

    def __call__(self) -> bool:
        now = registrations(self._op)
        return untrue(self._op) is self._untrue and all(
            part is one if part is None else part() is one
            for part, one in zip(self._parts, now, strict=True)
        )


def _reference(value: Any) -> Any:
    """A weak reference; of what nothing can refer to weakly, a strong one."""
    if value is None:
        return None
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value
