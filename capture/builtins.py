"""Builtins and small library functions, as a table from the callable to its model.

In: Values. Out: a Value, with the meaning that plain Python gives; a type that a row does not know is a break.
Operators (`+`, `<`, `in`, ...) are here too, since `operator.add` and the instruction are one thing.
"""

from __future__ import annotations

import builtins as py
import functools
import operator
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..runtime.capturing import capturing
from . import attributes, containers, torchcalls
from .breaks import Break
from .containers import NotConstant, as_constant, drain, fold, raises
from .values import (
    Cell,
    Const,
    Dict,
    DictView,
    Function,
    Instance,
    Iterator,
    Method,
    Obj,
    Partial,
    Sequence,
    Set,
    Slice,
    Super,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from .machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]
Model = Callable[["Machine", Args, Kwargs], Value]
BUILTINS: dict[Any, Model] = {}
DUNDERS: dict[str, Any] = {}
NONE = Const(None)


def models(*functions: Any) -> Callable[[Model], Model]:
    def register(model: Model) -> Model:
        for function in functions:
            BUILTINS[function] = model
        return model

    return register


# -- operators -------------------------------------------------------------------------------------------
_BINARY: dict[str, tuple[Any, str, str]] = {
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
_INPLACE: dict[str, tuple[Any, str]] = {
    f"{symbol}=": (getattr(operator, f"i{name.strip('_')}"), f"__i{name.strip('_')}__")
    for symbol, (_, name, _) in _BINARY.items()
}
_COMPARE: dict[str, tuple[Any, str, str]] = {
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
}
_UNARY: dict[str, tuple[Any, str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
}


def binary(m: Machine, symbol: str, left: Value, right: Value) -> Value:
    """left <symbol> right, in-place forms included."""
    if symbol in _INPLACE:
        fn, name = _INPLACE[symbol]
        if torchcalls.has_tensor([left]):
            return torchcalls.call_operator(m, fn, [left, right])
        done = _inplace(m, symbol, name, left, right)
        return done if done is not None else binary(m, symbol[:-1], left, right)
    fn, name, reflected = _BINARY[symbol]
    objects = any(isinstance(v, (Obj, Instance)) for v in (left, right))
    if not objects and (isinstance(left, Tensor) or isinstance(right, Tensor)):
        return torchcalls.call_operator(m, fn, [left, right])
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


def _huge(symbol: str, a: Any, b: Any) -> bool:
    if type(a) is not int or type(b) is not int:
        return (
            isinstance(a, (str, bytes, list, tuple)) and isinstance(b, int) and len(a) * b > 10**6
        )
    return symbol != "*" and b > 4096


def _containers(m: Machine, symbol: str, left: Value, right: Value) -> Value | None:
    if isinstance(left, Sequence) and left.cls in (list, tuple):
        if symbol == "+" and isinstance(right, Sequence) and right.cls in (list, tuple):
            if right.cls is not left.cls:
                raise raises("TypeError: can only concatenate sequences of one type")
            both = containers.sequence_items(m, left) + containers.sequence_items(m, right)
            return Sequence(both, left.cls)
        if symbol == "+" and isinstance(right, Const) and type(right.value) is left.cls:
            return Sequence(containers.sequence_items(m, left) + drain(m, right), left.cls)
    if symbol == "+" and isinstance(left, Const) and isinstance(right, Sequence):
        if isinstance(left.value, tuple) and right.cls is tuple:
            return Sequence(drain(m, left) + containers.sequence_items(m, right), tuple)
    if symbol == "*":
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Sequence) and isinstance(other, Const) and type(other.value) is int:
                if len(one.items) * other.value > 10**5:
                    raise Break("GB116", "a very long list")
                return Sequence(containers.sequence_items(m, one) * other.value, one.cls)
    if symbol == "|" and isinstance(left, Dict) and isinstance(right, Dict):
        made = containers.copy_dict(m, left)
        containers.update_dict(m, made, right)
        return made
    return None


def _inplace(m: Machine, symbol: str, name: str, left: Value, right: Value) -> Value | None:
    """left <symbol>= right where left changes in place; None if it has no such form."""
    if isinstance(left, Sequence) and left.cls is list and symbol in ("+=", "*="):
        containers.writable(m, left)
        if symbol == "+=":
            left.items.extend(drain(m, right))
        else:
            left.items *= as_constant(m, right)
        return left
    if isinstance(left, Dict) and left.cls is dict and symbol == "|=":
        containers.update_dict(m, left, right)
        return left
    if isinstance(left, Set) and left.cls is set:
        raise Break("GB122", f"operator {symbol} of a set")
    if isinstance(left, (Obj, Instance)):
        method = attributes.special(m, left, name)
        if method is not None:
            result = m.call(method, [right], {})
            return None if _not_implemented(result) else result
    return None


def _not_implemented(value: Value) -> bool:
    return isinstance(value, Const) and value.value is NotImplemented


def _dunder(m: Machine, symbol: str, left: Value, right: Value, name: str, reflected: str) -> Value:
    """The protocol of binary operators over users' classes."""
    left_cls, right_cls = attributes.real_class(left), attributes.real_class(right)
    tries = [(left, name, right), (right, reflected, left)]
    if (
        left_cls is not None
        and right_cls is not None
        and right_cls is not left_cls
        and issubclass(right_cls, left_cls)
    ):
        tries.reverse()
    for owner, method_name, other in tries:
        if not isinstance(owner, (Obj, Instance)):
            continue
        method = attributes.special(m, owner, method_name)
        if method is None:
            continue
        result = m.call(method, [other], {})
        if not _not_implemented(result):
            return result
    if any(isinstance(v, Tensor) for v in (left, right)):
        raise Break("GB112", f"operator {symbol} of a tensor and an object")
    raise raises(f"TypeError: unsupported operand types for {symbol}")


def compare(m: Machine, symbol: str, left: Value, right: Value) -> Value:
    """left <symbol> right"""
    fn, name, reflected = _COMPARE[symbol]
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        other = right if isinstance(left, Tensor) else left
        if isinstance(other, (Const, Tensor)):
            number = isinstance(other, Tensor) or isinstance(other.value, (int, float, complex))
            if not number and symbol in ("==", "!="):
                return Const(symbol == "!=")
            return torchcalls.call_operator(m, fn, [left, right])
        raise Break("GB121", f"a tensor {symbol} this value")
    if isinstance(left, (Obj, Instance)) or isinstance(right, (Obj, Instance)):
        return _compare_objects(m, symbol, left, right, name, reflected)
    if isinstance(left, (Method, Function, Cell)) and symbol in ("==", "!="):
        if isinstance(left, Method):
            raise Break("GB137", "comparison of bound methods")
        return Const((left is right) == (symbol == "=="))
    try:
        a, b = as_constant(m, left), as_constant(m, right)
    except NotConstant:
        return _compare_items(m, symbol, left, right)
    return fold(lambda: fn(a, b))


def _compare_items(m: Machine, symbol: str, left: Value, right: Value) -> Value:
    if symbol in ("==", "!=") and isinstance(left, Sequence) and isinstance(right, Sequence):
        same = (
            left.cls is right.cls
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
    raise Break("GB121", f"operator {symbol} of these values")


_PLAIN_EQ = (object.__eq__, type.__eq__)


def _compare_objects(
    m: Machine, symbol: str, left: Value, right: Value, name: str, reflected: str
) -> Value:
    for owner, method_name, other in ((left, name, right), (right, reflected, left)):
        if not isinstance(owner, (Obj, Instance)):
            continue
        cls = attributes.real_class(owner)
        assert cls is not None
        raw = attributes.mro_lookup(cls, method_name)
        if method_name == "__ne__" and raw is object.__dict__["__ne__"]:
            equal = compare(m, "==", left, right)
            return Const(not m.truth(equal))
        if isinstance(raw, types.FunctionType):
            result = m.call(attributes.special(m, owner, method_name), [other], {})
            if not _not_implemented(result):
                return result
        elif raw is not object.__dict__.get(method_name) and not _c_identity(owner, cls):
            raise Break("GB137", f"{method_name} of {cls.__name__}")
    if symbol in ("==", "!="):
        return Const(m.identical(left, right) == (symbol == "=="))
    raise raises(f"TypeError: {symbol!r} not supported")


def _c_identity(owner: Value, cls: type) -> bool:
    """C types whose equality is identity (or, for code and methods, follows from it)."""
    return isinstance(owner, Obj) and (
        isinstance(owner.value, (type, types.ModuleType, types.FunctionType, types.CodeType))
        or cls.__eq__ is object.__eq__
        or isinstance(owner.value, types.BuiltinFunctionType)
    )


def unary(m: Machine, symbol: str, value: Value) -> Value:
    if symbol == "not":
        return Const(not m.truth(value))
    fn, name = _UNARY[symbol]
    if isinstance(value, Tensor):
        return torchcalls.call_operator(m, fn, [value])
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
        return torchcalls.call_operator(m, operator.getitem, [value, index])
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
    raise Break("GB112", f"{value.value.__name__}[...]")


def set_item(m: Machine, value: Value, index: Value, item: Value) -> None:
    if isinstance(value, Tensor):
        torchcalls.set_tensor_item(m, value, index, item)
    elif not containers.set_item(m, value, index, item):
        method = _own_method(m, value, "__setitem__")
        if method is None:
            raise Break("GB115", "an item of this value is set")
        m.call(method, [index, item], {})


def _own_method(m: Machine, value: Value, name: str) -> Value | None:
    """A special method of a user's object; None for what the machine models itself."""
    return attributes.special(m, value, name) if isinstance(value, (Obj, Instance)) else None


def delete_item(m: Machine, value: Value, index: Value) -> None:
    if not containers.delete_item(m, value, index):
        method = _own_method(m, value, "__delitem__")
        if method is None:
            raise Break("GB128", "an item of this value is deleted")
        m.call(method, [index], {})


def contains(m: Machine, value: Value, item: Value) -> bool:
    found = containers.contains(m, value, item)
    if found is not None:
        return found
    if isinstance(value, Tensor):
        raise Break("GB104", "'in' on a tensor")
    result = attributes.call_special(m, value, "__contains__", [item])
    if result is None:
        raise Break("GB120", "'in' on this value")
    return m.truth(result)


def _operator_models() -> None:
    for symbol, (fn, name, _) in _BINARY.items():
        BUILTINS[fn] = lambda m, a, k, s=symbol: binary(m, s, a[0], a[1])
        DUNDERS[name] = fn
    for symbol, (fn, name) in _INPLACE.items():
        BUILTINS[fn] = lambda m, a, k, s=symbol: binary(m, s, a[0], a[1])
        DUNDERS[name] = fn
    for symbol, (fn, name, _) in _COMPARE.items():
        BUILTINS[fn] = lambda m, a, k, s=symbol: compare(m, s, a[0], a[1])
        DUNDERS[name] = fn
    for symbol, (fn, _) in _UNARY.items():
        BUILTINS[fn] = lambda m, a, k, s=symbol: unary(m, s, a[0])
    BUILTINS[operator.not_] = lambda m, a, k: unary(m, "not", a[0])
    BUILTINS[operator.truth] = lambda m, a, k: Const(m.truth(a[0]))
    BUILTINS[operator.getitem] = lambda m, a, k: get_item(m, a[0], a[1])
    BUILTINS[operator.setitem] = lambda m, a, k: (set_item(m, *a), NONE)[1]
    BUILTINS[operator.delitem] = lambda m, a, k: (delete_item(m, *a), NONE)[1]
    BUILTINS[operator.contains] = lambda m, a, k: Const(contains(m, a[0], a[1]))
    BUILTINS[operator.is_] = lambda m, a, k: Const(m.identical(a[0], a[1]))
    BUILTINS[operator.is_not] = lambda m, a, k: Const(not m.identical(a[0], a[1]))
    DUNDERS["__getitem__"] = operator.getitem
    DUNDERS["__setitem__"] = operator.setitem
    DUNDERS["__delitem__"] = operator.delitem
    DUNDERS["__contains__"] = operator.contains
    DUNDERS["__len__"] = len
    DUNDERS["__iter__"] = iter


# -- types and objects -----------------------------------------------------------------------------------
@models(isinstance)
def _isinstance(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    cls = attributes.real_class(args[0])
    if cls is None:
        cls = _MODELLED_TYPES.get(type(args[0]))
    if cls is None:
        raise Break("GB121", "isinstance() of this value")
    return Const(any(_is_kind(m, cls, target) for target in _classes(m, args[1])))


_MODELLED_TYPES: dict[type, type] = {Super: super, Partial: functools.partial, Slice: slice}


@models(issubclass)
def _issubclass(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], Obj) or not isinstance(args[0].value, type):
        raise raises("TypeError: issubclass() arg 1 must be a class")
    return Const(any(_is_kind(m, args[0].value, target) for target in _classes(m, args[1])))


def _classes(m: Machine, value: Value) -> list[type]:
    if isinstance(value, Sequence):
        return [cls for item in containers.sequence_items(m, value) for cls in _classes(m, item)]
    if isinstance(value, Obj):
        if isinstance(value.value, type):
            return [value.value]
        if isinstance(value.value, types.UnionType):
            return [arg for arg in typing.get_args(value.value) if isinstance(arg, type)]
    raise Break("GB121", "isinstance() with this second argument")


def _is_kind(m: Machine, cls: type, target: type) -> bool:
    meta = type(target)
    if meta.__instancecheck__ is type.__instancecheck__:
        return target in type.__dict__["__mro__"].__get__(cls)
    if issubclass(cls, torch.Tensor) and issubclass(target, torch.Tensor):
        return issubclass(cls, target)
    if target.__module__.startswith("torch") and not issubclass(cls, torch.Tensor):
        return target in cls.__mro__
    if meta.__instancecheck__ is _ABC_CHECK:
        import abc

        result = issubclass(cls, target)
        m.guard("abc", None, abc.get_cache_token())
        return result
    if getattr(target, "_graftjit_tensor_face", False):
        return issubclass(cls, torch.Tensor)
    raise Break("GB137", f"isinstance() with {target.__name__}, which decides itself")


def _abc_check() -> Any:
    import abc

    return abc.ABCMeta.__instancecheck__


_ABC_CHECK = _abc_check()


@models(type)
def _type(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise Break("GB126", "a class is made")
    return attributes.type_of(m, args[0])


@models(super)
def _super(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        frame = m.frames[-1]
        cell = frame.cells.get("__class__")
        first = frame.code.co_varnames[0] if frame.code.co_argcount else None
        if cell is None or first is None:
            raise raises("RuntimeError: super(): no arguments")
        receiver = frame.locals.get(first)
        if receiver is None and first in frame.cells:
            receiver = m.load_cell(frame.cells[first])
        args = [m.load_cell(cell), receiver]  # type: ignore[list-item]
    if len(args) != 2 or not isinstance(args[0], Obj) or not isinstance(args[0].value, type):
        raise Break("GB121", "super() with these arguments")
    return Super(args[0].value, args[1])


@models(callable)
def _callable(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, (Function, Method, Partial)):
        return Const(True)
    if isinstance(value, (Obj, Instance)):
        if isinstance(value, Obj) and not isinstance(value.value, torch.nn.Module):
            return Const(callable(value.value))
        return Const(attributes.special(m, value, "__call__") is not None)
    cls = attributes.real_class(value)
    return Const(hasattr(cls, "__call__"))  # noqa: B004 (the type's slot is what callable() asks)


@models(getattr)
def _getattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    name = _text(args[1])
    try:
        return attributes.load_attr(m, args[0], name)
    except attributes.NoAttribute:
        if len(args) > 2:
            return args[2]
        raise


@models(hasattr)
def _hasattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(attributes.has_attr(m, args[0], _text(args[1])))


@models(setattr)
def _setattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    attributes.store_attr(m, args[0], _text(args[1]), args[2])
    return NONE


@models(delattr)
def _delattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    attributes.store_attr(m, args[0], _text(args[1]), None)
    return NONE


@models(vars)
def _vars(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        raise Break("GB132", "vars() of the frame")
    return attributes.load_attr(m, args[0], "__dict__")


@models(id)
def _id(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break("GB121", "id()")


def _text(value: Value) -> str:
    if isinstance(value, Const) and isinstance(value.value, str):
        return value.value
    raise Break("GB121", "an attribute name that is not a constant")


# -- containers ------------------------------------------------------------------------------------------
@models(len)
def _len(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    found = containers.length(m, args[0])
    if found is not None:
        return Const(found)
    result = attributes.call_special(m, args[0], "__len__", [])
    if result is None:
        raise raises("TypeError: object has no len()")
    return result


@models(list)
def _list(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Sequence(drain(m, args[0]) if args else [], list)


@models(tuple)
def _tuple(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], Sequence) and args[0].cls is tuple:
        return args[0]
    return Sequence(drain(m, args[0]) if args else [], tuple)


@models(set, frozenset)
def _set(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return containers.make_set(m, drain(m, args[0]) if args else [], set)


BUILTINS[frozenset] = lambda m, a, k: containers.make_set(m, drain(m, a[0]) if a else [], frozenset)


@models(dict)
def _dict(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    made = Dict({})
    if args:
        containers.update_dict(m, made, args[0])
    for name, value in kwargs.items():
        containers.dict_set(m, made, Const(name), value)
    return made


@models(range)
def _range(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return fold(lambda: range(*[as_int(m, a) for a in args]))


def as_int(m: Machine, value: Value) -> Any:
    if isinstance(value, Tensor):
        raise Break("GB104", "a tensor used as an integer")
    try:
        return as_constant(m, value)
    except NotConstant:
        raise Break("GB121", "a number that is not a constant") from None


@models(slice)
def _slice(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    parts = {1: [NONE, *args, NONE], 2: [*args, NONE]}.get(len(args), args)
    return Slice(*parts)


@models(enumerate)
def _enumerate(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    return containers.enumerate_iterator(m, args[0], as_int(m, start))


@models(zip)
def _zip(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    strict = m.truth(kwargs.get("strict", Const(False)))
    return containers.zip_iterator(m, args, strict)


@models(map)
def _map(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return containers.map_iterator(m, args[0], args[1:])


@models(filter)
def _filter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return containers.filter_iterator(m, args[0], args[1])


@models(reversed)
def _reversed(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], (Sequence, Const, Dict, DictView)):
        return containers._list_iterator(list(reversed(drain(m, args[0]))))
    raise Break("GB120", "reversed() of this value")


@models(sorted)
def _sorted(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Sequence(containers.sort_items(m, drain(m, args[0]), kwargs), list)


@models(iter)
def _iter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise Break("GB120", "iter() with a sentinel")
    return containers.iterate(m, args[0])


@models(next)
def _next(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], Iterator):
        result = attributes.call_special(m, args[0], "__next__", [])
        if result is None:
            raise Break("GB120", "next() of this value")
        return result
    item = args[0].step()
    if item is None:
        if len(args) > 1:
            return args[1]
        raise raises("StopIteration")
    return item


@models(sum)
def _sum(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    total = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    items = drain(m, args[0])
    try:  # sum() of floats is compensated from 3.12 on: constants go to the real one
        real, start = [as_constant(m, i) for i in items], as_constant(m, total)
    except NotConstant:
        for item in items:
            total = binary(m, "+", total, item)
        return total
    return fold(lambda: sum(real, start))


@models(any)
def _any(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    iterator = containers.iterate(m, args[0])
    while (item := iterator.step()) is not None:
        if m.truth(item):
            return Const(True)
    return Const(False)


@models(all)
def _all(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    iterator = containers.iterate(m, args[0])
    while (item := iterator.step()) is not None:
        if not m.truth(item):
            return Const(False)
    return Const(True)


def _extreme(symbol: str) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        items = drain(m, args[0]) if len(args) == 1 else args
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            raise raises("ValueError: min()/max() of an empty sequence")
        key = kwargs.get("key", NONE)
        best = items[0]
        best_key = best if isinstance(key, Const) else m.call(key, [best], {})
        for item in items[1:]:
            item_key = item if isinstance(key, Const) else m.call(key, [item], {})
            if m.truth(compare(m, symbol, item_key, best_key)):
                best, best_key = item, item_key
        return best

    return model


BUILTINS[min] = _extreme("<")
BUILTINS[max] = _extreme(">")


# -- numbers and text ------------------------------------------------------------------------------------
def _constant_model(fn: Any) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if any(isinstance(a, Tensor) for a in args):
            if fn in (abs, pow, divmod) or fn is round:
                return _tensor_number(m, fn, args)
            raise Break("GB104", f"{fn.__name__}() of a tensor")
        if args and isinstance(args[0], (Obj, Instance)):
            return _object_number(m, fn, args)
        try:
            plain = [as_constant(m, a) for a in args]
            named = {k: as_constant(m, v) for k, v in kwargs.items()}
        except NotConstant:
            raise Break("GB121", f"{fn.__name__}() of this value") from None
        return fold(lambda: fn(*plain, **named))

    return model


def _tensor_number(m: Machine, fn: Any, args: Args) -> Value:
    if fn is divmod:
        raise Break("GB121", "divmod() of tensors")
    return torchcalls.call_torch(
        m, {abs: torch.abs, pow: operator.pow, round: torch.round}[fn], args, {}
    )


_NUMBER_DUNDERS = {
    abs: "__abs__", int: "__int__", float: "__float__", bool: "__bool__", str: "__str__",
    repr: "__repr__", hash: "__hash__", round: "__round__", format: "__format__",
}  # fmt: skip


def _object_number(m: Machine, fn: Any, args: Args) -> Value:
    """int(obj), str(obj), ... of users' classes with a Python method for it."""
    value = args[0]
    if fn is bool:
        return Const(m.truth(value))
    if isinstance(value, Obj) and isinstance(value.value, type) and fn in (str, repr):
        return fold(lambda: fn(value.value))
    cls = attributes.real_class(value)
    name = _NUMBER_DUNDERS.get(fn, "")
    for method_name in (name, "__repr__") if fn is str else (name,):
        raw = attributes.mro_lookup(cls, method_name)  # type: ignore[arg-type]
        if isinstance(raw, types.FunctionType):
            method = attributes.special(m, value, method_name)
            assert method is not None
            return m.call(method, args[1:], {})
    raise Break("GB112", f"{fn.__name__}() of {cls.__name__ if cls else 'this value'}")


for _fn in (
    abs, int, float, complex, bool, str, repr, bytes, round, pow, divmod, hash, ord, chr, hex, oct, bin,
    ascii, format,
):  # fmt: skip
    BUILTINS[_fn] = _constant_model(_fn)


@models(bool)
def _bool(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(m.truth(args[0]) if args else False)


def _breaks(code: str, reason: str) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        raise Break(code, reason)

    return model


_BREAKING: dict[str, tuple[str, ...]] = {
    "GB103": ("print", "input", "open", "breakpoint"),
    "GB131": ("exec", "eval", "compile"),
    "GB132": ("locals", "globals", "dir"),
    "GB111": ("__import__",),
}
for _code, _names in _BREAKING.items():
    for _builtin in _names:
        BUILTINS[getattr(py, _builtin)] = _breaks(_code, f"call of {_builtin}()")


# -- library ---------------------------------------------------------------------------------------------
@models(functools.partial)
def _partial(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Partial(args[0], tuple(args[1:]), dict(kwargs))


@models(functools.reduce)
def _reduce(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    items = drain(m, args[1])
    if len(args) > 2:
        items = [args[2], *items]
    if not items:
        raise raises("TypeError: reduce() of empty iterable with no initial value")
    total = items[0]
    for item in items[1:]:
        total = m.call(args[0], [total, item], {})
    return total


@models(typing.cast)
def _cast(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return args[1]


@models(capturing)
def _capturing(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(True)


# -- torch's questions about itself ----------------------------------------------------------------------
@models(torch.is_grad_enabled)
def _is_grad_enabled(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(torch.is_grad_enabled())


@models(torch.is_tensor)
def _is_tensor(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], Obj) and isinstance(args[0].value, torch.Tensor):
        return Const(True)
    return Const(isinstance(args[0], Tensor))


def _answers(fn: Any) -> Model:
    """A question whose answer is part of the guarded interpreter state."""
    return lambda m, args, kwargs: containers.from_constant(fn(*[as_constant(m, a) for a in args]))


_STATE_QUESTIONS = (
    torch.is_inference_mode_enabled, torch.get_default_dtype, torch.is_autocast_enabled,
    torch._C._get_tracing_state, torch.jit.is_scripting, torch.jit.is_tracing,
    torch.compiler.is_compiling, torch.get_autocast_dtype, torch.is_autocast_cache_enabled,
    torch.are_deterministic_algorithms_enabled, torch.cuda.is_available,
    torch.compiler.is_dynamo_compiling, torch.compiler.is_exporting, torch._C._get_cudnn_enabled,
)  # fmt: skip
for _question in _STATE_QUESTIONS:
    BUILTINS[_question] = _answers(_question)


def _no_torch_function(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    for value in args:
        items = value.items if isinstance(value, Sequence) else [value]
        if any(isinstance(i, Obj) and hasattr(i.value, "__torch_function__") for i in items):
            raise Break("GB113", "an operand with __torch_function__")
    return Const(False)


for _name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
    BUILTINS[getattr(torch.overrides, _name)] = _no_torch_function


def _set_grad(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], Const):
        raise Break("GB118", "grad mode set from a value that is not a constant")
    m.activity += 1
    m.tracer.grad_mode(bool(args[0].value))
    return NONE


BUILTINS[torch._C._set_grad_enabled] = _set_grad
_operator_models()
