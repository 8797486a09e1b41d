"""Guards in the text report, as a tree by source: what an entry checks before it answers.

In: the GuardRecords of a Report. Out: lines. A step of a source is a branch, and the conditions on
its value are leaves. Steps without a condition or fork are joined: `self.layers[0].weight`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ....ir.dataclass import dataclass, field
from ..styled_text import Line, clean, counted, line, wrap

if TYPE_CHECKING:
    from ..records import GuardRecord
    from ..report import Report


@dataclass(slots=True)
class _Branch:
    name: str = ""
    conditions: list[str] = field(default_factory=list)
    branches: dict[str, _Branch] = field(default_factory=dict)


def lines(report: Report, width: int) -> Iterator[Line]:
    """A tree for each frame."""
    for frame in dict.fromkeys(guard.frame for guard in report.guards):
        mine = [guard for guard in report.guards if guard.frame == frame]
        yield line("  ", (frame, "name"), f": {counted(len(mine), 'guard')}")
        for branch in _tree(mine).branches.values():
            yield from _lines(branch, width, "    ")


def _tree(guards: Sequence[GuardRecord]) -> _Branch:
    root = _Branch()
    for guard in guards:
        at = root
        for step in guard.path or (guard.source,):
            at = at.branches.setdefault(step, _Branch(step))
        # The condition "self.weight: cpu f32[4]" goes to the branch of self.weight.
        text = clean(guard.text.removeprefix(f"{guard.source}: ") if guard.path else guard.text)
        if text not in at.conditions:
            at.conditions.append(text)
    return root


def _lines(branch: _Branch, width: int, indent: str) -> Iterator[Line]:
    name = branch.name
    while len(branch.branches) == 1 and not branch.conditions:
        (branch,) = branch.branches.values()
        name += branch.name
    if not name:  # not about a single value
        for condition in branch.conditions:
            yield from wrap([condition], width, indent, indent + "  ")
    elif len(branch.conditions) == 1:
        yield from wrap(
            [(name, "name"), f": {branch.conditions[0]}"], width, indent, indent + "    "
        )
    else:
        yield line(indent, (clean(name), "name"))
        for condition in branch.conditions:
            yield from wrap([condition], width, indent + "  ", indent + "    ")
    for below in branch.branches.values():
        yield from _lines(below, width, indent + "  ")
