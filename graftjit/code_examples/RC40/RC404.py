"""Each function is compiled on its own, and one of them chosen outside."""

import torch

from graftjit import jit


def doubled(x):
    return torch.sin(x) * 2


def halved(x):
    return torch.sin(x) / 2


# before
@jit
def step(x, way):
    return way(x) + 1


for way in (doubled, halved):
    print(step(torch.ones(2), way))


# after
def step(x, way):
    return way(x) + 1


steps = {way: jit(lambda x, way=way: step(x, way)) for way in (doubled, halved)}
for way in (doubled, halved):
    chosen = steps[way]
    print(chosen(torch.ones(2)))
