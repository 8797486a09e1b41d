"""Operators over Values: arithmetic, comparison, items, `in`; with the protocols of users' classes.

In: operands as Values. Out: a Value with plain Python's result. `operator.add` and the instruction
have the same model, so this module also registers the functions of `operator`.
"""

from __future__ import annotations

import enum
import operator
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...runtime.safe_access import in_classes
from ..breaks import Break
from ..data_model import attributes, iteration
from ..data_model.operator_table import BINARY, COMPARE, COMPARED, INPLACE, TAKES, UNARY
from ..exact_type import is_kind
from ..torch_models import calls, indexing, numpy_arrays
from ..types import classes, container_methods, enums, set_operators
from ..values import containers, symbolic_numbers, texts, wrap
from ..values.containers import NotConstant, as_constant, by_other_form, fold, raises
from ..values.registry import BUILTINS, DUNDERS, NONE, Args, Kwargs, Model
from ..values.value import (
    Array,
    Cell,
    Const,
    Dict,
    Function,
    Instance,
    Method,
    Obj,
    Sequence,
    Tensor,
    Value,
)
from . import truth as truths

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def binary(m: Machine, symbol: str, left: Value, right: Value) -> Value:
    """left <symbol> right, in-place forms included."""
    if numpy_arrays.concerns(left, right):
        return numpy_arrays.operate(m, (INPLACE.get(symbol) or BINARY[symbol])[0], [left, right])
    if isinstance(left, Tensor) and symbolic_numbers.is_truth(right):
        right = truths.operand(m, symbol, left, right)
    elif isinstance(right, Tensor) and symbolic_numbers.is_truth(left):
        left = truths.operand(m, symbol, right, left)
    if symbol in INPLACE:
        fn, name = INPLACE[symbol]
        if isinstance(left, Tensor):
            return calls.call_operator(m, fn, [left, right])
        done = _inplace(m, symbol, name, left, right)
        return done if done is not None else by_other_form(binary, m, symbol, left, right)
    counted = symbolic_numbers.computed(m, symbol, left, right)
    if counted is not None:
        return counted
    if symbol in texts.OPERATORS and (text := texts.OPERATORS[symbol](m, left, right)) is not None:
        return text
    fn, name, reflected = BINARY[symbol]
    if symbol != "%" or not _is_text(left):  # which writes a member by its own __str__
        left, right = _as_numbers(left, right, name, reflected)
    objects = any(isinstance(v, (Obj, Instance)) for v in (left, right))
    if not objects and (isinstance(left, Tensor) or isinstance(right, Tensor)):
        return calls.call_operator(m, fn, [left, right])
    done = _containers(m, symbol, left, right)
    if done is not None:
        return done
    if objects:
        return _dunder(m, symbol, left, right, name, reflected)
    try:
        a, b = as_constant(m, left), as_constant(m, right)
    except NotConstant:
        raise Break("GB121", f"operator {symbol} of these values") from None
    if symbol in ("**", "<<", "*") and _huge(symbol, a, b):
        raise Break("GB121", "a very large number")
    return fold(lambda: fn(a, b))


def _is_text(value: Value) -> bool:
    return symbolic_numbers.is_of(value, (str, bytes))


def _as_numbers(left: Value, right: Value, name: str, reflected: str) -> tuple[Value, Value]:
    """Enum members as their numbers or strings, where those define the operator."""
    if enums.plain(left) is not left and enums.keeps(left, name):
        left = enums.plain(left)
    if enums.plain(right) is not right and enums.keeps(right, reflected):
        right = enums.plain(right)
    return left, right


def _huge(symbol: str, a: Any, b: Any) -> bool:
    if type(a) is not int or type(b) is not int:
        return (
            isinstance(a, (str, bytes, list, tuple)) and isinstance(b, int) and len(a) * b > 10**6
        )
    return symbol != "*" and b > 4096


