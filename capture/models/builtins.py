"""Builtins and small library functions, as a table from the callable to its model.

In: Values. Out: a Value with plain Python's result; a type without a rule is a break. Operators are
in `data_model.operators`, torch's state queries in `torch_models.state_queries`.
"""

from __future__ import annotations

import builtins as py
import functools
import inspect
import operator
import sys
import types
import typing
from typing import TYPE_CHECKING, Any

from ...runtime.directives import capturing, graft_break
from ..breaks import Break, LooksAtFrame, Thrown
from ..data_model import (
    attributes,
    container_iterators,
    iteration,
    symbolic_math,
    value_questions,
)
from ..data_model.binding import keywords_of
from ..data_model.iteration import drain
from ..exact_type import is_kind
from ..operations.operators import binary, compare
from ..torch_models import calls
from ..types import container_methods, sets, sorting
from ..values import containers, symbolic_numbers
from ..values.containers import NotConstant, as_constant, fold, raises
from ..values.registry import BUILTINS, NONE, Args, Kwargs, Model, models
from ..values.value import (
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
    Tensor,
    Value,
    is_none,
)
from ..values.wrap import pin
from .conversions import as_asked

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


# -- methods ---------------------------------------------------------------------------------------
@models(types.MethodType)
def _bound(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    plain = isinstance(args[0], Function) or (
        isinstance(args[0], Obj) and is_kind(args[0].value, types.FunctionType)
    )
    if not plain or len(args) != 2 or is_none(args[1]) or kwargs:
        raise Break("GB126", "a method is made with these arguments")
    return Method(*args)


# -- containers ------------------------------------------------------------------------------------
@models(len)
def _len(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], Tensor) and args[0].ghost.dim():
        return calls.fact(m, lambda: args[0].ghost.size(0))  # type: ignore[attr-defined]
    found = containers.length(m, args[0])
    if found is not None:
        return Const(found)
    result = attributes.call_special(m, args[0], "__len__", [])
    if result is None:
        raise raises("TypeError: object has no len()")
    return as_asked(result, len, "__len__")


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
        container_methods.update_dict(m, made, args[0])
    for name, value in kwargs.items():
        containers.dict_set(m, made, Const(name), value)
    return made


@models(range)
def _range(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return fold(lambda: range(*[as_int(m, a) for a in args]))


def as_int(m: Machine, value: Value) -> Any:
    if isinstance(value, Tensor):
        answer = value_questions.number(m, value, "__index__")
        if answer is None:
            raise Break("GB104", "a tensor used as an integer")
        return as_constant(m, answer)
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
    try:
        first = operator.index(as_int(m, start))
    except TypeError as error:
        raise raises(f"TypeError: {error}") from error
    return iteration.enumerate_iterator(m, args[0], first)


@models(zip)
def _zip(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    strict = m.truth(kwargs.get("strict", Const(False)))
    return iteration.zip_iterator(m, args, strict)


@models(map)
def _map(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return iteration.map_iterator(m, args[0], args[1:])


@models(filter)
def _filter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], Const) and args[0].value is not None:
        raise Break("GB121", "filter() with a function that cannot be called")
    return iteration.filter_iterator(m, args[0], args[1])


@models(reversed)
def _reversed(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], (Sequence, Const, Dict, DictView)):
        return container_iterators.backward(m, args[0])
    made = attributes.call_special(m, args[0], "__reversed__", [])
    if made is not None:
        return made
    refuses = isinstance(args[0], (Obj, Instance))
    if refuses and attributes.class_attribute(m, args[0], "__reversed__") is None:
        raise Break("GB120", "reversed() of an object whose class refuses it")
    size = attributes.call_special(m, args[0], "__len__", [])
    if isinstance(size, Const) and attributes.special(m, args[0], "__getitem__") is not None:
        return _reversed_items(m, args[0], size.value)
    raise Break("GB120", "reversed() of this value")


