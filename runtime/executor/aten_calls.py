"""ATen operators as C++ calls: the symbol of `at::_ops::NAME::call` and the words of its arguments.

`plan(op, args, kwargs)` reads the operator's schema and returns the tuple by which the native
executor calls it (runtime/native/executor/aten_call.cpp). It returns None where the operator, a
type or the machine is unsupported; then the executor makes a prepared Python call. Names follow the
name mangling of the Itanium C++ ABI with its substitutions, and words the System V x86-64 calling
convention. A wrongly guessed signature has no symbol, so it is never called.
"""

from __future__ import annotations

import functools
import platform
import re
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...ir.dataclass import dataclass, field
from ...ir.symbolic.expr import Expr, apply
from .. import _native
from ..program.program import Slot
from ..program.registers import Registers

SUPPORTED = sys.platform.startswith("linux") and platform.machine() == "x86_64"

# Word kinds, as in `enum class Word` of aten_call.h.
CONSTANT, HANDLE, BLOB, COPIED, OPTIONAL_TENSOR, LIST_DATA, LIST_STRUCT, NUMBER = range(8)
NOTHING, REFERENCE, VALUES = range(3)
_LONGEST_LIST = 512  # of tensors: MAX_LIST in aten_call.cpp


class NotNative(Exception):
    """The call has no native form."""


# --- mangled names --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cpp:
    """A C++ type: the letter of a builtin type, or a name in a namespace with template arguments.
    `wraps` is "RK" for a reference to const, "R" for a reference."""

    name: str
    scope: str = ""
    args: tuple[Cpp | str, ...] = ()
    wraps: str = ""


TENSOR = Cpp("Tensor", "at")
SYMINT = Cpp("SymInt", "c10")


def _c10(name: str, *args: Cpp | str) -> Cpp:
    return Cpp(name, "c10", args)


def _optional(inner: Cpp, wraps: str = "") -> Cpp:
    return Cpp("optional", "std", (inner,), wraps)


class Mangler:
    """Appends mangled parameter types to a function's name, with the ABI's substitutions."""

    def __init__(self, owner: str) -> None:
        self.seen: dict[Any, int] = {"at": 0, "at::_ops": 1, f"at::_ops::{owner}": 2}
        self.text = f"_ZN2at4_ops{len(owner)}{owner}4callE"

    def _reference(self, number: int) -> str:
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        if number == 0:
            return "S_"
        number -= 1
        return f"S{digits[number] if number < 36 else digits[number // 36] + digits[number % 36]}_"

    def _known(self, key: Any) -> str | None:
        return self._reference(self.seen[key]) if key in self.seen else None

    def _learn(self, key: Any) -> None:
        self.seen[key] = len(self.seen)

    def add(self, cpp: Cpp) -> None:
        self.text += self._write(cpp)

    def _write(self, cpp: Cpp | str) -> str:
        if isinstance(cpp, str):
            return cpp
        if not cpp.scope:
            return cpp.name
        if known := self._known(cpp):
            return known
        if cpp.wraps:
            text = cpp.wraps[0] + self._write(Cpp(cpp.name, cpp.scope, cpp.args, cpp.wraps[1:]))
        elif cpp.scope == "std":
            text = self._template_name(cpp, "St") + self._arguments(cpp)
        else:
            text = f"N{self._template_name(cpp, None)}{self._arguments(cpp)}E"
        self._learn(cpp)
        return text

    def _template_name(self, cpp: Cpp, prefix: str | None) -> str:
        key = f"{cpp.scope}::{cpp.name}"
        if cpp.args and (known := self._known(key)):
            return known
        if prefix is None:
            prefix = self._known(cpp.scope)
            if prefix is None:
                prefix = f"{len(cpp.scope)}{cpp.scope}"
                self._learn(cpp.scope)
        if cpp.args:
            text = f"{prefix}{len(cpp.name)}{cpp.name}"
            self._learn(key)
            return text
        return f"{prefix}{len(cpp.name)}{cpp.name}"

    def _arguments(self, cpp: Cpp) -> str:
        return "I" + "".join(self._write(arg) for arg in cpp.args) + "E" if cpp.args else ""