def _containers(m: Machine, symbol: str, left: Value, right: Value) -> Value | None:
    if symbol == "+" and (joined := containers.joined_sizes(m, left, right)) is not None:
        return joined
    merged = set_operators.binary(m, symbol, left, right)
    if merged is not None:
        return merged
    if isinstance(left, Sequence) and left.cls in (list, tuple):
        if symbol == "+" and isinstance(right, Sequence) and right.cls in (list, tuple):
            if right.cls is not left.cls:
                raise raises("TypeError: can only concatenate sequences of one type")
            if not left.items and containers.is_exact_tuple(right):
                return right
            if not right.items and containers.is_exact_tuple(left):
                return left
            both = containers.sequence_items(m, left) + containers.sequence_items(m, right)
            return Sequence(both, left.cls)
        if (
            symbol == "+"
            and not symbolic_numbers.is_number(right)
            and isinstance(right, Const)
            and type(right.value) is left.cls
        ):
            return Sequence(
                containers.sequence_items(m, left) + iteration.drain(m, right), left.cls
            )
    if symbol == "*":
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Sequence) and isinstance(other, Const) and type(other.value) is int:
                if max(len(one.items), 1) * abs(other.value) > 10**5:
                    raise Break("GB116", "a very long list")
                if containers.is_exact_tuple(one) and (other.value == 1 or not one.items):
                    return one
                return Sequence(containers.sequence_items(m, one) * other.value, one.cls)
    if symbol == "|" and isinstance(left, Dict) and isinstance(right, Dict):
        made = container_methods.copy_dict(m, left)
        if right.cls is OrderedDict:  # a subclass's method runs first
            made.cls = OrderedDict
        container_methods.update_dict(m, made, right)
        return made
    return None


def _inplace(m: Machine, symbol: str, name: str, left: Value, right: Value) -> Value | None:
    """left <symbol>= right where left changes in place; None if it has no such form."""
    if isinstance(left, Sequence) and left.cls is list and symbol in ("+=", "*="):
        if isinstance(right, (Obj, Instance)):
            # A list has the slots of sequences alone: the other's reflected method runs first.
            method = _operator_method(m, right, BINARY[symbol[:-1]][2])
            if method is not None and not _not_implemented(done := m.call(method, [left], {})):
                return done
        if symbol == "+=":
            container_methods.extend(m, left, right)
        else:
            try:
                times = as_constant(m, right)
            except NotConstant:
                raise Break("GB121", "a list times an object") from None
            if not isinstance(times, int) or max(len(left.items), 1) * abs(times) > 10**5:
                raise Break("GB116", "a list times a value that is not a small number")
            items = containers.writable(m, left).items
            items *= times
        return left
    if isinstance(left, Dict) and left.cls in (dict, OrderedDict) and symbol == "|=":
        container_methods.update_dict(m, left, right)
        return left
    merged = set_operators.in_place(m, symbol, left, right)
    if merged is not None:
        return merged
    if isinstance(left, (Obj, Instance)):
        method = _operator_method(m, left, name)
        if method is not None:
            result = m.call(method, [right], {})
            return None if _not_implemented(result) else result
    return None


def _operator_method(m: Machine, owner: Obj | Instance, name: str) -> Value | None:
    """The method of an operator, or None; TypeError if the class sets it to None."""
    if attributes.class_attribute(m, owner, name) is None:
        raise raises("TypeError: 'NoneType' object is not callable")
    return attributes.special(m, owner, name)


def _not_implemented(value: Value) -> bool:
    return isinstance(value, Const) and value.value is NotImplemented


_NUMBERS = (int, float, complex)


def _c_may_take(symbol: str, value: Value, other: type | None) -> bool:
    """Whether a builtin operator's C method may accept an object of this class or query it."""
    cls = attributes.real_class(value)
    if isinstance(value, (Obj, Instance, Tensor)) or cls is None or other is None:
        return False
    if issubclass(cls, np.generic):
        return True
    if issubclass(cls, _NUMBERS):
        return False  # `_c_takes_number`, where its turn comes
    if symbol in ("%", "%="):
        return issubclass(cls, (str, bytes))
    if (
        symbol in ("*", "*=")
        and attributes.mro_lookup(other, "__index__") is not attributes.MISSING
    ):
        return True
    return issubclass(other, cls)


def _c_takes_number(owner: Value, other: Value) -> bool:
    """Whether a number's own C method takes an object of a class derived from a number."""
    cls, given = attributes.real_class(owner), attributes.real_class(other)
    if cls is None or given is None:
        return False
    return any(issubclass(cls, kind) and issubclass(given, TAKES[kind]) for kind in _NUMBERS)


