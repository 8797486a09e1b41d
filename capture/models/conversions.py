"""Builtins that convert a value to a number or text: `int`, `round`, `str` and others.

In: Values. Out: a constant, the result of a user class's special method, or for a tensor a torch
call. Fills the table of `values.registry`.
"""

from __future__ import annotations

import enum
import operator
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import Break
from ..data_model import attributes, symbolic_math, value_questions
from ..exact_type import is_kind
from ..operations import truth as truths
from ..operations.c_calls import call_builtin
from ..torch_models import calls, numpy_arrays
from ..types import codings
from ..types.exceptions import text as exception_text
from ..values import texts
from ..values.containers import NotConstant, as_constant, as_constants, fold
from ..values.registry import BUILTINS, Args, Kwargs, Model, models
from ..values.value import Const, Instance, Obj, Sequence, Tensor, Value
from ..values.wrap import own_text

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


_NUMBERED: dict[Any, str] = {int: "__int__", float: "__float__", operator.index: "__index__"}
_TEXT = (str, repr, format, ascii)
_PLAIN = (str, bytes, int, float, complex)


def _constant_model(fn: Any) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if any(isinstance(a, Tensor) for a in args):
            if fn in _NUMBERED and len(args) == 1 and not kwargs:
                answer = value_questions.number(m, args[0], _NUMBERED[fn])
                if answer is not None:
                    return answer
            if (fn, len(args)) in _OF_TENSORS and not kwargs:
                return calls.call_torch(m, _OF_TENSORS[fn, len(args)], args, {})
            if fn in (abs, pow, divmod, round):
                raise Break("GB108", f"{fn.__name__}() of a tensor")  # which has no such method
            if fn in _TEXT and not kwargs:
                written = _tensor_text(m, fn, args)
                if written is not None:
                    return written
            raise Break("GB104", f"{fn.__name__}() of a tensor")
        constants = all(isinstance(one, Const) for one in args)
        if fn in _TEXT and not kwargs and constants and any(map(texts.is_open, args)):
            return texts.made(m, fn, *args)
        counted = None if kwargs else symbolic_math.called(m, fn, args)
        if counted is not None:
            return counted
        if fn in _TEXT:
            numpy_arrays.refuse_text(args)
        if numpy_arrays.concerns(*args):
            return numpy_arrays.operate(m, fn, args)
        if fn in _TEXT and args and isinstance(args[0], Sequence):
            written = _record_text(m, fn, args)
            if written is not None:
                return written
        if args and isinstance(args[0], (Obj, Instance)):
            if kwargs:
                raise Break("GB121", f"{fn.__name__}() of an object with keywords")
            return _object_number(m, fn, args)
        try:
            plain, named = as_constants(m, args, kwargs)
        except NotConstant:
            raise Break("GB121", f"{fn.__name__}() of this value") from None
        codings.refuse_unknown(fn, "", plain, named)
        return fold(lambda: fn(*plain, **named))

    return model


def _tensor_text(m: Machine, fn: Any, args: Args) -> Value | None:
    """str(), repr() or format() of a tensor: a text that is made after the program."""
    value, spec = args[0], as_constant(m, args[1]) if len(args) > 1 else ""
    if not isinstance(value, Tensor) or value.cls is not torch.Tensor:
        return None
    if fn is format and value.ghost.dim() == 0:
        number = value_questions.number(m, value, "item")
        return None if number is None else m.call(Obj(format), [number, *args[1:]], {})
    if fn not in (str, repr, format) or spec:
        return None
    if not texts.shows(m, value):
        return None
    return texts.made(m, str if fn is format else fn, value)


def _record_text(m: Machine, fn: Any, args: Args) -> Value | None:
    """str(), repr() or format() of a record whose class defines its own text; None for others."""
    value = args[0]
    cls = value.cls  # type: ignore[attr-defined]
    ways = {str: ("__str__", "__repr__"), format: ("__format__", "__str__", "__repr__")}
    name = next((name for name in ways.get(fn, ("__repr__",)) if own_text(cls, name)), None)
    if name is None:
        return None
    method = attributes.special(m, value, name)
    assert method is not None
    result = m.call(method, args[1:] if name == "__format__" else [], {})
    if fn is ascii or not isinstance(result, Const) or type(result.value) is not str:
        raise Break("GB112", f"{name} of a record")
    if fn is format and name != "__format__" and any(as_constant(m, a) for a in args[1:]):
        raise Break("GB108", "a format that the record does not know")
    return result


