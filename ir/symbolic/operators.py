"""Tables of the operations of symbolic numbers.

`OPS` gives the Python function of each operation, for ints and floats. `KINDS` gives the kind of
the result of some operations; the result of the others is a float if an operand is one. `SIGNS` are
Python's operators. `OUTCOMES` are the comparisons.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

# Functions of `math` with one argument; each is the function of C's library of the same name.
UNARY = (
    "sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "asin", "acos", "atan", "sinh", "cosh",
    "expm1", "log1p", "log2", "log10",
)  # fmt: skip


def lost(left: float, right: float) -> float:
    """The rounding error of left + right, exactly (Knuth, The Art of Computer Programming 2,
    4.2.2)."""
    after = left + right
    part = after - left
    return (left - (after - part)) + (right - part)


OPS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "min": min,
    "max": max,
    "abs": abs,
    "float": float,
    "int": int,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    **{name: getattr(math, name) for name in UNARY},
    "atan2": math.atan2,
    "fmod": math.fmod,
    "lost": lost,
    "digits": lambda number, places: round(number, int(places)),
}
KINDS = {
    **dict.fromkeys(("truediv", "float", *UNARY, "atan2", "fmod", "lost", "digits"), "float"),
    **dict.fromkeys(("int", "floor", "ceil", "round"), "int"),
}
SIGNS: dict[str, str] = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
}
OUTCOMES: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
