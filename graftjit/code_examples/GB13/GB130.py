"""The computation is a plain function, and the coroutine calls it."""

import asyncio

import torch

from graftjit import jit


# before
async def scaled(y):
    return y * 2


@jit
def step(x):
    y = torch.sin(x)
    return asyncio.run(scaled(y))


print(step(torch.ones(2)))


# after
@jit
def step(x):
    y = torch.sin(x)
    return y * 2


async def scaled(x):
    return step(x)


print(asyncio.run(scaled(torch.ones(2))))
