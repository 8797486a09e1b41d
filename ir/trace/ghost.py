"""Ghosts: tensors with metadata and no data, on which capture executes a part of a program.

A ghost has the size, strides, dtype, device and dispatch keys of the tensor that it represents, so
torch's own dispatcher, autograd and autocast treat it as that tensor. The dispatch mode of
`ir.trace.tracer` handles operators on ghosts; torch's C++ answers metadata queries (`shape`,
`stride()`, `requires_grad`, `numel()`...) directly, also outside the mode. Only `ir.trace` makes
ghosts.
"""

from __future__ import annotations

import itertools
import math
import weakref
from typing import Any

import torch

from ..graph.layout import from_data
from ..graph.nodes import Meta, Node
from ..symbolic.shape_env import Facts
from ..symbolic.symnode import to_torch
from .joint_graph import CustomBackward, Span


class Owner:
    """The mark of a trace on its ghosts; in no reference cycle.

    It has the trace's symbolic facts, and the backwards of custom functions that have run. `parts`:
    for each open part of `conditional`, the number of the first memory that is made in it; `spans`:
    where the parts are in autograd's graph.
    """

    __slots__ = ("custom", "facts", "parts", "spans", "withheld")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.custom: list[CustomBackward] = []
        # whether one of them has given no gradient to an argument that requires one
        self.withheld = False
        self.parts: list[int] = []
        self.spans: list[Span] = []


_NUMBERS = itertools.count()


class Store:
    """A piece of memory during a trace.

    It records whether the graph made the memory, whether something wrote to it since, which ghosts
    share it, whether a numpy array owns it in eager (then torch cannot resize it), and whether the
    graph reads a size from the result that owns it. Later memory has a greater number.
    """

    __slots__ = ("borrowed", "fresh", "inputs", "members", "number", "sized", "written")

    def __init__(self, fresh: bool) -> None:
        self.fresh = fresh
        self.number = next(_NUMBERS)
        self.borrowed = False
        self.sized = False
        self.written = False
        self.inputs: list[int] = []  # positions of the graph inputs in this memory
        self.members: list[weakref.ref[Ghost]] = []

    def only(self, ghost: Ghost) -> bool:
        """Whether no other ghost can still read the memory."""
        return all((other := member()) is None or other is ghost for member in self.members)


def why_not(tensor: torch.Tensor) -> tuple[str, str] | None:
    """Why a real tensor cannot become a ghost, as (code, text); None if it can."""
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        return "subclass", f"a tensor of type {kind.__module__}.{kind.__qualname__}"
    if tensor.layout is not torch.strided:
        return "layout", f"a tensor with layout {tensor.layout}"
    if tensor.is_quantized:
        return "quantized", "a quantized tensor"
    if tensor.is_nested:
        return "nested", "a nested tensor"
    if math.prod(tensor.shape) >= 1 << 63:
        return "sizes", "a tensor with the sizes that a `resize_` without success has left"
    if tensor.is_conj() or tensor.is_neg():
        return "lazy-bit", "a tensor with a pending conjugation or negation"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # type: ignore[attr-defined]
        return "functorch", "a tensor inside a functorch transform"
    if tensor.requires_grad and tensor._is_view():
        try:
            _ = tensor.grad_fn  # torch makes it anew if the base was written
        except RuntimeError:
            return "history", "a view without a history: its base was written to without autograd"
    return None


class Ghost(torch.Tensor):
    """A tensor of a trace.

    `_node` computes it, `_ref` is its number at torch level (-1: none yet), `_owner` marks its
    trace.
    """

    _node: Node
    _store: Store
    _ref: int
    _owner: Owner

    # Ghosts are plain tensors to `__torch_function__`; only the dispatcher distinguishes them.
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
    """A ghost of `meta` for `node`, registered with its memory `store`."""
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
    """The leaf of an input with a history: writes to the input do not change it."""
    return ghost.__dict__.get("_leaf", ghost)  # type: ignore[no-any-return]


def owns_its_memory(ghost: Ghost) -> bool:
    """Whether a new value may take the place of a write to the whole of a ghost: the graph made the
    memory, in the same part (see `conditional`), no other ghost shares it, the ghost begins where
    the memory does, and no size is read from it: the new value would need that size."""
    store, offset, parts = ghost._store, ghost._node.meta.offset, ghost._owner.parts
    if store.sized or (parts and store.number < parts[-1]):
        return False
    return store.fresh and store.only(ghost) and not from_data(offset) and offset == 0
