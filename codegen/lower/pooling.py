"""Lowering of pooling over windows: max pooling with its positions, average pooling, adaptive
pooling with equal windows.

A window of few elements is read element by element, in eager's order, by loads under masks where it
may reach beyond the operand. So sums round as eager's do, and a position is the one that eager's
comparison finds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import is_symbolic
from ..loops import affine
from ..loops.extents import positive, surely
from ..loops.loop_nest import Index
from .builder import At, Scalar, argument, fill, first_meta, first_operand, no_near

aten = torch.ops.aten
MAX_WINDOW = 16  # in elements
WIDE = (torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class Window:
    """One dimension of a pooling: output i reads `size` elements from i * stride - pad on,
    `dilation` apart.
    """

    length: Any
    size: int
    stride: int
    pad: int
    dilation: int
    out: Any

    def reaches_beyond(self, tap: int) -> bool:
        first = tap * self.dilation - self.pad
        last = (self.out - 1) * self.stride + first
        return first < 0 or not surely("<", last, self.length)

    def place(self, form: Index, tap: int) -> Index:
        return affine.scaled(form, self.stride, tap * self.dilation - self.pad)


def _each(value: Any, count: int, default: Any = 0) -> tuple[int, ...]:
    """An argument for each dimension: one number counts for all of them, no number means
    the default.
    """
    given = default if value is None or value == () or value == [] else value
    numbers = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    return numbers * count if len(numbers) == 1 else numbers


def _windows(node: Node) -> list[Window]:
    x, out = node.args[0].meta.shape, first_meta(node).shape
    count = _RANKS[node.target]
    if node.target in _ADAPTIVE:
        parts = [i // o for i, o in zip(x[-count:], out[-count:], strict=True)]
        rows = zip(parts, parts, _each(0, count), _each(1, count), strict=True)
    else:
        names = ("kernel_size", "stride", "padding", "dilation")
        given = [argument(node, at, name) for at, name in enumerate(names, 1)]
        if node.target not in _MAXIMA:
            given[3] = 1
        sizes = _each(given[0], count)
        rows = zip(sizes, _each(given[1], count, sizes), _each(given[2], count, 0),
                   _each(given[3], count, 1), strict=True)  # fmt: skip
    return [Window(i, *row, o) for i, row, o in zip(x[-count:], rows, out[-count:], strict=True)]


def _tap(at: At, windows: Sequence[Window], taps: Sequence[int], other: Scalar) -> Scalar:
    """An element of the window; `other` where it is beyond the operand."""
    count = len(windows)
    forms = at.where[-count:]
    places = tuple(w.place(f, t) for w, f, t in zip(windows, forms, taps, strict=True))
    bounds = [
        (place, 0, window.length)
        for place, window, tap in zip(places, windows, taps, strict=True)
        if window.reaches_beyond(tap)
    ]
    guard = (at.inside(*bounds), other) if bounds else ()
    return at.fetch(at.arg(0), (*at.where[:-count], *places), *guard)


def _taps(windows: Sequence[Window]) -> Any:
    return itertools.product(*(range(window.size) for window in windows))


# --- the greatest element and its position ---


def _max_pool(at: At) -> tuple[Scalar, Scalar]:
    """The first of the greatest elements, or the last nan: `value > best or isnan(value)`, from
    -inf on.
    """
    windows = _windows(at.node)
    plane = math.prod(window.length for window in windows)
    # distances in a plane have 32 bits, as float32 elements have, if these can hold them
    kind = torch.int32 if surely("<", plane, 1 << 31) else torch.int64
    best = least = at.const(-math.inf, at.dtype)
    step = _first_distance(at, windows).to(kind)
    for number, taps in enumerate(_taps(windows)):
        value = _tap(at, windows, taps, least)
        wide, other = value.to(at.math), best.to(at.math)
        better = (wide > other) | wide.isnan()
        best = better.where(value, best) if number else value
        step = better.where(_distance(windows, taps), step)
    corner: Any = affine.zero(len(at.builder.axes))
    for window, form in zip(windows, at.where[-len(windows) :], strict=True):
        row = affine.scaled(corner, window.length)
        corner = affine.added([row, window.place(form, 0)], len(at.builder.axes))
    return best, at.index(corner) + step.to(torch.int64)


def _distance(windows: Sequence[Window], taps: Sequence[int]) -> Any:
    """The distance from a window's corner to one of its elements, in a row-major plane."""
    found: Any = 0
    for window, tap in zip(windows, taps, strict=True):
        found = found * window.length + tap * window.dilation
    return found


