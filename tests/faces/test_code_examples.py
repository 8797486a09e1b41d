"""The examples in the table of codes are programs that were run: before its cure each gives its code, after it none.

Each part is run in plain Python and jitted, and prints the same; the cure prints what the program before it printed.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

import graftjit
from graftjit.cli import code_docs
from graftjit.runtime.codes import CODES
from graftjit.runtime.process.session import SESSION

FILES = sorted(code_docs.FOLDER.glob("*/*.py"))
WITH_EXAMPLES = ("GB", "RC")
# Codes of which the cured program may still compile again for another reason, and why.
MAY_RECOMPILE: dict[str, str] = {}


def run(path: Path, title: str, disabled: bool) -> tuple[str, graftjit.Report]:
    """What a part of the example prints, and the report on it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    at = {word: lines.index(f"# {word}") for word in ("before", "after")}
    end = at["after"] if title == "before" else len(lines)
    body = lines[: at["before"]] + [""] * (at[title] - at["before"]) + lines[at[title] : end]
    printed, names = io.StringIO(), {"__name__": "__main__"}
    graftjit.reset()
    with (
        SESSION.log.keeping(),
        contextlib.redirect_stdout(printed),
        SESSION.override(disable=disabled),
    ):
        exec(compile("\n".join(body), str(path), "exec"), names)
        report = graftjit.report()
        names.clear()
    return printed.getvalue(), report


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_code_and_its_cure(path: Path) -> None:
    code = path.stem
    plain = {title: run(path, title, True)[0] for title in ("before", "after")}
    assert plain["before"] == plain["after"] != ""
    before, report = run(path, "before", False)
    seen = {row.code for row in (*report.breaks, *report.recompiles, *report.notes)}
    assert code in seen, report
    after, cured = run(path, "after", False)
    assert (before, after) == (plain["before"], plain["after"])
    assert not cured.breaks and not [note for note in cured.notes if note.plain], cured
    assert code in MAY_RECOMPILE or not cured.recompiles, cured
    assert cured.graph_count > 0


def test_every_break_and_recompile_has_an_example() -> None:
    wanted = {code for code in CODES if code.startswith(WITH_EXAMPLES)}
    assert {path.stem for path in FILES} == wanted


def test_what_is_shown_of_an_example() -> None:
    shown = code_docs.example("GB104")
    assert shown is not None and ".numpy()" in shown.before and ".numpy()" not in shown.after
    assert "import torch" in shown.head and shown.said.endswith(".")
    assert code_docs.example("ER501") is None
