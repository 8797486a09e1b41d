"""Polyfills: Python functions in place of C ones (itertools and others), which are walked.

In: a call of a C function that runs code of the program's or holds values of the graph. Out: the
result of the Python function registered for it. Each does the same as the C function, step by step,
as the language's documentation defines it. An iterator of this file that leaves the frame would be
a generator, which is wrong: then Python makes the real one (`data_model.generators`).
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
import types
from collections.abc import Callable
from collections.abc import Iterator as PythonIterator
from typing import TYPE_CHECKING, Any

from ..breaks import Break
from ..exact_type import is_kind
from ..values.registry import BUILTINS, NONE, Args, Kwargs, Model, models
from ..values.value import Const, Dict, DictView, Instance, Iterator, Obj, Sequence, Set, Value
from . import attributes, container_iterators

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Steps = PythonIterator[Any]


def stands_for(*reals: Any, **more: Any) -> Callable[[Any], Any]:
    """Decorator: calls of these callables become calls of the function, with `more` keywords."""
    added: dict[str, Value] = {name: Const(value) for name, value in more.items()}

    def register(function: Any) -> Any:
        for real in reals:
            BUILTINS[real] = lambda m, args, kwargs: m.call(Obj(function), args, kwargs | added)
        return function

    return register


def walk_as_written(*reals: Any) -> None:
    """Calls of these Python functions are inlined, though their module is left to Python."""
    for real in reals:
        BUILTINS[real] = _inlined(real)


def _inlined(real: Any) -> Model:
    return lambda m, args, kwargs: m.inline(Obj(real), args, kwargs)


# -- iterators -------------------------------------------------------------------------------------
@stands_for(itertools.cycle)
def cycle(iterable: Any) -> Steps:
    return _cycled(iter(iterable))


def _cycled(source: Steps) -> Steps:
    seen = []
    for item in source:
        seen.append(item)
        yield item
    while seen:
        yield from seen


@stands_for(itertools.filterfalse)
def filterfalse(function: Any, iterable: Any, /) -> Steps:
    return _left_out(function, iter(iterable))


def _left_out(function: Any, source: Steps) -> Steps:
    for item in source:
        if not (item if function is None or function is bool else function(item)):
            yield item


def equal(left: Any, right: Any) -> bool:
    """Equality as in containers: an object equals itself."""
    return left is right or left == right


@models(equal)
def _equal(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(m.same_or_equal(*args))


@stands_for(itertools.groupby)
def groupby(iterable: Any, key: Any = None) -> Steps:
    return _grouped(iter(iterable), key)


def _grouped(source: Steps, key: Any) -> Steps:
    item: Any = None
    mark: Any = None
    over = False
    turn = 0

    def group(wanted: Any, number: int) -> Steps:
        nonlocal item, mark, over
        if turn == number:
            yield item
        # A group ends when the next one is requested.
        while turn == number and not over:
            for item in source:  # noqa: B007 (the frame around reads it)
                break
            else:
                over = True
                return
            mark = item if key is None else key(item)
            if not equal(mark, wanted):
                return
            yield item

    for item in source:  # the first
        mark = item if key is None else key(item)
        break
    else:
        return
    while not over:
        wanted = mark
        yield wanted, group(wanted, turn)
        while not over and equal(mark, wanted):  # skip the rest of the group
            for item in source:
                mark = item if key is None else key(item)
                break
            else:
                over = True
        turn += 1


def refuse_copies(source: Any, n: Any) -> None:
    """Break if tee() would return an iterator that can copy itself, and copies of it."""


@models(refuse_copies)
def _refuse_copies(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    source, n = args
    if not isinstance(n, Const) or not is_kind(n.value, int) or n.value < 0:
        raise Break("GB121", "tee() of another number of iterators")
    if isinstance(source, Iterator) and source.kind == "object":
        source = source.parts[0]
    branch = isinstance(source, Iterator) and source.kind == "generator"
    if branch and source.parts[0].code is _branch.__code__:  # type: ignore[attr-defined]
        raise Break("GB120", "tee() of a result of tee()")
    if isinstance(source, (Obj, Instance)) and attributes.has_attr(m, source, "__copy__"):
        raise Break("GB120", "tee() of an iterator that copies itself")
    return NONE


@stands_for(itertools.tee)
def tee(iterable: Any, n: Any = 2, /) -> tuple[Steps, ...]:
    source = iter(iterable)
    refuse_copies(source, n)
    seen: list[Any] = []
    return tuple([_branch(source, seen) for _ in range(n)])


def _branch(source: Steps, seen: list[Any]) -> Steps:
    at = 0
    while True:
        if at == len(seen):
            for item in source:
                seen.append(item)
                break
            else:
                return
        yield seen[at]
        at += 1


# -- library modules with a C and a Python version (PEP 399)
# --------------------------------------------------
@functools.cache
def in_python(name: str, accelerator: str) -> types.ModuleType:
    """A new module from its Python source, without its C replacements."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    held = sys.modules.get(accelerator)
    sys.modules[accelerator] = None  # type: ignore[assignment]  # makes its import fail
    try:
        spec.loader.exec_module(module)
    finally:
        if held is None:
            del sys.modules[accelerator]
        else:
            sys.modules[accelerator] = held
    return module


_TWICE: dict[tuple[str, str], tuple[str, ...]] = {
    ("heapq", "_heapq"): ("heapify", "heappop", "heappush", "heappushpop", "heapreplace"),
    ("bisect", "_bisect"): (
        "bisect",
        "bisect_left",
        "bisect_right",
        "insort",
        "insort_left",
        "insort_right",
    ),
    ("collections", "_collections"): ("_count_elements",),
}


def _of_a_list(m: Machine, name: str, args: Args, kwargs: Kwargs) -> None:
    """Break where the C function treats arguments differently from its Python version."""
    if name == "_count_elements" or not args:
        return
    of = args[0]
    if name.startswith("heap"):
        if not isinstance(of, Sequence) or of.cls is not list:
            raise Break("GB121", f"{name}() of a value that may not be a list")
        if name == "heapreplace" and not of.items:
            raise Break("GB108", "heapreplace() of an empty list")
        return
    bounds = [*args[2:], *(kwargs[name] for name in ("lo", "hi") if name in kwargs)]
    if isinstance(of, (Dict, DictView, Set)) or not all(map(_is_bound, bounds)):
        raise Break("GB121", f"{name}() with these arguments")


def _is_bound(value: Value) -> bool:
    return isinstance(value, Const) and is_kind(value.value, int)


def _register(name: str, accelerator: str, functions: tuple[str, ...]) -> None:
    real = importlib.import_module(name)
    for one in functions:

        def model(m: Machine, args: Args, kwargs: Kwargs, one: str = one) -> Value:
            _of_a_list(m, one, args, kwargs)
            return m.call(Obj(getattr(in_python(name, accelerator), one)), args, kwargs)

        BUILTINS[getattr(real, one)] = model


for (_name, _accelerator), _functions in _TWICE.items():
    _register(_name, _accelerator, _functions)

container_iterators.POLYFILLS.append(globals())
