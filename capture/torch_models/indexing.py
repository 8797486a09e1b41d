"""Iteration over tensors, and indexing with an int that varies: `x[i]`, `x[:, i, 2:]`, `x[i] = y`.

A whole number in a tensor, as an index or as a bound of a slice, is such an int: torch reads it.
torch's own indexing takes plain numbers. An index of this kind becomes `select` along its
dimension, whose result is indexed by the rest: torch, too, selects for each int before it gathers
by tensors. A guard holds it within the dimension, where select and indexing agree. Any other
index of a tensor is recorded as a torch call: see `get_item` in `capture.operations.operators`.
"""

from __future__ import annotations

import _warnings
import functools
import operator
from typing import TYPE_CHECKING, Any

import torch

from .. import walk_warnings
from ..breaks import Break
from ..data_model import data_numbers, value_questions
from ..data_model.container_iterators import over_items
from ..data_model.iteration import ITERABLES
from ..values import containers, symbolic_numbers
from ..values.registry import NONE
from ..values.value import Const, Iterator, Obj, Sequence, Slice, Tensor, Value
from . import calls

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8)


def selected(m: Machine, value: Tensor, index: Value) -> tuple[Tensor, Value | None]:
    """(tensor, index) that remain; index None: the tensor is the result."""
    parts = _parts(m, index)
    if not m.modes and any(isinstance(part, Tensor | Slice | Sequence) for part in parts):
        read = [_read(m, part) for part in parts]
        index = read[0] if parts[0] is index else Sequence(read, tuple)
        parts = read
    while not m.modes:
        place = next((at for at, part in enumerate(parts) if symbolic_numbers.is_whole(part)), None)
        dim = None if place is None else _dimension(value, parts, place)
        if place is None or dim is None or not _within(m, value, dim, parts[place]):
            break
        calls.hold_operator(m, operator.getitem, [value])
        before, at, after = parts[:place], parts[place], parts[place + 1 :]
        if before and _is(before[-1], None):
            # The stride of the new dimension is that of all elements behind it.
            value = _view(m, torch.Tensor.unsqueeze, value, Const(dim))
            before[-1], dim = Slice(NONE, NONE, NONE), dim + 1
        value = _view(m, torch.Tensor.select, value, Const(dim), at)
        parts = [*before, *after]
        if not parts:
            return value, None
        index = Sequence(list(parts), tuple)
    return value, index


def _view(m: Machine, fn: Any, value: Tensor, *args: Value) -> Tensor:
    made = calls.call_torch(m, fn, [value, *args], {})
    assert isinstance(made, Tensor)
    return made


def _parts(m: Machine, index: Value) -> list[Value]:
    if isinstance(index, Sequence) and index.cls is tuple:
        return list(containers.sequence_items(m, index))
    return [index]


def _dimension(value: Tensor, parts: list[Value], place: int) -> int | None:
    """The dimension that the index at `place` is for; None where that is left to torch."""
    counts = [_consumed(part) for part in parts]
    dots = [at for at, part in enumerate(parts) if _is(part, ...)]
    if dots and dots[0] < place:
        after = counts[place:]
        between = counts[dots[0] + 1 : place]
        if None in after + between or len(dots) > 1:
            return None
        return value.ghost.dim() - sum(filter(None, after))
    before = counts[:place]
    return None if None in before else sum(filter(None, before))


def _consumed(part: Value) -> int | None:
    """How many dimensions a part of an index is for; None for masks and lists."""
    if symbolic_numbers.is_whole(part) or isinstance(part, Slice):
        return 1
    if isinstance(part, Tensor):
        return 1 if part.ghost.dtype in _WHOLE else None
    if isinstance(part, Const) and type(part.value) is int:
        return 1
    return 0 if _is(part, None) or _is(part, ...) else None


def _is(part: Value, what: Any) -> bool:
    """Whether a part is this constant. A number that varies is not asked, which would bind it."""
    return not symbolic_numbers.is_number(part) and isinstance(part, Const) and part.value is what


def _read(m: Machine, part: Value) -> Value:
    """A part of an index, with numbers in place of the tensors whose number torch reads."""
    if isinstance(part, Tensor):
        # a number of another dtype is a mask
        return _number(m, part) if part.ghost.dtype in _WHOLE else part
    if isinstance(part, Slice):
        bounds = (part.start, part.stop, part.step)
        if any(isinstance(bound, Tensor) for bound in bounds):
            return Slice(*(_bound(m, one, at) for at, one in enumerate(bounds)))
    if isinstance(part, Sequence) and part.cls is list and _holds_varying(m, part):
        return m.call(Obj(torch.tensor), [part], {})
    return part


