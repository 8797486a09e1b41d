"""The class is made once, at the top of the module."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    y = torch.sin(x)

    class Settings:
        scale = 2

    return y * Settings.scale


print(step(torch.ones(2)))


# after
class Settings:
    scale = 2


@jit
def step(x):
    y = torch.sin(x)
    return y * Settings.scale


print(step(torch.ones(2)))