# --- words ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Call:
    """One call under construction.

    An argument is passed in integer registers while there are free ones, then on the stack. A value
    of two words is never split between them. Expressions become numbers read from registers of the
    program: words of kind NUMBER, `patches` of the constant bytes, and `reals` among the doubles.
    """

    free: int
    numbers: Registers | None = None
    registers: list[tuple[int, int]] = field(default_factory=list)
    stack: list[tuple[int, int]] = field(default_factory=list)
    doubles: list[float] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    lists: list[tuple[int, ...]] = field(default_factory=list)
    patches: list[tuple[int, int]] = field(default_factory=list)
    reals: list[tuple[int, int]] = field(default_factory=list)

    def words(self, *words: tuple[int, int]) -> None:
        if len(words) <= 2 and len(words) <= self.free:
            self.free -= len(words)
            self.registers.extend(words)
        else:
            self.stack.extend(words)

    def constant(self, *numbers: Any) -> None:
        self.words(*(self._word(number) for number in numbers))

    def _word(self, number: Any) -> tuple[int, int]:
        return (NUMBER, self.register(number)) if isinstance(number, Expr) else (CONSTANT, number)

    def register(self, number: Expr) -> int:
        _need(self.numbers is not None, "an expression")
        return self.numbers.of(number)  # type: ignore[union-attr]

    def packed(self, form: str, *values: Any) -> int:
        """A blob of 8-byte values laid out by `form`. Expressions in it are filled in at each
        call."""
        plain = [0 if isinstance(value, Expr) else value for value in values]
        at = self.blob(struct.pack(form, *plain) or b"\0" * 8)
        for place, value in enumerate(values):
            if isinstance(value, Expr):
                self.patches.append((at + 8 * place, self.register(value)))
        return at

    def blob(self, data: bytes) -> int:
        self.data.extend(b"\0" * (-len(self.data) % 16))
        at = len(self.data)
        self.data.extend(data)
        return at

    def double(self, value: Any) -> None:
        if len(self.doubles) == 8:
            raise NotNative("more than eight floats")
        if isinstance(value, Expr):
            self.reals.append((len(self.doubles), self.register(value)))
            value = 0.0
        self.doubles.append(value)


# A method of passing a schema type: the C++ type, and a function that adds a value to a call.
Way = tuple[Cpp, Callable[[Call, Any], None]]


def _need(good: bool, what: str) -> None:
    if not good:
        raise NotNative(what)


def _slot(value: Any) -> int:
    _need(type(value) is Slot, "a tensor that is not a slot")
    return value.index


def _integer(value: Any) -> Any:
    if isinstance(value, Expr):
        _need(value.kind == "int", "a float for an integer")
        return value
    _need(type(value) is int and -(2**62) < value < 2**63, "an integer of another kind")
    return value


def _integers(call: Call, values: Any) -> tuple[tuple[int, int], ...]:
    numbers = [_integer(value) for value in values]
    return (BLOB, call.packed(f"{len(numbers)}q", *numbers)), (CONSTANT, len(numbers))


def _scalar(call: Call, value: Any, end: str = "") -> int:
    """A blob of a c10::Scalar: the tag at 0, the value at 16. `end` is the struct format of the
    flag of an engaged optional."""
    if isinstance(value, Expr):
        tag, letter = (0, "d") if value.kind == "float" else (1, "q")
        return call.packed(f"qq{letter}8x{end}", tag, 0, value, *[True] * bool(end))
    tags: dict[type, tuple[int, str]] = {float: (0, "d"), int: (1, "q"), bool: (4, "q")}
    _need(type(value) in tags, "a number of another kind")
    if type(value) is int:
        _integer(value)
    tag, letter = tags[type(value)]
    return call.blob(struct.pack(f"i12x{letter}8x{end}", tag, value, *[True] * bool(end)))


def _pass_tensor(call: Call, value: Any) -> None:
    call.words((HANDLE, _slot(value)))


def _pass_optional_tensor(call: Call, value: Any) -> None:
    if value is None:
        call.words((BLOB, call.blob(b"\0" * 16)))
    else:
        call.words((OPTIONAL_TENSOR, _slot(value)))


def _new_list(call: Call, value: Any) -> int:
    if len(value) > _LONGEST_LIST:
        raise NotNative(f"a list of {len(value)} tensors")
    call.lists.append(tuple(_slot(item) for item in value))
    return len(call.lists) - 1


def _pass_tensors(call: Call, value: Any) -> None:
    number = _new_list(call, value)
    call.words((LIST_DATA, number), (CONSTANT, len(value)))


def _pass_tensors_struct(call: Call, value: Any) -> None:
    call.words((LIST_STRUCT, _new_list(call, value)))


