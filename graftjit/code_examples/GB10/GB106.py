"""A mask by the lengths keeps the size of the batch."""

import torch

from graftjit import jit


# before
@jit
def step(x, lengths):
    y = torch.sin(x)
    packed = torch.nn.utils.rnn.pack_padded_sequence(y, lengths, batch_first=True)
    return packed.data.sum()


print(step(torch.ones(2, 3), torch.tensor([3, 1])))


# after
@jit
def step(x, lengths):
    y = torch.sin(x)
    real = torch.arange(x.shape[1]) < lengths[:, None]
    return torch.where(real, y, 0).sum()


print(step(torch.ones(2, 3), torch.tensor([3, 1])))
