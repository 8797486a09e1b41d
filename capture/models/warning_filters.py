"""`warnings.catch_warnings()` and the filters that a frame sets: effects at their place.

In: calls of the class, its `with` methods, `simplefilter` and `filterwarnings`, with constants.
Out: effects that change the library's filters after the graph, in order with the frame's warnings.
A warning that torch gives at capture meets the filters that the frame has set by then. A block that
records is a break, and so are filters that raise, where a warning could meet them.
"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

from ..breaks import Break
from ..exact_type import is_kind
from ..values.containers import NotConstant, as_constants
from ..values.effects import Called
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Instance, Obj, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB103"
_ACTIONS = ("default", "ignore", "always", "module", "once", "error")
_BLOCK = warnings.catch_warnings


def _happens(m: Machine, step: Any, *items: Value, **more: Any) -> None:
    if m.inner or m.modes or m.repeated or m.tracer.regions is not None:
        raise Break(_CODE, "filters of warnings in a transform, a mode or a checkpoint")
    m.activity += 1
    m.journal.effects.append(Called(step, items, calm=True, **more))


@models(_BLOCK)
def _block(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    plain = all(isinstance(one, Const) and one.value in (None, False) for one in kwargs.values())
    if args or not plain or not kwargs.keys() <= {"record", "module"}:
        raise Break(_CODE, "catch_warnings() with arguments")
    made = Instance(Obj(_BLOCK))
    m.heap.overlay.setdefault(made, {})
    _happens(m, _BLOCK, result=made)
    return made


@models(_BLOCK.__enter__)
def _enter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    (block,) = args
    if not isinstance(block, Instance) or block in m.journal.blocks:
        raise Break(_CODE, "a catch_warnings() from outside, or that is entered twice")
    _happens(m, _BLOCK.__enter__, block)
    m.journal.blocks[block] = len(m.journal.filters)
    return NONE


@models(_BLOCK.__exit__)
def _exit(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    block = args[0]
    if isinstance(block, Instance):
        if list(m.journal.blocks)[-1:] != [block]:
            raise Break(_CODE, "blocks of catch_warnings() that end in another order")
        del m.journal.filters[m.journal.blocks.pop(block) :]
    elif m.journal.filters or m.journal.blocks:
        raise Break(_CODE, "a catch_warnings() from outside ends in a block of this frame")
    # It looks at none of its arguments.
    _happens(m, _BLOCK.__exit__, block, NONE, NONE, NONE)
    return NONE


def _filter(m: Machine, step: Any, names: tuple[str, ...], args: Args, kwargs: Kwargs) -> Value:
    """step(*args, **kwargs), a function that adds a filter"""
    try:
        plain, named = as_constants(m, args, kwargs)
    except NotConstant:
        raise Break(_CODE, f"{step.__name__}() of what is not constant") from None
    given = dict(zip(names, plain, strict=False)) | named
    texts = [given.get(name, "") for name in ("message", "module")]
    category = given.get("category", Warning)
    categories = category if type(category) is tuple else (category,)
    right = (
        given.get("action") in _ACTIONS
        and given.keys() <= set(names)
        and len(plain) <= len(names)
        and all(type(one) is str for one in texts)
        and len(categories) == 1
        and is_kind(category, type)
        and issubclass(category, Warning)
        and type(given.get("lineno", 0)) is int
        and given.get("lineno", 0) >= 0
    )
    if not right or not all(map(_is_pattern, texts)):
        raise Break(_CODE, f"{step.__name__}() with these arguments")
    _happens(m, step, *args, named=tuple(kwargs.items()))
    m.journal.filters.append((step, given))
    return NONE


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


@models(warnings.simplefilter)
def _simple(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    names = ("action", "category", "lineno", "append")
    return _filter(m, warnings.simplefilter, names, args, kwargs)


@models(warnings.filterwarnings)
def _by_message(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    names = ("action", "message", "category", "module", "lineno", "append")
    return _filter(m, warnings.filterwarnings, names, args, kwargs)