def _pass_int(call: Call, value: Any) -> None:
    call.constant(_integer(value))


def _pass_symint(call: Call, value: Any) -> None:
    call.words((COPIED, call.packed("qq", _integer(value), 0)))


def _pass_optional_symint(call: Call, value: Any) -> None:
    present = value is not None
    number = _integer(value) if present else 0
    call.words((COPIED, call.packed("q?7x", number, present)))


def _pass_optional_int(call: Call, value: Any) -> None:
    call.constant(0 if value is None else _integer(value), int(value is not None))


def _pass_ints(call: Call, value: Any) -> None:
    call.words(*_integers(call, value))


def _pass_optional_ints(call: Call, value: Any) -> None:
    """Three words, so they are always on the stack."""
    if value is None:
        call.constant(0, 0, 0)
    else:
        call.words(*_integers(call, value), (CONSTANT, 1))


def _real(value: Any) -> Any:
    if isinstance(value, Expr):
        return value if value.kind == "float" else apply("float", value)
    _need(type(value) in (float, int), "a float of another kind")
    return float(value)


def _pass_float(call: Call, value: Any) -> None:
    call.double(_real(value))


def _pass_optional_float(call: Call, value: Any) -> None:
    """One float register and one integer register; if either is used up, both words on the
    stack."""
    number = 0.0 if value is None else _real(value)
    if call.free and len(call.doubles) < 8:
        call.double(number)
        call.constant(int(value is not None))
    else:
        word = (
            (NUMBER, call.register(number))
            if isinstance(number, Expr)
            else (CONSTANT, struct.unpack("q", struct.pack("d", number))[0])
        )
        call.stack.extend((word, (CONSTANT, int(value is not None))))


def _pass_bool(call: Call, value: Any) -> None:
    _need(type(value) in (bool, int), "a bool of another kind")
    call.constant(int(bool(value)))


def _pass_optional_bool(call: Call, value: Any) -> None:
    call.constant(0 if value is None else 0x100 | int(bool(value)))


def _pass_bools(call: Call, value: Any) -> None:
    call.constant(sum(int(bool(item)) << 8 * place for place, item in enumerate(value)))


def _pass_scalar(call: Call, value: Any) -> None:
    call.words((BLOB, _scalar(call, value)))


def _pass_optional_scalar(call: Call, value: Any) -> None:
    at = call.blob(b"\0" * 48) if value is None else _scalar(call, value, "?15x")
    call.words((BLOB, at))


def _dtype_number(value: Any) -> int:
    _need(isinstance(value, torch.dtype), "a dtype of another kind")
    try:
        return int(_native.dtype_code(value))
    except RuntimeError as error:  # complex32 has no number in the C shim
        raise NotNative(str(error)) from None


def _pass_dtype(call: Call, value: Any) -> None:
    call.constant(_dtype_number(value))


def _pass_optional_dtype(call: Call, value: Any) -> None:
    if value is None:
        call.constant(0)
    else:
        call.constant(0x100 | _dtype_number(value))


def _pass_no_memory_format(call: Call, value: Any) -> None:
    codes = (
        torch.contiguous_format,
        torch.preserve_format,
        torch.channels_last,
        torch.channels_last_3d,
    )
    _need(value is None or value in codes, "a memory format of another kind")
    call.constant(0 if value is None else 0x100 | codes.index(value))


def _pass_optional_layout(call: Call, value: Any) -> None:
    _need(value is None or value is torch.strided, "a layout that is not strided")
    call.constant(0 if value is None else 0x100)


_DEVICE_TYPES = {"cpu": 0, "cuda": 1}  # c10::DeviceType


def _pass_optional_device(call: Call, value: Any) -> None:
    if value is None:
        call.constant(0)
        return
    device = torch.device(value)
    _need(device.type in _DEVICE_TYPES, "a device of another kind")
    index = 0xFF if device.index is None else device.index
    call.constant(0x10000 | index << 8 | _DEVICE_TYPES[device.type])


def _pass_no_generator(call: Call, value: Any) -> None:
    _need(value is None, "a generator")
    call.words((COPIED, call.blob(b"\0" * 16)))


def _pass_string(call: Call, value: Any) -> None:
    _need(type(value) is str, "a string of another kind")
    data = value.encode()
    call.words((CONSTANT, len(data)), (BLOB, call.blob(data + b"\0")))


