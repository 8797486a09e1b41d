"""Batched gradients, one by one.

`torch.autograd.grad(..., is_grads_batched=True)` gives a node one tensor for many gradients, which
only operators of torch can take. So the node runs the calls of its region again, under autograd. If
an input was written to that eager mode does not save, they would compute something else: then
`runtime.autograd.joint_program` calls `one_by_one`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .second_order import all_ordinary

_is_batched = torch._C._functorch.is_legacy_batchedtensor  # type: ignore[attr-defined]


def one_by_one(joint: Any, node: Any, gradients: Sequence[Any]) -> Sequence[Any] | None:
    """The gradients of all inputs by the backward program of `joint`, whose `node` got these
    gradients; None if they are not batched, or in another way too."""
    level, size, parts = _level(), 0, []
    for one in gradients:
        batched = one is not None and _is_batched(one)
        parts.append(torch._remove_batch_dim(one, level, 1, 0) if batched else one)  # type: ignore[attr-defined]
        size = parts[-1].shape[0] if batched else size
    if not size or not all_ordinary(parts):
        return None
    # an unbatched one is that of each run
    rows = zip(*[
        part.unbind() if part is not one else [one] * size
        for part, one in zip(parts, gradients, strict=True)
    ], strict=True)  # fmt: skip
    with torch.no_grad():
        found = [joint.backwards(node, row, keep=True) for row in rows]
    return tuple([
        None if some[0] is None else torch._add_batch_dim(torch.stack(some), 0, level)  # type: ignore[attr-defined]
        for some in zip(*found, strict=True)
    ])  # fmt: skip


def _level() -> int:
    """The number of the running transform that batches."""
    level: int = torch._C._vmapmode_increment_nesting() - 1  # type: ignore[attr-defined]
    torch._C._vmapmode_decrement_nesting()  # type: ignore[attr-defined]
    return level
