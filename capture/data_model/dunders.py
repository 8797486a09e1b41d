"""Special methods of operators called by their names, and the functions of `operator` that are operators of sequences alone.

In: a receiver that the machine models, the method's name, and operands as Values. Out: whether the operator, which is what
is modelled, gives the same; what it does not is left to Python. Called by `builtin_methods` and `hybrids`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from ..breaks import Break
from ..exact_type import is_kind
from ..values.registry import BUILTINS, Args, Kwargs, Model
from ..values.value import Const, DictView, Sequence, Value
from .operators import BINARY, COMPARE, INPLACE, binary

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

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


def _concatenated(symbol: str) -> Model:
    """operator.concat and iconcat: `+` and `+=` of sequences alone."""

    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        for value in args:
            text = isinstance(value, Const) and is_kind(value.value, (str, bytes))
            if not text and not isinstance(value, Sequence):
                raise Break("GB121", f"operator {symbol} of what may be no sequence")
        return binary(m, symbol, *args)

    return model


BUILTINS[operator.concat] = _concatenated("+")
BUILTINS[operator.iconcat] = _concatenated("+=")
