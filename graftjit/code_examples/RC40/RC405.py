"""A running sum in place of a list that grows."""

import torch

from graftjit import jit


# before
@jit
def step(x, history):
    history.append(torch.sin(x))
    return sum(history)


history = []
for _ in range(3):
    print(step(torch.ones(2), history))


# after
@jit
def step(x, total):
    return total + torch.sin(x)


total = torch.zeros(2)
for _ in range(3):
    total = step(torch.ones(2), total)
    print(total)
