"""Lowering of interpolation: nearest, linear, bilinear, trilinear and bicubic upsampling.

Each dimension gives its taps: positions of the operand, and their weights. They are computed where
they are used, with eager's arithmetic to the bit (ATen's UpSample.h: in float for narrow types,
`scale * (i + 0.5) - 0.5` rounded once, floor of the float, a weight cut to [0, 1]). The taps of the
last dimension are summed first, as in ATen's kernel for rows. Where ATen multiplies the weights of
the dimensions first (channels last), the last bit may differ. Positions are 32-bit numbers if the
operand is small enough: neighbours along a row then read nearby elements (`ldg` in math.h), and if
the channels are contiguous, all positions are plain numbers, computed once per pixel
(`cpp.scalars`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.layout import is_channels_last
from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import decided, is_symbolic
from ..loops.affine import Map
from ..loops.extents import positive, surely
from ..loops.loop_nest import Index
from .builder import At, Scalar, fill, first_operand, no_near

aten = torch.ops.aten
FEW_ELEMENTS = 1 << 31  # positions of a tensor with fewer elements are 32-bit numbers
# the sum of height and width of a result up to which ATen uses its kernel for channels last
SMALL = 128


@dataclass(frozen=True, slots=True)
class Side:
    """One dimension: its sizes, the factor that the program gave (or None), and whether the corners
    are aligned.
    """

    size: Any
    out: Any
    given: Any
    aligned: bool = False

    @property
    def as_is(self) -> bool:
        return self.size is self.out or surely("==", self.size, self.out)


Tap = tuple[Index, Scalar | None]  # the position along a dimension, and its weight


def _sides(node: Node) -> list[Side]:
    """The dimensions that are interpolated."""
    x, rank = node.args[0].meta.shape, _RANKS[node.target]
    first = 2 if node.target in _NEAREST or node.target in _EXACT else 3
    aligned = first == 3 and bool(node.args[2])
    given = [*node.args[first:], *[None] * rank][:rank]
    rows = zip(x[2:], node.meta.shape[2:], given, strict=True)
    return [Side(*row, aligned) for row in rows]


def _kind(node: Node) -> torch.dtype:
    """The dtype in which eager computes positions and weights."""
    return torch.float64 if node.meta.dtype == torch.float64 else torch.float32


def _whole(node: Node) -> torch.dtype:
    """The dtype of positions."""
    meta = node.args[0].meta
    if is_symbolic((meta.shape, meta.stride, node.meta.shape)):
        return torch.int64
    reach = sum(step * (size - 1) for step, size in zip(meta.stride, meta.shape, strict=True))
    small = max(reach, *node.meta.shape) < FEW_ELEMENTS
    return torch.int32 if small else torch.int64


# --- the positions that an output reads ---


def _scale(at: At, side: Side, kind: torch.dtype) -> Scalar:
    """Steps of the operand per step of the result; a quotient of two sizes is rounded as
    in eager.
    """
    over, under = side.size, side.out
    if side.aligned:
        if side.out == 1:
            return at.const(0.0, kind)
        over, under = side.size - 1, side.out - 1
    elif side.given is not None and side.given > 0:
        return at.const(1.0 / side.given, kind)
    if is_symbolic((over, under)):
        return at.const(over, kind) / under
    quotient = torch.tensor(over, dtype=kind) / torch.tensor(under, dtype=kind)
    return at.const(quotient.item(), kind)


def _position(at: At, form: Index, kind: torch.dtype) -> Scalar:
    return at.index(form, _whole(at.node)).to(kind)


def _centre(at: At, form: Index, side: Side, kind: torch.dtype, cubic: bool = False) -> Scalar:
    """The coordinate in the operand, of type `kind`."""
    scale, place = _scale(at, side, kind), _position(at, form, kind)
    if side.aligned:
        return scale * place
    found = scale.fma(place + 0.5, -0.5)
    return found if cubic else found.maximum(0.0)


def _below(at: At, real: Scalar, side: Side) -> Scalar:
    """min(int(floor(float(real))), size - 1): eager uses floorf for doubles, too."""
    return real.to(torch.float32).floor().to(_whole(at.node)).minimum(side.size - 1)


def _part(real: Scalar, low: Scalar) -> Scalar:
    """The distance from that position, in [0, 1]."""
    return (real - low.to(real.dtype)).maximum(0.0).minimum(1.0)


# --- taps of one dimension ---


def _linear_taps(at: At, form: Index, side: Side) -> list[Tap]:
    kind = _kind(at.node)
    if side.as_is:
        return [(form, at.const(1.0, kind)), (form, at.const(0.0, kind))]
    real = _centre(at, form, side, kind)
    low = _below(at, real, side)
    high = (low + 1).minimum(side.size - 1)
    part = _part(real, low)
    return [(at.place(low), 1.0 - part), (at.place(high), part)]


def _cubic_taps(at: At, form: Index, side: Side) -> list[Tap]:
    real = _centre(at, form, side, _kind(at.node), cubic=True)
    low = _below(at, real, side)
    last, zero = low.const(side.size - 1), low.const(0)
    moved = (low + step if step else low for step in range(-1, 3))
    places = [place.minimum(last).maximum(zero) for place in moved]
    weights = _cubic_weights(_part(real, low))
    return [(at.place(place), weight) for place, weight in zip(places, weights, strict=True)]


def _cubic_weights(part: Scalar) -> list[Scalar]:
    """Cubic convolution with a = -0.75 (Keys 1981), as in ATen's UpSample.h."""
    a, one = -0.75, part.const(1.0)

    def horner(x: Scalar, first: float, *others: float) -> Scalar:
        found = x.const(first)
        for other in others:
            found = found.fma(x, other)
        return found

    def near(x: Scalar) -> Scalar:  # ((a + 2) x - (a + 3)) x x + 1
        return (horner(x, a + 2, -(a + 3)) * x).fma(x, one)

    def far(x: Scalar) -> Scalar:  # ((a x - 5 a) x + 8 a) x - 4 a
        return horner(x + one, a, -5 * a, 8 * a, -4 * a)

    rest = one - part
    return [far(part), near(part), near(rest), far(rest)]


