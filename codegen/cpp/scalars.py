"""Scalars in C++: values that are the same in all lanes and are needed to compute addresses are
plain numbers.

In: a kernel being written (`renderer.Kernel`), its passes known. Out: the values that are scalars
in the text (`of`), and the statement of one. For example, an index into a table is checked, made
positive and multiplied by the length of a row, once for a whole row of the result. As vectors these
would be sixteen values in two registers, which GCC moves through memory: twenty times the time that
the copy of the row takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..loops import loop_nest, operators
from ..loops.loop_nest import Value
from .dialect import SCALAR, float_text, register

if TYPE_CHECKING:
    from .renderer import Kernel

INTEGERS = (torch.int64, torch.int32)
FLOATS = (torch.float32, torch.float64)
LITERALS = ("const", "number")  # written where they are used
ARITHMETIC = ("add", "sub", "mul", "and", "or", "minimum", "maximum", *operators.COMPARISONS)
FLOATING = ("add", "sub", "mul", "div", "fma", "floor", "minimum", "maximum")
FROM_MEMORY = ("load", "checked", "index")


def of(kernel: Kernel) -> set[int]:
    """The values that are scalars.

    Integers that are the same in all lanes, are computed from scalars, and are used only for
    addresses and other scalars. Floats that such an integer is computed from, or that are computed
    from one, whatever else uses them.
    """
    values = kernel.nest.values
    found = {n for n, value in enumerate(values) if _possible(kernel, n, value)} - kernel.kept
    whole = _closed(kernel, found)
    floats = {n for n in whole if values[n].dtype in FLOATS}
    if any(a in floats for n in whole - floats for a in values[n].args):
        return whole
    # no address depends on a float
    return _closed(kernel, {n for n in found if values[n].dtype not in FLOATS})


def _closed(kernel: Kernel, found: set[int]) -> set[int]:
    """The subset whose operands are in it too, without integers that a vector is computed from."""
    values = kernel.nest.values
    while True:
        vectors = {store.value for store in kernel.nest.stores}
        for number, value in enumerate(values):
            if number not in found:
                vectors.update(_as_vectors(value))
        left = {n for n in found if n not in vectors or values[n].dtype in FLOATS}
        left = {n for n in left if all(a in left or _literal(values[a]) for a in values[n].args)}
        if left == found:
            return found
        found = left


def _possible(kernel: Kernel, number: int, value: Value) -> bool:
    if kernel.along[number]:
        return False
    met = {value.dtype, *(kernel.nest.values[arg].dtype for arg in value.args)}
    if value.op == "cast":
        return met <= {*INTEGERS, *FLOATS}
    if value.op in FROM_MEMORY:
        return met <= set(INTEGERS)
    if met <= set(FLOATS):
        return value.op in FLOATING
    return value.op in (*ARITHMETIC, "where") and met <= {*INTEGERS, torch.bool}


def _literal(value: Value) -> bool:
    return value.op in LITERALS and value.dtype in (*INTEGERS, *FLOATS)


def _as_vectors(value: Value) -> tuple[int, ...]:
    """The operands of a value that is not a scalar, without those of its address."""
    if value.op == "inside":
        return ()
    if value.op not in loop_nest.LOADS:
        return value.args
    return value.args[:2] if value.op == "load_if" else ()


def only_literals(kernel: Kernel) -> set[int]:
    """The constants that only scalars use."""
    values = kernel.nest.values
    used = {number for store in kernel.nest.stores for number in store.needs}
    for number, value in enumerate(values):
        if number not in kernel.scalars:
            used.update(value.args)
    scalar = {arg for number in kernel.scalars for arg in values[number].args}
    return {n for n in scalar - used if _literal(values[n])}


def statement(kernel: Kernel, number: int, row: bool) -> str:
    """The line that declares a scalar; for a float also the vector, which costs nothing if it is
    not used.
    """
    value = kernel.nest.values[number]
    register_kind = register(value.dtype)
    kind = SCALAR[register_kind]
    text = f"const {kind} {_name(value, number)} = {_text(kernel, value, row, kind)};"
    if value.dtype in FLOATS:
        text += f" const {register_kind} v{number} = splat<{register_kind}>(s{number});"
    return text


def _name(value: Value, number: int) -> str:
    return f"{'s' if value.dtype in FLOATS else 'v'}{number}"


def _text(kernel: Kernel, value: Value, row: bool, kind: str) -> str:
    if value.op == "load":
        moved, _stride = kernel.where(value.attr[1], row)
        offset = "".join(f" + v{arg}" for arg in value.args)
        return f"*({kernel.pointers[value.attr]}{moved}{offset})"
    if value.op == "index":
        return kernel.position(value.attr, row)[0]
    args = tuple(_operand(kernel, arg) for arg in value.args)
    if value.op == "checked":
        low, high = (kernel.n(bound) for bound in value.attr)
        return f"checked({args[0]}, {low}, {high}, trouble)"
    if value.op in _WRITTEN:
        return _WRITTEN[value.op].format(*args, f="" if kind == "double" else "f")
    if value.op == "cast":
        return f"({kind}){args[0]}"
    return operators.INFIX[value.op].format(*args)


_WRITTEN = {
    "where": "{0} ? {1} : {2}", "maximum": "{0} != {0} || {0} > {1} ? {0} : {1}",
    "minimum": "{0} != {0} || {0} < {1} ? {0} : {1}",
    "fma": "__builtin_fma{f}({0}, {1}, {2})", "floor": "__builtin_floor{f}({0})",
}  # fmt: skip


def _operand(kernel: Kernel, number: int) -> str:
    value = kernel.nest.values[number]
    if value.op == "const" and value.dtype in FLOATS:
        return float_text(value.attr, value.dtype)
    if value.op == "const":
        literal = (
            f"{int(value.attr)}ll" if value.attr != -(2**63) else "(-9223372036854775807ll - 1)"
        )
        return literal if value.dtype == torch.int64 else f"(i32_t){literal}"
    if value.op == "number":
        return f"({SCALAR[register(value.dtype)]}){kernel.n(value.attr)}"
    return _name(value, number)
