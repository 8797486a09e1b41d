"""The C++ dialect: how kernels write operators, and which sections of math.h they need.

A value is a vector of W lanes. float and double are themselves, bfloat16 and float16 are f32 values
that are already rounded, bool is an i32 mask of 0 and -1 (i8 where all values are bytes), integers
are themselves. `sections` reads math.h once.
"""

from __future__ import annotations

import functools
import math
import re
from importlib import resources

import torch

from ..loops import operators
from ..loops.loop_nest import REDUCTIONS, Value

# dtype -> (register type, memory type)
TYPES: dict[torch.dtype, tuple[str, str]] = {
    torch.float32: ("f32", "float"),
    torch.float64: ("f64", "double"),
    torch.bfloat16: ("f32", "bf16_t"),
    torch.float16: ("f32", "f16_t"),
    torch.bool: ("mask", "bool_t"),
    torch.uint8: ("u8", "u8_t"),
    torch.int8: ("i8", "i8_t"),
    torch.int16: ("i16", "i16_t"),
    torch.int32: ("i32", "i32_t"),
    torch.int64: ("i64", "i64_t"),
}
WIDTH: dict[str, int] = {
    "f32": 4, "f64": 8, "mask": 4, "u8": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8,
}  # fmt: skip
SCALAR: dict[str, str] = {
    "f32": "float", "f64": "double", "mask": "int", "u8": "u8_t", "i8": "i8_t", "i16": "i16_t",
    "i32": "i32_t", "i64": "i64_t",
}  # fmt: skip


def register(dtype: torch.dtype) -> str:
    return TYPES[dtype][0]


def const(number: bool | int | float, dtype: torch.dtype) -> str:
    """A constant in all lanes."""
    kind = register(dtype)
    if kind == "mask":
        return f"splat<mask>({-1 if number else 0})"
    if kind in ("f32", "f64"):
        return f"splat<{kind}>({float_text(float(number), dtype)})"
    value = int(number)
    if kind == "i64":
        return (
            f"splat<i64>({value}ll)"
            if value != -(2**63)
            else "splat<i64>(-9223372036854775807ll - 1)"
        )
    return f"splat<{kind}>({value})" if value != -(2**31) else "splat<i32>(-2147483647 - 1)"


def identity(kind: str, dtype: torch.dtype) -> str:
    """The start value of a reduction of this type."""
    return const(REDUCTIONS[kind].start(dtype), dtype)


def argument(text: str, dtype: torch.dtype) -> str:
    """A scalar argument of the kernel (i64_t or double) in all lanes, converted as torch converts a
    Python scalar.
    """
    kind = register(dtype)
    if kind == "mask":
        return f"splat<mask>(-({text} != 0))"
    rounding = {torch.bfloat16: "round_bf16({})", torch.float16: "round_f16({})"}.get(dtype, "{}")
    return rounding.format(f"splat<{kind}>(({SCALAR[kind]}){text})")


def float_text(number: float, dtype: torch.dtype) -> str:
    """A floating literal that reads back to the same bits."""
    suffix = "" if dtype == torch.float64 else "f"
    if math.isnan(number):
        return f'__builtin_nan{suffix}("")'
    if dtype != torch.float64:
        number = operators.single(number)
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
    return (
        f"{number!r}{suffix}"
        if "e" in repr(number) or "." in repr(number)
        else f"{number!r}.0{suffix}"
    )