def _reversed_items(m: Machine, value: Value, size: int) -> Iterator:
    """reversed() of an object with `__len__` and `__getitem__`."""
    if not m.walks_generators:
        raise Break("GB120", "reversed() of an object, which outlives a break")

    def step(made: Iterator) -> Value | None:
        at, made.parts[1] = made.parts[1] - 1, 0
        if at < 0:
            return None
        try:
            item = attributes.call_special(m, value, "__getitem__", [Const(at)])
        except Thrown as error:  # any exception ends it
            if issubclass(error.cls, (IndexError, StopIteration)):
                return None
            raise
        made.parts[1] = at
        return item

    return Iterator("reversed", [value, size], step)


@models(sorted)
def _sorted(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    # Their order does not matter.
    if isinstance(args[0], Set) and not kwargs and _one_kind(args[0]):
        return fold(
            lambda: sorted(
                item.value  # type: ignore[attr-defined]
                for item in args[0].items.values()  # type: ignore[attr-defined]
            )
        )
    return Sequence(sorting.sort_items(m, drain(m, args[0]), kwargs), list)


def _one_kind(value: Set) -> bool:
    """Whether all items are ints, or all are strings: distinct and comparable."""
    kinds = {type(item.value) if isinstance(item, Const) else None for item in value.items.values()}
    return kinds in ({int}, {str})


@models(iter)
def _iter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        if not m.truth(BUILTINS[callable](m, args[:1], {})):
            raise Break("GB121", "iter() of a value that cannot be called")
        return iteration.called_iterator(m, *args)
    if isinstance(args[0], (Obj, Instance)):  # a user's iterator is the object itself
        made = attributes.call_special(m, args[0], "__iter__", [])
        if made is not None:
            if not isinstance(made, Iterator) and attributes.special(m, made, "__next__") is None:
                raise Break("GB120", "__iter__ returns a value that is not an iterator")
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
    item = iteration.take(m, args[0])
    if item is None:
        if len(args) > 1:
            return args[1]
        raise raises("StopIteration")
    return item


@models(sum)
def _sum(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    total = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    if symbolic_numbers.is_of(total, (str, bytes, bytearray)):
        raise Break("GB121", "sum() of strings")
    iterator = iteration.iterate(m, args[0])
    items: list[Value] = []
    # The real sum() adds constants, since it compensates floats from 3.12 on.
    while (item := iteration.take(m, iterator)) is not None:
        items.append(item)
        if not isinstance(item, Const):
            break
    total = _sum_of(m, total, items)
    if not items or isinstance(items[-1], Const):
        return total
    while (item := iteration.take(m, iterator)) is not None:
        total = binary(m, "+", total, item)
    return total


def _sum_of(m: Machine, total: Value, items: list[Value]) -> Value:
    counted = [total, *items]
    varying = any(map(symbolic_numbers.is_whole, counted)) and all(
        map(symbolic_numbers.like_whole, counted)
    )
    if items and not varying and any(map(symbolic_numbers.is_number, items)):
        one = symbolic_math.total(m, total, items)
        if one is not None:
            return one
    # A list of lists, or a list as start, is no constant: the result has the same items, not
    # copies.
    if items and not varying and all(isinstance(one, Const) for one in counted):
        real, start = [as_constant(m, i) for i in items], as_constant(m, total)
        return fold(lambda: sum(real, start))
    for item in items:
        total = binary(m, "+", total, item)
    return total


@models(any)
def _any(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    iterator = iteration.iterate(m, args[0])
    while (item := iteration.take(m, iterator)) is not None:
        if m.truth(item):
            return Const(True)
    return Const(False)


@models(all)
def _all(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    iterator = iteration.iterate(m, args[0])
    while (item := iteration.take(m, iterator)) is not None:
        if not m.truth(item):
            return Const(False)
    return Const(True)


def _extreme(symbol: str) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if len(args) > 1 and "default" in kwargs:
            raise Break("GB121", "min() or max() of several arguments with a default")
        key = kwargs.get("key", NONE)
        if len(args) > 1 and is_none(key):
            one = symbolic_math.extreme(m, "min" if symbol == "<" else "max", args)
            if one is not None:
                return one
        best: Value | None = None
        best_key: Value = NONE
        for item in iteration.each(m, args[0]) if len(args) == 1 else args:
            item_key = item if is_none(key) else m.call(key, [item], {})
            if best is None or m.truth(compare(m, symbol, item_key, best_key)):
                best, best_key = item, item_key
        if best is not None:
            return best
        if "default" in kwargs:
            return kwargs["default"]
        raise raises("ValueError: min()/max() of an empty sequence")

    return model


BUILTINS[min] = _extreme("<")
BUILTINS[max] = _extreme(">")


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


def _traces(name: str) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        stop = LooksAtFrame(name)
        stop.looks = True  # the tracer gets the frames above as well
        raise stop

    return model


for _tracer in (sys.settrace, sys.setprofile):
    BUILTINS[_tracer] = _traces(_tracer.__name__)


def _runs_text(name: str) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if len(args) + len(kwargs) < 2:  # in the calling frame's names
            raise LooksAtFrame(name, "GB131")
        raise Break("GB131", f"call of {name}()")

    return model


BUILTINS[eval], BUILTINS[exec] = _runs_text("eval"), _runs_text("exec")


# -- library ---------------------------------------------------------------------------------------
@models(functools.partial)
def _partial(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    inner = args[0]
    if not m.truth(BUILTINS[callable](m, [inner], {})):
        raise Break("GB121", "partial() of a value that cannot be called")
    if isinstance(inner, Partial) and inner.source is None:  # Python merges the two
        return Partial(inner.func, (*inner.args, *args[1:]), {**keywords_of(m, inner), **kwargs})
    if isinstance(inner, Partial):
        raise Break("GB121", "partial() of a partial from outside")
    return Partial(inner, tuple(args[1:]), dict(kwargs))


@models(functools.reduce)
def _reduce(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    items = iteration.each(m, args[1])
    total = args[2] if len(args) > 2 else next(items, None)
    if total is None:
        raise raises("TypeError: reduce() of empty iterable with no initial value")
    for item in items:
        total = m.call(args[0], [total, item], {})
    return total


@models(operator.call)
def _call(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return m.call(args[0], args[1:], kwargs)


@models(inspect.signature)
def _signature(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    bound = isinstance(args[0], Method)
    given = value = args[0].func if isinstance(args[0], Method) else args[0]
    while _is_wrapper(m, value, kwargs):  # signature() follows them
        value = attributes.load_attr(m, value, "__wrapped__")
    attributes.load_attr(m, value, "__code__")
    for name in ("__defaults__", "__kwdefaults__", "__annotations__"):
        held, items = attributes.load_attr(m, value, name), list[Value]()
        if isinstance(held, Sequence):
            items = containers.sequence_items(m, held)
        elif isinstance(held, Dict):
            items = [item for _, item in containers.dict_items(m, held)]
        for item in items:
            if isinstance(item, Obj):
                pin(item)
            else:
                containers.as_constant(m, item)
    real = given.value  # type: ignore[attr-defined]
    return fold(lambda: inspect.signature(types.MethodType(real, 0) if bound else real))


def _is_wrapper(m: Machine, value: Value, kwargs: Kwargs) -> bool:
    """Whether a Python function has a `__wrapped__`, as `functools.wraps` sets it."""
    real = value.value if isinstance(value, Obj) else None
    if kwargs or not isinstance(value, Obj) or type(real) is not types.FunctionType:
        raise Break("GB132", "inspect.signature() of this value")
    # They would replace it.
    for name in ("__signature__", "_partialmethod", "__partialmethod__"):
        if attributes.has_attr(m, value, name):
            raise Break("GB132", "inspect.signature() of a function that sets its own")
    return attributes.has_attr(m, value, "__wrapped__")


@models(typing.cast)
def _cast(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return args[1]


@models(capturing)
def _capturing(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(True)


@models(graft_break)
def _graft_break(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """An explicit break of the program's, with an optional reason."""
    given = [*args, *kwargs.values()]
    text = given[0].value if given and isinstance(given[0], Const) else ""
    raise Break("GB140", f"graft_break({text!r})" if text else "graft_break()")
