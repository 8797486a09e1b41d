"""`Lowered.cost()`: the operations and bytes of a call's programs, by kernel and by line.

In: the observed graphs and their plans. Out: a `Cost`, which prints as a table. Operations and
bytes of operators are those of `ir.graph.cost_model`. A kernel moves each of its buffers once.
Nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..codegen.loops.kernel import Kernel
from ..codegen.schedule import peak_memory
from ..ir.dataclass import dataclass
from ..ir.graph.cost_model import flops, traffic
from ..ir.graph.nodes import Node
from ..ir.graph.printing import place_text
from ..ir.symbolic.expr import hint_of


@dataclass(frozen=True, slots=True)
class CostRow:
    """One kernel or library call (`kind` "kernel" or "call"), or one line of the program ("line").
    `part`: "forward", "backward" or ""; `reads` and `writes` in bytes."""

    name: str
    kind: str
    part: str
    flops: int
    reads: int
    writes: int

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / max(self.reads + self.writes, 1)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one call, for the sizes at which it was lowered.

    steps   kernels and library calls, in order
    lines   the same operations by line of the program; bytes are those of the single operators
    peak    peak memory of the programs in bytes beside their inputs, the larger of forward and
            backward
    """

    steps: tuple[CostRow, ...]
    lines: tuple[CostRow, ...]
    peak: int

    @property
    def flops(self) -> int:
        return sum(row.flops for row in self.steps)

    @property
    def reads(self) -> int:
        return sum(row.reads for row in self.steps)

    @property
    def writes(self) -> int:
        return sum(row.writes for row in self.steps)

    @property
    def moved(self) -> int:
        return self.reads + self.writes

    @property
    def intensity(self) -> float:
        return self.flops / max(self.moved, 1)

    def __str__(self) -> str:
        head = (
            f"{_number(self.flops)}FLOP, {_number(self.moved)}B moved,"
            f" {self.intensity:.2f} FLOP per byte, "
            f"at most {_number(self.peak)}B at a time"
        )
        return "\n".join([head, *_table("step", self.steps), *_table("line", self.lines)])

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


def cost_of(made: Iterable[Any]) -> Cost:
    """The cost of these parts (`collect.Made`)."""
    steps: list[CostRow] = []
    lines: dict[tuple[str, str], list[int]] = {}
    peak = 0
    for one in made:
        for seen in one.seen:
            half = one.half_of(seen)
            plan = seen.plan
            peak = max(
                peak, int(hint_of(peak_memory.peak(plan.steps, plan.flow, plan.scratch, plan.over)))
            )
            for step in plan.steps:
                steps.append(_step(step, half))
                for node in _nodes(step):
                    counts = lines.setdefault((place_text(node.where), half), [0, 0, 0])
                    for at, count in enumerate((flops(node), *traffic(node))):
                        counts[at] += count
    by_line = [
        CostRow(name or "?", "line", half, *counts) for (name, half), counts in lines.items()
    ]
    by_line.sort(key=lambda row: -row.flops)
    return Cost(tuple(steps), tuple(by_line), peak)


def _nodes(step: Kernel | Node) -> tuple[Node, ...]:
    if isinstance(step, Node):
        return (step,)
    return tuple(dict.fromkeys((*step.nodes, *([step.host] if step.host is not None else []))))


def _step(step: Kernel | Node, half: str) -> CostRow:
    total = sum(map(flops, _nodes(step)))
    if isinstance(step, Node):
        return CostRow(
            str(step.target).removesuffix(".default"), "call", half, total, *traffic(step)
        )
    sizes = [_bytes(buffer) for buffer in step.nest.buffers]
    reads = sum(size for size, one in zip(sizes, step.nest.buffers, strict=True) if not one.written)
    writes = sum(size for size, one in zip(sizes, step.nest.buffers, strict=True) if one.written)
    if step.host is not None:
        more, out = traffic(step.host)
        reads, writes = reads + more, max(writes, out)
    return CostRow(step.nest.name, "kernel", half, total, reads, writes)


def _bytes(buffer: Any) -> int:
    count = buffer.dtype.itemsize
    for size in buffer.shape:
        count *= hint_of(size)
    return int(count)


def _number(count: float) -> str:
    """1.5 k; in decimal steps, as usual for rates."""
    for unit in ("", "k", "M", "G"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} T"


def _table(what: str, rows: tuple[CostRow, ...]) -> list[str]:
    shown = [
        (
            row.part,
            row.name,
            _number(row.flops),
            _number(row.reads),
            _number(row.writes),
            f"{row.intensity:.2f}",
        )
        for row in rows
    ]
    head = ("", what, "FLOP", "B read", "B written", "FLOP/B")
    wide = [max(len(row[at]) for row in (head, *shown)) for at in range(len(head))]
    return [
        "  ".join(
            text.ljust(width) if at < 2 else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, wide, strict=True))
        ).rstrip()
        for row in (head, *shown)
    ]
