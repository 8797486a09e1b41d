"""A list is handed out, and its iterator made outside."""

import torch

from graftjit import jit


# before
@jit
def step(x, table):
    left = iter(table)
    table["more"] = torch.sin(x)
    return left


table = {"less": 1}
print(type(step(torch.ones(2), table)).__name__, table)


# after
@jit
def step(x, table):
    table["more"] = torch.sin(x)


table = {"less": 1}
left = iter(table)
step(torch.ones(2), table)
print(type(left).__name__, table)
