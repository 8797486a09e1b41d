"""The schema of a report's JSON, derived from the records: names, order and types of all fields.

In: `runtime.report.records` and `json_form.LISTS`. Out: plain values, which a test compares with
the recorded schema of this version, and docs/report-schema.md: `python -m
graftjit.runtime.report.report_schema > docs/report-schema.md`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from ..version import SCHEMA
from . import records
from .json_form import LISTS, as_dict
from .report import Report

_HEAD = f"""# The JSON of a report

`report.json()` and `report.save("x.json")` write it. `Report.from_json(text)` reads it back: that
report has all lists, and can be rendered, compared (`diff`) and asserted on like a new one. This is
version {SCHEMA} of the schema; its number is the first field, `"schema"`. A version may get new fields:
readers ignore names that they do not know. The version is raised when a name is removed or gets
another meaning.

Times are in seconds and sizes in bytes; a time of 0.0 was not measured. Lines count from 1, columns
from 0. Tuples are arrays. This page is generated from `runtime/report/records.py`.
"""


def schema() -> dict[str, Any]:
    """The version, the names at the top level, and the fields of each record as [name, type]."""
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "report": list(as_dict(Report("")))[1:],
        "lists": {name: record.__name__ for name, record in LISTS.items()},
    }
    return found | {"records": {kind.__name__: fields_of(kind) for kind in _kinds()}}


def fields_of(record: type) -> list[list[str]]:
    """[name, type] of each field, in order."""
    return [[field.name, str(field.type)] for field in dataclasses.fields(record)]


def _kinds() -> list[type]:
    """All records, in the order of the file."""
    found = (value for value in vars(records).values() if isinstance(value, type))
    return [kind for kind in found if kind.__module__ == records.__name__]


def markdown() -> str:
    """The page of the documentation."""
    parts = [_HEAD, "## At the top", "", "| name | what |", "|---|---|"]
    parts += [f"| `{name}` | {text} |" for name, text in _top()]
    own = {record: name for name, record in LISTS.items()}
    for kind in _kinds():
        title = f"{own[kind]}: {kind.__name__}" if kind in own else kind.__name__
        parts += ["", f"## {title}", "", _prose(kind), "", "| field | type |", "|---|---|"]
        parts += [
            f"| `{name}` | `{text.replace('|', chr(92) + '|')}` |" for name, text in _shown(kind)
        ]
    return "\n".join(parts) + "\n"


def _top() -> list[tuple[str, str]]:
    texts = {
        "name": "what the report is on",
        "graph_count": "graphs over all entries",
        "break_count": "graph breaks, one per place",
        "recompile_count": "recompiles",
        "adopted_count": "entries that were reused from another callable of the same class or code",
        "dropped": "events that are lost because the log is bounded",
    }
    for name, record in LISTS.items():
        kind = record.__name__
        texts[name] = f"a list of [{kind}](#{f'{name}-{kind}'.lower()})"
    return [("schema", f"the version, {SCHEMA}")] + [
        (name, texts[name]) for name in as_dict(Report("")) if name != "schema"
    ]


def _shown(kind: type) -> list[tuple[str, str]]:
    """The fields of a record, with those of its place as one row."""
    inherited = {field.name for field in dataclasses.fields(records.Place)}
    if kind is records.Place or not issubclass(kind, records.Place):
        return [(name, text) for name, text in fields_of(kind)]
    own = [(name, text) for name, text in fields_of(kind) if name not in inherited]
    return [("file ... function", "Place"), *own]


def _prose(kind: type) -> str:
    """The docstring as paragraphs, with its table of fields as a list."""
    lines = []
    for line in (inspect.getdoc(kind) or "").splitlines():
        term = re.match(r"(\w+(?:, \w+)*)  +(\S.*)", line)
        lines.append(f"- {term[1]}: {term[2]}" if term else re.sub(r"^ {4,}", "  ", line))
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(), end="")
