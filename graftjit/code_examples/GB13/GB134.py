"""The backward of a function runs later. What it uses is saved in forward; what it does besides moves out of it."""

import torch

from graftjit import jit

norms = []


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Watched(Rounded):
    @staticmethod
    def backward(ctx, grad):
        norms.append(grad.norm())
        return grad


# before
@jit
def step(x):
    y = x * 3
    return Watched.apply(y) - 1


x = torch.ones(2, requires_grad=True)
y = step(x)
y.sum().backward()
print(y.detach(), x.grad)


# after
@jit
def step(x):
    y = x * 3
    return Rounded.apply(y) - 1


x = torch.ones(2, requires_grad=True)
y = step(x)
y.register_hook(lambda grad: norms.append(grad.norm()))
y.sum().backward()
print(y.detach(), x.grad)
