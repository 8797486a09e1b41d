"""Each side is a function of its own; with sizes of both sides, both are compiled once, and that is
all.
"""

import torch

from graftjit import jit


# before
@jit
def step(x):
    return torch.sin(x) * 2 if x.shape[0] > 5 else torch.sin(x) + 1


for size in (3, 4, 6):
    print(step(torch.ones(size)).sum())


# after
@jit(dynamic=True)
def large(x):
    return torch.sin(x) * 2


@jit(dynamic=True)
def small(x):
    return torch.sin(x) + 1


for size in (3, 4, 6):
    print((large if size > 5 else small)(torch.ones(size)).sum())
