"""A loop in place of a recursion."""

import torch

from graftjit import jit


# before
def climb(x, steps):
    return x if steps == 0 else climb(x + steps, steps - 1)


@jit
def step(x):
    return climb(torch.sin(x), 80)


print(step(torch.ones(2)))


# after
def climb(x, steps):
    for number in range(steps, 0, -1):
        x = x + number
    return x


@jit
def step(x):
    return climb(torch.sin(x), 80)


print(step(torch.ones(2)))
