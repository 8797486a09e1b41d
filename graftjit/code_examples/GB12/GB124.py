"""A draw that depends on a tensor's data, by a generator of one's own, is made of uniform numbers:
these are drawn before the graph.
"""

import torch

from graftjit import jit

generator = torch.Generator().manual_seed(0)


# before
@jit
def step(x):
    y = torch.sin(x)
    return y + torch.bernoulli(x / 2, generator=generator)


print(step(torch.ones(2)))


# after
@jit
def step(x):
    y = torch.sin(x)
    return y + (torch.rand(2, generator=generator) < x / 2).float()


print(step(torch.ones(2)))
