"""What varies from call to call is a tensor."""

import torch

from graftjit import jit


# before
@jit
def step(x, power):
    return torch.sin(x) ** power


for power in (2, 3):
    print(step(torch.ones(2), power))


# after
@jit
def step(x, power):
    return torch.sin(x) ** power


for power in (2, 3):
    print(step(torch.ones(2), torch.tensor(power)))
