"""Where in the user's program something happened.

A `Location` is attached to every node, guard row, break and event, so that whatever graftjit did can be
told by file, line and columns. Made by capture from a code object's position table; read by everyone.
"""

from __future__ import annotations

from .dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A range in a source file. Lines count from 1, columns from 0 (as `ast` does); None where unknown."""

    file: str
    line: int | None
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None
    function: str = "?"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"
