"""States of torch's random generators (one per device) that a graph draws from.

Callers save and restore the states when they run a graph's operators a second time with the same
random numbers, or undo a run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from ...ir.graph.devices import gpus_of
from ...ir.graph.nodes import Graph

States = Sequence[tuple[torch.Generator, torch.Tensor]]

_VMAP = torch._C.DispatchKeySet(torch._C._dispatch_key_parse("VmapMode"))


def drawn_from(graph: Graph) -> tuple[torch.device, ...]:
    """The devices whose generators the graph may advance; none if it draws no random numbers."""
    return (torch.device("cpu"), *gpus_of(graph)) if graph.random else ()


def states(devices: Sequence[torch.device]) -> States:
    """The generators of these devices with their current states."""
    generators = map(_generator, devices)
    return [(generator, generator.get_state()) for generator in generators]


def put_back(before: States) -> None:
    """Restore the generators to saved states."""
    for generator, state in before:
        generator.set_state(state)


@contextlib.contextmanager
def replayed(before: States) -> Iterator[None]:
    """Run the block with the random numbers of these states; afterwards the generators are as they
    were."""
    now = [(generator, generator.get_state()) for generator, _ in before]
    put_back(before)
    try:
        yield
    finally:
        put_back(now)


@contextlib.contextmanager
def replayed_outside_vmap(before: States) -> Iterator[None]:
    """As `replayed`, and outside of the `vmap` that is active: it refuses random numbers, although
    only the gradients are batched where calls run again."""
    with torch._C._ExcludeDispatchKeyGuard(_VMAP), torch._C._DisableFuncTorch(), replayed(before):
        yield


def _generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    index = device.index
    return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