def _c_compares(owner: Value, other: Value) -> bool:
    """Whether a builtin's own C method may compare it with an object of a derived class."""
    cls, given = attributes.real_class(owner), attributes.real_class(other)
    if cls is None or given is None:
        return True
    return issubclass(cls, COMPARED) and issubclass(given, COMPARED)


def _of_subclass(m: Machine, left: type | None, right: type | None) -> bool:
    """Whether the right operand's class derives from the left one's: its method runs first."""
    if left is None or right is None or right is left:
        return False
    return left in attributes.bases(m, right)


def _overloads(m: Machine, left: Any, right: Any, name: str) -> bool:
    """Whether the derived class overrides the method.

    As `method_is_overloaded` in CPython's Objects/typeobject.c.
    """
    return attributes.of_class(m, right, name) is not attributes.of_class(m, left, name)


def _tensor_declines(m: Machine, symbol: str, other: Obj | Instance) -> None:
    """Break unless a tensor's operator declines this object: neither a number nor like a tensor."""
    cls = attributes.real_class(other)
    assert cls is not None
    bases = attributes.bases(m, cls)
    knows = attributes.of_class(m, cls, "__torch_function__") is not attributes.MISSING
    if knows or any(issubclass(base, (*_NUMBERS, np.generic)) for base in bases):
        raise Break("GB112", f"operator {symbol} of a tensor and an object")


def _dunder(m: Machine, symbol: str, left: Value, right: Value, name: str, reflected: str) -> Value:
    """The protocol of binary operators over users' classes."""
    hint = classes.union(m, left, right) if symbol == "|" else None
    if hint is not None:
        return hint
    left_cls, right_cls = attributes.real_class(left), attributes.real_class(right)
    if _c_may_take(symbol, left, right_cls) or _c_may_take(symbol, right, left_cls):
        raise Break("GB121", f"operator {symbol} of an object and a builtin that may support it")
    tries = [(left, name, right), (right, reflected, left)]
    if left_cls is right_cls:
        # Both operands have one class: the method runs once.
        tries.pop()
    elif _of_subclass(m, left_cls, right_cls) and _overloads(m, left_cls, right_cls, reflected):
        tries.reverse()
    for owner, method_name, other in tries:
        if isinstance(owner, Tensor) and isinstance(other, (Obj, Instance)):
            _tensor_declines(m, symbol, other)
        if not isinstance(owner, (Obj, Instance)):
            if _c_takes_number(owner, other):
                raise Break("GB121", f"operator {symbol} of a number and an object derived of one")
            continue
        method = _operator_method(m, owner, method_name)
        if method is None:
            continue
        result = m.call(method, [other], {})
        if not _not_implemented(result):
            return result
    if any(isinstance(v, Tensor) for v in (left, right)):
        raise Break("GB112", f"operator {symbol} of a tensor and an object")
    raise raises(f"TypeError: unsupported operand types for {symbol}")


_SCALARS = (*_NUMBERS, np.generic)


def compare(m: Machine, symbol: str, left: Value, right: Value) -> Value:
    """left <symbol> right"""
    fn, name, reflected = COMPARE[symbol]
    if numpy_arrays.concerns(left, right):
        return numpy_arrays.operate(m, fn, [left, right])
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        other = right if isinstance(left, Tensor) else left
        if isinstance(other, (Const, Tensor)):
            number = isinstance(other, Tensor) or symbolic_numbers.is_of(other, _SCALARS)
            if not number and symbol in ("==", "!="):
                return Const(symbol == "!=")
            return calls.call_operator(m, fn, [left, right])
        raise Break("GB121", f"a tensor {symbol} this value")
    if isinstance(left, (Obj, Instance)) or isinstance(right, (Obj, Instance)):
        return _compare_objects(m, symbol, left, right, name, reflected)
    counted = symbolic_numbers.compared(m, symbol, left, right)
    if counted is not None:
        return counted
    if symbolic_numbers.has_numbers(left) or symbolic_numbers.has_numbers(right):
        return _compare_items(
            m, symbol, symbolic_numbers.as_sequence(left), symbolic_numbers.as_sequence(right)
        )
    if isinstance(left, Cell):  # they compare by content
        raise Break("GB137", "comparison of cells")
    if isinstance(left, (Method, Function)) and symbol in ("==", "!="):
        if isinstance(left, Method):
            raise Break("GB137", "comparison of bound methods")
        return Const((left is right) == (symbol == "=="))
    sets = set_operators.compare(m, symbol, left, right)
    if sets is not None:
        return sets
    try:
        a, b = as_constant(m, left, ordered=False), as_constant(m, right, ordered=False)
    except NotConstant:
        return _compare_items(m, symbol, left, right)
    if not isinstance(left, Const) and wrap.has_nan(a) and wrap.has_nan(b):
        raise Break("GB121", "nan in a container is equal to itself alone")
    return fold(lambda: fn(a, b))


