"""What may raise (an index out of range) comes before what is written."""

import torch

from graftjit import jit


# before
calls = []


@jit
def step(x, at):
    calls.append("step")
    x.add_(1)
    return torch.gather(x, 0, at)


print(step(torch.ones(6)[::2], torch.tensor([0, 1])), calls)


# after
calls = []


@jit
def step(x, at):
    found = torch.gather(x + 1, 0, at)
    x.add_(1)
    calls.append("step")
    return found


print(step(torch.ones(6)[::2], torch.tensor([0, 1])), calls)
