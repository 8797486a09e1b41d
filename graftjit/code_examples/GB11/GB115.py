"""Registering a parameter is left to the code around the compiled part."""

import torch

from graftjit import jit

layer = torch.nn.Linear(2, 2)
weight = torch.nn.Parameter(torch.eye(2))


# before
@jit
def step(x):
    y = torch.sin(x)
    layer.weight = weight
    return y * 2


print(step(torch.ones(2)), layer.weight is weight)


# after
@jit
def step(x):
    y = torch.sin(x)
    return y * 2


layer.weight = weight
print(step(torch.ones(2)), layer.weight is weight)
