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
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "tanh": math.tanh,
}
KINDS = {
    **dict.fromkeys(
        ("truediv", "float", "sqrt", "exp", "log", "sin", "cos", "tan", "tanh"), "float"
    ),
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
