"""`Lowered`: the stages of compiling a call, as printable objects.

In: what `lower` has observed of one compilation. Out: a `Lowered` with a `Part` for each captured
region of a frame; a part has ordered stages, each a `Stage` with its text, time and graph. Since
`lower` does not run the program, only the first part of a frame with a break exists;
`Lowered.run()` adds the others by running the call once, as `explain` does.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from typing import Any

from ..ir.dataclass import dataclass, field
from ..ir.graph.nodes import Graph
from ..runtime.errors import UserError
from .cost import Cost, cost_of


@dataclass(slots=True, eq=False)
class Stage:
    """One stage of a compilation. It prints as text.

    name     "captured", "aten", ...: see `collect.STAGES`
    title    what it is, in a few words
    size     its size, in words
    seconds  its time; 0 if it was made together with the previous stage
    graph    the graph that it shows (`.text()`, `.to_fx()`), or None
    steps    its steps: the passes that changed something
    """

    name: str
    title: str
    size: str
    seconds: float
    make: Callable[[], str] = field(repr=False)
    graph: Graph | None = field(default=None, repr=False)
    steps: tuple[Stage, ...] = field(default=(), repr=False)
    before: Graph | None = field(default=None, repr=False)
    _text: str | None = field(default=None, repr=False)

    def text(self) -> str:
        if self._text is None:
            self._text = self.make()
        return self._text

    def diff(self) -> str:
        """The change of a pass, as a unified diff of the graph before and after it. Raises
        UserError for other stages."""
        if self.graph is None or self.before is None:
            raise UserError(
                f"the stage {self.name} is no pass over a graph",
                expected="a step of the stage passes: lowered['passes'].steps",
                found=self.name,
            )
        import difflib

        old, new = self.before.text().splitlines(), self.graph.text().splitlines()
        return "\n".join(
            difflib.unified_diff(old, new, "before", f"after {self.name}", "", "", 1, "")
        )

    def __getitem__(self, name: str) -> Stage:
        return _named(self.steps, name, f"step of the stage {self.name}")

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return _details(self, opened=True)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One captured region of a frame: the function from its beginning, or from where it continues
    after a break.

    kind     "direct" (one graph, no Python), "code" (replacement code) or "plain" (runs uncompiled)
    notes    remarks of the capture: breaks, and why a frame runs in plain Python, with codes and
             locations
    """

    name: str
    kind: str
    stages: tuple[Stage, ...]
    notes: tuple[str, ...] = ()
    made: Any = field(default=(), repr=False)  # data of its graphs

    def __getitem__(self, name: str) -> Stage:
        return _named(self.stages, name, f"stage of {self.name}")

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def __contains__(self, name: object) -> bool:
        return any(stage.name == name for stage in self.stages)

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    def text(self, stage: str | None = None) -> str:
        """The text of one stage, or of all stages with headings."""
        if stage is not None:
            return self[stage].text()
        return "\n\n".join(f"{_heading(self, one)}\n{one.text()}" for one in self.stages)

    def __str__(self) -> str:
        rows = [(one.name, _ms(one.seconds), one.size, one.title) for one in self.stages]
        head = ("stage", "ms", "size", "")
        wide = [max(len(row[at]) for row in (head, *rows)) for at in range(3)]
        lines = [f"{self.name}: {KINDS[self.kind]}"]
        for name, spent, size, title in (head, *rows):
            lines.append(
                f"  {name:<{wide[0]}}  {spent:>{wide[1]}}  {size:<{wide[2]}}  {title}".rstrip()
            )
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        rows = "".join(_details(stage) for stage in self.stages)
        return f"<h4>{html.escape(self.name)}</h4>{said}{rows}"


KINDS = {
    "direct": "one graph, called without a Python frame",
    "code": "replacement code around a graph",
    "plain": "runs as written",
}


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """The result of `lower`: see the module's docstring. `lowered["aten"]` is that stage of the
    first part that has it, and `lowered[0]` a part. Iteration yields all stages in order."""

    name: str
    parts: tuple[Part, ...]
    again: Callable[[], Lowered] | None = field(default=None, repr=False)

    def __getitem__(self, which: str | int) -> Any:
        if isinstance(which, int):
            return self.parts[which]
        having = [part for part in self.parts if which in part]
        if having:
            return having[0][which]
        return _named(tuple(self), which, f"stage of {self.name}")

    def __iter__(self) -> Iterator[Stage]:
        return (stage for part in self.parts for stage in part)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __contains__(self, name: object) -> bool:
        return any(name in part for part in self.parts)

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    def text(self, stage: str | None = None) -> str:
        """One stage of all parts, or everything."""
        parts = [part for part in self.parts if stage is None or stage in part]
        if stage is not None and len(parts) <= 1:
            return str(self[stage].text())
        return "\n\n".join(f"=== {part.name}\n{part.text(stage)}" for part in parts)

    def cost(self) -> Cost:
        """Operations and bytes of the programs, by kernel, library call and line, as a
        `graftjit.lowered.cost.Cost`."""
        return cost_of(part.made for part in self.parts if part.made)

    def run(self) -> Lowered:
        """The same with the parts after breaks: runs the call once, with its effects, in a separate
        compilation. Frames that were compiled before and that a break calls are missing;
        `graftjit.reset()` drops their compilations."""
        return self if self.again is None else self.again()

    def __str__(self) -> str:
        lines = [f"{self.name}: lowered in {_ms(self.seconds)} ms"]
        lines += [str(part) for part in self.parts]
        if self.again is not None and any(part.notes for part in self.parts):
            lines.append("what follows a break is lowered by .run(), which runs the call")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = f"<h3>{html.escape(self.name)}: lowered in {_ms(self.seconds)} ms</h3>"
        return head + "".join(part._repr_html_() for part in self.parts)


def _named(found: tuple[Stage, ...], name: str, what: str) -> Stage:
    for stage in found:
        if stage.name == name:
            return stage
    names = ", ".join(dict.fromkeys(stage.name for stage in found)) or "none"
    raise KeyError(f"no {what} is called {name!r}; there are: {names}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _heading(part: Part, stage: Stage) -> str:
    return f"--- {stage.name}: {stage.title} ({stage.size}, {_ms(stage.seconds)} ms)"


def _details(stage: Stage, opened: bool = False) -> str:
    """A collapsible stage."""
    head = f"<b>{stage.name}</b> {stage.title} ({stage.size}, {_ms(stage.seconds)} ms)"
    body = f"<pre style='text-align:left'>{html.escape(stage.text())}</pre>"
    return f"<details{' open' * opened}><summary>{head}</summary>{body}</details>"
