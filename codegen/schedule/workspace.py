"""The workspace of a program: one piece of memory for all values that only kernels see, and their
offsets in it.

`codegen.schedule.plan` uses `Arena` while it writes a program's steps: `take` gives memory to a
value, `free_after` takes it back after the last reader, `settled` gives the steps their offsets
once all sizes are known. There is one workspace for the CPU and one for each GPU; the latter is a
torch tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...ir.dataclass import dataclass
from ...ir.symbolic.expr import is_symbolic
from ...runtime.program.program import Alloc, Scratch, Step
from ..loops.extents import surely

ALIGNMENT = 64  # bytes, of a CPU's cache line
SMALLER = 16  # of a value that is less than a line: no loop over it is divided among threads
ON_DEVICE = 128  # bytes, of a GPU's


@dataclass(slots=True)
class _Block:
    """A piece of memory whose size is an expression, and the value in it. A Scratch refers to it
    until all offsets are known.
    """

    size: Any
    holds: Any


class Arena:
    """First fit over the gaps between live values; offsets are fixed when the program is made.

    Values of unknown size come after all others, in blocks one after the other; a free block takes
    a value that certainly fits.
    """

    def __init__(self, last: Mapping[Any, int], alignment: int = ALIGNMENT) -> None:
        self.last, self.alignment = last, alignment
        self.size = 0
        self.live: dict[Any, tuple[int, int]] = {}
        self.blocks: list[_Block] = []

    @property
    def total(self) -> Any:
        """Bytes of the whole workspace."""
        return self.size + sum(block.size for block in self.blocks)

    def take(self, node: Any, nbytes: Any) -> Any:
        """The start of a node's memory: an offset, or a block."""
        if is_symbolic(nbytes):
            return self._block(node, -(-nbytes // self.alignment) * self.alignment)
        step = SMALLER if nbytes < ALIGNMENT == self.alignment else self.alignment
        nbytes = -(-max(nbytes, 1) // step) * step
        start = 0
        for begin, end in sorted(self.live.values()):
            if begin - start >= nbytes:
                break
            start = max(start, -(-end // step) * step)
        self.live[node] = (start, start + nbytes)
        self.size = max(self.size, start + nbytes)
        return start

    def hand_over(self, given: Any, node: Any) -> None:
        """Hand `given`'s block over to `node`."""
        if given in self.live:
            self.live[node] = self.live.pop(given)
        for block in self.blocks:
            if block.holds is given:
                block.holds = node

    def _block(self, node: Any, nbytes: Any) -> _Block:
        for block in self.blocks:
            if block.holds is None and surely("<=", nbytes, block.size):
                block.holds = node
                return block
        self.blocks.append(_Block(nbytes, node))
        return self.blocks[-1]

    def free_after(self, position: int) -> None:
        for node in [node for node in self.live if self.last.get(node, position) <= position]:
            del self.live[node]
        for block in self.blocks:
            if block.holds is not None and self.last.get(block.holds, position) <= position:
                block.holds = None

    def starts(self) -> dict[int, Any]:
        """The start of each block."""
        found: dict[int, Any] = {}
        start: Any = self.size
        for block in self.blocks:
            found[id(block)] = start
            start = start + block.size
        return found


def settled(steps: list[Step], workspaces: Iterable[Arena]) -> list[Step]:
    """The same steps with offsets for blocks, and sizes for the tensors that are workspaces."""
    starts: dict[int, Any] = {}
    for one in workspaces:
        starts.update(one.starts())
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Scratch) and isinstance(step.offset, _Block):
            step = replace(step, offset=starts[id(step.offset)])
        elif isinstance(step, Alloc) and step.shape and isinstance(step.shape[0], Arena):
            step = replace(step, shape=(step.shape[0].total,))
        found.append(step)
    return found
