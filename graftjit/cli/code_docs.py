"""Examples for codes, and the page docs/codes.md.

In: `runtime.codes`, and code_examples: one file per code, in a folder per ten. A file is a program
in three parts: imports, a program that gives the code (after the comment `# before`), and one that
does not (after `# after`). tests/faces/test_code_examples.py runs each part. `python -m graftjit
codes` uses this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..ir.dataclass import dataclass
from ..runtime import codes

FOLDER = Path(__file__).parent.parent / "code_examples"
_BEFORE, _AFTER = "# before", "# after"


@dataclass(frozen=True, slots=True)
class Example:
    """One program and its fixed version. `said`: the file's docstring, which describes the fix."""

    said: str
    head: str
    before: str
    after: str

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        return ("before", self.before), ("after", self.after)


def example(code: str) -> Example | None:
    """The example of a code, or None."""
    try:
        text = (FOLDER / code[:4] / f"{code}.py").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    head, _, rest = text.partition(f"\n{_BEFORE}\n")
    before, _, after = rest.partition(f"\n{_AFTER}\n")
    said, _, head = head.removeprefix('"""').partition('"""')
    return Example(" ".join(said.split()), head.strip(), before.strip(), after.strip())


def as_dict(row: codes.Code) -> dict[str, Any]:
    """A row as plain values, for JSON."""
    family, shown = codes.family(row.id), example(row.id)
    return {
        "code": row.id,
        "family": family.title,
        "title": row.title,
        "why": row.why,
        "cost": "" if family.cost == "-" else family.cost,
        "cure": row.cure,
        **({} if shown is None else {"before": shown.before, "after": shown.after}),
    }


def page() -> str:
    """The table as Markdown: the text of docs/codes.md."""
    lines = [
        "# Codes",
        "",
        "<!-- made by `python -m graftjit codes --markdown`; do not edit -->",
        "",
        "Every break, fallback, recompile, error and warning has a code that stays the same. On the"
        " command line `python -m graftjit codes GB104` prints one code, `codes numpy` prints those"
        " whose texts have that word. The cure of a code is what to do about it. A test"
        " runs each of"
        " the programs here: the one before the cure gives the code, the one after it does not.",
    ]
    for group in codes.FAMILIES:
        rows = [row for row in codes.CODES.values() if row.id.startswith(group.prefix)]
        lines += ["", f"## {group.title}", ""]
        if group.cost != "-":
            lines += [f"Cost: {group.cost}.", ""]
        shown = {row.id: found for row in rows if (found := example(row.id)) is not None}
        lines += ["| code | what | why | what to do |", "|---|---|---|---|"]
        lines += [
            f"| {f'[{row.id}](#{row.id.lower()})' if row.id in shown else row.id} |"
            f" {row.title} | {row.why} | {row.cure} |"
            for row in rows
        ]
        for row in rows:
            if row.id in shown:
                lines += _section(row, shown[row.id])
    return "\n".join(lines) + "\n"


def _section(row: codes.Code, shown: Example) -> list[str]:
    """One example under its own heading, which is the code alone, so that the anchor is the code,
    too."""
    lines = ["", f"### {row.id}", "", f"{row.title[0].upper()}{row.title[1:]}. {shown.said}"]
    for title, program in shown.parts:
        lines += ["", f"{title.capitalize()}:", "", "```python", program, "```"]
    return lines
