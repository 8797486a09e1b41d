"""What a node has saved, for results whose backward may run after that of another one, or again.

In eager mode a backward that does not retain the graph frees the tensors that the nodes on its way
have saved; a second one that reaches such a node raises. It does not free what a custom function
keeps in attributes of `ctx`, and nothing that only other results need, or only inputs whose
gradient it is not asked for. A compiled region has one node for several operators, which autograd
frees as a whole. So the node keeps what it has saved itself, as long as some result can still run
its backward, and after a backward by some inputs until all is freed.

`runtime.autograd.joint_program` uses this module.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from .joint_plan import Plan

keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph  # type: ignore[attr-defined]

# The saved tensors with their versions.
Pairs = Sequence[tuple[torch.Tensor, int]]
# `Plan.frees`
Frees = Sequence[tuple[int, int]]
ALL = -1  # as bits
# For each saved tensor the results whose backward reads it; empty: all results read all of them.
Needs = Sequence[frozenset[int]]


def lasts(frees: Frees, n: int) -> bool:
    """Whether one of n results can run its backward after that of another one."""
    met = [0] * n
    for results, _ in set(frees):
        for at in range(n):
            met[at] |= results if results >> at & 1 else 0
    return any(one != (1 << n) - 1 for one in met)


def run_by(frees: Frees, present: Collection[int], inputs: int) -> int:
    """What a backward of these results by these inputs frees, and needs: bits of positions."""
    mask = sum(1 << at for at in present)
    return sum(1 << k for k, (by, before) in enumerate(frees) if by & mask and before & inputs)


def with_versions(saved: Sequence[torch.Tensor], inputs: Collection[int]) -> Pairs:
    """Saved tensors with their versions. `inputs`: the positions of those that are inputs, which
    keep their history; of others only the memory, as their history leads to the node."""
    return [(one if at in inputs else one.detach(), one._version) for at, one in enumerate(saved)]


def saved_of(node: Any, present: Collection[int], inputs: int, plan: Plan) -> Any:
    """The saved tensors for a backward of the results in `present` by these inputs (see
    `passing.needed`). Raises autograd's errors, but not for a write to what only other results
    need."""
    needs = plan.needs
    if node.remaining is None:
        try:
            return node.saved_tensors
        except RuntimeError as error:
            if not node.own or "inplace" not in str(error) or _is_old(node.own, present, needs):
                raise
        return tuple([tensor for tensor, _ in node.own])
    if node.freed & run_by(plan.frees, present, inputs):
        return node.saved_tensors  # raises
    pairs = node.remaining
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
    inputs: int,
    plan: Plan,
    saved: Collection[int],
) -> None:
    """After a backward of the results in `present` by these inputs (see `passing.needed`). `saved`:
    the `inputs` of `with_versions`."""
    if keeps_graph():
        return
    known, frees, results = node.remaining or node.own, plan.frees, range(len(plan.results))
    node.freed = freed = node.freed | run_by(frees, present, inputs)
    others = not all(freed & run_by(frees, (at,), ALL) for at in results)
    if others or (inputs != ALL and freed.bit_count() < len(frees)):
        node.remaining = known or with_versions(node.saved_tensors, saved)
    else:
        node.remaining = None
