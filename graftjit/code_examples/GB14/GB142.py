"""Call of what the program has disabled for compilers: it runs in plain Python. The decorator is
left out where it is not needed.
"""

import torch

from graftjit import jit


# before
@torch.compiler.disable
def scale(x):
    return x * 2


@jit
def step(x):
    return scale(torch.sin(x)) + 1


print(step(torch.ones(2)))


# after
def scale(x):
    return x * 2


@jit
def step(x):
    return scale(torch.sin(x)) + 1


print(step(torch.ones(2)))
