"""Operators' special methods called by name, and the sequence operators of `operator`.

In: a receiver of a modelled type, the method's name, and operands as Values. Out: whether the
modelled operator gives the same result; if not, it is a break. `c_calls` and `container_subclasses`
use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values.registry import Args
from ..values.value import Const, DictView, Value
from .operator_table import BINARY, COMPARE, INPLACE

if TYPE_CHECKING:
    pass

_OPERATORS = frozenset(
    {name for _, name, _ in (*BINARY.values(), *COMPARE.values())}
    | {name for _, name in INPLACE.values()}
)


def answers(receiver: Value, name: str, args: Args) -> bool:
    """Whether an operator's method, called by name, gives the operator's result.

    For an operand of another type, the method returns NotImplemented, or raises with another
    message.
    """
    if len(args) != 1 or name not in _OPERATORS:
        return True
    if name in ("__mul__", "__imul__"):
        return isinstance(args[0], Const) and isinstance(args[0].value, int)
    if type(args[0]) is not type(receiver):
        return False
    return isinstance(receiver, DictView) or args[0].cls is receiver.cls  # type: ignore[attr-defined]
