"""Precedence: the order between the units of a graph, while `fuse` still joins and merges them.

Each unit knows the units directly before and after it, and all units that it follows, as a bit
mask. A node may join a unit if no path leads from the unit to it through others; such a path would
have to come through a unit directly before the node. So a test costs as much as a node has
operands, however many units there are. `schedule` takes the order from the same edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.dataclass import dataclass, field


@dataclass(eq=False, slots=True)
class Placed:
    """A unit's position in the order.

    `bits`: its own bit in the masks, and those of units that were merged into it; `follows`: all
    that comes before it, transitively.
    """

    number: int
    bits: int = 0
    follows: int = 0
    before: set[Any] = field(default_factory=set)
    after: set[Any] = field(default_factory=set)
    merged: Any = None

    def now(self) -> Any:
        """The unit that this one was merged into, or itself."""
        unit = self
        while unit.merged is not None:
            unit = unit.merged
        return unit

    def put_after(self, others: Iterable[Any]) -> None:
        """Put it, and all that follows it, after these."""
        added = 0
        for other in others:
            if other is not self:
                self.before.add(other)
                other.after.add(self)
                added |= other.bits | other.follows
        _spread(self, added)

    def leads_to(self, others: Iterable[Any]) -> bool:
        """Whether one of these (other than itself) follows it. `others` are all units directly
        before something.
        """
        return any(other is not self and other.follows & self.bits for other in others)

    def absorb(self, other: Any) -> None:
        """Merge `other` into this unit."""
        other.merged = self
        self.bits |= other.bits
        for one in other.before:
            one.after.discard(other)
            one.after.add(self)
        for one in other.after:
            one.before.discard(other)
            one.before.add(self)
        self.before = (self.before | other.before) - {self, other}
        self.after = (self.after | other.after) - {self, other}
        self.follows = (self.follows | other.follows) & ~self.bits
        for one in self.after:
            _spread(one, self.follows | self.bits)


def _spread(unit: Any, added: int) -> None:
    """Add `added` to what a unit and its followers follow; followers that already have it are not
    walked.
    """
    left = [(unit, added)]
    while left:
        one, mask = left.pop()
        new = mask & ~one.follows & ~one.bits
        if new:
            one.follows |= new
            left += [(later, new) for later in one.after]
