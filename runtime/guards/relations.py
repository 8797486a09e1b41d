"""Relations between numbers that an entry reads: tensor sizes and strides, Python ints and floats.

A `Relation` is the expected value of a "relation" row: a short stack program over the numbers at
some sources, and a comparison of its two results. Capture builds one from an
`ir.symbolic.shape_env.Relation` (`compiled`). `holds_for` runs it in Python, the native guard
program in C. Integers have 64 bits: on overflow, on a division by zero, or where a double cannot
hold an integer exactly, the relation does not hold in either.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.symbolic.expr import Apply, Expr, Sum, Symbol, fold, kind_of
from ...ir.symbolic.operators import OPS, OUTCOMES, UNARY, lost
from .sources import Source

# Kinds of numbers that are read at a source: an exact int or float, or a size or stride of a
# tensor.
READS = ("int", "float", "size", "stride")


@dataclass(frozen=True, slots=True)
class Relation:
    """`reads`: (position in `sources`, one of READS, dimension) for each number. `code`: steps of a
    stack machine over these numbers, which leave the two sides. The comparison `op` of the sides
    must equal `holds`."""

    text: str
    sources: tuple[Source, ...]
    reads: tuple[tuple[int, str, int], ...]
    code: tuple[tuple[str, Any], ...]
    op: str
    holds: bool

    def __str__(self) -> str:
        return self.text


def row_name(source: Source, what: str, dim: int) -> str:
    """The expression that reads this number in the program."""
    ends = {"size": f".shape[{dim}]", "stride": f".stride({dim})"}
    return f"{source}{ends.get(what, '')}"


def _power(base: float, exponent: float) -> float:
    if not base > 0 or not math.isfinite(base) or not math.isfinite(exponent):
        raise ArithmeticError
    return math.pow(base, exponent)


def _finite(fn: Callable[[float], float]) -> Callable[[float], float]:
    """A function that raises where the native step fails: its result is infinite or nan."""

    def checked(number: float) -> float:
        found = fn(number)
        if not math.isfinite(found):
            raise ArithmeticError
        return found

    return checked


INT_STEPS: dict[str, Callable[..., int]] = {
    "add": operator.add, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "min": min, "max": max, "abs": abs, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor,
}  # fmt: skip
FLOAT_STEPS: dict[str, Callable[..., float]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "neg": operator.neg, "floordiv": operator.floordiv, "mod": operator.mod, "abs": abs,
    "pow": _power, "min": min, "max": max, "atan2": math.atan2, "fmod": math.fmod,
    "lost": lost, "digits": OPS["digits"], **{name: _finite(OPS[name]) for name in UNARY},
}  # fmt: skip
# Steps from a float to an integer.
WHOLE_STEPS: dict[str, Callable[[float], int]] = {
    "int": math.trunc, "floor": math.floor, "ceil": math.ceil, "round": round
}  # fmt: skip
# Steps with one operand.
_ONE = frozenset({"abs", "neg", *UNARY, *WHOLE_STEPS})
_WHOLE = 1 << 63
_EXACT = 1 << 53  # a double holds integers up to this one exactly


def can_hold(*sides: Any) -> bool:
    """Whether a relation between these sides can be a row: its steps support it, and it can be
    computed for the numbers at capture."""

    def run(op: str, kind: str, *parts: Any) -> Any:
        stack = [_float(part) if kind == "float" else part for part in parts]
        if op != "float":
            taken = "float" if op in WHOLE_STEPS else kind
            if any(type(part).__name__ != taken for part in stack):
                raise TypeError(f"{op} of a float is no step")
            _step(f"{kind} {op}", stack)
        return stack[-1]

    try:
        found = [fold(side, lambda n: n, lambda s: s.hint, run) for side in sides]
        if any(type(number) is float for number in found):
            found = [_float(number) for number in found]
    except (ArithmeticError, KeyError, TypeError, ValueError):
        return False
    return all(type(number) is float or -_WHOLE <= number < _WHOLE for number in found)


def compiled(relation: Any, where: Callable[[Symbol], tuple[str, Source, int]]) -> Relation:
    """The row form of an `ir.symbolic.shape_env.Relation`.

    `where` gives ("number", "size" or "stride", source, dimension) of a symbol.
    """
    sources: list[Source] = []
    reads: list[tuple[int, str, int]] = []
    code: list[tuple[str, Any]] = []
    names: dict[str, str] = {}

    def symbol(one: Symbol) -> str:
        what, source, dim = where(one)
        if source not in sources:
            sources.append(source)
        read = (sources.index(source), one.kind if what == "number" else what, dim)
        if read not in reads:
            reads.append(read)
        code.append(("load", reads.index(read)))
        names[one.name] = row_name(source, what, dim)
        return one.kind

    def number(value: Any) -> str:
        code.append(("float" if isinstance(value, float) else "int", value))
        return kind_of(value)

    floats = kind_of(relation.left) == "float" or kind_of(relation.right) == "float"
    for side in (relation.left, relation.right):
        _emit(side, code, number, symbol, floats)
    text = _words(str(relation.left), names), relation.op, _words(str(relation.right), names)
    shown = " ".join(text) if relation.holds else f"not {' '.join(text)}"
    return Relation(shown, tuple(sources), tuple(reads), tuple(code), relation.op, relation.holds)


def _emit(side: Any, code: list[Any], number: Any, symbol: Any, floats: bool) -> None:
    """Emit the steps that leave one side, as a float where the comparison is of floats."""
    kind = _walk(side, code, number, symbol)
    if floats and kind == "int":
        code.append(("to_float", None))


def _walk(value: Any, code: list[Any], number: Any, symbol: Any) -> str:
    if isinstance(value, Symbol):
        return symbol(value)  # type: ignore[no-any-return]
    if not isinstance(value, Expr):
        return number(value)  # type: ignore[no-any-return]
    if isinstance(value, Sum):
        for position, (coefficient, factors) in enumerate(value.terms):
            number(coefficient)
            for factor in factors:
                _walk(factor, code, number, symbol)
                code.append(("int mul", None))
            if position:
                code.append(("int add", None))
        return "int"
    assert isinstance(value, Apply)
    floats = value.kind == "float"
    for argument in value.args:
        if _walk(argument, code, number, symbol) == "int" and floats:
            code.append(("to_float", None))
    if value.op != "float":
        code.append((f"{value.kind} {value.op}", None))
    return value.kind


def _words(text: str, names: dict[str, str]) -> str:
    """An expression with the program's names in place of symbols."""
    return re.sub(r"[a-z]\d+", lambda found: names.get(found[0], found[0]), text)


