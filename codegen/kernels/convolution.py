"""Convolutions of float32 images by graftjit's kernel: forward and transposed, over one or two
dimensions.

ATen gives them to oneDNN. oneDNN packs image, weight and result anew at each call, in blocks of
sixteen channels, or it sums in one chain (channels last), with errors up to three times as large.
The kernel, convolution.h, reads weight and image in their own layout, so it keeps nothing between
calls that could be stale. It writes the result in eager's layout and with eager's errors.
`registry` uses `takes` to choose the calls, and `launch` for the arguments of the kernel.

Measured on an AMD EPYC with AVX-512 and two threads, ATen / graftjit in us (batch, channels, side,
channels, kernel, stride):

    2 64 32 128 3 1: 1468 / 768    2 128 32 128 3 1: 1479 / 1500
    1 64 56 64 3 1: 605 / 590      8 64 56 64 3 1: 4600 / 4800
    4 1 64 16 3 2: 67 / 17         4 32 16 64 3 2: 74 / 34
    1 256 14 256 3 1: 669 / 611    1 64 56 128 1 2: 102 / 46
    1 128 56 2 1 1: 115 / 23
    4 64 8 32 4 2 transposed: 120 / 53
    4 16 32 1 4 2 transposed: 191 / 86
    1 32 56 32 3 1, each channel by itself: 65 / 260 (ATen keeps such calls)

With AVX2 and one thread, ATen / graftjit in 10^9 operations a second (of 94), the weights one after
another out of 60 MB:

    1 64 56 64 3 1: 58 / 56        1 128 28 128 3 1: 66 / 74
    1 256 14 256 3 1: 56 / 68      1 512 7 512 3 1: 29 / 38
    1 64 56 256 1 1: 35 / 56       1 256 56 64 1 1: 54 / 64
    1 16 112 64 1 1: 17 / 45       1 24 56 72 1 1: 51 / 71
    1 128 56 128 3 2: 58 / 71      1 64 56 128 1 2: 27 / 51
    1 3 224 16 3 2: 23 / 25        1 3 224 96 4 4: 27 / 43
    not taken (`_pays`): 1 3 224 64 7 2: 53 / 43, 1 32 256 32 3 1: 66 / 49

The kernel is slower for a few small batches whose columns are gathered lane by lane; O2 detects
them by measurement. Four images of the same sizes are faster: 1 3 224 64 7 2: 583 / 628, 4 of them
9600 / 2700; 1 3 224 192 16 16: 190 / 215, 4 of them 687 / 688.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...ir.graph.layout import contiguous_strides
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import is_symbolic
from ...runtime.process import hardware
from ..analysis import products
from ..analysis.dataflow import memory_of
from ..loops.extents import positive

aten = torch.ops.aten
SYMBOL, FILE = "convolution_f32", "convolution.h"
TAPS = 256  # the most taps of a channel; the kernel has arrays of a fixed size
MANY, PAGE = 25, 1024  # taps, and elements of a page, see `_pays`
PHASES = 64  # the most positions of a transposed convolution modulo its strides
ADDRESSES = 1 << 31  # the bound of the addresses of one channel, which are int32


def takes(node: Node) -> bool:
    """Whether the kernel can compute this call of ATen, and pays."""
    if not (plain(node) and node.args[8] == 1 and _fits(node)):
        return False
    found = products.measured(node)
    return _pays(node) if found is None else found


def _pays(node: Node) -> bool:
    """With AVX2 the kernel has half the lanes and registers: oneDNN is ahead of it where gathering
    the image takes long beside the products, for many taps, and for few channels of images whose
    channels are a multiple of a page apart, which share their places in the caches.
    """
    if hardware.cpu().isa == "avx512" or node.args[6]:
        return True
    (_batch, channels, *plane), out = node.args[0].meta.shape, node.meta.shape[1]
    taps = math.prod(sides(node)["kernel"])
    if out < 4 or (taps > MANY and max(sides(node)["stride"]) < 4):
        return False
    pages = math.prod(plane) >= 4 * PAGE and node.args[0].meta.stride[1] % PAGE == 0
    return not (pages and taps > 1 and channels >= 16 and out <= 64)


def plain(node: Node) -> bool:
    """Whether this is a convolution on a processor with AVX-512 or AVX2, of non-empty float32
    images over one or two dimensions, with contiguous rows and result; only the batch size may be
    symbolic.
    """
    if node.target is not aten.convolution.default or hardware.cpu().isa not in hardware.VECTORS:
        return False
    if len(node.args) != 9:
        return False  # called by keywords
    if torch.get_float32_matmul_precision() != "highest":
        return False  # then ATen may round the factors to fewer bits
    image, weight, bias = node.args[:3]
    given = [one.meta for one in (image, weight, bias) if one is not None]
    simple = all(
        meta.dtype is torch.float32 and meta.device.type == "cpu" and positive(meta.shape)
        for meta in (*given, node.meta)
    )
    if not simple or len(weight.meta.shape) not in (3, 4):
        return False
    if is_symbolic([(meta.shape[1:], meta.stride[1:]) for meta in (image.meta, node.meta)]):
        return False
    return (
        node.meta.stride == contiguous_strides(node.meta.shape)
        and (image.meta.stride[-1] == 1 or image.meta.shape[-1] == 1)
        and (bias is None or bias.meta.stride == (1,) or bias.meta.shape == (1,))
    )


def _fits(node: Node) -> bool:
    """Whether the call fits the kernel's arrays and addresses."""
    lengths = sides(node)
    planes = [
        meta.shape[-1] + meta.shape[-2] * abs(meta.stride[-2])
        for meta in (node.args[0].meta, node.meta)
    ]
    if math.prod(lengths["kernel"]) > TAPS or max(planes) >= ADDRESSES:
        return False
    return not node.args[6] or (
        math.prod(lengths["stride"]) <= PHASES and lengths["dilation"] == (1, 1)
    )