def _first_distance(at: At, windows: Sequence[Window]) -> Scalar:
    """The distance to the first element that is inside the operand."""
    found = zero = at.const(0, torch.int64)
    for window, form in zip(windows, at.where[-len(windows) :], strict=True):
        found = found * window.length
        if window.pad:
            start = at.index(affine.scaled(window.place(form, 0), -1))
            found = found + start.maximum(zero)
    return found


# --- averages ---


def _avg_pool(at: At) -> Scalar:
    """The sum from 0 on in eager's order, divided once; for adaptive pooling divided once per
    dimension.
    """
    windows, zero, total = _windows(at.node), at.const(0.0, at.dtype), at.const(0.0)
    for taps in _taps(windows):
        total = total + _tap(at, windows, taps, zero).to(at.math)
    if at.node.target not in _ADAPTIVE:
        return total / _divisor(at, windows)
    for window in windows:
        total = total / float(window.size)
    return total


def _divisor(at: At, windows: Sequence[Window]) -> Scalar:
    given = argument(at.node, 6, "divisor_override")
    if given is not None:
        return at.const(float(given))
    padding = len(at.node.args) <= 5 or at.node.args[5]
    found, known = None, 1
    for window, form in zip(windows, at.where[-len(windows) :], strict=True):
        low, high = (-window.pad, window.length + window.pad) if padding else (0, window.length)
        reach = (window.out - 1) * window.stride - window.pad + window.size
        if -window.pad >= low and surely("<=", reach, high):
            known *= window.size
            continue
        start = at.index(window.place(form, 0))
        count = (start + window.size).minimum(high) - start.maximum(low)
        found = count if found is None else found * count
    return at.const(float(known)) if found is None else (found * known).to(at.math)


# --- conditions ---


def _small(node: Node) -> bool:
    """Whether the windows are small and of floats on the CPU."""
    x = node.args[0].meta
    count = _RANKS[node.target]
    shapes = x.shape, first_meta(node).shape
    if is_symbolic((node.args, node.kwargs)) or not all(map(positive, shapes)):
        return False
    if len(x.shape) not in (count + 1, count + 2) or x.device.type != "cpu":
        return False
    if not x.dtype.is_floating_point:
        return False
    windows = _windows(node)
    return math.prod(window.size for window in windows) <= MAX_WINDOW


def _max_when(node: Node) -> bool:
    return _small(node) and all(not w.pad or w.dilation == 1 for w in _windows(node))


def _avg_when(node: Node) -> bool:
    """Whether eager sums as the rule does: it refuses narrow floats in three dimensions, or rounds
    each of their sums.
    """
    return _small(node) and (_RANKS[node.target] == 2 or node.meta.dtype in WIDE)


def _adaptive_when(node: Node) -> bool:
    x, out = node.args[0].meta.shape, first_meta(node).shape
    count = _RANKS[node.target]
    if is_symbolic((x, out)) or 0 in out:
        return False
    equal = all(i % o == 0 for i, o in zip(x[-count:], out[-count:], strict=True))
    return equal and (_max_when if node.target in _EQUAL_MAXIMA else _avg_when)(node)


_MAXIMA = (aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
_AVERAGES = (aten.avg_pool2d.default, aten.avg_pool3d.default)
_EQUAL_MAXIMA = (aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
_EQUAL_AVERAGES = (aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
_ADAPTIVE = _EQUAL_MAXIMA + _EQUAL_AVERAGES
_RANKS = {
    op: 2 + number
    for ops in (_MAXIMA, _AVERAGES, _EQUAL_MAXIMA, _EQUAL_AVERAGES)
    for number, op in enumerate(ops)
}
for _when, _ops, _build in (
    (_max_when, _MAXIMA, _max_pool), (_avg_when, _AVERAGES, _avg_pool),
    (_adaptive_when, _EQUAL_MAXIMA, _max_pool), (_adaptive_when, _EQUAL_AVERAGES, _avg_pool),
):  # fmt: skip
    fill(_when, {_ops: _build}, far=first_operand, near=no_near, every=True)
