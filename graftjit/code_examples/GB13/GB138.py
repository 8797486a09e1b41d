"""What may raise (a matrix that has no such factor) comes before what is written."""

import torch

from graftjit import jit


# before
calls = []


@jit
def step(x):
    calls.append("step")
    x.add_(1)
    return torch.linalg.cholesky(x)


print(step(torch.eye(4)[::2, ::2]), calls)


# after
calls = []


@jit
def step(x):
    found = torch.linalg.cholesky(x + 1)
    x.add_(1)
    calls.append("step")
    return found


print(step(torch.eye(4)[::2, ::2]), calls)
