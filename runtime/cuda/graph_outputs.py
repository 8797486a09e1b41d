"""Results of a call of a replayed CUDA graph: copies with their views, or borrowed tensors.

`Results(made, facts, tensors)` analyses the results of the recorded run, and `of(inputs)` makes the
results of a call after each replay. `cuda.graphs` uses this module and defines `Facts`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .graphs import Facts


class NotRecorded(Exception):
    """Why a program cannot be recorded: (code, reason)."""


class Results:
    """Maps the memory that a replay writes to the results of a call."""

    def __init__(self, made: Sequence[Any], facts: Facts, tensors: Sequence[Any]) -> None:
        """`made`: the results of the recorded run; `tensors`: the tensors that it read. Raises
        NotRecorded."""
        self._given, self._held, self._n = facts.given, facts.held, len(made)
        outside = {_storage(one) for one in tensors} - {0}
        groups: dict[int, dict[int, Any]] = {}
        for at, one in enumerate(made):
            if at in facts.given or at in facts.held:
                continue
            if not facts.consumes and _storage(one) in outside:
                raise NotRecorded("FB333", "a result is a view of an input or of a constant")
            groups.setdefault(_storage(one) or -1 - at, {})[at] = one
        self._bases: list[tuple[Any, bool]] = []  # memory to copy; whether it is dense
        # result, base, layout of the view or None
        self._views: list[tuple[int, int, tuple[Any, ...] | None]] = []
        self._lent: dict[int, Any] = {}
        for members in groups.values():
            if facts.inner.issuperset(members):
                self._lent.update(members)
            else:
                self._group(members, facts)
        self._simple = [at for at, _base, _layout in self._views] == list(range(self._n)) and all(
            at == base and layout is None for at, base, layout in self._views
        )
        self._alone, self._together = _copied_together(self._bases)
        self._lent_tensors = list(self._lent.values())
        self._stores = [one.untyped_storage() for one in self._lent_tensors]
        self._keys = [store._cdata for store in self._stores]
        # Reference counts while only this object holds the tensors; read at the first call.
        self._free: list[int] | None = None
        self.bytes = sum(one.numel() * one.element_size() for one, _ in self._bases)

    def _group(self, members: dict[int, Any], facts: Facts) -> None:
        """Results that share memory: one copy of the memory, with the same views of it."""
        roots: list[Any] = []
        for at, one in members.items():
            root = one if one._base is None else one._base
            place = next((n for n, other in enumerate(roots) if other is root), len(roots))
            if place == len(roots):
                if roots and not facts.consumes:
                    raise NotRecorded(
                        "FB333", "results share memory and are not views of one tensor"
                    )
                no_overlap(root)
                roots.append(root)
            self._views.append(
                (at, len(self._bases) + place, None if one is root else _within(one, root))
            )
        self._bases += [(root, _is_dense(root)) for root in roots]

    def is_free(self) -> bool:
        """Whether no reference to the tensors lent by the last call, or to their memory, is
        left."""
        return not self._keys or self._holders() == self._free

    def _holders(self) -> list[int]:
        """The reference counts of each lent tensor: in Python, in C++ (autograd nodes), and of its
        storage (views)."""
        lent = self._lent_tensors
        return [*map(sys.getrefcount, lent), *map(_uses, lent), *map(_stores, self._keys)]

    def of(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a call, after the replay was launched."""
        if self._free is None:
            self._free = self._holders()
        copies: list[Any] = [None] * len(self._bases)
        for at, one, dense in self._alone:
            copies[at] = one.clone() if dense else like(one).copy_(one)
        for places, clones, ones in self._together:
            for at, one in zip(places, clones(ones), strict=True):
                copies[at] = one
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
            found[at] = one
        return tuple(found)


def like(tensor: Any) -> Any:
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


def _storage(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr()


_stores = torch._C._storage_Use_Count  # type: ignore[attr-defined]
_uses = torch.Tensor._use_count  # type: ignore[attr-defined]
_clones = getattr(torch, "_foreach_clone", None)  # since torch 2.13
# From so many tensors of one dtype on, one launch copies them all.
TOGETHER = 3


def _times_one(tensors: list[Any]) -> list[Any]:
    return torch._foreach_mul(tensors, 1.0)


def _copied_together(bases: Sequence[tuple[Any, bool]]) -> tuple[list[Any], list[Any]]:
    """[(position, tensor, is dense)] to copy one by one, and [(positions, clone function, tensors)]
    to copy together."""
    kinds: dict[Any, list[int]] = {}
    for at, (one, dense) in enumerate(bases):
        if dense and one.numel() and (_clones is not None or one.is_floating_point()):
            kinds.setdefault(one.dtype, []).append(at)
    many = [places for places in kinds.values() if len(places) >= TOGETHER]
    taken = {at for places in many for at in places}
    alone = [(at, *base) for at, base in enumerate(bases) if at not in taken]
    clones = _clones or _times_one
    return alone, [(places, clones, [bases[at][0] for at in places]) for places in many]


def _within(view: Any, root: Any) -> tuple[Any, ...]:
    """(sizes, strides, offset) of a view relative to its root. Raises NotRecorded if it is not
    within the root."""
    offset = view.storage_offset() - root.storage_offset()
    last = offset + _span(view) - 1
    if offset < 0 or (view.numel() and last >= _span(root)):
        raise NotRecorded("FB333", "a result reads beyond the tensor that it is a view of")
    return tuple(view.shape), view.stride(), offset


def _span(tensor: Any) -> int:
    """The number of elements from the first to the last."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return 0 if not tensor.numel() else 1 + sum((size - 1) * stride for size, stride in pairs)


def _is_dense(tensor: Any) -> bool:
    """Whether the tensor is dense, so that a clone has the same strides."""
    return _span(tensor) == tensor.numel()


def no_overlap(tensor: Any) -> None:
    """Raise NotRecorded if two elements may share memory, since such a tensor cannot be copied
    to."""
    reach = 0
    dims = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    for stride, size in dims:
        if size < 2:
            continue
        if stride <= reach:
            raise NotRecorded("FB333", "an input or a result has several elements in one place")
        reach += (size - 1) * stride
