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

# The saved tensors with their versions, and the results whose backward has run.
Lasting = tuple[list[tuple[torch.Tensor, int]], frozenset[int]]


def lasts(clashes: Sequence[Collection[int]]) -> bool:
    """Whether a result can run its backward after that of some result."""
    return any(len(one) < len(clashes) for one in clashes)


def saved_of(node: Any, present: Collection[int], clashes: Sequence[Collection[int]]) -> Any:
    """What has been kept, for a backward of the results in `present`. Raises autograd's errors."""
    pairs, freed = node.remaining
    if any(not freed.isdisjoint(clashes[at]) for at in present):
        return node.saved_tensors  # raises
    if any(tensor._version != version for tensor, version in pairs):
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace"
            " operation"
        )
    return tuple([tensor for tensor, _ in pairs])


def keep(
    node: Any,
    present: Collection[int],
    clashes: Sequence[Collection[int]],
    inputs: Collection[int],
) -> None:
    """After a backward of the results in `present`. `inputs`: the positions of the saved tensors
    that are inputs, which keep their history."""
    if keeps_graph():
        return
    known, freed = node.remaining or (None, frozenset())
    freed = freed.union(present)
    if any(freed.isdisjoint(one) for one in clashes):
        if known is None:
            # of the results only the memory and the version, as their history leads to the node
            known = [
                (one if at in inputs else one.detach(), one._version)
                for at, one in enumerate(node.saved_tensors)
            ]
        node.remaining = known, freed
    else:
        node.remaining = None
