"""GRAFTJIT_TRACE: writes each event of a process as a line of JSON.

In: events, as they happen. Out: `graftjit-PID.jsonl` in the folder of the option. The first line
contains the version that wrote it. Each line is flushed, so that a crash loses nothing. At exit the
totals (calls, times) of a report are added. `runtime.report.trace_file` reads the file.
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

from ..version import SCHEMA, VERSION
from . import events


class TraceFile:
    """The open file of one process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.pid = os.getpid()
        self._stream = open(  # noqa: SIM115 (kept open)
            folder / f"graftjit-{self.pid}.jsonl", "a", encoding="utf-8"
        )
        self._line(_header())

    def write(self, event: events.Event) -> None:
        self._line(events.as_json(event))

    def close(self) -> None:
        self._stream.close()

    def _line(self, row: dict[str, Any]) -> None:
        self._stream.write(json.dumps(row, default=_plain) + "\n")
        self._stream.flush()


def _plain(value: Any) -> Any:
    """A graph as its nodes and text; any other value that JSON lacks as `str`."""
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
