"""Inputs that a backward reads as they are when it runs: those that only a checkpointed function
reads, which eager mode calls again during the backward.

`kept` is called in the forward, `read` in the backward. Autograd does not compare the versions of
these inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .saving_hooks import Layout, layouts, restored

# The tensors, with their layouts and versions in the forward.
Kept = tuple[Sequence[torch.Tensor], Sequence[Layout | None], Sequence[int]]


def kept(
    inputs: Sequence[Any],
    results: Sequence[torch.Tensor],
    positions: Sequence[int],
    parameters: Sequence[int],
) -> Kept:
    """The inputs at these positions, or the results at ~position. Parameters are kept themselves,
    as their memory may be exchanged; of other tensors, whose history may lead to the node, the
    memory."""
    found = [
        results[~at].detach() if at < 0 else inputs[at] if at in parameters else inputs[at].detach()
        for at in positions
    ]
    return found, layouts(found), [one._version for one in found]


def read(held: Kept) -> list[torch.Tensor]:
    """The inputs, in the layouts that they had in the forward. Raises GraftError if sizes, dtype or
    device have changed."""
    found, before, _ = held
    return restored(found, before)


def written(held: Kept) -> bool:
    """Whether an input was written to since the forward."""
    found, _, versions = held
    return any(one._version != version for one, version in zip(found, versions, strict=True))
