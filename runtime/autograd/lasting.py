"""What a node has saved, for results whose backward may run after that of another one, or again.

In eager mode a backward that does not retain the graph frees the tensors that the nodes on its way
have saved; a second one that reaches such a node raises. It does not free what a custom function
keeps in attributes of `ctx`, and nothing that only other results need. A compiled region has one
node for several operators, which autograd frees as a whole. So the node keeps what it has saved
itself, as long as some result can still run its backward.

`clashes`: for each result, those whose backward in eager mode frees something that its own needs.
`runtime.autograd.joint_program` uses this module.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph  # type: ignore[attr-defined]

# The saved tensors with their versions.
Pairs = Sequence[tuple[torch.Tensor, int]]
# These, and the results whose backward has run.
Lasting = tuple[Pairs, frozenset[int]]
# For each saved tensor the results whose backward reads it; empty: all results read all of them.
Needs = Sequence[frozenset[int]]


def lasts(clashes: Sequence[Collection[int]]) -> bool:
    """Whether a result can run its backward after that of some result."""
    return any(len(one) < len(clashes) for one in clashes)


def with_versions(saved: Sequence[torch.Tensor], inputs: Collection[int]) -> Pairs:
    """Saved tensors with their versions. `inputs`: the positions of those that are inputs, which
    keep their history; of others only the memory, as their history leads to the node."""
    return [(one if at in inputs else one.detach(), one._version) for at, one in enumerate(saved)]


def saved_of(
    node: Any, present: Collection[int], clashes: Sequence[Collection[int]], needs: Needs
) -> Any:
    """The saved tensors for a backward of the results in `present`. Raises autograd's errors, but
    not for a write to what only other results need."""
    if node.remaining is None:
        try:
            return node.saved_tensors
        except RuntimeError as error:
            if not node.own or "inplace" not in str(error) or _is_old(node.own, present, needs):
                raise
        return tuple([tensor for tensor, _ in node.own])
    pairs, freed = node.remaining
    if any(not freed.isdisjoint(clashes[at]) for at in present):
        return node.saved_tensors  # raises
    if _is_old(pairs, present, needs):
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace"
            " operation"
        )
    return tuple([tensor for tensor, _ in pairs])


def _is_old(pairs: Pairs, present: Collection[int], needs: Needs) -> bool:
    """Whether a tensor that these results need was written to."""
    changed = [at for at, (tensor, version) in enumerate(pairs) if tensor._version != version]
    return any(not needs or not needs[at].isdisjoint(present) for at in changed)


def keep(
    node: Any,
    present: Collection[int],
    clashes: Sequence[Collection[int]],
    inputs: Collection[int],
) -> None:
    """After a backward of the results in `present`. `inputs`: as in `with_versions`."""
    if keeps_graph():
        return
    known, freed = node.remaining or (node.own, frozenset())
    freed = freed.union(present)
    if any(freed.isdisjoint(one) for one in clashes):
        node.remaining = known or with_versions(node.saved_tensors, inputs), freed
    else:
        node.remaining = None