def _compare_items(m: Machine, symbol: str, left: Value, right: Value) -> Value:
    if symbol in ("==", "!=") and isinstance(left, Sequence) and isinstance(right, Sequence):
        if left.cls is list is right.cls and len(left.items) == len(right.items):
            return _compare_in_order(m, symbol, left, right)
        same = (
            any(
                issubclass(left.cls, kind) and issubclass(right.cls, kind) for kind in (list, tuple)
            )
            and len(left.items) == len(right.items)
            and all(
                m.same_or_equal(a, b)
                for a, b in zip(
                    containers.sequence_items(m, left),
                    containers.sequence_items(m, right),
                    strict=True,
                )
            )
        )
        return Const(same == (symbol == "=="))
    pair = isinstance(left, Sequence) and isinstance(right, Sequence) and left.cls is right.cls
    if pair and left.cls in (list, tuple):  # type: ignore[attr-defined]
        return _compare_in_order(m, symbol, left, right)  # type: ignore[arg-type]
    raise Break("GB121", f"operator {symbol} of these values")


def _compare_in_order(m: Machine, symbol: str, left: Sequence, right: Sequence) -> Value:
    """Compare by the first two items that differ, else by length.

    A comparison may change the lists: their content after it counts (`list_richcompare` in
    CPython's Objects/listobject.c).
    """
    ours, theirs = containers.sequence_items(m, left), containers.sequence_items(m, right)
    at = 0
    while at < len(ours) and at < len(theirs) and m.same_or_equal(ours[at], theirs[at]):
        at += 1
    if at >= len(ours) or at >= len(theirs):
        return Const(COMPARE[symbol][0](len(ours), len(theirs)))
    if symbol in ("==", "!="):
        return Const(symbol == "!=")
    return compare(m, symbol, ours[at], theirs[at])


_SAME: Any = object.__eq__  # equality of objects without __eq__: identity
_PLAIN_EQ = (object.__eq__, type.__eq__)


def _compare_objects(
    m: Machine, symbol: str, left: Value, right: Value, name: str, reflected: str
) -> Value:
    plain = _plain_members(m, symbol, left, right)
    if plain is not None:
        return plain
    if symbol in ("==", "!=") and _held_methods(left) and _held_methods(right):
        return Const((left.value == right.value) == (symbol == "=="))  # type: ignore[attr-defined]
    tries = [(left, name, right), (right, reflected, left)]
    if _of_subclass(m, attributes.real_class(left), attributes.real_class(right)):
        tries.reverse()
    for owner, method_name, other in tries:
        if not isinstance(owner, (Obj, Instance)):
            if _c_compares(owner, other):
                raise Break("GB137", f"{method_name} of a builtin and an object derived of one")
            continue
        cls = attributes.real_class(owner)
        assert cls is not None
        raw = attributes.class_attribute(m, owner, method_name)
        inverse = method_name == "__ne__" and raw is object.__dict__["__ne__"]
        # It calls the same object's __eq__, and is NotImplemented if that is.
        if inverse:
            method_name = "__eq__"
            raw = attributes.class_attribute(m, owner, method_name)
        if is_kind(raw, types.FunctionType):
            method = attributes.special(m, owner, method_name)
            assert method is not None
            result = m.call(method, [other], {})
            if not _not_implemented(result):
                return Const(not m.truth(result)) if inverse else result
        elif raw is not object.__dict__.get(method_name) and not _c_identity(owner, cls):
            code = "GB123" if numpy_arrays.from_outside(owner) else "GB137"
            raise Break(code, f"{method_name} of {cls.__name__}")
    if symbol in ("==", "!="):
        return Const(m.identical(left, right) == (symbol == "=="))
    raise raises(f"TypeError: {symbol!r} not supported")


