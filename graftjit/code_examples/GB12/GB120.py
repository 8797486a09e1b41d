"""What is iterated over is made a list before the call."""

import io

import torch

from graftjit import jit


# before
@jit
def step(x, lines):
    y = torch.sin(x)
    for line in lines:
        y = y + len(line)
    return y


print(step(torch.ones(2), io.StringIO("one\ntwo\n")))


# after
@jit
def step(x, lines):
    y = torch.sin(x)
    for line in lines:
        y = y + len(line)
    return y


print(step(torch.ones(2), list(io.StringIO("one\ntwo\n"))))
