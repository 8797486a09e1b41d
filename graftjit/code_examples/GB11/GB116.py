"""The loop as one operator. A loop of up to 64 equal steps is unrolled."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    y = torch.sin(x)
    for _ in range(100):
        y = y * 0.99
    return y


print(step(torch.ones(2)))


# after
@jit
def step(x):
    y = torch.sin(x)
    return y * 0.99**100


print(step(torch.ones(2)))
