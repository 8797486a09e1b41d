"""Equal values stand side by side once they are sorted, so that the size is known."""

import torch

from graftjit import jit


# before
@jit
def step(x):
    y = torch.sin(x)
    return torch.unique(y, dim=0).sum()


print(step(torch.tensor([1.0, 2.0, 1.0])))


# after
@jit
def step(x):
    y = torch.sin(x).sort().values
    return torch.where(y.diff(prepend=y[:1] - 1) != 0, y, 0).sum()


print(step(torch.tensor([1.0, 2.0, 1.0])))
