"""Special methods of operators called by their names, and the functions of `operator` that are operators of sequences alone.

In: a receiver that the machine models, the method's name, and operands as Values. Out: whether the operator, which is what
is modelled, gives the same; what it does not is left to Python. Called by `builtin_methods` and `hybrids`.
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
    """Whether the method of an operator, called by its name, gives what the operator gives. With an operand of another
    kind it gives NotImplemented, or an error with words of its own."""
    if len(args) != 1 or name not in _OPERATORS:
        return True
    if name in ("__mul__", "__imul__"):
        return isinstance(args[0], Const) and isinstance(args[0].value, int)
    if type(args[0]) is not type(receiver):
        return False
    return isinstance(receiver, DictView) or args[0].cls is receiver.cls  # type: ignore[attr-defined]
