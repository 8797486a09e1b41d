"""The value is returned, and printed by who called."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    y = torch.sin(x)
    print("mean", y.mean())
    return torch.cos(y)


step(torch.ones(2))


# after
@jit
def step(x):
    y = torch.sin(x)
    return torch.cos(y), y.mean()


_, mean = step(torch.ones(2))
print("mean", mean)
