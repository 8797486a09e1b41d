"""The object is closed by who made it, after the call."""

import torch

from graftjit import jit

log = []


class Watched:
    def __del__(self):
        log.append("closed")


# before
@jit
def step(x):
    watched = Watched()
    y = torch.sin(x)
    watched = None
    log.append("computed")
    return y, watched


step(torch.ones(2))
print(sorted(log))


# after
@jit
def step(x):
    y = torch.sin(x)
    log.append("computed")
    return y


watched = Watched()
step(torch.ones(2))
del watched
print(sorted(log))
