"""The metaclass answers each look at an attribute by code of its own; the value is taken from it
once, outside.
"""

import torch

from graftjit import jit


class Registry(type):
    def __getattribute__(cls, name):
        return super().__getattribute__(name)


class Settings(metaclass=Registry):
    scale = 3


# before
@jit
def step(x):
    y = torch.sin(x)
    return y * Settings.scale


print(step(torch.ones(2)))


# after
@jit
def step(x, scale):
    y = torch.sin(x)
    return y * scale


print(step(torch.ones(2), Settings.scale))
