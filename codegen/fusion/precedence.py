"""Which units of a graph come after which, while `fuse` still joins and merges them.

Each unit knows the units right before and right after it, and as one mask of bits all that it follows: a node may join
a unit if no way leads from the unit to it through others, and such a way would have to come by a unit right before it.
So a question costs as much as a node has operands, however many units there are. `schedule` takes the order from the
same edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.dataclass import dataclass, field


@dataclass(eq=False, slots=True)
class Placed:
    """A place in the order. `bits`: its own in the masks, and those of what was merged into it; `follows`: all that
    comes before it, transitively."""

    number: int
    bits: int = 0
    follows: int = 0
    before: set[Any] = field(default_factory=set)
    after: set[Any] = field(default_factory=set)
    merged: Any = None

    def now(self) -> Any:
        """The unit that this one has become a part of, or itself."""
        unit = self
        while unit.merged is not None:
            unit = unit.merged
        return unit

    def put_after(self, others: Iterable[Any]) -> None:
        """It comes after these, and so does what comes after it."""
        added = 0
        for other in others:
            if other is not self:
                self.before.add(other)
                other.after.add(self)
                added |= other.bits | other.follows
        _spread(self, added)

    def leads_to(self, others: Iterable[Any]) -> bool:
        """Does one of these (not this one) come after it? They are all that is right before something."""
        return any(other is not self and other.follows & self.bits for other in others)

    def absorb(self, other: Any) -> None:
        """Both are one from here on."""
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
    """What a unit follows is followed by all that comes after it; those that do so already are not walked."""
    left = [(unit, added)]
    while left:
        one, mask = left.pop()
        new = mask & ~one.follows & ~one.bits
        if new:
            one.follows |= new
            left += [(later, new) for later in one.after]
