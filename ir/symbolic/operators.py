"""The operations that symbolic numbers are made of, as tables: what computes each from Python numbers.

`OPS` is shared by ints and floats; an operation of `KINDS` gives that kind always, others a float if an operand is one.
`SIGNS` are Python's operators. `OUTCOMES` are comparisons.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

OPS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "min": min, "max": max, "abs": abs, "float": float, "int": int, "floor": math.floor,
    "ceil": math.ceil, "round": round, "sqrt": math.sqrt, "exp": math.exp, "log": math.log,
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "tanh": math.tanh,
}  # fmt: skip
KINDS = {
    **dict.fromkeys(
        ("truediv", "float", "sqrt", "exp", "log", "sin", "cos", "tan", "tanh"), "float"
    ),
    **dict.fromkeys(("int", "floor", "ceil", "round"), "int"),
}
SIGNS: dict[str, str] = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
OUTCOMES: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
