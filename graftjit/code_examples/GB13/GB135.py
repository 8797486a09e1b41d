"""What is compiled is made outside; calls of it inside are part of the same graph."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    y = torch.sin(x)
    inner = jit(torch.nn.functional.relu)
    return inner(y) * 2


print(step(torch.ones(2)))


# after
inner = jit(torch.nn.functional.relu)


@jit
def step(x):
    y = torch.sin(x)
    return inner(y) * 2


print(step(torch.ones(2)))
