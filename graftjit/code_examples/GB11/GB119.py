"""The numbers are drawn outside and passed in as a tensor; where they have to vary within the part,
torch's own generator stays in the graph.
"""

import random

import torch

from graftjit import jit

random.seed(1)


# before
@jit
def step(x):
    y = torch.sin(x)
    return y[random.sample(range(4), 2)] + 1


print(step(torch.ones(4)))


# after
@jit
def step(x, at):
    y = torch.sin(x)
    return y[at] + 1


print(step(torch.ones(4), torch.tensor(random.sample(range(4), 2))))
