"""The number is passed as a tensor of one type."""

import torch

from graftjit import jit


# before
@jit
def step(x, scale):
    return torch.sin(x) * scale


for scale in (2, 2.5):
    print(step(torch.ones(2), scale))


# after
@jit
def step(x, scale):
    return torch.sin(x) * scale


for scale in (2, 2.5):
    print(step(torch.ones(2), torch.tensor(float(scale))))
