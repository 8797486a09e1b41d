"""Depthwise convolutions of float32 images by graftjit's kernel: each channel of the result reads
one channel of the image, over one or two dimensions.

ATen gives them to oneDNN, which packs image, weight and result anew at each call, in blocks of
sixteen channels, or computes them itself. The kernel, depthwise.h, reads weight and image in their
own layout, keeps nothing between calls, and writes the result in eager's layout.

Measured with AVX2 and one thread of a busy AMD EPYC, the kernel's time over ATen's (channels, side,
kernel, stride): 16 112 3 1: 0.7, 64 56 3 1: 0.6, 64 112 3 2: 1.0, 120 28 5 1: 0.6, 240 28 3 2: 0.5,
480 14 3 1: 0.5, 672 14 5 2: 0.7, 960 7 5 1: 0.7, 96 56 7 1: 1.05.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.graph.nodes import Node
from ..analysis import products
from .convolution import columns, common, plain, sides

# `columns` are those of the other convolutions.
__all__ = ["FILE", "SYMBOL", "columns", "depthwise", "launch", "takes"]

SYMBOL, FILE = "depthwise_f32", "depthwise.h"
TAPS = 256  # the most taps of a channel; the kernel has an array of a fixed size


def takes(node: Node) -> bool:
    """Whether the kernel can compute this call of ATen, and pays."""
    return plain(node) and depthwise(node) and _fits(node) and products.measured(node) is not False


def depthwise(node: Node) -> bool:
    """Whether each channel of the result reads one channel of the image. A single channel is left
    to the other kernel, which computes several channels of the result at a time.
    """
    image, weight = node.args[0].meta, node.args[1].meta
    return not node.args[6] and node.args[8] == image.shape[1] > 1 and weight.shape[1] == 1


def _fits(node: Node) -> bool:
    """Whether the call fits the kernel's array, and its addresses in a row are int32."""
    _height, width = sides(node)["size"]
    return math.prod(sides(node)["kernel"]) <= TAPS and width < 1 << 26


def launch(node: Node) -> tuple[list[Node], tuple[Any, ...]]:
    """The tensors that the kernel reads (its result follows them), and its numbers: those of
    `common` and strides of the weight, in the order of `Depthwise`.
    """
    read, numbers = common(node)
    return read, (*numbers, node.args[1].meta.stride[0], *sides(node)["step"])
