"""A slice in place of a delete that raises."""

import torch

from graftjit import jit


# before
@jit
def step(x, sizes):
    y = torch.sin(x)
    try:
        del sizes[0]
    except TypeError:
        sizes = sizes[1:]
    return y.reshape(sizes)


print(step(torch.ones(4), (4, 2, 2)))


# after
@jit
def step(x, sizes):
    y = torch.sin(x)
    sizes = sizes[1:]
    return y.reshape(sizes)


print(step(torch.ones(4), (4, 2, 2)))
