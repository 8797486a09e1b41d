"""Operators: symbol -> the function of `operator` and the names of its special methods."""

from __future__ import annotations

import collections
import operator
from typing import Any

# symbol -> (function, special method, reflected special method)
BINARY: dict[str, tuple[Any, str, str]] = {
    "+": (operator.add, "__add__", "__radd__"),
    "-": (operator.sub, "__sub__", "__rsub__"),
    "*": (operator.mul, "__mul__", "__rmul__"),
    "/": (operator.truediv, "__truediv__", "__rtruediv__"),
    "//": (operator.floordiv, "__floordiv__", "__rfloordiv__"),
    "%": (operator.mod, "__mod__", "__rmod__"),
    "**": (operator.pow, "__pow__", "__rpow__"),
    "@": (operator.matmul, "__matmul__", "__rmatmul__"),
    "&": (operator.and_, "__and__", "__rand__"),
    "|": (operator.or_, "__or__", "__ror__"),
    "^": (operator.xor, "__xor__", "__rxor__"),
    "<<": (operator.lshift, "__lshift__", "__rlshift__"),
    ">>": (operator.rshift, "__rshift__", "__rrshift__"),
}
INPLACE: dict[str, tuple[Any, str]] = {
    f"{symbol}=": (getattr(operator, f"i{name.strip('_')}"), f"__i{name.strip('_')}__")
    for symbol, (_, name, _) in BINARY.items()
}
COMPARE: dict[str, tuple[Any, str, str]] = {
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
}
UNARY: dict[str, tuple[Any, str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
}
# The numbers that the C operators of a number take as the second operand.
TAKES: dict[type, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    complex: (int, float, complex),
}
# Classes that C compares with each other and with what derives from them.
COMPARED = (
    int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset,
    collections.deque,
)  # fmt: skip
