"""Text of the records: a line a model, and the table in Markdown with means at its end.

The ratio is the time of a level of graftjit over that of the best other system of the model,
eager mode included: below 1 graftjit is faster than all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .models import BY_NAME
from .systems import OURS

Record = dict[str, Any]


def best_other(record: Record) -> tuple[str, float] | None:
    """(system, milliseconds) of the quickest one that is not ours."""
    others = {s: row["median"] for s, row in record["systems"].items()
              if s not in OURS and "median" in row}  # fmt: skip
    return min(others.items(), key=lambda pair: pair[1]) if others else None


def ratio(record: Record, ours: str) -> float | None:
    """None where one of the two was not measured."""
    other, own = best_other(record), record["systems"].get(ours, {}).get("median")
    return own / other[1] if own and other else None


def line(record: Record) -> str:
    """One record, for the terminal."""
    if "problem" in record:
        return record["problem"]
    words = [f"{system} {_cell(row)}" for system, row in record["systems"].items()]
    seen = [f"{ours} / best {value:.2f}" for ours in OURS if (value := ratio(record, ours))]
    return ", ".join([*words, *seen])


def markdown(head: dict[str, Any], records: Sequence[Record]) -> str:
    systems, peak = head["settings"]["systems"], head["peak"]
    ours = [system for system in OURS if system in systems]
    parts = [
        _conditions(head),
        "Milliseconds a call (medians), and ratios to the best other system:",
        _rows(["model", *systems, "best other", *(f"{s} / best" for s in ours), "share of peak"],
              [_times(record, systems, ours, peak) for record in records]),
        *[_summary(records, system) for system in ours],
        "Seconds of the first call, with empty caches, exports and imports included:",
        _rows(["model", *systems], [_each(r, systems, "first", "{:.2f}") for r in records]),
        "The largest difference to eager's results:",
        _rows(["model", *systems], [_each(r, systems, "difference", "{:.1e}") for r in records]),
        _problems(records),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _conditions(head: dict[str, Any]) -> str:
    machine, settings, peak = head["machine"], head["settings"], head["peak"]
    engines = settings["engines"].items()
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in engines)
    rate = f"{peak / 1e9:.0f} GFLOP/s by fused multiply-adds" if peak else "peak not measured"
    return (f"{machine['processor']}, {machine['threads']} threads, {rate}; Python {machine['python']}, torch {machine['torch']}, "
            f"{versions}; commit {machine['commit']}; load at the start {machine['load'][0]}; {settings['rounds']} rounds.")  # fmt: skip


def _cell(row: dict[str, Any]) -> str:
    return f"{row['median']:.3g} ms" if "median" in row else row.get("problem", "-")


def _times(record: Record, systems: Sequence[str], ours: Sequence[str], peak: Any) -> list[str]:
    note = BY_NAME[record["workload"]].note
    name = f"{record['workload']}: {note}"
    if "problem" in record:
        return [name, record["problem"], *["-"] * (len(systems) + len(ours) + 1)]
    medians = _each(record, systems, "median", "{:.3g}")[1:]
    other = best_other(record)
    ratios = [f"{value:.2f}" if (value := ratio(record, own)) else "-" for own in ours]
    return [name, *medians, other[0] if other else "-", *ratios, _share(record, ours, peak)]


def _share(record: Record, ours: Sequence[str], peak: float | None) -> str:
    """Of graftjit's quicker level, as far as operations are counted."""
    times = [t for own in ours if (t := record["systems"].get(own, {}).get("median"))]
    if not peak or not record["flops"] or not times:
        return "-"
    return f"{record['flops'] / (min(times) / 1e3) / peak:.0%}"


def _each(record: Record, systems: Sequence[str], key: str, form: str) -> list[str]:
    """The model's name, and a cell a system; what is wrong where there is no number."""
    cells = [record["workload"]]
    for system in systems:
        row = record["systems"].get(system, {})
        cells.append(form.format(row[key]) if key in row else _short(row))
    return cells


def _short(row: dict[str, Any]) -> str:
    """In a cell; the whole problem is below the tables."""
    problem = row.get("problem", "")
    return "missing" if problem.endswith("not installed") else "failed" if problem else "-"


def _summary(records: Sequence[Record], ours: str) -> str:
    found = {r["workload"]: value for r in records if (value := ratio(r, ours))}
    if not found:
        return ""
    mean = math.exp(sum(map(math.log, found.values())) / len(found))
    worst = max(found, key=lambda name: found[name])
    return (f"{ours} / best of the others: geometric mean {mean:.2f} of {len(found)} models, "
            f"largest {found[worst]:.2f} ({worst}).")  # fmt: skip


def _problems(records: Sequence[Record]) -> str:
    """By problem, as a missing engine is one of all models."""
    where: dict[tuple[str, str], list[str]] = {}
    for record in records:
        rows = {"": record} if "problem" in record else record["systems"]
        for system, row in rows.items():
            if "problem" in row:
                where.setdefault((system, row["problem"]), []).append(record["workload"])
    items = [f"- {', '.join(names)}: {f'{system}: ' if system else ''}{problem}"
             for (system, problem), names in where.items()]  # fmt: skip
    return "\n".join(["Not measured:", "", *items]) if items else ""


def _rows(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = "|---|" + "---:|" * (len(titles) - 1)
    lines = [" | ".join(one.replace("|", "&#124;") for one in row) for row in (titles, *rows)]
    lines = [f"| {one} |" for one in lines]
    return "\n".join([lines[0], rule, *lines[1:]])
