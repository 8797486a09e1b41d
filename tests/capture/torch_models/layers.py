"""A small model for programs over modules, and handles of hooks that are numbered alike in each run."""

from __future__ import annotations

import torch
from torch import nn


def model_of_layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))


def handles_from_zero():
    torch.utils.hooks.RemovableHandle.next_id = 0
