"""Iterators that exist before the frame: of lists, tuples and dicts, enumerate and zip.

In: a real iterator, most often that of a loop whose body broke. Out: an Iterator over the same
container from the same place on, under guards on both; the steps that the frame takes are an
effect, after which the real iterator is where the program expects it. Each place is an entry of
its own. So there is no model of an iterator that calls bring at many places, nor of one whose loop
breaks at many steps: Python takes its steps, and the code between the breaks is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...runtime import _native
from ...runtime.guards.sources import Source
from .. import helpers
from ..breaks import Break
from ..values.effects import Filled
from ..values.value import Const, Dict, Iterator, Obj, Value
from . import iteration
from .container_iterators import over_dict

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

# The places of an iterator that a frame was called with for which there are entries.
MOST_PLACES = 2


def _over_sequence(m: Machine, over: list[Value], at: int, *_: Any) -> Iterator | None:
    made = iteration.iterate(m, over[0])
    if made.kind not in ("sequence", "constant"):
        return None
    made.parts[1] = at
    return made


def _over_dict(m: Machine, over: list[Value], at: int, kind: str, _: Any) -> Iterator | None:
    # The iterator was made before the frame has changed the keys.
    if not isinstance(over[0], Dict) or over[0].moves:
        return None
    made = over_dict(m, over[0], kind)
    made.parts[2] = at
    return made


def _enumerate(
    m: Machine, over: list[Value], at: int, kind: str, containers: list[Value]
) -> Iterator | None:
    inner = _modelled(m, over[0], containers)
    return None if inner is None else iteration.enumerate_iterator(m, inner, at)


def _zip(
    m: Machine, over: list[Value], at: int, kind: str, containers: list[Value]
) -> Iterator | None:
    inner: list[Any] = [_modelled(m, one, containers) for one in over]
    return None if None in inner else iteration.zip_iterator(m, inner, False)


Model = Callable[["Machine", list[Value], int, str, list[Value]], "Iterator | None"]

# Type of the real iterator -> its model, and the kind of a dict's iterator.
MODELS: dict[type, tuple[Model, str]] = {
    type(iter([])): (_over_sequence, ""),
    type(iter(())): (_over_sequence, ""),
    type(iter({})): (_over_dict, "keys"),
    type(iter({}.values())): (_over_dict, "values"),
    type(iter({}.items())): (_over_dict, "items"),
    enumerate: (_enumerate, ""),
    zip: (_zip, ""),
}


def modelled(m: Machine, value: Value) -> Iterator | None:
    """The Iterator of a real iterator, whose steps are taken from it; None if it has no model."""
    if not isinstance(value, Obj):
        return None
    known = m.heap.known.get(id(value.value))
    if isinstance(known, Iterator):
        return known
    over: list[Value] = []
    inner = _modelled(m, value, over)
    if inner is None:
        return None
    taken = Const(0)

    def step(made: Iterator) -> Value | None:
        # The real iterator takes its steps before the frame's writes are replayed.
        if any(getattr(one, "changed", False) for one in over):
            raise Break("GB120", "an iterator from outside over what the function has changed")
        item = iteration.take(m, inner)
        if not taken.value:
            m.journal.effects.append(Filled(made, helpers.advance, (taken,)))
        taken.value += 1
        return item

    made = Iterator("outside", [inner, value.value], step, source=value.source)
    m.heap.known[id(value.value)] = made
    m.heap.keep.append(value.value)
    return made


iteration.REAL_ITERATORS.update(dict.fromkeys(MODELS, modelled))


def _modelled(m: Machine, value: Value, containers: list[Value]) -> Iterator | None:
    """The Iterator that does not yet step the real one; `containers` gets what it goes over."""
    real, source = getattr(value, "value", None), value.source
    model = MODELS.get(type(real))
    if model is None or source is None:
        return None
    at: Any = _native.iterator_position(real)
    if at < 0 or not m.follows_iterators:
        return None
    if m.varied is not None and m.varied.places(source, at) > MOST_PLACES:
        return None
    over: list[Value] = []
    while found := _native.iterated(real, len(over)):
        over.append(m.wrap(found[0], Source("iterated", source, len(over))))
    m.guard("type", source, type(real))
    m.guard("position", source, at)
    containers += over
    make, kind = model
    return make(m, over, at, kind, containers)
