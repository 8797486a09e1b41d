"""The workspace of a program: where in one piece of memory each value lies that only kernels see.

`Arena` is used by `codegen.schedule.plan` while it writes a program's steps: `take` gives a value its place, `free_after` takes
those back whose last reader has run, `settled` gives the steps their offsets once all sizes are known. There is one for the
processor and one for each GPU, which is a tensor of torch's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...ir.dataclass import dataclass
from ...ir.symbolic.expr import is_symbolic
from ...runtime.program.program import Alloc, Scratch, Step
from ..loops.extents import surely

ALIGNMENT = 64  # bytes, of a processor's cache
ON_DEVICE = 128  # of a GPU's


@dataclass(slots=True)
class _Block:
    """A piece of memory whose size is an expression, and who is in it. A Scratch names it until all are known."""

    size: Any
    holds: Any


class Arena:
    """First fit over the gaps of what is alive; offsets are fixed when the program is made. What has a size that is
    not known comes behind that, in blocks one after the other; a block that is free takes what surely fits."""

    def __init__(self, last: Mapping[Any, int], alignment: int = ALIGNMENT) -> None:
        self.last, self.alignment = last, alignment
        self.size = 0
        self.live: dict[Any, tuple[int, int]] = {}
        self.blocks: list[_Block] = []

    @property
    def total(self) -> Any:
        """Bytes of it all."""
        return self.size + sum(block.size for block in self.blocks)

    def take(self, node: Any, nbytes: Any) -> Any:
        """Where a node's memory begins: an offset, or a block."""
        if is_symbolic(nbytes):
            return self._block(node, -(-nbytes // self.alignment) * self.alignment)
        nbytes = -(-max(nbytes, 1) // self.alignment) * self.alignment
        start = 0
        for begin, end in sorted(self.live.values()):
            if begin - start >= nbytes:
                break
            start = max(start, end)
        self.live[node] = (start, start + nbytes)
        self.size = max(self.size, start + nbytes)
        return start

    def hand_on(self, given: Any, node: Any) -> None:
        """What one lies in is another one's from here on."""
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
        """Where each block begins."""
        found: dict[int, Any] = {}
        start: Any = self.size
        for block in self.blocks:
            found[id(block)] = start
            start = start + block.size
        return found


def settled(steps: list[Step], rooms: Iterable[Arena]) -> list[Step]:
    """The same steps with offsets for blocks, and sizes for the tensors that are workspaces."""
    starts: dict[int, Any] = {}
    for room in rooms:
        starts.update(room.starts())
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Scratch) and isinstance(step.offset, _Block):
            step = replace(step, offset=starts[id(step.offset)])
        elif isinstance(step, Alloc) and step.shape and isinstance(step.shape[0], Arena):
            step = replace(step, shape=(step.shape[0].total,))
        found.append(step)
    return found
