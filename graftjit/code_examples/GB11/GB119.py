"""The number is drawn outside and passed in; where it has to vary within the part, torch's own
generator stays in the graph.
"""

import random

import torch

from graftjit import jit

random.seed(1)


# before
@jit
def step(x):
    y = torch.sin(x)
    return y * random.random()


print(step(torch.ones(2)))


# after
@jit
def step(x, factor):
    y = torch.sin(x)
    return y * factor


print(step(torch.ones(2), torch.tensor(random.random())))
