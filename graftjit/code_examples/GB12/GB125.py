"""An iterator that is beyond the end of its list cannot be made again: it is drawn from before
the list shrinks.
"""

import torch

from graftjit import jit


# before
@jit
def step(x, table):
    left = iter(table)
    first, second = next(left), next(left)
    table.clear()
    return torch.sin(x) * first * second, left


print(step(torch.ones(2), [2, 3, 4])[0])


# after
@jit
def step(x, table):
    first, second = table[0], table[1]
    table.clear()
    return torch.sin(x) * first * second, iter(table)


print(step(torch.ones(2), [2, 3, 4])[0])
