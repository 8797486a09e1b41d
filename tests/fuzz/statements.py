"""What a program is made of: lines and blocks, and text read back into them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Statement:
    """One line, or a compound statement: blocks of (head, body)."""

    line: str = ""
    blocks: list[tuple[str, list[Statement]]] = field(default_factory=list)

    def lines(self, indent: int) -> Iterator[str]:
        pad = "    " * indent
        if not self.blocks:
            yield pad + self.line
        for head, body in self.blocks:
            yield pad + head
            yield from block_lines(body, indent + 1)


def block_lines(body: list[Statement], indent: int) -> Iterator[str]:
    """The lines of a body; an empty one is a `pass`."""
    if not body:
        yield "    " * indent + "pass"
    for statement in body:
        yield from statement.lines(indent)


@dataclass(slots=True)
class Program:
    """`prelude` and `f` with `body`; `steps` are calls ("(args)") and mutations (statements) in turn.

    `traced`: whether the lines of a traceback are compared, too.
    """

    seed: int
    prelude: list[Statement]
    head: str
    body: list[Statement]
    steps: list[str]
    traced: bool = True

    def source(self) -> str:
        lines = [line for statement in self.prelude for line in statement.lines(0)]
        return "\n".join([*lines, self.head, *block_lines(self.body, 1), ""])


def parse(text: str) -> list[Statement]:
    """Indented text as statements, so that it can be reduced like what was generated."""
    root: list[Statement] = []
    stack: list[tuple[int, list[Statement]]] = [(-1, root)]
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        while stack[-1][0] >= indent:
            stack.pop()
        if line.endswith(":"):
            body: list[Statement] = []
            stack[-1][1].append(Statement(blocks=[(line.strip(), body)]))
            stack.append((indent, body))
        else:
            stack[-1][1].append(Statement(line.strip()))
    return root