# builtin and number of arguments -> what computes it for tensors
_OF_TENSORS: dict[tuple[Any, int], Any] = {(abs, 1): torch.abs, (pow, 2): operator.pow}
if hasattr(torch.Tensor, "__round__"):
    _OF_TENSORS[round, 1] = torch.round


_NUMBER_DUNDERS = {
    abs: "__abs__",
    int: "__int__",
    float: "__float__",
    bool: "__bool__",
    str: "__str__",
    repr: "__repr__",
    hash: "__hash__",
    round: "__round__",
    format: "__format__",
}


def _class_text(m: Machine, value: Value, fn: Any) -> Value | None:
    """str() or repr() of a class with the usual text of classes; None for others."""
    if not isinstance(value, Obj) or not is_kind(value.value, type) or fn not in (str, repr):
        return None
    for name, usual in (("__repr__", type.__repr__), ("__str__", object.__str__)):
        if attributes.class_attribute(m, value, name) is not usual:
            return None
    for name in ("__qualname__", "__module__"):
        attributes.load_attr(m, value, name)
    return fold(lambda: repr(value.value))


# The type that a special method must return, and values that it may. Python raises a TypeError for
# other types, and converts some values (a bool to an int, a hash of -1 or out of bounds).
_ASKED: dict[Any, tuple[type, Callable[[Any], bool]]] = {
    len: (int, lambda n: 0 <= n <= sys.maxsize),
    hash: (int, lambda n: -1 < n < sys.hash_info.modulus),
    int: (int, lambda n: True),
    float: (float, lambda n: True),
    **dict.fromkeys((str, repr, format), (str, lambda text: True)),
}


def as_asked(result: Value, fn: Any, name: str) -> Value:
    asked = _ASKED.get(fn)
    if asked is None:
        return result
    kind, right = asked
    if isinstance(result, Const) and type(result.value) is kind and right(result.value):
        return result
    raise Break("GB112", f"{name} of an object does not return what {fn.__name__}() needs")


def _is_plain_member(value: Any, writes: Any) -> bool:
    """Whether this is an enum member whose text is that of its number or string."""
    own = is_kind(writes, types.WrapperDescriptorType) and writes.__objclass__ in _PLAIN
    return own and is_kind(value, enum.Enum)


def _object_number(m: Machine, fn: Any, args: Args) -> Value:
    """int(obj), str(obj), ... of users' classes with a Python method for it."""
    value = args[0]
    if fn is bool:
        return Const(m.truth(value))
    text = _class_text(m, value, fn)
    if text is not None:
        return text
    cls = attributes.real_class(value)
    assert cls is not None
    if isinstance(value, Instance) and issubclass(cls, BaseException) and fn in (str, repr):
        for name in ("__str__", "__repr__"):
            if isinstance(attributes.mro_lookup(cls, name), types.FunctionType):
                break
        else:
            return exception_text(m, value, fn)
    name = _NUMBER_DUNDERS.get(fn, "")
    raw = attributes.of_class(m, cls, name)
    if fn is str and raw is object.__dict__["__str__"]:  # which calls __repr__
        name = "__repr__"
        raw = attributes.of_class(m, cls, name)
    if is_kind(raw, types.FunctionType):
        method = attributes.special(m, value, name)
        assert method is not None
        return as_asked(m.call(method, args[1:], {}), fn, name)
    if fn in (str, repr) and isinstance(value, Obj) and _is_plain_member(value.value, raw):
        return Const(raw(value.value))
    code = "GB123" if numpy_arrays.from_outside(value) else "GB112"
    raise Break(code, f"{fn.__name__}() of {cls.__name__ if cls else 'this value'}")


for _fn in (
    abs, int, float, complex, bool, str, repr, bytes, round, pow, divmod, hash, ord, chr, hex, oct,
    bin, ascii, format, torch.finfo, torch.iinfo, torch.device, torch.Size,
):  # fmt: skip
    BUILTINS[_fn] = _constant_model(_fn)


@models(operator.index)
def _index(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    position = m.position(args[0]) if len(args) == 1 and not kwargs else None
    return position or call_builtin(m, operator.index, args, kwargs)


@models(bool)
def _bool(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return truths.value_of(m, args[0]) if args else Const(False)