def _pass_optional_string(call: Call, value: Any) -> None:
    """Three words, so they are always on the stack."""
    if value is None:
        call.constant(0, 0, 0)
    else:
        data = value.encode()
        call.words((CONSTANT, len(data)), (BLOB, call.blob(data + b"\0")), (CONSTANT, 1))


def _pass_optional_floats(call: Call, value: Any) -> None:
    if value is None:
        call.constant(0, 0, 0)
    else:
        at = call.packed(f"{len(value)}d", *(_real(item) for item in value))
        call.words((BLOB, at), (CONSTANT, len(value)), (CONSTANT, 1))


_STRING = Cpp("basic_string_view", "std", (Cpp("c"), Cpp("char_traits", "std", (Cpp("c"),))))
_INTS = _c10("ArrayRef", Cpp("l"))
_SYMINTS = _c10("ArrayRef", SYMINT)

# Schema type (as printed, without sizes) -> methods of passing it, tried in this order.
WAYS: dict[str, tuple[Way, ...]] = {
    "Tensor": ((Cpp("Tensor", "at", (), "RK"), _pass_tensor),),
    "Tensor(a!)": ((Cpp("Tensor", "at", (), "R"), _pass_tensor),),
    "Tensor?": ((_optional(TENSOR, "RK"), _pass_optional_tensor),),
    "Tensor[]": (
        (_c10("ArrayRef", TENSOR), _pass_tensors),
        (Cpp("IListRef", "c10", (TENSOR,), "RK"), _pass_tensors_struct),
    ),
    "int": ((Cpp("l"), _pass_int),),
    "SymInt": ((SYMINT, _pass_symint),),
    "SymInt?": ((_optional(SYMINT), _pass_optional_symint),),
    "int?": ((_optional(Cpp("l")), _pass_optional_int),),
    "int[]": ((_INTS, _pass_ints),),
    "SymInt[]": ((_SYMINTS, _pass_ints),),
    "int[]?": ((_c10("OptionalArrayRef", Cpp("l")), _pass_optional_ints),),
    "SymInt[]?": ((_c10("OptionalArrayRef", SYMINT), _pass_optional_ints),),
    "float": ((Cpp("d"), _pass_float),),
    "float?": ((_optional(Cpp("d")), _pass_optional_float),),
    "bool": ((Cpp("b"), _pass_bool),),
    "bool?": ((_optional(Cpp("b")), _pass_optional_bool),),
    "bool[2]": ((Cpp("array", "std", (Cpp("b"), "Lm2E")), _pass_bools),),
    "bool[3]": ((Cpp("array", "std", (Cpp("b"), "Lm3E")), _pass_bools),),
    "Scalar": ((Cpp("Scalar", "c10", (), "RK"), _pass_scalar),),
    "Scalar?": ((_optional(_c10("Scalar"), "RK"), _pass_optional_scalar),),
    "ScalarType": ((_c10("ScalarType"), _pass_dtype),),
    "ScalarType?": ((_optional(_c10("ScalarType")), _pass_optional_dtype),),
    "MemoryFormat?": ((_optional(_c10("MemoryFormat")), _pass_no_memory_format),),
    "Layout?": ((_optional(_c10("Layout")), _pass_optional_layout),),
    "Device?": ((_optional(_c10("Device")), _pass_optional_device),),
    "Generator?": ((_optional(Cpp("Generator", "at")), _pass_no_generator),),
    "str": ((_STRING, _pass_string),),
    "str?": ((_optional(_STRING), _pass_optional_string),),
    "float[]?": ((_optional(_c10("ArrayRef", Cpp("d"))), _pass_optional_floats),),
}


