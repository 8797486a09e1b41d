"""Many numbers are one tensor."""

import torch

from graftjit import jit


# before
@jit
def step(x, numbers):
    y = torch.sin(x)
    numbers *= 2
    return y * len(numbers)


print(step(torch.ones(2), list(range(5000))))


# after
@jit
def step(x, numbers):
    y = torch.sin(x)
    numbers = torch.cat([numbers, numbers])
    return y * len(numbers)


print(step(torch.ones(2), torch.arange(5000)))
