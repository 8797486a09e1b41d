"""Worlds of calls with one tensor after the other, for programs whose results data decide."""

from __future__ import annotations

import torch
from torch import nn


def giving(*args):
    return lambda: args


def series(fn, tensors):
    """The function, called with one of the tensors after the other."""
    first, *rest = tensors
    return fn, (first,), [giving(one) for one in rest]


def trained(fn):
    """fn(x, layer), called with one tensor after the other; the layer has equal weights in each world."""
    made = torch.Generator().manual_seed(5)
    inputs = [torch.randn(4, 3, generator=made) for _ in range(4)]
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(3, 3, generator=made))
        layer.bias.copy_(torch.randn(3, generator=made))
    return series(lambda x: fn(x, layer), inputs)
