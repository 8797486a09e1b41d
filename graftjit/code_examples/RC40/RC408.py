"""Each argument is an object of its own."""

import torch

from graftjit import jit


# before
@jit
def step(x, seen, kept):
    seen.append(x)
    kept.append(torch.sin(x))
    return len(seen)


one = []
print(step(torch.ones(2), [], []), step(torch.ones(2), one, one) - 1)


# after
@jit
def step(x, seen, kept):
    seen.append(x)
    kept.append(torch.sin(x))
    return len(seen)


print(step(torch.ones(2), [], []), step(torch.ones(2), [], []))