def _held_methods(value: Value) -> bool:
    """Whether this is a C function, which may be bound to a class or module.

    Each look-up makes another object, and these are equal.
    """
    if not isinstance(value, Obj) or not is_kind(value.value, types.BuiltinFunctionType):
        return False
    owner = value.value.__self__
    return owner is None or is_kind(owner, (type, types.ModuleType))


def _plain_members(m: Machine, symbol: str, left: Value, right: Value) -> Value | None:
    """Comparison of enum members that are numbers or strings, by the C type's own method.

    Also of a numpy dtype with a class that it may equal. None for other operands.
    """
    fn, name, reflected = COMPARE[symbol]
    if any(symbolic_numbers.is_of(value, np.dtype) for value in (left, right)):
        return numpy_arrays.evaluate(m, fn, [left, right], {})
    sides = []
    for value in (left, right):
        if isinstance(value, Obj) and isinstance(value.value, enum.Enum):
            if not isinstance(value.value, (int, float, str)):
                return None
            for method in (name, reflected):
                raw = attributes.class_attribute(m, value, method)
                if not is_kind(raw, types.WrapperDescriptorType):
                    return None
            sides.append(value.value)
        elif isinstance(value, Const):
            sides.append(value.value)
        else:
            return None
    return fold(lambda: fn(*sides))


def _c_identity(owner: Value, cls: type) -> bool:
    """Whether equality is identity in C (or follows from it, for code and methods)."""
    if isinstance(owner, Obj) and is_kind(owner.value, types.BuiltinFunctionType):
        return False
    return isinstance(owner, Obj) and (
        is_kind(owner.value, (type, types.ModuleType, types.FunctionType, types.CodeType))
        or in_classes(cls, "__eq__") is _SAME
    )


def unary(m: Machine, symbol: str, value: Value) -> Value:
    if symbol == "not":
        return truths.inverted(m, value)
    fn, name = UNARY[symbol]
    if isinstance(value, Array):
        return numpy_arrays.operate(m, fn, [value])
    if isinstance(value, Tensor):
        return calls.call_operator(m, fn, [value])
    counted = symbolic_numbers.negated(m, symbol, value)
    if counted is not None:
        return counted
    if isinstance(value, (Obj, Instance)):
        result = attributes.call_special(m, value, name, [])
        if result is None:
            raise raises(f"TypeError: bad operand type for unary {symbol}")
        return result
    try:
        real = as_constant(m, value)
    except NotConstant:
        raise Break("GB121", f"unary {symbol} of this value") from None
    return fold(lambda: fn(real))


def get_item(m: Machine, value: Value, index: Value) -> Value:
    if isinstance(value, Tensor):
        value, rest = indexing.selected(m, value, index)
        if rest is None:
            return value
        return indexing.by_list(m, operator.getitem, [value, rest])
    if isinstance(value, Array):
        return numpy_arrays.operate(m, operator.getitem, [value, index])
    found = containers.get_item(m, value, index)
    if found is not None:
        return found
    if isinstance(value, Obj) and isinstance(value.value, type):
        return _class_item(m, value, index)
    result = attributes.call_special(m, value, "__getitem__", [index])
    if result is None:
        raise Break("GB121", "an item of this value")
    return result


def _class_item(m: Machine, value: Obj, index: Value) -> Value:
    if enums.is_enum(value.value):
        return enums.named(m, value, index)
    alias = classes.generic_alias(m, value, index)
    if alias is None:
        raise Break("GB112", f"{value.value.__name__}[...]")
    return alias


def set_item(m: Machine, value: Value, index: Value, item: Value) -> None:
    if isinstance(value, Tensor):
        value, rest = indexing.selected(m, value, index)
        indexing.set_item(m, value, rest or Const(...), item)
    elif isinstance(value, Array):
        numpy_arrays.operate(m, operator.setitem, [value, index, item])
    elif not container_methods.set_item(m, value, index, item):
        method = _own_method(m, value, "__setitem__")
        if method is None:
            raise Break("GB115", "an item of this value is set")
        m.call(method, [index, item], {})


