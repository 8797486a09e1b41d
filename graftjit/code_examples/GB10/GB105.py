"""Both ways are computed, and torch.where takes one."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    y = torch.sin(x)
    if y.sum() > 0:
        y = y * 2
    return torch.cos(y)


print(step(torch.ones(2)))


# after
@jit
def step(x):
    y = torch.sin(x)
    y = torch.where(y.sum() > 0, y * 2, y)
    return torch.cos(y)


print(step(torch.ones(2)))