@functools.cache
def schema_types(op: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The types of an operator's arguments and results, as keys of `WAYS`.

    They are parsed from the schema's text, since the typed form does not distinguish SymInt from
    int.
    """
    text = str(op._schema)
    arguments, results = text[text.index("(") :].rsplit(" -> ", 1)
    return _types(arguments), _types(results if results.startswith("(") else f"({results})")


def _types(listing: str) -> tuple[str, ...]:
    parts, depth, start = [], 0, 1
    for place, letter in enumerate(listing):
        depth += (letter in "([") - (letter in ")]")
        if (letter == "," and depth == 1) or (letter == ")" and depth == 0):
            parts.append(listing[start:place].strip())
            start = place + 1
    return tuple(_type_name(part) for part in parts if part not in ("", "*"))


def _type_name(part: str) -> str:
    """ "Tensor(a!) self" -> "Tensor(a!)", "SymInt[2] size=[1, 1]" -> "SymInt[]"."""
    name = part.split(" ", maxsplit=1)[0]
    name = re.sub(r"\([^)]*!\)", "(a!)", name)
    name = re.sub(r"\([^)!]*\)", "", name)
    return name if name.startswith("bool") else re.sub(r"\[\d+\]", "[]", name)


def bound_values(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """The operator's arguments in schema order, with defaults."""
    for place, argument in enumerate(op._schema.arguments):
        if place < len(args):
            yield args[place]
        elif argument.name in kwargs:
            yield kwargs[argument.name]
        else:
            yield argument.default_value


@functools.cache
def usable(left_out: bool) -> bool:
    """Whether C++ entry points agree with Python.

    One operator is tested for each method of passing that depends on the layout of a class:
    numbers, optionals, lists, strings, several results.
    """
    if left_out or not SUPPORTED:
        return False
    a = torch.arange(1.0, 13.0, device="cpu").reshape(3, 4)
    aten = torch.ops.aten
    cases: tuple[tuple[Any, tuple[Any, ...], dict[str, Any]], ...] = (
        (aten.add.Tensor, (a, a), {"alpha": 2.5}),
        (aten.clamp.default, (a, None, 3), {}),
        (aten.as_strided.default, (a, (2, 2), (1, 4), 1), {}),
        (aten.cat.default, ([a, a], 1), {}),
        (aten.sort.default, (a, 1, True), {}),
        (aten.sum.dim_IntList, (a, [0]), {"dtype": torch.float64}),
        (aten.div.Tensor_mode, (a, a), {"rounding_mode": "trunc"}),
        (aten.gelu.default, (a,), {"approximate": "tanh"}),
    )
    return all(_agrees(*case) for case in cases)


def _agrees(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    expected = op(*args, **kwargs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    a = next(value for value in (*args, *args[0]) if isinstance(value, torch.Tensor))
    slots = tuple(_with_slots(value) for value in args)
    results = tuple(range(1, len(expected) + 1))
    found = plan(op, slots, kwargs)
    if found is None:
        return False
    steps = (("aten", (found, op, (0,), results, ())),)
    got = _native.run_lowered((1, 0, len(results) + 1, 0, -1, steps, results, {}, None), a)
    return all(torch.equal(x, y) and x.dtype == y.dtype for x, y in zip(got, expected, strict=True))


def _with_slots(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_slots(item) for item in value]
    return Slot(0) if isinstance(value, torch.Tensor) else value


def plan(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], numbers: Registers | None = None
) -> tuple[Any, ...] | None:
    """What the native executor calls the operator by; None if it has no native form. `numbers`: for
    expressions."""
    if not SUPPORTED or op.namespace != "aten":
        return None
    arguments, results = schema_types(op)
    returns = _returns(results)
    if returns is None or any(name not in WAYS for name in arguments):
        return None
    values = list(bound_values(op, args, kwargs))
    overload = op._overloadname
    owner = op._opname if overload == "default" else f"{op._opname}_{overload}"
    for ways in _choices(arguments):
        mangler = Mangler(owner)
        for cpp, _ in ways:
            mangler.add(cpp)
        symbol = mangler.text if ways else mangler.text + "v"
        if not _native.has_symbol(symbol):
            continue
        call = Call(free=6 - (returns == VALUES), numbers=numbers)
        try:
            for (_, put), value in zip(ways, values, strict=True):
                put(call, value)
        except NotNative:
            return None
        return (
            symbol,
            tuple(call.registers),
            tuple(call.stack),
            tuple(call.doubles),
            bytes(call.data),
            tuple(call.lists),
            returns,
            len(results),
            tuple(call.patches),
            tuple(call.reals),
        )
    return None


def _returns(results: tuple[str, ...]) -> int | None:
    if not results:
        return NOTHING
    if results == ("Tensor(a!)",):
        return REFERENCE
    return VALUES if all(name == "Tensor" for name in results) else None


def _choices(arguments: tuple[str, ...]) -> Iterator[list[Way]]:
    """Every signature to try: the first way of each, then the others for the lists of tensors."""
    first = [WAYS[name][0] for name in arguments]
    yield first
    if "Tensor[]" in arguments:
        yield [WAYS[name][-1] for name in arguments]
