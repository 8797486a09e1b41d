"""torch's own random generators, one a device: those that a graph draws from, their states read and put back.

Called by what runs a graph's operators a second time, or not at all: with the numbers of the first time, or so that
nothing was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir.graph.devices import gpus_of
from ...ir.graph.nodes import Graph

States = Sequence[tuple[torch.Generator, torch.Tensor]]


def drawn_from(graph: Graph) -> tuple[torch.device, ...]:
    """The devices whose generators the graph may move; none if it draws nothing."""
    return (torch.device("cpu"), *gpus_of(graph)) if graph.random else ()


def states(devices: Sequence[torch.device]) -> States:
    """The generators of these devices as they are now."""
    generators = map(_generator, devices)
    return [(generator, generator.get_state()) for generator in generators]


def put_back(before: States) -> None:
    """The generators are as they were."""
    for generator, state in before:
        generator.set_state(state)


def _generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    index = device.index
    return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
