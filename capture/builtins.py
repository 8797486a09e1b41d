"""Builtins and small library functions, as a table from the callable to its model.

In: Values. Out: a Value, with the meaning that plain Python gives; a type that a row does not know is a break.
Operators are in `operators`, torch's own questions in `questions`.
"""

from __future__ import annotations

import builtins as py
import functools
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..runtime.capturing import capturing, graft_break
from . import (
    arrays,
    attributes,
    containers,
    iteration,
    methods,
    numbers,
    polyfills,
    sets,
    sorting,
    stores,
    torchcalls,
)
from .breaks import Break, LooksAtFrame, Thrown
from .containers import NotConstant, as_constant, fold, raises
from .exception_objects import text as exception_text
from .iteration import drain
from .kinds import is_kind
from .operators import binary, compare
from .tables import BUILTINS, NONE, Args, Kwargs, Model, models
from .unbound import load_cell
from .values import (
    BuiltinMethod,
    Cell,
    Const,
    ContextExit,
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
from .wrapping import own_text

if TYPE_CHECKING:
    from .machine import Machine


# -- types and objects -----------------------------------------------------------------------------------
@models(isinstance)
def _isinstance(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    cls = attributes.real_class(args[0])
    if cls is None:
        cls = _MODELLED_TYPES.get(type(args[0]))
    if cls is None and isinstance(args[0], Iterator):
        cls = _ITERATOR_TYPES.get(args[0].kind)
    if cls is None:
        raise Break("GB121", "isinstance() of this value")
    return Const(any(_is_kind(m, cls, target) for target in _classes(m, args[1])))


_MODELLED_TYPES: dict[type, type] = {Super: super, Partial: functools.partial, Slice: slice}
_ITERATOR_TYPES: dict[str, type] = {
    "generator": types.GeneratorType, "enumerate": enumerate, "zip": zip, "map": map, "filter": filter,
}  # fmt: skip


@models(issubclass)
def _issubclass(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], Obj) or not is_kind(args[0].value, type):
        raise raises("TypeError: issubclass() arg 1 must be a class")
    return Const(any(_is_kind(m, args[0].value, target) for target in _classes(m, args[1])))


def _classes(m: Machine, value: Value) -> list[type]:
    if isinstance(value, Sequence):
        return [cls for item in containers.sequence_items(m, value) for cls in _classes(m, item)]
    if isinstance(value, Obj):
        if is_kind(value.value, type):
            return [value.value]
        if is_kind(value.value, types.UnionType):
            return [arg for arg in typing.get_args(value.value) if isinstance(arg, type)]
    raise Break("GB121", "isinstance() with this second argument")


def _bases(m: Machine, cls: type) -> tuple[type, ...]:
    """cls.__mro__, guarded where it can change."""
    found = attributes.bases(m, cls)
    if attributes.of_class(m, cls, "__class__") is not object.__dict__["__class__"]:
        raise Break("GB137", f"isinstance() of a {cls.__name__}, which names its own class")
    return found


def _is_kind(m: Machine, cls: type, target: type) -> bool:
    meta = type(target)
    check = attributes.of_class(m, meta, "__instancecheck__")
    if check is vars(type)["__instancecheck__"]:
        return any(base is target for base in _bases(m, cls))
    if issubclass(cls, torch.Tensor) and issubclass(target, torch.Tensor):
        return issubclass(cls, target)
    if target.__module__.startswith("torch") and not issubclass(cls, torch.Tensor):
        return any(base is target for base in _bases(m, cls))
    if check is _ABC_CHECK:
        import abc

        result = issubclass(cls, target)
        m.guard("abc", None, abc.get_cache_token())
        return result
    if getattr(target, "_graftjit_tensor_face", False):
        return issubclass(cls, torch.Tensor)
    raise Break("GB137", f"isinstance() with {target.__name__}, which decides itself")


def _abc_check() -> Any:
    import abc

    return vars(abc.ABCMeta)["__instancecheck__"]


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
    if len(args) != 2 or not isinstance(args[0], Obj) or not is_kind(args[0].value, type):
        raise Break("GB121", "super() with these arguments")
    return Super(args[0].value, args[1])


@models(callable)
def _callable(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, (Function, Method, BuiltinMethod, ContextExit, Partial)):
        return Const(True)
    if isinstance(value, (Obj, Instance)):
        if isinstance(value, Obj) and not type(value.value).__flags__ & attributes.HEAP_TYPE:
            return Const(callable(value.value))
        return Const(attributes.class_attribute(m, value, "__call__") is not attributes.MISSING)
    cls = attributes.real_class(value)
    return Const(hasattr(cls, "__call__"))  # noqa: B004 (the type's slot is what callable() asks)


@models(getattr)
def _getattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    name = _text(args[1])
    try:
        return attributes.load_attr(m, args[0], name)
    except Thrown as error:
        if len(args) > 2 and attributes.no_attribute(error):
            return args[2]
        raise


@models(hasattr)
def _hasattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(attributes.has_attr(m, args[0], _text(args[1])))


@models(setattr)
def _setattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    stores.store_attr(m, args[0], _text(args[1]), args[2])
    return NONE


@models(delattr)
def _delattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    stores.store_attr(m, args[0], _text(args[1]), None)
    return NONE


@models(vars)
def _vars(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        raise LooksAtFrame("vars")
    return attributes.load_attr(m, args[0], "__dict__")


@models(id)
def _id(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break("GB121", "id()")


def _text(value: Value) -> str:
    if isinstance(value, Const) and is_kind(value.value, str):
        return value.value
    raise Break("GB121", "an attribute name that is not a constant")


@models(load_cell)
def _load_cell(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """An own cell of a function that is resumed: see `unbound`."""
    cell, _name = args
    assert isinstance(cell, Cell)
    if cell.content is None:
        raise raises("UnboundLocalError: a local variable is not bound")
    return m.load_cell(cell)


# -- containers ------------------------------------------------------------------------------------------
@models(len)
def _len(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], Tensor) and args[0].ghost.dim():
        return torchcalls.fact(m, lambda: args[0].ghost.size(0))  # type: ignore[attr-defined]
    found = containers.length(m, args[0])
    if found is not None:
        return Const(found)
    result = attributes.call_special(m, args[0], "__len__", [])
    if result is None:
        raise raises("TypeError: object has no len()")
    return _as_asked(result, len, "__len__")


@models(list)
def _list(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Sequence(drain(m, args[0]) if args else [], list)


@models(tuple)
def _tuple(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], Sequence) and args[0].cls is tuple:
        return args[0]
    return Sequence(drain(m, args[0]) if args else [], tuple)


@models(set)
def _set(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return sets.of_iterable(m, args[0], set) if args else sets.make(m, [])


@models(frozenset)
def _frozenset(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return sets.of_iterable(m, args[0], frozenset) if args else sets.make(m, [], frozenset)


@models(dict)
def _dict(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    made = Dict({})
    if args:
        methods.update_dict(m, made, args[0])
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
    return iteration.enumerate_iterator(m, args[0], as_int(m, start))


@models(zip)
def _zip(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    strict = m.truth(kwargs.get("strict", Const(False)))
    return iteration.zip_iterator(m, args, strict)


@models(map)
def _map(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return iteration.map_iterator(m, args[0], args[1:])


@models(filter)
def _filter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return iteration.filter_iterator(m, args[0], args[1])


@models(reversed)
def _reversed(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], (Sequence, Const, Dict, DictView)):
        return iteration.list_iterator(list(reversed(drain(m, args[0]))))
    made = attributes.call_special(m, args[0], "__reversed__", [])
    if made is not None:
        return made
    size = attributes.call_special(m, args[0], "__len__", [])
    if isinstance(size, Const) and attributes.special(m, args[0], "__getitem__") is not None:
        return _reversed_items(m, args[0], size.value)
    raise Break("GB120", "reversed() of this value")


def _reversed_items(m: Machine, value: Value, size: int) -> Iterator:
    """reversed() of an object by its length and `__getitem__`."""
    made = Iterator("reversed", [value, size], lambda: None)

    def step() -> Value | None:
        if not made.parts[1]:
            return None
        made.parts[1] -= 1
        return attributes.call_special(m, value, "__getitem__", [Const(made.parts[1])])

    made.step = step
    return made


@models(sorted)
def _sorted(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if (
        isinstance(args[0], Set) and not kwargs and _one_kind(args[0])
    ):  # in whatever order they come
        return fold(lambda: sorted(item.value for item in args[0].items.values()))  # type: ignore[attr-defined]
    return Sequence(sorting.sort_items(m, drain(m, args[0]), kwargs), list)


def _one_kind(value: Set) -> bool:
    """Whether all items are whole numbers, or all strings: no two of them are equal, any two can be compared."""
    kinds = {type(item.value) if isinstance(item, Const) else None for item in value.items.values()}
    return kinds in ({int}, {str})


@models(iter)
def _iter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        return m.call(Obj(polyfills.called_until), args, kwargs)
    if isinstance(args[0], (Obj, Instance)):  # an iterator of the user's is the object itself
        made = attributes.call_special(m, args[0], "__iter__", [])
        if made is not None:
            if not isinstance(made, Iterator) and attributes.special(m, made, "__next__") is None:
                raise Break("GB120", "__iter__ gives what is no iterator")
            return made
    return iteration.iterate(m, args[0])


@models(next)
def _next(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], Iterator):
        try:
            result = attributes.call_special(m, args[0], "__next__", [])
        except Thrown as error:
            if len(args) > 1 and issubclass(error.cls, StopIteration):
                return args[1]
            raise
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
    iterator = iteration.iterate(m, args[0])
    while (item := iterator.step()) is not None:
        if m.truth(item):
            return Const(True)
    return Const(False)


@models(all)
def _all(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    iterator = iteration.iterate(m, args[0])
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
_TEXT = (str, repr, format, ascii)


def _constant_model(fn: Any) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if any(isinstance(a, Tensor) for a in args):
            if fn in (abs, pow, divmod) or fn is round:
                return _tensor_number(m, fn, args)
            raise Break("GB104", f"{fn.__name__}() of a tensor")
        counted = None if kwargs else numbers.called(m, fn, args)
        if counted is not None:
            return counted
        if fn in _TEXT:
            arrays.refuse_text(args)
        if arrays.concerns(*args):
            return arrays.operate(m, fn, args)
        if fn in _TEXT and args and isinstance(args[0], Sequence):
            written = _record_text(m, fn, args)
            if written is not None:
                return written
        if args and isinstance(args[0], (Obj, Instance)):
            return _object_number(m, fn, args)
        try:
            plain = [as_constant(m, a) for a in args]
            named = {k: as_constant(m, v) for k, v in kwargs.items()}
        except NotConstant:
            raise Break("GB121", f"{fn.__name__}() of this value") from None
        return fold(lambda: fn(*plain, **named))

    return model


def _record_text(m: Machine, fn: Any, args: Args) -> Value | None:
    """str(), repr() or format() of a record that writes itself in its own way."""
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


def _class_text(m: Machine, value: Value, fn: Any) -> Value | None:
    """str() or repr() of a class that prints itself as classes do; None of anything else."""
    if not isinstance(value, Obj) or not is_kind(value.value, type) or fn not in (str, repr):
        return None
    for name, usual in (("__repr__", type.__repr__), ("__str__", object.__str__)):
        if attributes.class_attribute(m, value, name) is not usual:
            return None
    for name in ("__qualname__", "__module__"):
        attributes.load_attr(m, value, name)
    return fold(lambda: repr(value.value))


# What a special method must give: Python raises a TypeError where it gives something else, and takes some values
# for others (a bool for an int, a hash of -1 or out of bounds).
_ASKED: dict[Any, tuple[type, Callable[[Any], bool]]] = {
    len: (int, lambda n: n >= 0), hash: (int, lambda n: -1 < n < sys.hash_info.modulus), int: (int, lambda n: True),
    float: (float, lambda n: True), **dict.fromkeys((str, repr, format), (str, lambda text: True)),
}  # fmt: skip


def _as_asked(result: Value, fn: Any, name: str) -> Value:
    asked = _ASKED.get(fn)
    if asked is None:
        return result
    kind, right = asked
    if isinstance(result, Const) and type(result.value) is kind and right(result.value):
        return result
    raise Break("GB112", f"{name} of an object does not give what {fn.__name__}() asks for")


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
    for method_name in (name, "__repr__") if fn is str else (name,):
        raw = attributes.of_class(m, cls, method_name)
        if is_kind(raw, types.FunctionType):
            method = attributes.special(m, value, method_name)
            assert method is not None
            return _as_asked(m.call(method, args[1:], {}), fn, method_name)
    code = "GB123" if arrays.from_outside(value) else "GB112"
    raise Break(code, f"{fn.__name__}() of {cls.__name__ if cls else 'this value'}")


for _fn in (
    abs, int, float, complex, bool, str, repr, bytes, round, pow, divmod, hash, ord, chr, hex, oct, bin,
    ascii, format, torch.finfo, torch.iinfo, torch.device, torch.Size,
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
    "GB103": ("print", "input", "open"),
    "GB131": ("compile",),
    "GB132": ("globals",),
    "GB111": ("__import__",),
}
for _code, _names in _BREAKING.items():
    for _builtin in _names:
        BUILTINS[getattr(py, _builtin)] = _breaks(_code, f"call of {_builtin}()")


@models(dir)
def _dir(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        raise LooksAtFrame("dir")
    raise Break("GB121", "call of dir()")


def _looks(name: str) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        raise LooksAtFrame(name)

    return model


for _looker in (locals, breakpoint, sys._getframe, sys._current_frames, inspect.currentframe):
    BUILTINS[_looker] = _looks(_looker.__name__)


def _runs_text(name: str) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if len(args) + len(kwargs) < 2:  # in the names of the frame that calls it
            raise LooksAtFrame(name, "GB131")
        raise Break("GB131", f"call of {name}()")

    return model


BUILTINS[eval], BUILTINS[exec] = _runs_text("eval"), _runs_text("exec")


# -- library ---------------------------------------------------------------------------------------------
@models(functools.partial)
def _partial(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    inner = args[0]
    if isinstance(inner, Partial) and inner.source is None:  # Python keeps one partial of both
        return Partial(inner.func, (*inner.args, *args[1:]), {**inner.kwargs, **kwargs})
    if isinstance(inner, Partial):
        raise Break("GB121", "partial() of a partial from outside")
    return Partial(inner, tuple(args[1:]), dict(kwargs))


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


@models(inspect.signature)
def _signature(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    bound = isinstance(args[0], Method)
    value = args[0].func if isinstance(args[0], Method) else args[0]
    real = value.value if isinstance(value, Obj) else None
    if kwargs or type(real) is not types.FunctionType or real.__dict__:
        raise Break("GB132", "inspect.signature() of this value")
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        attributes.load_attr(m, value, name)
    return fold(lambda: inspect.signature(types.MethodType(real, 0) if bound else real))


@models(typing.cast)
def _cast(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return args[1]


@models(capturing)
def _capturing(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(True)


@models(graft_break)
def _graft_break(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """The program asks for a break, and may say why."""
    given = [*args, *kwargs.values()]
    text = given[0].value if given and isinstance(given[0], Const) else ""
    raise Break("GB140", f"graft_break({text!r})" if text else "graft_break()")
