"""`python -m benchmarks.report DIR`: a run's report, from the `results.jsonl` in its folder (`benchmarks.compare --report DIR`).

It writes `report.json` (all numbers, bounds and verdicts), `report.md` (tables) and, with the extra "bench", one bar chart a group,
PNG and SVG. A run that was cut off has a report of what there is.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import charts, results, verdicts
from .bandwidth import copy_seconds, gigabytes_a_second
from .verdicts import KEPT, OURS, UNKNOWN, Verdict
from .workloads import BY_NAME, GROUPS, PEER

Lines = Sequence[dict[str, Any]]


def write(folder: Path, head: dict[str, Any], lines: Lines) -> list[Path]:
    """All files of a report; gives their paths. Without matplotlib there are no charts, which the Markdown says."""
    folder.mkdir(parents=True, exist_ok=True)
    steady = [line for line in lines if line["kind"] == "time"]
    judged = {line["workload"]: verdicts.judge(BY_NAME[line["workload"]], line) for line in steady}
    paths, missing = _charts(folder, head, steady)
    seen = {
        **head,
        "lines": [_with_verdicts(line, judged.get(line["workload"], [])) for line in lines],
        "groups": {group: verdicts.group_means(own) for group, own in _grouped(steady)},
    }
    for name, text in (
        ("report.json", json.dumps(seen, indent=1) + "\n"),
        ("report.md", markdown(head, lines, judged, missing)),
    ):
        (folder / name).write_text(text, encoding="utf-8")
        paths.append(folder / name)
    return paths


def _with_verdicts(line: dict[str, Any], found: list[Verdict]) -> dict[str, Any]:
    return (
        line | {"verdicts": [dataclasses.asdict(verdict) for verdict in found]} if found else line
    )


def _grouped(lines: Iterable[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    found = [(group, [line for line in lines if BY_NAME[line["workload"]].group == group]) for group in GROUPS]  # fmt: skip
    return [(group, own) for group, own in found if own]


# -- charts ----------------------------------------------------------------------------------------


def bar(line: dict[str, Any], curve: Any) -> charts.Bar | None:
    """None where eager was not measured."""
    times = {s: row["median"] for s, row in line["systems"].items() if row["median"] is not None}
    eager = times.get("eager")
    if not eager:
        return None
    # The same number as in the tables where there is one: the median of the rounds' ratios.
    ratios = {system: us / eager for system, us in times.items()}
    if "eager" in line["ratios"]:
        ratios[OURS] = line["ratios"]["eager"][1]
    copied = copy_seconds(line["moved"], curve) * 1e6 / eager if line["moved"] and curve else None
    return charts.Bar(line["workload"], eager, ratios, copied)


def _charts(folder: Path, head: dict[str, Any], steady: Lines) -> tuple[list[Path], str]:
    paths: list[Path] = []
    for group, own in _grouped(steady):
        # The copy of a few bytes says nothing about the cost of a call.
        curve = head["copy"] if group != "call" else None
        bars = [found for line in own if (found := bar(line, curve))]
        means = " · ".join(
            f"{mean:.2f} of {other}'s" for other, mean in verdicts.group_means(own).items()
        )
        subtitle = (
            f"{_machine_line(head)}\ngraftjit's time, geometric mean: {means or 'not measured'}"
        )
        try:
            paths += charts.draw(GROUPS[group].capitalize(), subtitle, bars, folder / group)
        except charts.NoMatplotlib as error:
            return [], str(error)
    return paths, ""


def _machine_line(head: dict[str, Any]) -> str:
    machine = head["machine"]
    return (f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, "
            f"Python {machine['python']}, commit {machine['commit']}")  # fmt: skip


# -- Markdown --------------------------------------------------------------------------------------


def markdown(
    head: dict[str, Any], lines: Lines, judged: dict[str, list[Verdict]], missing: str
) -> str:
    steady = [line for line in lines if line["kind"] == "time"]
    parts = ["# Benchmarks", _machine_line(head), _settings_line(head), missing]
    for group, own in _grouped(steady):
        parts += _group(group, own, head, judged, not missing)
    parts += _first([line for line in lines if line["kind"] == "first"])
    parts += _listed("Bounds not kept", _not_kept(steady, judged))
    parts += _listed("What graftjit could not compile whole", _programs(steady))
    parts += _listed("Not measured, or not the same values", _problems(lines))
    return "\n\n".join(part for part in parts if part) + "\n"


def _settings_line(head: dict[str, Any]) -> str:
    settings = head["settings"]
    return (
        f"Medians of {settings['rounds']} rounds, systems in turn, a process for each workload, seed {settings['seed']}. "
        "Ratios are medians of the rounds' ratios; below 1 graftjit is faster. *Copy*: the time in which this machine copies as "
        f"many bytes as a call has to move ({gigabytes_a_second(head['copy']):.1f} GB/s read plus written beyond the caches). *Peak*: "
        "memory of a call beyond what was there before, in MiB; graftjit's includes the scratch memory that it keeps. "
        "*Error*: against float64, in units of eager's, the worse of largest and root mean square."
    )


def _group(
    group: str, own: Lines, head: dict[str, Any], judged: dict[str, list[Verdict]], chart: bool
) -> list[str]:
    rows = [
        f"| workload | eager | graftjit | `{PEER}` | copy | / eager | / `{PEER}` | peak eager | graftjit | `{PEER}` | error | bounds |",
        "|---|" + "---:|" * 10 + "---|",
        *(_row(line, head, judged[line["workload"]]) for line in own),
    ]
    means = verdicts.group_means(own)
    verdict = "; ".join(f"{v.state} ({v})" for v in verdicts.judge_group(group, means))
    rows.append(f"| geometric mean | | | | | {_cell(means.get('eager'))} | {_cell(means.get(PEER))} | | | | | {verdict} |")  # fmt: skip
    image = [f"![{GROUPS[group]}]({group}.svg)"] if chart else []
    return [f"## {GROUPS[group].capitalize()}", *image, "\n".join(rows)]


def _row(line: dict[str, Any], head: dict[str, Any], found: list[Verdict]) -> str:
    systems = line["systems"]
    times = [charts.duration(us) if (us := systems.get(s, {}).get("median")) is not None else "-"
             for s in ("eager", OURS, PEER)]  # fmt: skip
    copied = (
        charts.duration(copy_seconds(line["moved"], head["copy"]) * 1e6) if line["moved"] else "-"
    )
    ratios = [_cell(line["ratios"].get(other, (None, None))[1]) for other in ("eager", PEER)]
    peaks = [_cell(None if (n := verdicts.peak_of(systems, s)) is None else n / 2**20)
             for s in ("eager", OURS, PEER)]  # fmt: skip
    cells = [BY_NAME[line["workload"]].note.replace("|", "\\|"), *times, copied, *ratios, *peaks,
             _cell(verdicts.error_of(systems, OURS)), verdicts.worst(found)]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value >= 0.095 or value == 0 else f"{value:.1g}"


def _first(lines: Lines) -> list[str]:
    if not lines:
        return []
    rows = ["| workload | caches | graftjit | `torch.compile` | ratio | bounds |", "|---|---|---:|---:|---:|---|"]  # fmt: skip
    for line in lines:
        for caches in ("empty", "warm"):
            own = {row["system"]: row for row in line["rows"] if row["caches"] == caches}
            seconds = [_cell(own.get(s, {}).get("median")) for s in (OURS, PEER)]
            mine = own.get(OURS, {})
            note = BY_NAME[line["workload"]].note
            rows.append(f"| {note} | {caches} | {seconds[0]} | {seconds[1]} | {_cell(mine.get('ratio'))} | {mine.get('verdict', '')} |")  # fmt: skip
    return ["## First call, seconds", "\n".join(rows)]


def _listed(title: str, items: list[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {item}" for item in items)] if items else []


def _not_kept(steady: Lines, judged: dict[str, list[Verdict]]) -> list[str]:
    return [f"{line['workload']}: {verdict.state}, {verdict}" for line in steady
            for verdict in judged[line["workload"]] if verdict.state not in (KEPT, UNKNOWN)]  # fmt: skip


def _programs(steady: Lines) -> list[str]:
    found = []
    for line in steady:
        program = line["systems"].get(OURS, {}).get("program") or {}
        seen = [*program.get("breaks", ()), *program.get("notes", ())]
        found += [f"{line['workload']}: {text}" for text in seen]
    return found


def _problems(lines: Lines) -> list[str]:
    found = []
    for line in lines:
        rows = (
            line["systems"].items()
            if line["kind"] == "time"
            else [(r["system"], r) for r in line["rows"]]
        )
        found += [f"{line['workload']}, {system}: {row['problem']}" for system, row in rows if row.get("problem")]  # fmt: skip
    return list(dict.fromkeys(found))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("folder", type=Path, metavar="DIR")
    folder = parser.parse_args(arguments).folder
    head, lines = results.load(folder / results.NAME)
    for path in write(folder, head, lines):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
