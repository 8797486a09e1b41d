"""The results of a checkpoint with `use_reentrant=True`, as autograd sees them.

Eager mode runs the function without a history, in a custom Function whose backward runs the
function again and a backward of its own inside. Here the function has a history, and is a region
(`ir.trace.regions`); `joined` gives its results what that Function gives them: they require a
gradient if an argument does, one that gets no gradient gets zeros, and `torch.autograd.grad` is
refused. The gradients of what the function reads are those of the backward inside.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..graph.effects import reads
from ..graph.nodes import Node
from ..ops.region_borders import nested
from .ghost import Ghost
from .joint_graph import CustomBackward, Joint


class _Asked(threading.local):
    already = False


_ASKED = _Asked()


def require_whole() -> None:
    """Raise what eager mode raises in a backward that computes the gradients of chosen tensors."""
    if not _ASKED.already and not torch.autograd._is_checkpoint_valid():  # type: ignore[attr-defined]
        raise RuntimeError(
            "When use_reentrant=True, torch.utils.checkpoint is incompatible"
            " with .grad() or passing an `inputs` parameter to .backward()."
            " To resolve this error, you can either set use_reentrant=False,"
            " or call .backward() without passing the `inputs` argument."
        )


@contextmanager
def asked() -> Iterator[None]:
    """A context for the work of a node that has asked `require_whole` itself."""
    before, _ASKED.already = _ASKED.already, True
    try:
        yield
    finally:
        _ASKED.already = before


def joined(results: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> Any:
    """Copies of the results, with the history of a function of the arguments. Raises RuntimeError
    in the backward if none of the results has a gradient inside."""
    found = CheckpointFunction.apply(len(results), *results, *arguments)
    return found if isinstance(found, tuple) else (found,)


# Autograd calls the node of a result after the class, so the class has the name of eager mode's.
class CheckpointFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> Any:
        results = tensors[:count]
        ctx.follows = [one.requires_grad for one in results]
        ctx.others = len(tensors) - count
        return tuple([one.clone() for one in results])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if not any(ctx.follows):
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a checkpoint with use_reentrant=True inside of a jitted function has no second"
                " derivative: use_reentrant=False has"
            )
        if type(gradients[0]) is Ghost:
            owner = gradients[0]._owner
            gradients = tuple([nested(one) for one in gradients])
            if len(gradients) > 1:
                nodes = tuple([one._node for one in gradients])
                owner.custom.append(CustomBackward(nodes, nodes))
        else:
            require_whole()
        given = zip(gradients, ctx.follows, strict=True)
        return None, *[one if follows else None for one, follows in given], *[None] * ctx.others


def refusing(joint: Joint) -> tuple[int, ...]:
    """The inputs whose gradients come out of such a function."""
    live, behind = set(joint.tangents), set[Node]()
    for node in joint.nodes:
        if any(one in live for one in reads(node)):
            live.add(node)
        if (node.target is nested and node in live) or any(one in behind for one in reads(node)):
            behind.add(node)
    pairs = zip(joint.wanted, joint.gradients, strict=True)
    return tuple(at for at, node in pairs if node in behind)
