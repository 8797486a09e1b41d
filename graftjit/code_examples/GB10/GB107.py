"""A generator that is stepped by hand becomes a list; one that a for loop or sum() uses up is fine
as it is.
"""

import io

import torch

from graftjit import jit

FILE = io.BytesIO()


# before
def halves(x, times):
    for _ in range(times):
        x = x / 2
        yield x


@jit
def step(x):
    found = halves(torch.sin(x), 3)
    torch.save(next(found), FILE)
    return next(found)


print(step(torch.ones(2)))


# after
def halves(x, times):
    found = []
    for _ in range(times):
        x = x / 2
        found.append(x)
    return found


@jit
def step(x):
    return halves(torch.sin(x), 3)


found = step(torch.ones(2))
torch.save(found[0], FILE)
print(found[1])
