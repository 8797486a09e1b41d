"""`Kernel`: a loop nest with the tensors of the graph behind its buffers.

Fusion makes it; the renderers and the schedule read it.
"""

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
    """A nest and the graph's tensors behind its buffers.

    The buffers are, in order, the `reads` roots, then the `stores` nodes (a tensor that is written
    in parts may occur several times).

        host       the call whose epilogue this is (`fusion.epilogue`). It is in `reads` too, but
                   not in memory.
        writes     the inputs that the kernel stores into, each as often as its version rises
        device     where it runs
        prologues  factors of the host that the kernel computes (`triton.prologue`); what they read
                   is the last part of `reads`
    """

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
        """The roots that must be in memory before the kernel runs."""
        more = () if self.host is None else reads(self.host)
        inside = {self.host, *(one.node for one in self.prologues)}
        found = (root(node) for node in (*self.reads, *more))
        return tuple(node for node in found if node not in inside)

    @property
    def writes_inputs(self) -> bool:
        """Whether it stores into inputs of the graph."""
        return any(node.op == "input" for node in self.stores)

    @property
    def bytes(self) -> int:
        """Bytes that the kernel reads and writes, each tensor counted once, at the sizes
        of capture.
        """
        total = 0
        for buffer in self.nest.buffers:
            size = 1
            for extent in buffer.shape:
                size *= hint_of(extent)
            total += size * buffer.dtype.itemsize
        return total


@dataclass(frozen=True, slots=True)
class Prologue:
    """The kernel that computed a factor of a product, and the position of that factor (0: the left
    one). The kernel of the product now computes it.
    """

    place: int
    kernel: Kernel

    @property
    def node(self) -> Node:
        """The factor, which is no longer in memory."""
        return self.kernel.stores[0]
