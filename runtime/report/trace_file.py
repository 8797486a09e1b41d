"""Reads reports from files that GRAFTJIT_TRACE has written (`events.trace_writer`).

In: the path of a trace file. Out: a `Report` on its events.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import OptionError
from ..events import events
from ..version import SCHEMA
from .json_form import made_of
from .report import Report

_KINDS = {
    kind.__name__: kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event)
}


def read_trace(path: str | Path) -> Report:
    """The report on all events of a trace file. Truncated lines and unknown kinds of events count
    as dropped. Raises OptionError if the file is no trace or was written by a newer version."""
    found: list[events.Event] = []
    name, dropped, known = "", 0, False
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            try:
                entry = json.loads(line)
                if type(entry) is not dict:
                    dropped += 1
                elif "trace" in entry:
                    known, name = _readable(entry, path), entry.get("program", "")
                elif known:
                    found.append(made_of(_KINDS[entry.pop("event")], entry))
            except (ValueError, KeyError, TypeError):
                dropped += 1
    if not known:
        raise OptionError(
            "this is not a graftjit trace",
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
