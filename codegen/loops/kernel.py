"""`Kernel`: a loop nest with the tensors of the graph behind its buffers. Fusion makes it; renderers and the schedule read it."""

from __future__ import annotations

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.effects import reads, root
from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import hint_of
from .loop_nest import LoopNest

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A nest and the graph's tensors behind its buffers, in order: first `reads` roots, then `stores` nodes (one that
    is written in parts may occur several times). `host`: the call whose epilogue it is (`epilogue`); that one is in `reads`
    too, but not in memory. `writes`: the inputs that it stores into, each as often as its version moves. `device`: where it
    runs. `prologues`: factors of the host that are computed in it (`prologue`); what they read is the last of `reads`."""

    nest: LoopNest
    reads: tuple[Node, ...]
    stores: tuple[Node, ...]
    nodes: tuple[Node, ...]
    host: Node | None = None
    writes: tuple[Node, ...] = ()
    device: torch.device = CPU
    prologues: tuple[Prologue, ...] = ()

    @property
    def uses(self) -> tuple[Node, ...]:
        """What has to be there for it, as roots."""
        more = () if self.host is None else reads(self.host)
        inside = {self.host, *(one.node for one in self.prologues)}
        found = (root(node) for node in (*self.reads, *more))
        return tuple(node for node in found if node not in inside)

    @property
    def writes_inputs(self) -> bool:
        """Does it change what was there before?"""
        return any(node.op == "input" for node in self.stores)

    @property
    def bytes(self) -> int:
        """Bytes of memory it moves, each tensor counted once; at the sizes of capture."""
        total = 0
        for buffer in self.nest.buffers:
            size = 1
            for extent in buffer.shape:
                size *= hint_of(extent)
            total += size * buffer.dtype.itemsize
        return total


@dataclass(frozen=True, slots=True)
class Prologue:
    """The kernel that made a factor of a product, which one it was (0: the left), now computed in the product's kernel."""

    place: int
    kernel: Kernel

    @property
    def node(self) -> Node:
        """What is not in memory any more."""
        return self.kernel.stores[0]