# --- nearest ---


def _nearest_taps(at: At, form: Index, side: Side) -> list[Tap]:
    """min(floor(i * scale), size - 1). ATen's kernel for channels last computes in float and treats
    a factor of 2 specially.
    """
    listed = _is_listed(at.node)
    if side.as_is and (listed or side.given in (None, 1.0)):
        return [(form, None)]
    kind = torch.float32 if listed else _kind(at.node)
    doubled = listed and side.out == 2 * side.size
    scale = at.const(0.5, kind) if doubled else _scale(at, side, kind)
    return [(at.place(_below(at, _position(at, form, kind) * scale, side)), None)]


def _exact_taps(at: At, form: Index, side: Side) -> list[Tap]:
    """The position whose centre is nearest; one of ATen's kernels subtracts a half and
    adds it again.
    """
    listed = _is_listed(at.node)
    kind = torch.float32 if listed else _kind(at.node)
    half = at.const(0.5, kind)
    if listed:
        real = (_position(at, form, kind) + half) * _scale(at, side, kind)
    else:
        real = _centre(at, form, side, kind) + half
    return [(at.place(_below(at, real, side)), None)]


def _is_listed(node: Node) -> bool:
    """Whether ATen uses its kernel for channels last (`_use_vectorized_kernel_cond_2d` and
    `_3d`).
    """
    rank, meta = _RANKS[node.target], node.args[0].meta
    if rank == 1:
        return False
    last = is_channels_last(meta.shape, meta.stride) and meta.shape[1] > 3
    return last or (rank == 2 and sum(node.meta.shape[2:]) <= SMALL)


def _decided_kernel(node: Node) -> bool:
    """Whether it is known which of its kernels ATen uses."""
    meta = node.args[0].meta
    return _RANKS[node.target] == 1 or not is_symbolic((meta.shape, meta.stride, node.meta.shape))


# --- all dimensions ---


Taps = Callable[[At, Index, Side], list[Tap]]


def _interpolation(taps: Taps) -> Callable[[At], Scalar]:
    def build(at: At) -> Scalar:
        sides = _sides(at.node)
        rows = [taps(at, form, side) for form, side in zip(at.where[2:], sides, strict=True)]
        return _mixed(at, at.where[:2], rows)

    return build


def _mixed(at: At, before: Map, rows: Sequence[list[Tap]]) -> Scalar:
    """The sum over the taps of the dimensions from here on; those of the last one are
    summed first.
    """
    if not rows:
        value = at.fetch(at.arg(0), before)
        return value if at.node.target in _ONE_TAP else value.to(_kind(at.node))
    found = [(_mixed(at, (*before, place), rows[1:]), weight) for place, weight in rows[0]]
    (first, weight), *others = found
    if weight is None:
        return first
    if len(others) == 1:  # the first product is not rounded by itself
        other, part = others[0]
        return first.fma(weight, other * part)
    total = first * weight
    for other, part in others:
        total = other.fma(part, total)
    return total


def _when(node: Node) -> bool:
    """Whether sizes are positive, it is known whether each dimension keeps its size, and factors
    are plain numbers.
    """
    x = node.args[0].meta
    floats = node.target in _NEAREST or x.dtype.is_floating_point
    if not floats or node.kwargs or x.device.type != "cpu" or x.shape[:2] != node.meta.shape[:2]:
        return False
    if not positive(x.shape) or not positive(node.meta.shape) or is_symbolic(node.args[2:]):
        return False
    sides = _sides(node)
    if any(side.aligned and decided("==", side.out, 1) is None for side in sides):
        return False
    if any(decided("==", side.size, side.out) is None for side in sides):
        return False
    return node.target not in _ONE_TAP or _decided_kernel(node)


_NEAREST = {getattr(aten, f"upsample_nearest{rank}d").default: rank for rank in (1, 2, 3)}
_EXACT = {getattr(aten, f"_upsample_nearest_exact{rank}d").default: rank for rank in (1, 2, 3)}
_LINEAR = {
    aten.upsample_linear1d.default: 1, aten.upsample_bilinear2d.default: 2,
    aten.upsample_trilinear3d.default: 3,
}  # fmt: skip
_CUBIC = {aten.upsample_bicubic2d.default: 2}
_ONE_TAP = {**_NEAREST, **_EXACT}  # no arithmetic
_RANKS = {**_ONE_TAP, **_LINEAR, **_CUBIC}

fill(_when, {
    tuple(_NEAREST): _interpolation(_nearest_taps),
    tuple(_EXACT): _interpolation(_exact_taps),
}, far=first_operand, near=no_near, moves=True, symbolic="sizes")  # fmt: skip
fill(_when, {
    tuple(_LINEAR): _interpolation(_linear_taps),
    tuple(_CUBIC): _interpolation(_cubic_taps),
}, far=first_operand, near=no_near, symbolic="sizes")  # fmt: skip
