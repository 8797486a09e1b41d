"""Both values are computed, and torch.where takes one: one entry serves both kinds of masks."""

import torch

from graftjit import jit


# before
@jit
def step(x, mask):
    y = torch.sin(x)
    if mask.all():
        y = y * 2
    return torch.cos(y)


for kept in ([True, True], [True, False]):
    print(step(torch.ones(2), torch.tensor(kept)))


# after
@jit
def step(x, mask):
    y = torch.sin(x)
    y = torch.where(mask.all(), y * 2, y)
    return torch.cos(y)


for kept in ([True, True], [True, False]):
    print(step(torch.ones(2), torch.tensor(kept)))
