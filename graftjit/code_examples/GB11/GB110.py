"""The lock is taken around the call."""

import threading

import torch

from graftjit import jit

LOCK = threading.Lock()


# before
@jit
def step(x):
    y = torch.sin(x)
    with LOCK:
        y = y * 2
    return y


print(step(torch.ones(2)))


# after
@jit
def step(x):
    y = torch.sin(x)
    return y * 2


with LOCK:
    print(step(torch.ones(2)))