def _own_method(m: Machine, value: Value, name: str) -> Value | None:
    """A special method of a user's object; None for modelled types."""
    return attributes.special(m, value, name) if isinstance(value, (Obj, Instance)) else None


def delete_item(m: Machine, value: Value, index: Value) -> None:
    if not container_methods.delete_item(m, value, index):
        method = _own_method(m, value, "__delitem__")
        if method is None:
            raise Break("GB128", "an item of this value is deleted")
        m.call(method, [index], {})


def _in_tensor(m: Machine, value: Tensor, item: Value) -> bool:
    """`item in tensor`, which is `(item == tensor).any().item()` (`Tensor.__contains__`)."""
    try:
        if isinstance(item, Const) and symbolic_numbers.type_of(item) in (bool, int, float):
            equal = compare(m, "==", item, value)
            return m.truth(calls.call_torch(m, torch.Tensor.any, [equal], {}))
    except Break:
        pass
    raise Break("GB104", "'in' on a tensor")


def contains(m: Machine, value: Value, item: Value) -> bool:
    found = container_methods.contains(m, value, item)
    if found is not None:
        return found
    if isinstance(value, Array):
        return m.truth(numpy_arrays.operate(m, operator.contains, [value, item]))
    if isinstance(value, Tensor):
        return _in_tensor(m, value, item)
    result = attributes.call_special(m, value, "__contains__", [item])
    if result is None:
        raise Break("GB120", "'in' on this value")
    return m.truth(result)


def _with_symbol(model: Callable[..., Value], symbol: str) -> Callable[..., Value]:
    return lambda m, args, kwargs: model(m, symbol, *args)


def _then_none(change: Callable[..., None]) -> Callable[..., Value]:
    def model(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        change(m, *args)
        return NONE

    return model


def _concatenated(symbol: str) -> Model:
    """operator.concat and iconcat: `+` and `+=` of sequences alone."""

    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        for value in args:
            text = isinstance(value, Const) and is_kind(value.value, (str, bytes))
            if not text and not isinstance(value, Sequence):
                raise Break("GB121", f"operator {symbol} of a value that may not be a sequence")
        return binary(m, symbol, *args)

    return model


def _operator_models() -> None:
    BUILTINS[operator.concat] = _concatenated("+")
    BUILTINS[operator.iconcat] = _concatenated("+=")
    for symbol, (fn, name, _) in BINARY.items():
        BUILTINS[fn] = _with_symbol(binary, symbol)
        DUNDERS[name] = fn
    for symbol, (fn, name) in INPLACE.items():
        BUILTINS[fn] = _with_symbol(binary, symbol)
        DUNDERS[name] = fn
    for symbol, (fn, name, _) in COMPARE.items():
        BUILTINS[fn] = _with_symbol(compare, symbol)
        DUNDERS[name] = fn
    for symbol, (fn, _) in UNARY.items():
        BUILTINS[fn] = _with_symbol(unary, symbol)
    BUILTINS[operator.not_] = lambda m, a, k: unary(m, "not", a[0])
    BUILTINS[operator.truth] = lambda m, a, k: truths.value_of(m, a[0])
    BUILTINS[operator.getitem] = lambda m, a, k: get_item(m, a[0], a[1])
    BUILTINS[operator.setitem] = _then_none(set_item)
    BUILTINS[operator.delitem] = _then_none(delete_item)
    BUILTINS[operator.contains] = lambda m, a, k: Const(contains(m, a[0], a[1]))
    BUILTINS[operator.is_] = lambda m, a, k: Const(m.identical(a[0], a[1]))
    BUILTINS[operator.is_not] = lambda m, a, k: Const(not m.identical(a[0], a[1]))
    DUNDERS["__getitem__"] = operator.getitem
    DUNDERS["__setitem__"] = operator.setitem
    DUNDERS["__delitem__"] = operator.delitem
    DUNDERS["__contains__"] = operator.contains
    DUNDERS["__len__"] = len
    DUNDERS["__iter__"] = iter


_operator_models()
