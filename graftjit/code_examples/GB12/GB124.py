"""A generator of one's own is used outside. Without one, torch.rand stays in the graph and draws
from torch's.
"""

import torch

from graftjit import jit

generator = torch.Generator().manual_seed(0)


# before
@jit
def step(x):
    y = torch.sin(x)
    return y + torch.rand(2, generator=generator)


print(step(torch.ones(2)))


# after
@jit
def step(x, noise):
    y = torch.sin(x)
    return y + noise


print(step(torch.ones(2), torch.rand(2, generator=generator)))
