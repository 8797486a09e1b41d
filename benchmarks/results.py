"""The file of results of a run, `results.jsonl` in its folder: a head, then one line a workload, appended as soon as it is measured.

A run that was cut off goes on where it ended (`--resume`), under the same settings on the same machine and commit only: figures
that are set side by side come from equal conditions. A line that was not finished does not count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAME = "results.jsonl"
# Facts of the machine that may differ between the parts of one run.
MAY_DIFFER = ("load", "system")


class ResultsError(Exception):
    """What keeps a run from using a folder, for the user."""


class Results:
    """`lines` are records, and rows of first calls, in the order in which they came."""

    def __init__(
        self,
        head: dict[str, Any],
        path: Path | None = None,
        *,
        resume: bool = False,
        may_differ: tuple[str, ...] = (),
    ) -> None:
        """Without a path nothing is written. An existing file is gone on with, or refused. `may_differ`: facts of the machine,
        beside MAY_DIFFER, that the lines tell themselves."""
        self.head, self.path = head, path
        self.lines: list[dict[str, Any]] = []
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")
            return
        if not resume:
            raise ResultsError(f"{path} exists: go on with --resume, or choose another folder")
        before, self.lines = load(path)
        if changed := _changed(before, head, (*MAY_DIFFER, *may_differ)):
            raise ResultsError(f"{path} is of another run: {', '.join(changed)} differ")
        self.head = before
        self._write_whole()

    def done(self, kind: str, workload: str) -> dict[str, Any] | None:
        return next((line for line in self.lines if (line["kind"], line["workload"]) == (kind, workload)), None)  # fmt: skip

    def add(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _write_whole(self) -> None:
        """Without the rest of a line that was cut off, after which nothing could be appended."""
        assert self.path is not None
        text = "".join(json.dumps(line) + "\n" for line in (self.head, *self.lines))
        whole = self.path.with_suffix(".part")
        whole.write_text(text, encoding="utf-8")
        whole.replace(self.path)


def load(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(head, lines)."""
    head, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return json.loads(head), [json.loads(line) for line in lines if line.endswith("\n")]


def _changed(before: dict[str, Any], now: dict[str, Any], may_differ: tuple[str, ...]) -> list[str]:
    pairs = [(name, before["settings"].get(name), value) for name, value in now["settings"].items()]
    pairs += [(name, before["machine"].get(name), value) for name, value in now["machine"].items()
              if name not in may_differ]  # fmt: skip
    return [name for name, old, new in pairs if json.loads(json.dumps(new)) != old]
