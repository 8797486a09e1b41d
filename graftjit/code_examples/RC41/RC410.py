"""What is named anew in each call is named outside."""

import torch

from graftjit import jit


# before
@jit
def step(x, name):
    return {name: torch.sin(x)}


for number in range(40):
    found = step(torch.ones(2), f"call {number}")
print(found)


# after
@jit
def step(x):
    return torch.sin(x)


for number in range(40):
    found = {f"call {number}": step(torch.ones(2))}
print(found)
