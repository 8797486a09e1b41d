"""The array becomes a tensor before the call (torch.from_numpy shares its memory), and the operator
is torch's.
"""

import numpy as np
import torch

from graftjit import jit


# before
@jit
def step(x, weights):
    y = torch.sin(x)
    return y * float(np.sum(weights))


print(step(torch.ones(2), np.arange(3.0)))


# after
@jit
def step(x, weights):
    y = torch.sin(x)
    return y * torch.sum(weights).float()


print(step(torch.ones(2), torch.from_numpy(np.arange(3.0))))
