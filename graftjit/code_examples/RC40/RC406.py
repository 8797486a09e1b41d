"""The attribute is there from the beginning."""

import torch

from graftjit import jit


class Settings:
    pass


# before
@jit
def step(x, settings):
    if getattr(settings, "ready", None) is None:
        settings.ready = True
    return torch.sin(x)


settings = Settings()
for _ in range(2):
    print(step(torch.ones(2), settings))


# after
@jit
def step(x, settings):
    if settings.ready is None:
        settings.ready = True
    return torch.sin(x)


settings = Settings()
settings.ready = True
for _ in range(2):
    print(step(torch.ones(2), settings))
