"""Functions of unbound numbers: builtins and those of `math`, as expressions.

In: a function and its arguments. Out: the number as an expression, or None if it needs a plain
number, which binds the entry to it. Where a function raises for some numbers, or its result may
leave the usual range, a guard first holds an argument that varies to other numbers.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ir.symbolic.expr import apply, bounds_of, is_symbolic, kind_of, made
from ..values import symbolic_numbers
from ..values.value import Const, Sequence, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Rule = Callable[["Machine", Any], Any]  # (machine, expression) -> expression, or None
_ROUNDED = 2.0**61  # ints below this, converted from floats, have 64 bits
_EXPONENTS = 4  # up to these powers, numbers in `_POWERS` neither overflow nor vanish
_POWERS = (1e-70, 1e70)
_DIGITS = 200.0  # limit on the decimal exponent of a power
_LARGEST = sys.float_info.max
_PLACES = 20  # up to so many decimal places, a number is rounded when it is known
_TERMS = 64  # the most numbers of a sum


def called(m: Machine, fn: Any, args: list[Value]) -> Value | None:
    """fn(*args) of numbers of which one is unbound; None if it needs plain numbers."""
    if not any(symbolic_numbers.is_number(value) for value in args):
        return _product(m, args) if fn is math.prod else None
    if len(args) == 1 and fn in _FINITE:
        finite = within(m, symbolic_numbers.operand(m, args[0]), -_LARGEST, _LARGEST)
        return Const(_FINITE[fn]) if finite else None
    if len(args) == 1:
        rule, given = _RULES.get(fn), symbolic_numbers.operand(m, args[0])
        # Python computes a number that is known by now, and may refuse it: float(1 << 2000).
        expr = None if rule is None or not is_symbolic(given) else rule(m, given)
        return None if expr is None else symbolic_numbers.number(m, expr)
    if len(args) == 2 and fn is divmod:
        whole = symbolic_numbers.computed(m, "//", *args)
        rest = None if whole is None else symbolic_numbers.computed(m, "%", *args)
        return None if whole is None or rest is None else Sequence([whole, rest], tuple)
    if len(args) == 2 and fn is pow:
        return symbolic_numbers.computed(m, "**", *args)
    if len(args) == 2 and fn is math.pow and all(map(symbolic_numbers.like_number, args)):
        given = [symbolic_numbers.operand(m, value) for value in args]
        real = [apply("float", one) if is_symbolic(one) else float(one) for one in given]
        expr = power(m, *real) if is_symbolic(real) else None
        return None if expr is None else symbolic_numbers.number(m, expr)
    if len(args) == 2 and fn is round:
        return _rounded(m, *args)
    if len(args) == 2 and fn in _PAIRS and all(map(symbolic_numbers.like_number, args)):
        given = [symbolic_numbers.operand(m, value) for value in args]
        expr = _PAIRS[fn](m, *(apply("float", one) for one in given))
        return None if expr is None else symbolic_numbers.number(m, expr)
    return None


def _rounded(m: Machine, value: Value, places: Value) -> Value | None:
    """round() to so many decimal places."""
    if not isinstance(places, Const) or symbolic_numbers.is_number(places):
        return None
    if symbolic_numbers.is_whole(value):
        return value if places.value in (None, 0, 1, 2) else None
    if type(places.value) is not int or not 0 <= places.value <= _PLACES:
        return None
    expr = symbolic_numbers.operand(m, value)
    if not within(m, expr, -_ROUNDED, _ROUNDED):
        return None
    return symbolic_numbers.number(m, apply("digits", expr, places.value))


def extreme(m: Machine, op: str, items: list[Value]) -> Value | None:
    """min() or max() of numbers of one type as one number, so that no guard holds which it is.

    Only of floats, and of ints that are known only when the frame runs: what a guard says of sizes
    is of use. None: they are to be compared.
    """
    if len(items) < 2 or not all(map(symbolic_numbers.like_number, items)):
        return None
    kinds = {symbolic_numbers.type_of(item) for item in items}  # type: ignore[arg-type]
    if len(kinds) != 1 or not any(map(symbolic_numbers.is_number, items)):
        return None
    given = [symbolic_numbers.operand(m, item) for item in items]
    if not symbolic_numbers.varies(m, given) or (kinds == {int} and not m.facts.from_data(given)):
        return None
    best = given[0]
    for one in given[1:]:
        best = made(op, best, one)
    return symbolic_numbers.number(m, best)


def total(m: Machine, start: Value, items: list[Value]) -> Value | None:
    """sum() of floats of which some vary; None if it needs plain numbers.

    From Python 3.12 on sum() adds the rounding errors at the end (Neumaier's sum).
    """
    whole = type(start) is Const and type(start.value) is int and start.value == 0
    floats = all(symbolic_numbers.is_of(item, float) for item in items)
    if not whole or not floats or len(items) > _TERMS:
        return None
    given = [symbolic_numbers.operand(m, item) for item in items]
    if not is_symbolic(given) or not symbolic_numbers.varies(m, given):
        return None
    found, errors = made("add", 0.0, given[0]), 0.0
    compensated = sys.version_info >= (3, 12)
    for one in given[1:]:
        if compensated:
            errors = made("add", errors, made("lost", found, one))
        found = made("add", found, one)
    if compensated:
        if not within(m, found, -_LARGEST, _LARGEST):
            return None
        found = made("add", found, errors)
    return symbolic_numbers.number(m, found)


def _product(m: Machine, args: list[Value]) -> Value | None:
    """math.prod() of ints."""
    if len(args) != 1 or not symbolic_numbers.has_numbers(args[0]):
        return None
    items = args[0].items  # type: ignore[attr-defined]
    return product(m, items) if all(map(symbolic_numbers.like_whole, items)) else None


def product(m: Machine, items: list[Value]) -> Value:
    """The product of ints."""
    total: Any = 1
    for item in items:
        total = total * symbolic_numbers.operand(m, item)
    return symbolic_numbers.number(m, total)


def within(m: Machine, expr: Any, low: float, high: float) -> bool:
    """Whether low <= expr <= high: known, or decided by a guard or by a check of the program."""
    least, most = bounds_of(expr)
    if least >= low and most <= high:
        return True
    (expr,) = symbolic_numbers.without_the_rest(m, expr)
    if not symbolic_numbers.varies(m, expr):
        return False
    facts = symbolic_numbers.with_where(m)
    ends = (int(low), int(high)) if kind_of(expr) == "int" else (low, high)
    if low == -high:
        size = abs(expr) if kind_of(expr) == "int" else apply("abs", expr)
        return bool(facts.require("<=", size, ends[1]))
    return bool(facts.require(">=", expr, ends[0])) and bool(facts.require("<=", expr, ends[1]))


def power(m: Machine, base: Any, exponent: Any) -> Any:
    """base ** exponent where one of them is plain; None if it needs plain numbers."""
    if not is_symbolic(base):
        return _exponential(m, base, exponent)
    if type(exponent) is int and 0 <= exponent <= _EXPONENTS and kind_of(base) == "int":
        return made("pow", base, exponent)
    if type(exponent) not in (int, float) or not abs(exponent) <= _EXPONENTS:
        return None
    low, high = (1.0, _ROUNDED) if kind_of(base) == "int" else _POWERS
    if not within(m, base, low, high):
        return None
    return apply("pow", apply("float", base), float(exponent))


def _exponential(m: Machine, base: Any, exponent: Any) -> Any:
    """A plain float to a power that varies (a rate that decays by steps).

    None unless the result is far from overflow and from 0.
    """
    whole = type(base) is int and kind_of(exponent) == "float"
    if not (type(base) is float or whole) or not _POWERS[0] <= base <= _POWERS[1]:
        return None
    most = _DIGITS / max(abs(math.log10(base)), 1e-12)
    if not within(m, exponent, -most, most):
        return None
    return apply("pow", float(base), apply("float", exponent))


def _whole(op: str) -> Rule:
    def rule(m: Machine, expr: Any) -> Any:
        if kind_of(expr) == "float" and not within(m, expr, -_ROUNDED, _ROUNDED):
            return None
        return apply(op, expr)

    return rule


def _real(op: str, low: float, high: float) -> Rule:
    def rule(m: Machine, expr: Any) -> Any:
        return apply(op, apply("float", expr)) if within(m, expr, low, high) else None

    return rule


def _hash(m: Machine, expr: Any) -> Any:
    """An int is its own hash, except -1 and those as large as the hash's modulus."""
    return expr if kind_of(expr) == "int" and within(m, expr, 0, 2.0**60) else None


def _itself(m: Machine, expr: Any) -> Any:
    return expr if kind_of(expr) == "int" else None


def _remainder(m: Machine, left: Any, right: Any) -> Any:
    (right,) = symbolic_numbers.without_the_rest(m, right)
    if is_symbolic(right):
        return None
    return apply("fmod", left, right) if right and within(m, left, -1e300, 1e300) else None


_PAIRS: dict[Any, Callable[..., Any]] = {
    math.atan2: lambda m, left, right: apply("atan2", left, right),
    math.fmod: _remainder,
}
_FINITE = {math.isnan: False, math.isinf: False, math.isfinite: True}  # results for a finite number
_RULES: dict[Any, Rule] = {
    abs: lambda m, expr: abs(expr) if kind_of(expr) == "int" else apply("abs", expr),
    math.fabs: lambda m, expr: apply("abs", apply("float", expr)),
    float: lambda m, expr: apply("float", expr),
    int: _whole("int"),
    math.trunc: _whole("int"),
    math.floor: _whole("floor"),
    math.ceil: _whole("ceil"),
    round: _whole("round"),
    hash: _hash,
    operator.index: _itself,
    math.sqrt: _real("sqrt", 0.0, 1e300),
    math.exp: _real("exp", -700.0, 700.0),
    math.log: _real("log", 1e-300, 1e300),
    math.sin: _real("sin", -1e300, 1e300),
    math.cos: _real("cos", -1e300, 1e300),
    math.tan: _real("tan", -1e300, 1e300),
    math.tanh: _real("tanh", -1e300, 1e300),
    math.asin: _real("asin", -1.0, 1.0),
    math.acos: _real("acos", -1.0, 1.0),
    math.atan: _real("atan", -1e300, 1e300),
    math.sinh: _real("sinh", -700.0, 700.0),
    math.cosh: _real("cosh", -700.0, 700.0),
    math.expm1: _real("expm1", -700.0, 700.0),
    math.log1p: _real("log1p", -0.999, 1e300),
    math.log2: _real("log2", 1e-300, 1e300),
    math.log10: _real("log10", 1e-300, 1e300),
    math.radians: lambda m, expr: apply("mul", apply("float", expr), math.pi / 180.0),
    math.degrees: lambda m, expr: apply("mul", apply("float", expr), 180.0 / math.pi),
}


symbolic_numbers.REGISTERED["**"] = power
