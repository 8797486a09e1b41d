"""`requires_grad_` is called on the tensor before the call."""

import torch

from graftjit import jit


# before
@jit
def step(weight):
    weight.requires_grad_()
    return torch.sin(weight).sum()


weight = torch.ones(2)
step(weight).backward()
print(weight.grad)


# after
@jit
def step(weight):
    return torch.sin(weight).sum()


weight = torch.ones(2).requires_grad_()
step(weight).backward()
print(weight.grad)
