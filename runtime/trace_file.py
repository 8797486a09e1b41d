"""GRAFTJIT_TRACE: every event of a process as a line of JSON, and reports that are made of such a file.

In: events, as they happen. Out: `graftjit-PID.jsonl` in the folder that the option names: first a line that says what
wrote it, then one a event, flushed, so that a crash loses nothing; at the end of the process what reports add (calls,
times). `read_trace` makes a `Report` of it. Called by `Session.emit`, `Report.from_trace`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from . import events
from .errors import OptionError
from .report import Report
from .report_json import SCHEMA, made_of
from .version import VERSION

_KINDS = {
    kind.__name__: kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event)
}


class TraceFile:
    """The open file of one process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.pid = os.getpid()
        self._stream = open(folder / f"graftjit-{self.pid}.jsonl", "a", encoding="utf-8")  # noqa: SIM115 (kept open)
        self._line(_header())

    def write(self, event: events.Event) -> None:
        self._line(events.as_json(event))

    def close(self) -> None:
        self._stream.close()

    def _line(self, told: dict[str, Any]) -> None:
        self._stream.write(json.dumps(told, default=_plain) + "\n")
        self._stream.flush()


def _plain(value: Any) -> Any:
    """A graph as its nodes and its text, anything else that JSON does not know as it is printed."""
    if type(value) is events.Sketch:
        return {"nodes": [dataclasses.asdict(node) for node in value.nodes], "text": value.text}
    return str(value)


def _header() -> dict[str, Any]:
    return {
        "trace": "graftjit",
        "schema": SCHEMA,
        "graftjit": VERSION,
        "python": platform.python_version(),
        "torch": str(sys.modules["torch"].__version__) if "torch" in sys.modules else "",
        "program": Path(sys.argv[0]).name if sys.argv else "",
        "began": time.time(),
    }


def read_trace(path: str | Path) -> Report:
    """The report over all events of a trace file. Lines that are cut short, or of a kind that this version does not
    know, count as dropped. Raises OptionError for a file that is no trace or is one of a newer version."""
    found: list[events.Event] = []
    name, dropped, known = "", 0, False
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            try:
                told = json.loads(line)
                if type(told) is not dict:
                    dropped += 1
                elif "trace" in told:
                    known, name = _readable(told, path), told.get("program", "")
                elif known:
                    found.append(made_of(_KINDS[told.pop("event")], told))
            except (ValueError, KeyError, TypeError):
                dropped += 1
    if not known:
        raise OptionError(
            "this is not a trace of graftjit's",
            expected="a file that GRAFTJIT_TRACE=FOLDER has written",
            found=str(path),
        )
    return Report(name or Path(path).stem, tuple(found), dropped)


def _readable(header: dict[str, Any], path: str | Path) -> bool:
    schema = header.get("schema")
    if type(schema) is int and 1 <= schema <= SCHEMA:
        return True
    raise OptionError(
        "this trace was written by another version of graftjit",
        expected=f'"schema": 1 to {SCHEMA}',
        found=f'"schema": {schema} in {path}',
    )
