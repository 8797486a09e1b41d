"""The number is drawn outside, and what it decides is passed in; where it has to vary within the
part, torch's own generator stays in the graph.
"""

import random

import torch

from graftjit import jit

random.seed(1)


# before
@jit
def step(x):
    y = torch.sin(x)
    if random.random() < 0.5:
        y = -y
    return y + 1


print(step(torch.ones(2)))


# after
@jit
def step(x, sign):
    y = torch.sin(x)
    return y * sign + 1


print(step(torch.ones(2), torch.tensor(-1.0 if random.random() < 0.5 else 1.0)))
