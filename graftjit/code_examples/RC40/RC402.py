"""Batches are padded to one size. (A size that keeps changing is compiled once more, and then for
all sizes.)
"""

import torch

from graftjit import jit


# before
@jit
def step(x):
    return torch.sin(x).sum()


for size in (3, 2):
    print(step(torch.ones(size)))


# after
@jit
def step(x):
    return torch.sin(x).sum()


for size in (3, 2):
    print(step(torch.nn.functional.pad(torch.ones(size), (0, 3 - size))))
