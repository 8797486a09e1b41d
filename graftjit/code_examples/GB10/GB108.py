"""What is wrong with the arguments is found before the call. A raise that no call reaches costs
nothing.
"""

import torch

from graftjit import jit


# before
@jit
def step(x):
    if x.dim() != 2:
        raise ValueError("a matrix is expected")
    return torch.sin(x).sum(1)


for x in (torch.ones(3), torch.ones(2, 3)):
    try:
        print(step(x))
    except ValueError as error:
        print(error)


# after
@jit
def step(x):
    return torch.sin(x).sum(1)


for x in (torch.ones(3), torch.ones(2, 3)):
    print(step(x) if x.dim() == 2 else "a matrix is expected")
