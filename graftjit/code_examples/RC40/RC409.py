"""The attribute stays, and what varies is a tensor in it."""

import torch

from graftjit import jit


class Settings:
    scale = torch.tensor(5.0)


# before
class Holder:
    inner = Settings()


@jit
def step(x, holder):
    return torch.sin(x) * holder.inner.scale


holder = Holder()
holder.inner = Settings()
holder.inner.scale = torch.tensor(2.0)
print(step(torch.ones(2), holder))
del holder.inner
print(step(torch.ones(2), holder))


# after
@jit
def step(x, settings):
    return torch.sin(x) * settings.scale


settings = Settings()
settings.scale = torch.tensor(2.0)
print(step(torch.ones(2), settings))
settings.scale = torch.tensor(5.0)
print(step(torch.ones(2), settings))
