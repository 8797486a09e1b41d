"""Inputs that share memory: in one storage, or in storages over the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from .ghost import Store

Positions = tuple[int, ...]


def overlapping(
    stores: Mapping[int, Store], tensors: Iterable[torch.Tensor] = ()
) -> list[Positions]:
    """Groups of positions of the inputs that share memory.

    `stores`: address of a storage -> its memory in the trace. With `tensors`, the inputs, also
    those whose storages differ and have bytes in common, as torch.from_numpy makes them.
    """
    groups = [tuple(store.inputs) for store in stores.values()]
    groups += _across_storages(stores, tensors)
    return [group for group in groups if len(group) > 1]


def _across_storages(
    stores: Mapping[int, Store], tensors: Iterable[torch.Tensor]
) -> list[Positions]:
    spans: dict[int, tuple[str, int, int, Positions]] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        inputs = tuple(stores[storage._cdata].inputs)
        start = storage.data_ptr() if inputs else 0
        if start:
            spans[storage._cdata] = (str(tensor.device), start, start + storage.nbytes(), inputs)
    groups: list[Positions] = []
    place, end, group, storages = "", 0, Positions(), 0
    for device, start, stop, inputs in sorted(spans.values()):
        if device == place and start < end:
            group, end, storages = group + inputs, max(end, stop), storages + 1
            continue
        groups += [group] if storages > 1 else []
        place, end, group, storages = device, stop, inputs, 1
    return groups + ([group] if storages > 1 else [])
