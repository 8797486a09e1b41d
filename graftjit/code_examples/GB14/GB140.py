"""The call is taken out again when nothing is to be looked at any more."""

import torch

from graftjit import graft_break, jit


# before
@jit
def step(x):
    y = torch.sin(x)
    graft_break("is it this half?")
    return torch.cos(y)


print(step(torch.ones(2)))


# after
@jit
def step(x):
    y = torch.sin(x)
    return torch.cos(y)


print(step(torch.ones(2)))