def cast(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """A conversion as torch's `.to`, through registers of double or half the width at a time."""
    rounding = {torch.bfloat16: "round_bf16({})", torch.float16: "round_f16({})"}.get(target, "{}")
    start, goal = register(source), register(target)
    if source == torch.bool and target == torch.bool:
        return text
    if target == torch.bool:
        return f"narrow({text} != 0)"
    if source == torch.bool and WIDTH[goal] == 1:
        return f"ones<{goal}>({text})"
    if source == torch.bool:
        return _convert(f"-{text}", "i32", goal)
    if source == target:
        return text
    return rounding.format(_convert(text, start, goal))


def rounded_plain(text: str, source: torch.dtype) -> str:
    """A cast to bfloat16 of a value whose nans are plain (`cpp.nans`)."""
    if source == torch.float32:
        return f"round_bf16_plain({text})"
    return cast(text, source, torch.bfloat16)


# A conversion goes between registers of the same width or one width up or down; others take several
# such steps.
_SIGNED = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
_UNSIGNED = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
FLOATS = ("f32", "f64")


def _convert(text: str, start: str, goal: str) -> str:
    for step in _path(start, goal):
        text = f"{'whole' if start in FLOATS and step not in FLOATS else 'conv'}<{step}>({text})"
        start = step
    return text


def _path(start: str, goal: str) -> list[str]:
    if start == goal:
        return []
    if start in FLOATS and goal in FLOATS:
        return [goal]
    if start in FLOATS:
        # eager converts to uint8 through int64, to the other narrow types through int32
        middle = "i64" if goal in ("u8", "i64") else "i32"
        return [middle, *_path(middle, goal)]
    if goal in FLOATS:
        wide = start if WIDTH[start] >= 4 else "i32"
        return [*_path(start, wide), goal]
    names = _UNSIGNED if start.startswith("u") else _SIGNED
    steps: list[str] = []
    width = WIDTH[start]
    while width != WIDTH[goal]:
        width = width * 2 if width < WIDTH[goal] else width // 2
        steps.append(names[width])
    if not steps or steps[-1] != goal:
        steps.append(goal)
    return steps


def _compare(symbol: str) -> operators.Form:
    def form(value: Value, args: tuple[str, ...], dtypes: tuple[torch.dtype, ...]) -> str:
        wide = WIDTH[register(dtypes[0])] != 4
        return f"narrow({args[0]} {symbol} {args[1]})" if wide else f"{args[0]} {symbol} {args[1]}"

    return form


def _isnan(value: Value, args: tuple[str, ...], dtypes: tuple[torch.dtype, ...]) -> str:
    return f"narrow({args[0]} != {args[0]})"


def _shift(name: str) -> operators.Form:
    def form(value: Value, args: tuple[str, ...], dtypes: tuple[torch.dtype, ...]) -> str:
        return f"{name}({args[0]}, {args[1]}, {WIDTH[register(dtypes[0])] * 8})"

    return form


def _towards_floor(name: str) -> operators.Form:
    """Integer quotient and remainder by a constant, towards -inf; those of C++ go towards zero."""

    def form(value: Value, args: tuple[str, ...], dtypes: tuple[torch.dtype, ...]) -> str:
        a, b = args
        uneven = f"({a} % {b} != 0) & (({a} ^ {b}) < 0)"
        if dtypes[0] == torch.uint8:
            return f"{a} / {b}" if name == "div" else f"{a} % {b}"
        if name == "div":
            return f"{a} / {b} + ({uneven})"  # the comparison is -1 where it holds
        return f"{a} % {b} + ({b} & ({uneven}))"

    return form


FORMS: dict[str, operators.Form] = {
    **{name: operators.call(name) for name in operators.OPS},
    **operators.INFIX,
    "neg": "-{0}",
    "int_floor_div": _towards_floor("div"),
    "int_remainder": _towards_floor("mod"),
    "not": "~{0}",
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    **{name: _compare(symbol) for name, symbol in operators.COMPARISONS.items()},
    "eq:b": "~({0} ^ {1})",
    "ne:b": "{0} ^ {1}",
    "isnan": _isnan,
    "round": "rint({0})",
    "rsqrt:f": "1 / sqrt({0})",
    "reciprocal": "1 / {0}",
}

DIALECT = operators.Dialect("c++", FORMS, const, cast)

# Operator -> the section of math.h that defines it, if the section has another name.
_SECTION: dict[str, str] = {
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin", "max", "min"), "minmax"),
    **dict.fromkeys(("abs", "sign", "isinf", "isfinite", "signbit", "copysign"), "bits"),
    **dict.fromkeys(("floor", "ceil", "trunc", "round", "sqrt", "rsqrt"), "rounding"),
    **dict.fromkeys(("remainder", "floor_div"), "division"),
    **dict.fromkeys(("shl", "shr"), "shifts"),
    **dict.fromkeys(("sin", "cos"), "sincos"),
    "argmin": "argmax",
    **dict.fromkeys(("first max", "first min"), "zeros"),
}
_F64 = frozenset((
    "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "erf", "sigmoid", "exp2", "log2", "log10",
    "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc", "atan2",
    "hypot", "pow", "fmod",
))  # fmt: skip


def section_of(value: Value, dtype: torch.dtype) -> str | None:
    """The section that this value needs beside `memory`; dtype is that of its first operand."""
    if value.op in _F64 and dtype == torch.float64:
        return "libm64"
    if value.op == "load":
        return "gather" if value.args else None
    key = value.attr if value.op == "reduce" else value.op
    name = _SECTION.get(key, key)
    return name if name in sections() else None


@functools.cache
def sections() -> dict[str, tuple[tuple[str, ...], str]]:
    """math.h by section: name -> (sections it needs, text)."""
    whole = resources.files(__package__).joinpath("math.h").read_text(encoding="utf-8")
    parts = re.split(r"^//: (.+)\n", whole, flags=re.MULTILINE)
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for head, body in zip(parts[1::2], parts[2::2], strict=True):
        name, _arrow, needs = head.partition("<-")
        found[name.strip()] = (tuple(needs.split()), body.strip() + "\n")
    return found


def library_text(wanted: set[str]) -> str:
    """The wanted sections and all that they need, in the order of the file."""
    table = sections()
    reached: set[str] = set()
    queue = list(wanted)
    while queue:
        name = queue.pop()
        if name not in reached:
            reached.add(name)
            queue.extend(table[name][0])
    return "\n".join(text for name, (_needs, text) in table.items() if name in reached)
