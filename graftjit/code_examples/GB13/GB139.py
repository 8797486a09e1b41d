"""The object is closed by who made it, after the call."""

import torch

from graftjit import jit

told = []


class Watched:
    def __del__(self):
        told.append("closed")


# before
@jit
def step(x):
    watched = Watched()
    y = torch.sin(x)
    watched = None
    told.append("computed")
    return y, watched


step(torch.ones(2))
print(sorted(told))


# after
@jit
def step(x):
    y = torch.sin(x)
    told.append("computed")
    return y


watched = Watched()
step(torch.ones(2))
del watched
print(sorted(told))
