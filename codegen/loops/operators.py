"""The operators of the loop IR, and the one printer of their expressions.

`OPS` is the table of element operators: arity, cost and law. A renderer brings a `Dialect`: how its
language writes each operator, constant and cast. `expression` prints one value of a nest with it.
Renderers print loads, stores and reductions themselves, because these depend on their loops.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import torch

from ...ir.dataclass import dataclass
from .loop_nest import Value


@dataclass(frozen=True, slots=True)
class Op:
    """`kinds`: allowed operand types, f(loat32/64), i(nteger), b(ool); `cost` in flops: an add is
    1.
    """

    arity: int
    kinds: str
    cost: int
    law: str = ""


OPS: dict[str, Op] = {
    # arithmetic
    "add": Op(2, "fi", 1, "integers wrap"),
    "sub": Op(2, "fi", 1, "integers wrap"),
    "mul": Op(2, "fi", 1, "integers wrap"),
    "div": Op(2, "f", 4, "IEEE"),
    "fma": Op(
        3, "f", 1, "a * b + c, rounded once where the machine has it; where eager's kernels do so"
    ),
    "neg": Op(1, "fi", 1),
    "abs": Op(1, "fi", 1, "clears the sign bit; of the lowest integer: itself"),
    "sign": Op(1, "fi", 2, "-1, 0, 1; nan gives 0, as torch.sign"),
    "fmod": Op(2, "f", 20, "C fmod: sign of the dividend"),
    "remainder": Op(2, "f", 22, "fmod, plus divisor if signs differ and not zero"),
    "floor_div": Op(2, "f", 24, "torch's floor division (c10::div_floor_floating)"),
    "int_floor_div": Op(2, "i", 20, "towards -inf; the divisor is a constant, not 0 and not -1"),
    "int_trunc_div": Op(2, "i", 20, "towards 0; the divisor is a constant, not 0 and not -1"),
    "int_remainder": Op(
        2, "i", 20, "sign of the divisor; the divisor is a constant, not 0 and not -1"
    ),
    "int_fmod": Op(2, "i", 20, "sign of the dividend; the divisor is a constant, not 0 and not -1"),
    "maximum": Op(2, "fi", 2, "nan if either is nan"),
    "minimum": Op(2, "fi", 2, "nan if either is nan"),
    "fmax": Op(2, "f", 2, "the other one if one is nan"),
    "fmin": Op(2, "f", 2, "the other one if one is nan"),
    # bits and logic; on bool: logic
    "and": Op(2, "ib", 1),
    "or": Op(2, "ib", 1),
    "xor": Op(2, "ib", 1),
    "not": Op(1, "ib", 1),
    "shl": Op(2, "i", 1, "0 if the count is negative or at least the width"),
    "shr": Op(
        2, "i", 1, "arithmetic; counts out of range as width - 1 (signed) or 0 left (unsigned)"
    ),
    # comparisons: the result is bool
    "lt": Op(2, "fi", 1),
    "le": Op(2, "fi", 1),
    "gt": Op(2, "fi", 1),
    "ge": Op(2, "fi", 1),
    "eq": Op(2, "fib", 1),
    "ne": Op(2, "fib", 1),
    "isnan": Op(1, "f", 1),
    "isinf": Op(1, "f", 1),
    "isfinite": Op(1, "f", 1),
    "signbit": Op(1, "f", 1),
    "where": Op(3, "fib", 1, "where(bool, a, b); a and b may also be bfloat16 or float16"),
    # rounding
    "floor": Op(1, "f", 1),
    "ceil": Op(1, "f", 1),
    "trunc": Op(1, "f", 1),
    "round": Op(1, "f", 1, "half to even"),
    # math; errors as documented in codegen/cpp/math.h
    "sqrt": Op(1, "f", 6, "correctly rounded"),
    "rsqrt": Op(1, "f", 10, "1 / sqrt(x), both rounded"),
    "reciprocal": Op(1, "f", 4, "1 / x"),
    "exp": Op(1, "f", 12),
    "exp2": Op(1, "f", 12),
    "expm1": Op(1, "f", 18),
    "log": Op(1, "f", 16),
    "log2": Op(1, "f", 18),
    "log10": Op(1, "f", 18),
    "log1p": Op(1, "f", 20),
    "sin": Op(1, "f", 20),
    "cos": Op(1, "f", 20),
    "tan": Op(1, "f", 30),
    "asin": Op(1, "f", 40),
    "acos": Op(1, "f", 40),
    "atan": Op(1, "f", 40),
    "sinh": Op(1, "f", 40),
    "cosh": Op(1, "f", 40),
    "tanh": Op(1, "f", 16),
    "asinh": Op(1, "f", 40),
    "acosh": Op(1, "f", 40),
    "atanh": Op(1, "f", 40),
    "erf": Op(1, "f", 16),
    "erfc": Op(1, "f", 40),
    "sigmoid": Op(1, "f", 16, "1 / (1 + exp(-x))"),
    "pow": Op(2, "f", 40, "C pow"),
    "atan2": Op(2, "f", 50),
    "hypot": Op(2, "f", 20),
    "copysign": Op(2, "f", 1),
}


def kind_of(dtype: torch.dtype) -> str:
    """f, i or b, as in `Op.kinds`."""
    if dtype == torch.bool:
        return "b"
    return "f" if dtype.is_floating_point else "i"


# Forms of both languages; comparisons are the operators of scalars.
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
INFIX = {
    name: f"{{0}} {symbol} {{1}}"
    for name, symbol in {
        "add": "+", "sub": "-", "mul": "*", "div": "/", "int_trunc_div": "/", "int_fmod": "%",
        "and": "&", "or": "|", "xor": "^", **COMPARISONS,
    }.items()
}  # fmt: skip


def call(op: str, name: str = "") -> str:
    """The form of an operator that is a call of a function, of the same name if none is given."""
    arguments = ", ".join(f"{{{place}}}" for place in range(OPS[op].arity))
    return f"{name or op}({arguments})"


def single(number: float) -> float:
    """A number rounded to float32 once, as torch does for a Python scalar."""
    return ctypes.c_float(number).value


Form = str | Callable[[Value, tuple[str, ...], tuple[torch.dtype, ...]], str]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A target language. `forms`: "op" or "op:kind" (kind of the first operand that is not a
    where's condition) -> a format string with {0} {1} {2}, or a function of (value, operand texts,
    operand dtypes).

    const(number, dtype) and cast(text, from, to) return expressions.
    """

    name: str
    forms: Mapping[str, Form]
    const: Callable[[bool | int | float, torch.dtype], str]
    cast: Callable[[str, torch.dtype, torch.dtype], str]


def expression(dialect: Dialect, values: Sequence[Value], number: int) -> str:
    """The text of one value, whose operands are v{number}. KeyError: the dialect lacks it."""
    value = values[number]
    args = tuple([f"v{arg}" for arg in value.args])
    dtypes = tuple([values[arg].dtype for arg in value.args])
    if value.op == "const":
        return dialect.const(value.attr, value.dtype)
    if value.op == "cast":
        return dialect.cast(args[0], dtypes[0], value.dtype)
    kind = kind_of(dtypes[-1])
    form = dialect.forms.get(f"{value.op}:{kind}") or dialect.forms[value.op]
    return form.format(*args) if isinstance(form, str) else form(value, args, dtypes)
