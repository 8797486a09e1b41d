"""The text of a kernel while it is written: its lines, and the names of its run-time numbers.

Both renderers write with these. They differ in how a line is indented and a block ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...ir.symbolic.expr import Expr


class Lines:
    """Lines that grow from top to bottom. `indent`: the text of one level of `depth`."""

    def __init__(self, indent: str, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.indent, self.depth = indent, depth

    def put(self, line: str) -> None:
        self.lines.append(self.indent * self.depth + line)

    @contextmanager
    def block(self, head: str, end: str = "") -> Iterator[None]:
        """The lines between `head` and `end`, one level deeper."""
        self.put(head)
        self.depth += 1
        yield
        self.depth -= 1
        if end:
            self.put(end)


class Numbers:
    """The expressions that a kernel takes as arguments, in the order in which its text first needs
    them.
    """

    def __init__(self) -> None:
        self.names: dict[Expr, str] = {}

    def text(self, value: Any) -> str:
        """A literal, or the name of an argument."""
        if isinstance(value, Expr):
            return self.names.setdefault(value, f"n{len(self.names)}")
        return str(value)
