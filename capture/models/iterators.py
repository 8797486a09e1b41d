"""itertools over Values: iterators made and consumed inside the frame.

In: calls of itertools' classes. Out: Iterators that take items from their input on demand, as
Python's do. An iterator that leaves the frame, or is alive at a break, must be a real one: then its
construction is a break.
"""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable
from collections.abc import Iterator as PythonIterator
from typing import TYPE_CHECKING, Any

from ..breaks import Break, Thrown
from ..data_model.iteration import drain, iterate, take
from ..exact_type import is_kind
from ..operations import operators
from ..values.containers import raises
from ..values.registry import BUILTINS, NONE, Args, Kwargs
from ..values.value import Const, Iterator, Obj, Sequence, Value, is_none
from .builtins import as_int

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_ZERO, _ONE = Const(0), Const(1)
Steps = PythonIterator[Value]
Maker = Callable[..., Steps]


def _next_of(m: Machine, iterator: Iterator) -> Steps:
    """The remaining items of an iterator, as a Python iterator."""
    while (item := take(m, iterator)) is not None:
        yield item


def _bound(m: Machine, value: Value, least: int) -> int | None:
    if is_none(value):
        return None
    try:
        number = operator.index(as_int(m, value))
    except TypeError:
        number = -1
    if number < least:
        raise raises("ValueError: an argument of islice() must be None or a small integer")
    return number


def _islice(m: Machine, of: Value, *bounds: Value) -> Steps:
    first, last, step = {1: (NONE, *bounds, NONE), 2: (*bounds, NONE)}.get(len(bounds), bounds)
    start, stop = _bound(m, first, 0) or 0, _bound(m, last, 0)
    return _sliced(m, iterate(m, of), start, stop, _bound(m, step, 1) or 1)


def _sliced(m: Machine, source: Iterator, wanted: int, stop: int | None, step: int) -> Steps:
    """As in CPython: items before the next result, or before the end, are taken on demand."""
    taken = 0
    while True:
        while taken < wanted:
            taken += 1
            if take(m, source) is None:
                return
        if stop is not None and taken >= stop:
            return
        taken += 1
        item = take(m, source)
        if item is None:
            return
        yield item
        wanted = wanted + step if stop is None else min(wanted + step, stop)


def _chain(m: Machine, *parts: Value) -> Steps:
    return (item for part in parts for item in _next_of(m, iterate(m, part)))


def _chain_all(m: Machine, parts: Value) -> Steps:
    outer = iterate(m, parts)
    return (item for part in _next_of(m, outer) for item in _next_of(m, iterate(m, part)))


def _repeat(m: Machine, object: Value, times: Value | None = None) -> Steps:
    return itertools.repeat(object) if times is None else itertools.repeat(object, as_int(m, times))


def _count(m: Machine, start: Value = _ZERO, step: Value = _ONE) -> Steps:
    for one in (start, step):
        if isinstance(one, Const) and not isinstance(one.value, (int, float, complex)):
            raise Break("GB121", "itertools.count() of a value that is not a number")
    by_one = isinstance(step, Const) and is_kind(step.value, int) and step.value == 1
    if by_one and isinstance(start, Const) and is_kind(start.value, int):
        # C counts here: True and 1 start alike.
        start = Const(int(start.value))
    if by_one and isinstance(start, Obj) and is_kind(start.value, int):
        raise Break("GB121", "count() from a number of a class of its own")

    def steps() -> Steps:
        now = start
        while True:
            yield now
            now = operators.binary(m, "+", now, step)

    return steps()


def _tuples(of: PythonIterator[Any]) -> Steps:
    return (Sequence(list(items), tuple) for items in of)


def _product(m: Machine, *parts: Value, repeat: Value = _ONE) -> Steps:
    return _tuples(itertools.product(*[drain(m, part) for part in parts], repeat=as_int(m, repeat)))


def _picking(real: Any) -> Maker:
    """combinations() and the like: they read the whole input at once."""
    return lambda m, iterable, r: _tuples(real(drain(m, iterable), as_int(m, r)))


def _permutations(m: Machine, iterable: Value, r: Value = NONE) -> Steps:
    items = drain(m, iterable)
    none = is_none(r)
    return _tuples(itertools.permutations(items, len(items) if none else as_int(m, r)))


