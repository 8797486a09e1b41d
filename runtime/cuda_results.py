"""What a call of a replayed CUDA graph gives: copies of results, with the views among them made again, or what is lent.

`Results(made, facts, tensors)` looks at what the program gave while it was recorded, and `of(inputs)` makes a call's results after
each replay. Used by `cuda_graph`, which says what `facts` are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .cuda_graph import Facts


class NotRecorded(Exception):
    """Why a program cannot be recorded: (code, reason)."""


class Results:
    """From the memory that a replay writes to what a call gives."""

    def __init__(self, made: Sequence[Any], facts: Facts, tensors: Sequence[Any]) -> None:
        """`made`: what the program gave while it was recorded; `tensors`: what it read. Raises NotRecorded."""
        self._given, self._held, self._n = facts.given, facts.held, len(made)
        outside = {_storage(one) for one in tensors} - {0}
        groups: dict[int, dict[int, Any]] = {}
        for at, one in enumerate(made):
            if at in facts.given or at in facts.held:
                continue
            if not facts.consumes and _storage(one) in outside:
                raise NotRecorded("FB333", "a result is a view of an input or of a constant")
            groups.setdefault(_storage(one) or -1 - at, {})[at] = one
        self._bases: list[tuple[Any, bool]] = []  # memory that is copied; without holes?
        self._views: list[tuple[int, int, tuple[Any, ...] | None]] = []  # result, base, its layout
        self._lent: dict[int, Any] = {}
        for members in groups.values():
            if facts.inner.issuperset(members):
                self._lent.update(members)
            else:
                self._group(members, facts)
        self._simple = [at for at, _base, _layout in self._views] == list(range(self._n)) and all(
            at == base and layout is None for at, base, layout in self._views
        )
        self._stores = list(
            {_storage(one): one.untyped_storage() for one in self._lent.values()}.values()
        )
        self._keys = [store._cdata for store in self._stores]
        self._free = [_holders(key) for key in self._keys]
        self.bytes = sum(one.numel() * one.element_size() for one, _ in self._bases)

    def _group(self, members: dict[int, Any], facts: Facts) -> None:
        """Results that share memory: one copy of it, and views of that as there were."""
        roots: list[Any] = []
        for at, one in members.items():
            root = one if one._base is None else one._base
            place = next((n for n, other in enumerate(roots) if other is root), len(roots))
            if place == len(roots):
                if roots and not facts.consumes:
                    raise NotRecorded(
                        "FB333", "results share memory and are no views of one tensor"
                    )
                no_overlap(root)
                roots.append(root)
            self._views.append(
                (at, len(self._bases) + place, None if one is root else _within(one, root))
            )
        self._bases += [(root, _is_dense(root)) for root in roots]

    def is_free(self) -> bool:
        """Are the tensors of the last call that were lent gone?"""
        return [_holders(key) for key in self._keys] == self._free

    def of(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """What a call gives, after the replay has been launched."""
        copies = [one.clone() if dense else like(one).copy_(one) for one, dense in self._bases]
        if self._simple:
            return tuple(copies)
        found: list[Any] = [None] * self._n
        for at, base, layout in self._views:
            found[at] = copies[base] if layout is None else copies[base].as_strided(*layout)
        for at, where in self._given.items():
            found[at] = inputs[where]
        for at, constant in self._held.items():
            found[at] = constant
        for at, one in self._lent.items():
            found[at] = one.detach()  # a tensor of the call's own: who holds it holds the memory
        return tuple(found)


def like(tensor: Any) -> Any:
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


def _storage(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr()


_holders = torch._C._storage_Use_Count  # type: ignore[attr-defined]


def _within(view: Any, root: Any) -> tuple[Any, ...]:
    """(sizes, strides, offset) of a view in memory that begins with its root. Raises NotRecorded where it is not in it."""
    offset = view.storage_offset() - root.storage_offset()
    last = offset + _span(view) - 1
    if offset < 0 or (view.numel() and last >= _span(root)):
        raise NotRecorded("FB333", "a result reaches out of what it is a view of")
    return tuple(view.shape), view.stride(), offset


def _span(tensor: Any) -> int:
    """From the first element to the last, in elements."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return 0 if not tensor.numel() else 1 + sum((size - 1) * stride for size, stride in pairs)


def _is_dense(tensor: Any) -> bool:
    """Without holes, so that a clone has the same strides."""
    return _span(tensor) == tensor.numel()


def no_overlap(tensor: Any) -> None:
    """Raises NotRecorded where two elements may be one place of memory, which cannot be copied to."""
    reach = 0
    dims = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    for stride, size in dims:
        if size < 2:
            continue
        if stride <= reach:
            raise NotRecorded("FB333", "an input or a result has several elements in one place")
        reach += (size - 1) * stride
