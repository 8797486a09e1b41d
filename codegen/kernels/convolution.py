"""Convolutions of float32 images by a kernel of ours: forward and transposed, over one or two dimensions.

ATen gives them to oneDNN, which lays image, weight and result out anew at each call, in blocks of sixteen channels, or
chooses sums in one chain (channels last), whose errors are up to three times as large. The kernel, convolution.h, reads
weight and image as they lie, so nothing is kept between calls that could be stale, and writes the result as eager has it,
with eager's errors. `replaced` asks which calls it `takes`; `launch` says what the kernel is given.

Measured on an AMD EPYC with AVX-512 and two threads, ATen / ours in us (batch, channels, side, channels, kernel, stride):
  2 64 32 128 3 1: 1468 / 768    2 128 32 128 3 1: 1479 / 1500    1 64 56 64 3 1: 605 / 590    8 64 56 64 3 1: 4600 / 4800
  4 1 64 16 3 2: 67 / 17         4 32 16 64 3 2: 74 / 34          1 256 14 256 3 1: 669 / 611  1 64 56 128 1 2: 102 / 46
  4 64 8 32 4 2 transposed: 120 / 53    4 16 32 1 4 2 transposed: 191 / 86    1 128 56 2 1 1: 115 / 23
  1 32 56 32 3 1, each channel by itself: 65 / 260: such ones stay ATen's
Slower are a few whose columns are gathered lane by lane for a small batch, and O2 finds that out by measurement; others of the same
sizes, with four images, are not: 1 3 224 64 7 2: 583 / 628, 4 of them 9600 / 2700; 1 3 224 192 16 16: 190 / 215, 4 of them 687 / 688.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...ir.graph.layout import contiguous_strides
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import is_symbolic
from ...runtime.process import hardware as device
from ..analysis import products as matrix_products
from ..analysis.dataflow import memory_of
from ..loops.extents import positive

aten = torch.ops.aten
SYMBOL, FILE = "convolution_f32", "convolution.h"
TAPS = 256  # of a channel; the kernel has room for so many
PHASES = 64  # places of a transposed convolution modulo its strides
ADDRESSES = 1 << 31  # of one channel, in an int32


def takes(node: Node) -> bool:
    """Is this call of ATen one for the kernel?"""
    if node.target is not aten.convolution.default or device.cpu().isa != "avx512":
        return False
    if len(node.args) != 9:
        return False  # called by keywords
    if torch.get_float32_matmul_precision() != "highest":
        return False  # then ATen may round the factors to fewer bits
    return _plain(node) and _fits(node) and matrix_products.measured(node) is not False


def _plain(node: Node) -> bool:
    """Non-empty float32 on the CPU in one group of channels, image and result in order; only batches may vary."""
    image, weight, bias = node.args[:3]
    given = [one.meta for one in (image, weight, bias) if one is not None]
    simple = all(
        meta.dtype is torch.float32 and meta.device.type == "cpu" and positive(meta.shape)
        for meta in (*given, node.meta)
    )
    if not simple or node.args[8] != 1 or len(weight.meta.shape) not in (3, 4):
        return False
    if is_symbolic([(meta.shape[1:], meta.stride[1:]) for meta in (image.meta, node.meta)]):
        return False
    return (
        node.meta.stride == contiguous_strides(node.meta.shape)
        and (image.meta.stride[-1] == 1 or image.meta.shape[-1] == 1)
        and (bias is None or bias.meta.stride == (1,) or bias.meta.shape == (1,))
    )


def _fits(node: Node) -> bool:
    """Does all of it fit the kernel's room and its addresses?"""
    sides = _sides(node)
    planes = [
        meta.shape[-1] + meta.shape[-2] * abs(meta.stride[-2])
        for meta in (node.args[0].meta, node.meta)
    ]
    if math.prod(sides["kernel"]) > TAPS or max(planes) >= ADDRESSES:
        return False
    return not node.args[6] or (
        math.prod(sides["stride"]) <= PHASES and sides["dilation"] == (1, 1)
    )


def _sides(node: Node) -> dict[str, tuple[Any, Any]]:
    """Height and width of everything; of what has a width alone the height is one."""
    image, weight, _bias, stride, padding, dilation, *_rest = node.args
    rank = len(weight.meta.shape) - 2

    def both(values: Any, alone: int) -> tuple[Any, Any]:
        values = tuple(values) * (rank if len(values) == 1 else 1)
        return (alone, *values) if rank == 1 else values

    return {
        "size": both(image.meta.shape[2:], 1),
        "kernel": both(weight.meta.shape[2:], 1),
        "result": both(node.meta.shape[2:], 1),
        "stride": both(stride, 1),
        "padding": both(padding, 0),
        "dilation": both(dilation, 1),
        "step": both(weight.meta.stride[2:], 0),
    }


def launch(node: Node) -> tuple[list[Node], tuple[Any, ...]]:
    """What the kernel reads (its result comes behind), and its numbers: offsets of image, weight and bias (with 0 before
    it if there is none), batch, channels in and out, sizes, strides; the order is that of `Convolution`."""
    image, weight, bias = node.args[:3]
    reads = [memory_of(one) for one in (image, weight, image if bias is None else bias)]
    (_x, x_at), (_w, w_at), (_b, b_at) = reads
    sides, transposed = _sides(node), bool(node.args[6])
    x, w = image.meta, weight.meta
    numbers = (
        x_at, w_at, int(bias is not None), b_at,
        x.shape[0], x.shape[1], node.meta.shape[1],
        *sides["size"], *sides["kernel"], *sides["result"],
        *sides["stride"], *sides["padding"], *sides["dilation"],
        x.stride[0], x.stride[1], _row(x),
        w.stride[transposed], w.stride[not transposed], *sides["step"], int(transposed),
    )  # fmt: skip
    return [base for base, _at in reads], numbers


def _row(meta: Meta) -> Any:
    """From one row of an image to the next; of a single one nobody asks."""
    return meta.stride[-2] if len(meta.shape) == 4 else meta.shape[-1]


def columns(node: Node) -> Any:
    """Places of an image, each channel's in a row; those of a transposed one are not computed side by side."""
    return 0 if node.args[6] else math.prod(node.meta.shape[2:])