def _holds_varying(m: Machine, part: Sequence) -> bool:
    """Whether this is a list of ints of which one varies, which torch takes as a tensor."""
    items = containers.sequence_items(m, part)
    if not all(map(symbolic_numbers.like_whole, items)):
        return False
    whole = [one for one in items if symbolic_numbers.is_whole(one)]
    return any(symbolic_numbers.varies(m, symbolic_numbers.operand(m, one)) for one in whole)


def _bound(m: Machine, value: Value, at: int) -> Value:
    """A bound of a slice, which decides a size: a number that lasts is known at capture."""
    if not isinstance(value, Tensor):
        return value
    whole = not value.ghost.dim() and value.ghost.dtype in _WHOLE
    known = value_questions.lasting(m, value, at) if whole else None
    return _number(m, value) if known is None else Const(known)


def _number(m: Machine, value: Tensor) -> Value:
    if value.ghost.dim():
        return value
    known = value_questions.constant(m, value.ghost)
    if type(known) is int and not value.ghost.dim():
        return Const(known)
    found = data_numbers.number(m, value, "__index__")
    return value if found is None else found


def _within(m: Machine, value: Tensor, dim: int, at: Value) -> bool:
    plain = value.cls in (torch.Tensor, torch.nn.Parameter)
    if not plain or not 0 <= dim < value.ghost.dim():
        return False
    place: Any = symbolic_numbers.operand(m, at)
    size = symbolic_numbers.operand(m, calls.from_result(m, value.ghost.shape[dim]))
    if not symbolic_numbers.varies(m, place, size):
        return False
    facts = symbolic_numbers.with_where(m)
    return bool(facts.require("<", place, size)) and bool(facts.require(">=", place, -size))


def by_list(m: Machine, fn: Any, args: list[Value]) -> Value:
    """fn(tensor, index, *rest), an operator of items; torch takes some lists as tuples, and warns
    each time."""
    given, index = args[:2]
    assert isinstance(given, Tensor)
    if not isinstance(index, Sequence) or index.cls is not list or m.modes or m.inner:
        return calls.call_operator(m, fn, args)
    items = list(containers.sequence_items(m, index))
    deciding = _tuple_by(items)
    if deciding is None:
        return calls.call_operator(m, fn, args)
    if fn is operator.setitem:
        _refuse_bytes(items)
    value, rest = selected(m, given, Sequence(items, tuple))
    if rest is None and fn is operator.getitem:
        found: Value = value
    else:
        found = calls.call_operator(m, fn, [value, rest or Const(...), *args[2:]])
    text, kind = _warned(deciding)
    m.call(Obj(_warnings.warn), [Const(text), Obj(kind)], {})
    return found


def _tuple_by(items: list[Value]) -> Any:
    """For a list that torch takes as a tuple, an index like the first item that says so.

    As `treatSequenceAsTuple` in its torch/csrc/autograd/python_variable_indexing.cpp.
    """
    for one in items if len(items) < 32 else ():
        if isinstance(one, Tensor | Slice | Sequence):
            return ()
        if _is(one, None) or _is(one, ...):
            return ...
    return None


@functools.cache
def _warned(item: Any) -> walk_warnings.Given:
    """What torch warns about a list with this item."""
    with walk_warnings.watching("torch") as given:
        torch.zeros(1, 1, device="cpu")[[item]]
    return given[0]


def set_item(m: Machine, value: Tensor, index: Value, item: Value) -> None:
    calls.hold_operator(m, operator.setitem, [value])
    _refuse_bytes(_parts(m, index))
    if isinstance(index, Sequence) and index.cls is list:
        by_list(m, operator.setitem, [value, index, item])
    else:
        calls.call_torch(m, operator.setitem, [value, index, item], {})


def _refuse_bytes(parts: list[Value]) -> None:
    """Break if torch warns about a mask; of one without dimensions it only reads the truth."""
    for one in parts:
        if isinstance(one, Tensor) and one.ghost.dtype is torch.uint8 and one.ghost.dim():
            raise Break("GB103", "a warning of torch about a mask of dtype torch.uint8")


def _unbind(tensor: Any) -> Any:
    return tensor.unbind(0)


def _over_tensor(m: Machine, value: Tensor) -> Iterator:
    if not value.ghost.dim():
        raise containers.raises("TypeError: iteration over a 0-d tensor")
    parts = calls.call_torch(m, _unbind, [value], {})
    assert isinstance(parts, Sequence)
    return over_items(list(parts.items))


ITERABLES[Tensor] = _over_tensor
