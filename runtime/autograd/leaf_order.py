"""Nodes that give leaves their gradients in turn, where leaves have hooks.

Autograd's engine keeps the nodes that can run in a heap (`runtime.autograd.edge_order`). In eager
mode the leaves of a region enter it operator by operator, and leave it before any other node. A
node enters all leaves at its end; if other nodes wait in the heap then, more than two leaves leave
it in an order that depends on these. So if three leaves of a region have hooks, which see the
order, its node becomes a chain (`runtime.autograd.divided.Chain`): each node has the leaves of one
operator, and the next node. Operators whose leaves have no hooks share nodes.

`watch(joint)` is called for each program with a backward; `JointProgram` asks `ByLeaves` for a
chain if the process has any hooks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from .divided import Chain
from .edge_order import arranged
from .joint_program import JointProgram

# so many leave the heap in the order of their edges, whatever else is in it
_FEW = 2


def watch(joint: JointProgram) -> None:
    """Let a program have a chain of nodes if its leaves have hooks when it is called."""
    plan = joint.plan
    pairs = [pair for pair in zip(plan.leaves, plan.givers, strict=True) if pair[0] in plan.wanted]
    if len(pairs) > _FEW and len({giver for _, giver in pairs}) > 1 and not plan.dirty:
        joint.by_leaves = ByLeaves(joint, pairs)


class ByLeaves:
    """Makes the chains of a program, one for each set of leaves with hooks. `pairs`: leaves, in
    their order, and the operators that finish their gradients."""

    def __init__(self, joint: JointProgram, pairs: Sequence[tuple[int, int]]) -> None:
        self._joint, self._pairs = joint, pairs
        self._leaves = [(at, joint.edge_of(at)) for at, _ in pairs]
        self._chains: dict[tuple[int, ...], Chain | None] = {}

    def __call__(self, arguments: Sequence[Any]) -> Chain | None:
        """The chain for a call of the program's node; None if it needs none."""
        hooked = tuple([at for at, edge in self._leaves if _has_hooks(arguments[edge])])
        if len(hooked) <= _FEW:
            return None
        if hooked not in self._chains:
            self._chains[hooked] = self._chain(hooked, arguments[self._leaves[0][1]].device)
        return self._chains[hooked]

    def _chain(self, hooked: Sequence[int], device: Any) -> Chain | None:
        seen = {giver for at, giver in self._pairs if at in hooked}
        kinds = groupby(self._pairs, lambda pair: pair[1] if pair[1] in seen else None)
        members = [[at for at, _ in some] for _, some in kinds]
        if len(members) < 2:
            return None
        order = [at for at, _ in self._pairs]
        wanted = self._joint.plan.wanted
        members[0] += [at for at in wanted if at not in order]
        places: dict[int, tuple[int, int]] = {}
        for k, some in enumerate(members):
            places |= {at: (k, number) for number, at in enumerate(arranged(some, order))}
        groups, final = zip(*[places[at] for at in wanted], strict=True)
        return Chain(self._joint, groups, final, device)


def _has_hooks(leaf: Any) -> bool:
    return bool(leaf._backward_hooks or leaf._post_accumulate_grad_hooks)
