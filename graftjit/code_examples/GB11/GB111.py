"""The import is at the top of the module."""

import torch

from graftjit import jit

import sys

sys.modules.pop("colorsys", None)


# before
@jit
def step(x):
    y = torch.sin(x)
    import colorsys

    return y * colorsys.ONE_THIRD


print(step(torch.ones(2)))


# after
import colorsys


@jit
def step(x):
    y = torch.sin(x)
    return y * colorsys.ONE_THIRD


print(step(torch.ones(2)))
