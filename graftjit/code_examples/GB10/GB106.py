"""What is not selected becomes zero, so that the size is known."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    y = torch.sin(x)
    return y[y > 0].sum()


print(step(torch.tensor([1.0, -1.0])))


# after
@jit
def step(x):
    y = torch.sin(x)
    return torch.where(y > 0, y, 0).sum()


print(step(torch.tensor([1.0, -1.0])))
