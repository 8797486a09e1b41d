"""The table is asked by a plain value."""

import torch

from graftjit import jit


class Key:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        return self.number == other.number


# before
@jit
def step(x, table, key):
    y = torch.sin(x)
    return y * table[key]


print(step(torch.ones(2), {Key(1): 5}, Key(1)))


# after
@jit
def step(x, table, number):
    y = torch.sin(x)
    return y * table[number]


print(step(torch.ones(2), {1: 5}, 1))
