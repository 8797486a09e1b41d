"""Where to read, as plain numbers: what a place in memory is made of, where all lanes read the same one, in C++.

In: a kernel being written (`cpp.Kernel`), its passes known. Out: the values that are scalars in the text (`of`), and the
statement of one. An index into a table is checked, made positive and multiplied by the length of a row once for a whole row
of the result. As a vector that would be sixteen of them in two registers, which GCC takes through memory: twenty times what
the row itself takes to copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from . import loops
from .cpp_dialect import FORMS, SCALAR, register
from .loops import Value

if TYPE_CHECKING:
    from .cpp import Kernel

INTEGERS = (torch.int64, torch.int32)
LITERALS = ("const", "number")  # written where they are used
ARITHMETIC = ("add", "sub", "mul", "and", "or", "lt", "le", "gt", "ge", "eq", "ne")
FROM_MEMORY = ("load", "checked", "index")
_COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def of(kernel: Kernel) -> set[int]:
    """The values that are scalars: integers that are the same in all lanes, made of such ones, and used for nothing but
    places and further ones."""
    values = kernel.nest.values
    found = {n for n, value in enumerate(values) if _possible(kernel, n, value)} - kernel.kept
    while True:
        vectors = {store.value for store in kernel.nest.stores}
        for number, value in enumerate(values):
            if number not in found:
                vectors.update(_as_vectors(value))
        left = found - vectors
        left = {n for n in left if all(a in left or _literal(values[a]) for a in values[n].args)}
        if left == found:
            return found
        found = left


def _possible(kernel: Kernel, number: int, value: Value) -> bool:
    if kernel.along[number]:
        return False
    met = {value.dtype, *(kernel.nest.values[arg].dtype for arg in value.args)}
    if value.op in (*FROM_MEMORY, "cast"):
        return met <= set(INTEGERS)
    return value.op in (*ARITHMETIC, "where") and met <= {*INTEGERS, torch.bool}


def _literal(value: Value) -> bool:
    return value.op in LITERALS and value.dtype in INTEGERS


def _as_vectors(value: Value) -> tuple[int, ...]:
    """The operands of a value that is no scalar, less those that say where it reads."""
    if value.op == "inside":
        return ()
    if value.op not in loops.LOADS:
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
    """The line that declares a scalar."""
    value = kernel.nest.values[number]
    kind = SCALAR[register(value.dtype)]
    return f"const {kind} v{number} = {_text(kernel, value, row, kind)};"


def _text(kernel: Kernel, value: Value, row: bool, kind: str) -> str:
    if value.op == "load":
        moved, _stride = kernel._where(value.attr[1], row)
        offset = "".join(f" + v{arg}" for arg in value.args)
        return f"*({kernel.pointers[value.attr]}{moved}{offset})"
    if value.op == "index":
        return kernel._position(value.attr, row)[0]
    args = tuple(_operand(kernel, arg) for arg in value.args)
    if value.op == "checked":
        low, high = (kernel.n(bound) for bound in value.attr)
        return f"checked({args[0]}, {low}, {high}, trouble)"
    if value.op == "where":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if value.op == "cast":
        return f"({kind}){args[0]}"
    if value.op in _COMPARED:
        return f"{args[0]} {_COMPARED[value.op]} {args[1]}"
    form = FORMS[value.op]
    assert isinstance(form, str)
    return form.format(*args)


def _operand(kernel: Kernel, number: int) -> str:
    value = kernel.nest.values[number]
    if value.op == "const":
        literal = (
            f"{int(value.attr)}ll" if value.attr != -(2**63) else "(-9223372036854775807ll - 1)"
        )
        return literal if value.dtype == torch.int64 else f"(i32_t){literal}"
    if value.op == "number":
        return f"({SCALAR[register(value.dtype)]}){kernel.n(value.attr)}"
    return f"v{number}"
