"""Calls with results of a size that data decide: `x[mask]`, `nonzero`, `where(condition)`.

In: the function and the ghosts of a call that torch cannot make over ghosts. Out: the same results
by `nonzero`, whose size is a symbol that the graph reads, and by operators with known sizes; None
where the frame has to break.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...ir.errors import CannotTrace
from ...ir.symbolic.expr import Expr, Symbol
from ...ir.trace.conditional import in_part
from ...ir.trace.read_numbers import read_size
from . import counted_sizes
from .data_numbers import compared, give_numbers, place_of

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Maker = Callable[..., Any]


def instead(m: Machine, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of fn(*args, **kwargs) in ghosts, or None."""
    maker = _MAKERS.get(fn)
    if maker is None and isinstance(fn, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        # of a library: its fake rule makes such a size
        maker = _of_library(fn)
    if maker is None or m.inner or m.modes or m.varied.plain or m.tracer.regions is not None:
        return None
    ghosts = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
    if m.differentiating or not all(map(m.tracer.owns, ghosts)):  # type: ignore[arg-type]
        return None
    if "out" in kwargs:  # torch gives this tensor another size
        return None
    try:
        return maker(m, *args, **kwargs)
    except CannotTrace:
        return None


def _call(m: Machine, fn: Any, *args: Any, **kwargs: Any) -> Any:
    return m.tracer.run(fn, args, kwargs, m.users_line)


def _held(m: Machine, fn: Any, *args: Any, **kwargs: Any) -> Any:
    """A result of a size that data decide; the size may become a number of the program."""
    made = read_size(m.tracer, fn, args, kwargs, m.users_line)
    parts = made if isinstance(made, (tuple, list)) else (made,)
    held = {id(one): one for one in parts if isinstance(one, torch.Tensor)}
    for symbol, origin in m.facts.symbols.items():
        one = held.get(id(origin[1])) if origin[0] == "data" else None
        if one is not None:
            m.numbers.read[symbol] = m.heap.tensor(one)
            m.numbers.give, m.numbers.compare = give_numbers, compared
    return made


def _of_library(fn: Any) -> Maker:
    return lambda m, *args, **kwargs: _held(m, fn, *args, **kwargs)


def _nonzero(m: Machine, input: Any, *, as_tuple: bool = False) -> Any:
    if as_tuple:
        return _where(m, input)
    return _positions(m, input)


def _positions(m: Machine, mask: Any) -> Any:
    """nonzero(mask). All those of one tensor have one size."""
    found = _held(m, torch.nonzero, mask)
    if mask.dim() == 1:
        m.rows_of[found._node] = mask
    place, size = place_of(mask), found._node.meta.shape[0]
    if isinstance(size, Symbol):
        m.numbers.counted[size], m.numbers.answer = mask, counted_sizes.answered
    if place is not None:
        before = m.numbers.counts.get(place)
        if before is not None:
            m.facts.require("==", size, before)
        elif not in_part(m.tracer):  # whose numbers are 0 where it does not run
            m.numbers.counts[place] = size
    return found


def _columns(m: Machine, mask: Any) -> tuple[Any, ...]:
    """The indices of the elements that are not zero, by dimension."""
    return tuple(_call(m, torch.Tensor.unbind, _positions(m, mask), 1))


def _columns_of_index(m: Machine, mask: Any) -> tuple[Any, ...]:
    """The same for a mask in an index: `y[mask] = x[mask]` has one size."""
    place = place_of(mask)
    known = m.numbers.masks.get(place)
    if known is None:
        known = _columns(m, mask)
        if place is not None:
            m.numbers.masks[place] = known
    return known


def _where(m: Machine, condition: Any, *others: Any) -> Any:
    return None if others or condition.dim() == 0 else _columns(m, condition)


def _is_mask(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.bool


def _get_item(m: Machine, value: Any, index: Any) -> Any:
    found = _by_columns(m, value, index)
    return None if found is None else _call(m, operator.getitem, value, found)


def _set_item(m: Machine, value: Any, index: Any, item: Any) -> Any:
    """As torch's own, without its look for sizes of 1 that precede the others."""
    if not any(map(_is_mask, index if isinstance(index, tuple) else (index,))):
        return None
    found = _by_columns(m, value, index)
    if found is None or not all(isinstance(one, torch.Tensor) for one in (*found, item)):
        return None
    return _call(m, torch.Tensor.index_put_, value, found, item)


def _by_columns(m: Machine, value: Any, index: Any) -> tuple[Any, ...] | None:
    """An index with positions in place of masks."""
    parts = index if isinstance(index, tuple) else (index,)
    found: list[Any] = []
    at = 0  # the dimension that the next part indexes
    for part in parts:
        if part is None:
            found.append(part)
        elif _is_mask(part):
            if part.dim() == 0 or not _fits(m, value, part, at):
                return None
            found += _columns_of_index(m, part)
            at += part.dim()
        elif type(part) in (int, slice) or isinstance(part, (Expr, torch.Tensor)):
            if isinstance(part, torch.Tensor) and part.dtype is torch.uint8:
                return None
            found.append(part)
            at += 1
        else:
            return None
    return tuple(found)


def _fits(m: Machine, value: Any, mask: Any, at: int) -> bool:
    """Whether the mask has the sizes of the dimensions that it indexes, as far as is known."""
    sizes, others = value._node.meta.shape[at:], mask._node.meta.shape
    if len(others) > len(sizes):
        return False
    pairs = zip(others, sizes, strict=False)
    return all(m.facts.known("==", one, other) is True for one, other in pairs)


def _masked_select(m: Machine, input: Any, mask: Any) -> Any:
    if not _is_mask(mask):
        return None
    if not (input.dim() == mask.dim() and _fits(m, input, mask, 0)):
        input, mask = _call(m, torch.broadcast_tensors, input, mask)
    if mask.dim() == 0:
        return None
    return _get_item(m, _call(m, torch.Tensor.contiguous, input), mask)


def _repeated(
    m: Machine, input: Any, repeats: Any = None, dim: Any = None, *, output_size: Any = None
) -> Any:
    if output_size is not None or input.dim() == 0:
        return None
    if repeats is None:
        return _held(m, torch.repeat_interleave, input)
    if not isinstance(repeats, torch.Tensor) or repeats.dim() != 1:
        return None
    if dim is None:
        input, dim = _call(m, torch.Tensor.flatten, input), 0
    length = input._node.meta.shape[dim] if type(dim) is int and -input.dim() <= dim else None
    if length is None or m.facts.known("==", length, repeats._node.meta.shape[0]) is not True:
        return None
    return _call(m, torch.index_select, input, dim, _held(m, torch.repeat_interleave, repeats))


def _counted(m: Machine, input: Any, weights: Any = None, minlength: Any = 0) -> Any:
    if weights is not None or type(minlength) is not int or minlength < 0:
        return None
    return _held(m, torch.bincount, input, None, minlength)


def _distinct(fn: Any) -> Maker:
    """torch chooses the results by flags given by name."""

    def made(m: Machine, input: Any, *flags: Any, dim: Any = None, **named: Any) -> Any:
        if flags or (dim is not None and not _has_slices(input, dim)):
            return None
        return _held(m, fn, input, **(named if dim is None else {**named, "dim": dim}))

    return made


def _has_slices(input: Any, dim: Any) -> bool:
    """Whether the slices in a dimension are compared: not on a GPU, where a result that the program
    does not ask for is empty, and not where torch has rules for sizes of 0."""
    if type(dim) is not int or not -input.dim() <= dim < input.dim():
        return False
    sizes = input._node.meta.shape
    return input.device.type == "cpu" and all(type(one) is int and one > 0 for one in sizes)


_MAKERS: dict[Any, Maker] = {
    **dict.fromkeys((torch.nonzero, torch.Tensor.nonzero), _nonzero),
    **dict.fromkeys((torch.argwhere, torch.Tensor.argwhere), _nonzero),
    torch.where: _where,
    **dict.fromkeys((operator.getitem, torch.Tensor.__getitem__), _get_item),
    **dict.fromkeys((operator.setitem, torch.Tensor.__setitem__), _set_item),
    **dict.fromkeys((torch.masked_select, torch.Tensor.masked_select), _masked_select),
    **dict.fromkeys((torch.repeat_interleave, torch.Tensor.repeat_interleave), _repeated),
    **dict.fromkeys((torch.unique, torch.Tensor.unique), _distinct(torch.unique)),
    **dict.fromkeys(
        (torch.unique_consecutive, torch.Tensor.unique_consecutive),
        _distinct(torch.unique_consecutive),
    ),
    **dict.fromkeys((torch.bincount, torch.Tensor.bincount), _counted),
}