def sides(node: Node) -> dict[str, tuple[Any, Any]]:
    """Height and width of each parameter; the height is one if there is only a width."""
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
    """The tensors that the kernel reads (its result follows them), and its numbers: those of
    `common`, strides of the weight, and whether it is transposed; in the order of `Convolution`.
    """
    read, numbers = common(node)
    transposed, w = bool(node.args[6]), node.args[1].meta
    steps = w.stride[transposed], w.stride[not transposed], *sides(node)["step"]
    return read, (*numbers, *steps, int(transposed))


def common(node: Node) -> tuple[list[Node], tuple[Any, ...]]:
    """The tensors that a kernel of convolutions reads, and its first numbers.

    The numbers are: offsets of image, weight and bias (before that of the bias: 0 if there is
    none), batch, channels in and out, sizes, strides of the image.
    """
    image, weight, bias = node.args[:3]
    reads = [memory_of(one) for one in (image, weight, image if bias is None else bias)]
    (_x, x_at), (_w, w_at), (_b, b_at) = reads
    lengths, x = sides(node), image.meta
    numbers = (
        x_at, w_at, int(bias is not None), b_at,
        x.shape[0], x.shape[1], node.meta.shape[1],
        *lengths["size"], *lengths["kernel"], *lengths["result"],
        *lengths["stride"], *lengths["padding"], *lengths["dilation"],
        x.stride[0], x.stride[1], _row(x),
    )  # fmt: skip
    return [base for base, _at in reads], numbers


def _row(meta: Meta) -> Any:
    """The distance of two rows of an image; of a single row it is not used."""
    return meta.stride[-2] if len(meta.shape) == 4 else meta.shape[-1]


def columns(node: Node) -> Any:
    """The positions of an image, those of each channel in a row; 0 for a transposed convolution,
    whose positions are not computed side by side.
    """
    return 0 if node.args[6] else math.prod(node.meta.shape[2:])
