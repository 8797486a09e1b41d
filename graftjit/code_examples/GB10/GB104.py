"""The sum stays a tensor: one without dimensions works in arithmetic as a number does."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    y = torch.sin(x)
    total = float(y.sum().numpy())
    return y / total


print(step(torch.ones(2)))


# after
@jit
def step(x):
    y = torch.sin(x)
    total = y.sum()
    return y / total


print(step(torch.ones(2)))
