"""The class pattern comes first: whether an object counts as a sequence is nothing that a class says for good."""

import torch

from graftjit import jit


class Pair:
    def __init__(self, scale, shift):
        self.scale = scale
        self.shift = shift


# before
@jit
def step(x, pair):
    y = torch.sin(x)
    match pair:
        case [scale, shift]:
            y = y * scale + shift
        case Pair(scale=scale, shift=shift):
            y = y * scale + shift
    return y


print(step(torch.ones(2), Pair(2, 3)))


# after
@jit
def step(x, pair):
    y = torch.sin(x)
    match pair:
        case Pair(scale=scale, shift=shift):
            y = y * scale + shift
        case [scale, shift]:
            y = y * scale + shift
    return y


print(step(torch.ones(2), Pair(2, 3)))
