"""What is wanted of locals() is named."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    y = torch.sin(x)
    found = locals()
    return found["y"] * len(found)


print(step(torch.ones(2)))


# after
@jit
def step(x):
    y = torch.sin(x)
    found = {"x": x, "y": y}
    return found["y"] * len(found)


print(step(torch.ones(2)))
