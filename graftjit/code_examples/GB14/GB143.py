"""A custom operator without a fake rule: its graph ends before it. The rule makes it a step."""

import torch

from graftjit import jit


# before
@torch.library.custom_op("example::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() / 2)


@jit
def step(x):
    return halved(torch.sin(x)) + 1


print(step(torch.ones(2)))


# after
@torch.library.custom_op("example::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() / 2)


@halved.register_fake
def _(x):
    return torch.empty_like(x)


@jit
def step(x):
    return halved(torch.sin(x)) + 1


print(step(torch.ones(2)))
