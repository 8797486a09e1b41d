"""The value is returned, and saved by who called."""

import io

import torch

from graftjit import jit

FILE = io.BytesIO()


# before
@jit
def step(x):
    y = torch.sin(x)
    torch.save(y, FILE)
    return torch.cos(y)


print(step(torch.ones(2)))


# after
@jit
def step(x):
    y = torch.sin(x)
    return torch.cos(y), y


result, y = step(torch.ones(2))
torch.save(y, FILE)
print(result)
