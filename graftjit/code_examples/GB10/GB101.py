"""Keys of a pattern that are looked up: Python compares them with each other before it matches."""

import torch

from graftjit import jit


class Names:
    SCALE = "scale"


# before
@jit
def step(x, table):
    y = torch.sin(x)
    try:
        match table:
            case {Names.SCALE: scale, "scale": again}:
                y = y * scale * again
    except ValueError:
        y = y * 2
    return y


print(step(torch.ones(2), {"scale": 3, "shift": 1}))


# after
@jit
def step(x, table):
    y = torch.sin(x)
    if Names.SCALE == "scale":
        y = y * 2
    return y


print(step(torch.ones(2), {"scale": 3, "shift": 1}))
