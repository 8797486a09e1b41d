"""The compiled part gets the plain tensor behind the subclass; as_subclass copies nothing."""

import torch

from graftjit import jit


class Named(torch.Tensor):
    pass


# before
@jit
def step(x, named):
    y = torch.sin(x)
    return (y + named).as_subclass(torch.Tensor) * 2


print(step(torch.ones(2), torch.ones(2).as_subclass(Named)))


# after
@jit
def step(x, plain):
    y = torch.sin(x)
    return (y + plain) * 2


print(step(torch.ones(2), torch.ones(2).as_subclass(Named).as_subclass(torch.Tensor)))
