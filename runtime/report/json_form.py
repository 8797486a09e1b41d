"""Conversion of reports to and from JSON: the records of `runtime.report.records`, field by field.

In: a `report.Report`, or the text of `Report.json`. Out: plain values, or the lists of a report,
which then needs no events. Unknown names are ignored and missing ones get their defaults; a newer
schema is refused. `Report.as_dict` and `Report.from_json` call this module.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from typing import TYPE_CHECKING, Any

from ...ir.graph.summary import Sketch, SketchNode
from ..errors import OptionError, describe
from ..version import SCHEMA
from . import records

if TYPE_CHECKING:
    from .report import Report


LISTS: dict[str, type] = {
    "frames": records.FrameRecord,
    "entries": records.EntryRecord,
    "breaks": records.BreakRecord,
    "recompiles": records.RecompileRecord,
    "symbolic": records.SymbolicRecord,
    "guards": records.GuardRecord,
    "kernels": records.KernelRecord,
    "libraries": records.LibraryRecord,
    "graphs": records.GraphRecord,
    "schedules": records.ScheduleRecord,
    "notes": records.NoteRecord,
    "warnings": records.WarningRecord,
    "timeline": records.Moment,
}


def as_dict(report: Report) -> dict[str, Any]:
    """The whole report as plain values."""
    return {
        "schema": SCHEMA,
        "name": report.name,
        "graph_count": report.graph_count,
        "break_count": report.break_count,
        "recompile_count": report.recompile_count,
        "adopted_count": report.adopted_count,
        "dropped": report.dropped,
        **{name: [dataclasses.asdict(one) for one in getattr(report, name)] for name in LISTS},
    }


def lists_of(text: str) -> tuple[str, int, dict[str, list[Any]]]:
    """(name, dropped, lists) of a written report. Raises OptionError if the text is no report or
    has a newer schema."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise OptionError("this is not the JSON of a report", found=str(error)) from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise OptionError(
            "this is not the JSON of a report that can be read",
            expected=f'"schema": 1 to {SCHEMA}',
            found=f'"schema": {describe(schema)}',
            todo="read it with the version of graftjit that wrote it, or a newer one",
        )
    try:
        lists = {
            name: [made_of(record, one) for one in data.get(name, ())]
            for name, record in LISTS.items()
        }
    except (TypeError, AttributeError) as error:
        raise OptionError("the JSON of this report is damaged", found=str(error)) from error
    return str(data.get("name", "?")), int(data.get("dropped", 0)), lists


@functools.cache
def _types(record: type) -> dict[str, Any]:
    return typing.get_type_hints(record)


def made_of(record: type, data: dict[str, Any]) -> Any:
    """The record with these fields, each converted to its type."""
    kinds = _types(record)
    return record(**{name: _value(kinds[name], v) for name, v in data.items() if name in kinds})


def _value(kind: Any, data: Any) -> Any:
    """A value of the field's type, since JSON has neither tuples nor records."""
    if kind is Sketch:
        nodes = tuple(made_of(SketchNode, one) for one in data["nodes"])
        return Sketch(nodes=nodes, text=data["text"])
    if dataclasses.is_dataclass(kind):
        return made_of(typing.cast(type, kind), data)
    if typing.get_origin(kind) is tuple:
        parts = typing.get_args(kind)
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(_value(parts[0], one) for one in data)
        return tuple(_value(part, one) for part, one in zip(parts, data, strict=True))
    if isinstance(kind, types.UnionType):  # X | None
        return None if data is None else _value(typing.get_args(kind)[0], data)
    if kind is float:
        return float(data)
    return data
