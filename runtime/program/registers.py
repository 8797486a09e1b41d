"""Register code for the expressions of a symbolic program
(runtime/native/executor/registers.cpp).

`Registers` assigns a 64-bit register to each expression that a step needs; equal expressions share
one. `lowered()` returns the tuple that the native program reads: registers with constants filled
in, reads of a call's inputs, and a sequence of operations. An operation that is not in `CODES`
raises NotNative; the Python mirror then runs the program.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.symbolic.expr import Expr, Symbol, fold, kind_of

# Names of the operations, in the order of OPERATIONS in registers.cpp.
CODES: tuple[str, ...] = (
    "add", "sub", "mul", "floordiv", "mod", "min", "max", "abs", "to_real", "real_add", "real_sub",
    "real_mul", "real_truediv", "real_neg", "real_abs", "real_min", "real_max", "real_int",
    "real_floor", "real_ceil", "real_round", "real_floordiv", "real_mod", "real_pow", "real_sqrt",
    "real_exp", "real_log", "and", "or", "xor", "real_sin", "real_cos", "real_tan", "real_tanh",
    "real_asin", "real_acos", "real_atan", "real_sinh", "real_cosh", "real_expm1", "real_log1p",
    "real_log2", "real_log10", "real_atan2", "real_fmod", "real_digits", "real_lost",
)  # fmt: skip
# Origins of a symbol, as in `enum class NumberSource` of registers.h.
SOURCES = {"size": 0, "stride": 1, "offset": 2, "int": 3, "float": 4}
_FROM_FLOAT = ("int", "floor", "ceil", "round")

Place = tuple[int, str]  # a register, and its kind


class NotNative(Exception):
    """An expression without an operation in the register code."""


class Registers:
    """The registers of one program. `symbols` maps each symbol to its origin, as
    `Graph.symbols`."""

    def __init__(self, symbols: Mapping[Any, Any]) -> None:
        self.values: list[int] = []
        self.reads: list[tuple[int, int, int, int]] = []
        self.code: list[tuple[int, int, int, int]] = []
        self._known: dict[Any, int] = {}
        self._symbols: dict[str, Place] = {}
        for symbol, source in symbols.items():
            number = self._new()
            where = symbol.kind if source[0] == "number" else source[0]
            dim = source[2] if len(source) > 2 else 0
            self.reads.append((number, SOURCES[where], source[1], dim))
            self._symbols[symbol.name] = number, symbol.kind

    def _new(self, value: int = 0) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def of(self, value: Any) -> int:
        """The register of a number or an expression."""
        return self.place(value)[0]

    def each(self, values: Sequence[Any]) -> tuple[int, ...]:
        return tuple(self.of(value) for value in values)

    def handed(self, values: Sequence[Any]) -> tuple[tuple[int, bool], ...]:
        """(register, is a float) of numbers passed to a kernel or a Python form."""
        return tuple((self.of(value), kind_of(value) == "float") for value in values)

    def place(self, value: Any) -> Place:
        if not isinstance(value, (int, float, Expr)):
            raise NotNative(f"{value!r} is no number")
        return fold(  # type: ignore[no-any-return]
            value, self._constant, self._symbol, self._operation
        )

    def _symbol(self, symbol: Symbol) -> Place:
        return self._symbols[symbol.name]

    def _constant(self, value: Any) -> Place:
        real = type(value) is float
        bits = struct.unpack("q", struct.pack("d", value))[0] if real else int(value)
        if not -(2**63) <= bits < 2**63:
            raise NotNative(f"{value} is beyond 64 bits")
        key = "constant", bits
        if key not in self._known:
            self._known[key] = self._new(bits)
        return self._known[key], "float" if real else "int"

    def _operation(self, op: str, kind: str, *operands: Place) -> Place:
        if op == "float":
            return self._real(operands[0])
        if op == "neg" and kind == "int":
            return self._operation("sub", kind, self._constant(0), *operands)
        real = kind == "float" or op in _FROM_FLOAT or any(k == "float" for _, k in operands)
        if real and op in ("min", "max") and len({k for _, k in operands}) != 1:
            # The kind of the result would depend on the operands.
            raise NotNative(f"{op} of an int and a float")
        if real:
            operands = tuple(self._real(one) for one in operands)
        return self._emit(f"real_{op}" if real else op, [n for n, _ in operands]), kind

    def _real(self, place: Place) -> Place:
        number, kind = place
        return place if kind == "float" else (self._emit("to_real", [number]), "float")

    def _emit(self, name: str, operands: list[int]) -> int:
        if name not in CODES or len(operands) > 2:
            raise NotNative(name)
        key = (name, *operands)
        if key not in self._known:
            target = self._known[key] = self._new()
            self.code.append((CODES.index(name), target, operands[0], operands[-1]))
        return self._known[key]

    def lowered(self) -> tuple[Any, ...] | None:
        """The tuple that the native program reads; None for a program without numbers."""
        if not self.values:
            return None
        return tuple(self.values), tuple(self.reads), tuple(self.code)


def values_of(symbols: Mapping[Any, Any], inputs: Sequence[Any]) -> dict[str, Any]:
    """The values of the symbols in a call, by name, for the mirror."""
    return {symbol.name: _value(source, inputs) for symbol, source in symbols.items()}


def _value(source: tuple[Any, ...], inputs: Sequence[Any]) -> Any:
    given = inputs[source[1]]
    match source[0]:
        case "size":
            return given.shape[source[2]]
        case "stride":
            return given.stride(source[2])
        case "offset":
            return given.storage_offset()
    return given
