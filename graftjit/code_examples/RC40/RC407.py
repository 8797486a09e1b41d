"""All calls are made in one state."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    return torch.sin(x) * 2


print(step(torch.ones(2)))
with torch.no_grad():
    print(step(torch.ones(2)))


# after
@jit
def step(x):
    return torch.sin(x) * 2


with torch.no_grad():
    print(step(torch.ones(2)))
    print(step(torch.ones(2)))
