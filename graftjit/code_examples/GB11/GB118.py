"""The seed is set before the call."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    y = torch.sin(x)
    torch.manual_seed(3)
    return y + torch.rand(2)


print(step(torch.ones(2)))


# after
@jit
def step(x):
    y = torch.sin(x)
    return y + torch.rand(2)


torch.manual_seed(3)
print(step(torch.ones(2)))
