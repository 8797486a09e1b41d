"""The data block of a report's page: a Report as plain values.

In: a `report.Report`. Out: a dictionary for JSON: files (referred to by number), frames, entries,
breaks, recompiles, kernels, graphs, guards, moments. A place is [file, line, end line, column, end
column, function], or null. Nodes of graphs are arrays, since there may be thousands.
`runtime.report.html.render` calls this module.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ..recompiles import source_of
from .source import Sources, file_data

if TYPE_CHECKING:
    from ..records import Place
    from ..report import Report

_PLACE = ("file", "line", "end_line", "column", "end_column", "function")
# Fields that are left out here, since the page has them in another form.
_LEFT_OUT = {*_PLACE, "lines", "resumed_lines", "inlined", "nodes", "source_text"}


class Files:
    """Numbers files in the order in which they are met, and collects the lines to show."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.wanted: dict[str, set[int]] = defaultdict(set)

    def place(self, where: Place | None) -> list[Any] | None:
        if where is None or where.file == "?" or where.line is None:
            return None
        number = self.number(where.file)
        last = where.end_line or where.line
        self.wanted[where.file].update((where.line, last))
        return [number, where.line, last, where.column, where.end_column, where.function]

    def number(self, file: str) -> int:
        return self.numbers.setdefault(file, len(self.numbers))


def row(record: Any, files: Files) -> dict[str, Any]:
    """The fields of a record, with its place as "at" and its time as "when"."""
    out: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        name = field.name
        if name not in _LEFT_OUT:
            out["when" if name == "at" else name] = getattr(record, name)
    if hasattr(record, "line"):
        out["at"] = files.place(record)
    return out


def page_data(report: Report) -> dict[str, Any]:
    """The whole content of the page except its head, which `head.py` prepares."""
    files = Files()
    sources = Sources()
    kernels = _kernels(report, files, sources)
    data: dict[str, Any] = {
        "name": report.name,
        "dropped": report.dropped,
        "frames": [_frame(record, files) for record in report.frames],
        "entries": [row(record, files) for record in report.entries],
        "breaks": [_break(record, files) for record in report.breaks],
        "recompiles": [_varying(record, files) for record in report.recompiles],
        "symbolic": [_varying(record, files) for record in report.symbolic],
        "guards": _guards(report, files),
        "kernels": kernels,
        "graphs": _graphs(report, files),
        "libraries": [row(record, files) for record in report.libraries],
        "schedules": [row(record, files) for record in report.schedules],
        "notes": [row(record, files) for record in report.notes],
        "warnings": [row(record, files) for record in report.warnings],
        "timeline": [row(record, files) for record in report.timeline],
        "roofs": _roofs(report.kernels),
        "sources": sources.rows,
    }
    newest = max((moment.at for moment in report.timeline), default=0.0)
    data["files"] = [file_data(path, files.wanted[path], newest) for path in files.numbers]
    return data


def _frame(record: Any, files: Files) -> dict[str, Any]:
    out = row(record, files)
    if record.file != "?":
        wanted = files.wanted[record.file]
        wanted.update(record.lines)
        for first, last in record.resumed_lines:
            wanted.update((first, last))
        out["file"] = files.number(record.file)
    out["lines"] = list(record.lines)
    out["resumed_lines"] = [list(pair) for pair in record.resumed_lines]
    return out


def _break(record: Any, files: Files) -> dict[str, Any]:
    return {**row(record, files), "inlined": [files.place(place) for place in record.inlined]}


def _varying(record: Any, files: Files) -> dict[str, Any]:
    return {**row(record, files), "source": source_of(record)}


def _guards(report: Report, files: Files) -> dict[str, Any]:
    """Guards as arrays, since there are many: [kind, text, path, place, frame number, entry,
    source]. The source is "" if it equals the path."""
    frames: dict[str, int] = {}
    rows = []
    for record in report.guards:
        path = list(record.path) or [record.source or record.kind]
        source = "" if record.source == "".join(path) else record.source
        frame = frames.setdefault(record.frame, len(frames))
        rows.append(
            [record.kind, record.text, path, _lines(record, files), frame, record.entry, source]
        )
    return {"frames": list(frames), "rows": rows}


def _lines(where: Place, files: Files) -> list[Any] | None:
    """A place without columns and function, for lists with thousands of items."""
    place = files.place(where)
    return place and place[:3]


def _kernels(report: Report, files: Files, sources: Sources) -> list[dict[str, Any]]:
    """The kernels with their weight: seconds times number of runs of the entry. Sources are added
    by weight, since a page limits their size."""
    hits = {(entry.frame, entry.number): entry.hits for entry in report.entries}
    out = []
    for record in report.kernels:
        made = row(record, files)
        lines = {(where.file, where.line): where for where in reversed(record.lines)}
        made["lines"] = [
            place for where in reversed(lines.values()) if (place := files.place(where))
        ]
        made["unfused"] = [dataclasses.asdict(reason) for reason in record.unfused]
        made["weight"] = record.seconds * max(1, hits.get((record.frame, record.entry), 1))
        out.append(made)
    for made in sorted(out, key=lambda kernel: -kernel["weight"]):
        made["source"] = sources.add(made["source"])
    return out


def _graphs(report: Report, files: Files) -> list[dict[str, Any]]:
    """The graphs. A node is [name, op, type, input numbers, kernel number or -1, place]."""
    steps: dict[tuple[str, int, str], int] = {}
    for number, kernel in enumerate(report.kernels):
        for key in (
            (kernel.frame, kernel.entry, f"{kernel.graph}/{kernel.name}"),
            (kernel.frame, kernel.entry, kernel.name),
        ):
            steps.setdefault(key, number)
    out = []
    for graph in report.graphs:
        if not graph.nodes and not graph.text:
            continue
        made = row(graph, files)
        names = {node.name: number for number, node in enumerate(graph.nodes)}
        made["nodes"] = [
            [
                node.name,
                node.op,
                node.type,
                [names[name] for name in node.inputs if name in names],
                _step(steps, graph, node.kernel),
                _lines(node, files),
            ]
            for node in graph.nodes
        ]
        out.append(made)
    return out


def _step(steps: dict[tuple[str, int, str], int], graph: Any, name: str) -> int:
    if not name:
        return -1
    exact = steps.get((graph.frame, graph.entry, f"{graph.name}/{name}"))
    return steps.get((graph.frame, graph.entry, name), -1) if exact is None else exact


def _roofs(kernels: Iterable[Any]) -> list[dict[str, Any]]:
    """The limits of each device in bytes and operations per second, computed from the kernels'
    shares of the roofline."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for kernel in kernels:
        moved = kernel.reads + kernel.writes
        if kernel.share > 0 and kernel.seconds > 0 and kernel.bound in ("memory", "compute"):
            work = moved if kernel.bound == "memory" else kernel.flops
            found[kernel.device, kernel.bound].append(work / kernel.seconds / kernel.share)
    devices = dict.fromkeys(device for device, _bound in found)
    return [
        {
            "device": device,
            **{bound: _middle(found[device, bound]) for bound in ("memory", "compute")},
        }
        for device in devices
    ]


def _middle(values: Sequence[float]) -> float:
    return median(values) if values else 0.0