def _zip_longest(m: Machine, *parts: Value, fillvalue: Value = NONE) -> Steps:
    return _tuples(
        itertools.zip_longest(
            *[_next_of(m, iterate(m, part)) for part in parts], fillvalue=fillvalue
        )
    )


def _pairwise(m: Machine, of: Value) -> Steps:
    return _tuples(itertools.pairwise(_next_of(m, iterate(m, of))))


def _starmap(m: Machine, fn: Value, of: Value) -> Steps:
    return (m.call(fn, drain(m, items), {}) for items in _next_of(m, iterate(m, of)))


def _while(real: Any) -> Maker:
    def make(m: Machine, test: Value, of: Value) -> Steps:
        return iter(
            real(lambda item: m.truth(m.call(test, [item], {})), _next_of(m, iterate(m, of)))
        )

    return make


def _compress(m: Machine, data: Value, selectors: Value) -> Steps:
    chosen = (m.truth(item) for item in _next_of(m, iterate(m, selectors)))
    return itertools.compress(_next_of(m, iterate(m, data)), chosen)


def _accumulate(
    m: Machine, of: Value, func: Value = NONE, *, initial: Value | None = None
) -> Steps:
    def add(total: Value, item: Value) -> Value:
        if func is NONE or is_none(func):
            return operators.binary(m, "+", total, item)
        return m.call(func, [total, item], {})

    if is_none(initial):
        initial = None
    return itertools.accumulate(_next_of(m, iterate(m, of)), add, initial=initial)  # type: ignore[arg-type]


def _model(name: str, make: Maker) -> Callable[[Machine, Args, Kwargs], Value]:
    signature = inspect.signature(make)

    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if not m.walks_generators:
            raise Break("GB120", f"an iterator of itertools.{name}() that outlives a break")
        try:
            bound = signature.bind(m, *args, **kwargs)
        except TypeError:
            raise Break("GB121", f"itertools.{name}() with these arguments") from None
        try:
            parts = [make(*bound.args, **bound.kwargs)]
        except (TypeError, ValueError, OverflowError) as error:  # Python then raises as well
            raise Break("GB121", f"itertools.{name}() with these arguments: {error}") from None
        return Iterator(f"itertools.{name}", parts, _step)

    return model


def _step(of: Iterator) -> Value | None:
    (steps,) = of.parts
    if steps is None:
        raise Break("GB120", "an iterator of itertools in which something was raised")
    try:
        found: Value | None = next(steps, None)
    except Thrown:
        of.parts[0] = None  # Python's iterator continues after that; ours cannot
        raise
    except ValueError as error:  # the iterator is already computing an item
        raise Break("GB120", f"an iterator of itertools: {error}") from None
    if found is None and of.kind in _ASKS_AGAIN:
        of.parts[0] = _nothing_more(of.kind)
    return found


# Iterators that read their input again if they are called after their end.
_ASKS_AGAIN = frozenset(
    f"itertools.{name}"
    for name in ("takewhile", "dropwhile", "starmap", "compress", "accumulate", "pairwise")
)


def _nothing_more(kind: str) -> Steps:
    raise Break("GB120", f"next() of {kind} after its end")
    yield


_MAKERS: dict[Any, Maker] = {
    itertools.islice: _islice,
    itertools.chain: _chain,
    itertools.repeat: _repeat,
    itertools.count: _count,
    itertools.product: _product,
    itertools.combinations: _picking(itertools.combinations),
    itertools.permutations: _permutations,
    itertools.combinations_with_replacement: _picking(itertools.combinations_with_replacement),
    itertools.zip_longest: _zip_longest,
    itertools.pairwise: _pairwise,
    itertools.starmap: _starmap,
    itertools.takewhile: _while(itertools.takewhile),
    itertools.dropwhile: _while(itertools.dropwhile),
    itertools.compress: _compress,
    itertools.accumulate: _accumulate,
}
for _cls, _make in _MAKERS.items():
    BUILTINS[_cls] = _model(_cls.__name__, _make)
BUILTINS[itertools.chain.from_iterable] = _model("chain.from_iterable", _chain_all)
