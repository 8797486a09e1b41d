"""Ghosts: tensors with metadata and no data, on which a captured stretch of a program is executed.

A ghost has the size, strides, dtype, device and dispatch keys of the tensor it stands for, so torch's own
dispatcher, autograd and autocast treat it as that tensor. Operators on ghosts are answered by the dispatch
mode of `ir.trace.tracer`; metadata questions (`shape`, `stride()`, `requires_grad`, `numel()`...) are answered by
torch's C++ directly and work anywhere. Made by `ir.trace.tracer` alone.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ..graph.nodes import Meta, Node
from ..symbolic.shape_env import Facts
from ..symbolic.symnode import to_torch


class Owner:
    """The mark of a trace on its ghosts, with what the trace knows of its symbolic numbers. No cycle keeps it alive."""

    __slots__ = ("facts",)

    def __init__(self, facts: Facts) -> None:
        self.facts = facts


class Store:
    """One piece of memory during a trace: whether the graph made it, whether it has been written to since,
    which ghosts share it, and whether in eager it is a numpy array's, which torch cannot resize."""

    __slots__ = ("borrowed", "fresh", "inputs", "members", "written")

    def __init__(self, fresh: bool) -> None:
        self.fresh = fresh
        self.borrowed = False
        self.written = False
        self.inputs: list[int] = []  # positions of the graph inputs that live here
        self.members: list[weakref.ref[Ghost]] = []

    def only(self, ghost: Ghost) -> bool:
        """No ghost but this one can still read the memory."""
        return all((other := member()) is None or other is ghost for member in self.members)


class Ghost(torch.Tensor):
    """A tensor of a trace. `_node` is what computes it, `_ref` its number at torch level (-1: not
    yet), `_owner` a mark of its trace."""

    _node: Node
    _store: Store
    _ref: int
    _owner: Owner

    # Ghosts are plain tensors to `__torch_function__`; only the dispatcher sees them.
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} met a ghost outside of its trace")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"ghost({self._node.name}: {self._node.meta})"

    def __hash__(self) -> int:
        return id(self)


_STRIDED = torch.strided
_wrap = torch.Tensor._make_wrapper_subclass  # type: ignore[attr-defined]


def make_ghost(owner: Owner, node: Node, meta: Meta, store: Store, grad: bool = False) -> Ghost:
    """A ghost of `meta` for `node`, registered with the memory it lives in."""
    facts = owner.facts
    shape, stride = meta.shape, meta.stride
    if facts.symbols:
        shape = tuple([to_torch(size, facts) for size in shape])
        stride = tuple([to_torch(step, facts) for step in stride])
    ghost: Ghost = _wrap(
        Ghost,
        shape,
        stride,
        to_torch(meta.offset, facts),
        None,  # memory format
        meta.dtype,
        _STRIDED,
        meta.device,
        False,  # pin_memory
        grad,
    )
    ghost._node = node
    ghost._store = store
    ghost._ref = -1
    ghost._owner = owner
    store.members.append(weakref.ref(ghost))
    return ghost


def beginning(ghost: Ghost) -> Ghost:
    """The ghost that an input with a history began as: a leaf, to which a write to the input changes nothing."""
    return ghost.__dict__.get("_leaf", ghost)  # type: ignore[no-any-return]