# --- in Python ------------------------------------------------------------------------------------


def read_number(value: Any, what: str, dim: int) -> Any:
    if what in ("int", "float"):
        return value if type(value).__name__ == what and type(value) in (int, float) else None
    if not isinstance(value, torch.Tensor):
        return None
    with torch._C.DisableTorchFunction():
        sizes = value.shape if what == "size" else value.stride()
        return sizes[dim] if dim < len(sizes) else None


def _float(value: Any) -> float:
    if type(value) is int and abs(value) > _EXACT:
        raise OverflowError
    return float(value)


def _step(op: str, stack: list[Any]) -> None:
    if op == "to_float":
        stack.append(_float(stack.pop()))
        return
    kind, _, name = op.partition(" ")
    right = stack.pop()
    operands = (right,) if name in _ONE else (stack.pop(), right)
    steps: Any = (
        FLOAT_STEPS if kind == "float" else WHOLE_STEPS if name in WHOLE_STEPS else INT_STEPS
    )
    found: Any = steps[name](*operands)
    limit = _WHOLE // 2 if name in WHOLE_STEPS else _WHOLE
    if kind == "int" and not -limit <= found < limit:
        raise OverflowError
    stack.append(found)


def holds_for(relation: Relation, values: Sequence[Any]) -> bool:
    """Whether the relation holds for the values at its sources."""
    try:
        numbers = [read_number(values[at], what, dim) for at, what, dim in relation.reads]
        if None in numbers or any(type(n) is int and not -_WHOLE <= n < _WHOLE for n in numbers):
            return False
        stack: list[Any] = []
        for op, operand in relation.code:
            if op == "load":
                stack.append(numbers[operand])
            elif op in ("int", "float"):
                stack.append(operand)
            else:
                _step(op, stack)
    except (ArithmeticError, RuntimeError, TypeError, ValueError):
        return False
    left, right = stack
    if relation.op == "is":
        return struct.pack("d", left) == struct.pack("d", right)
    return OUTCOMES[relation.op](left, right) == relation.holds
