"""What the walks over a frame have found that began again, for the next one.

In: breaks and branches that a walk met. Out: for the next walk over the same frame, where to break
and what not to try.
"""

from __future__ import annotations

from typing import Any

from ..ir.dataclass import dataclass, field
from ..runtime.guards.sources import Source
from .breaks import Break


@dataclass(slots=True)
class EarlierWalks:
    """Found by earlier walks over a frame.

    forced            the root's instructions that break, by index
    stops, refused    instructions of inlined functions that break (see `Machine.stops`)
    not_skipped       branches in loops that are no parts (see `data_model.conditional`)
    by_data           inputs that the program gets as their `.data` (see `models.legacy`)
    walks_generators  whether generators are walked
    resumes_inside    whether a break may leave an inlined function
    """

    forced: dict[int, Break] = field(default_factory=dict)
    stops: dict[int, Break] = field(default_factory=dict)
    not_skipped: set[Any] = field(default_factory=set)
    refused: dict[int, tuple[str, str]] = field(default_factory=dict)
    by_data: set[Source] = field(default_factory=set)
    walks_generators: bool = True
    resumes_inside: bool = True

    def refuse(self, leaves: Any) -> bool:
        """Note an instruction of an inlined function that Python must run; False for the root."""
        begun = getattr(leaves, "begun", None)
        if begun is None or not self.resumes_inside or begun in self.refused:
            return False
        self.refused[begun] = leaves.code, leaves.reason
        return True
