"""`python -m benchmarks.engines [MODEL ...]`: graftjit beside eager mode, torch.compile, ONNX
Runtime and OpenVINO.

    python -m benchmarks.engines [MODEL ...] [--out FILE.jsonl] [--table FILE.md] [--chart STEM]

Batch 1, float32, inference; without names all models of `benchmarks.engines.models`. Each system
is a process of its own; results are compared with eager's, first calls are timed with empty
caches, then the systems take turns for several rounds. An engine or a library that is not
installed is a column or a row that says so (`make bench-engines` installs them). With --out each
record is appended as soon as it is there, and models that have one in FILE are not measured
again. Ends with 1 if a result of graftjit's is not eager's, with 2 if FILE is of another run.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import charts, machine
from ..results import Results, ResultsError
from . import peak
from .measure import Settings, measure
from .models import BY_NAME
from .systems import OURS, SYSTEMS
from .table import Record, line, markdown

PACKAGES = ("onnxruntime", "openvino", "onnx", "onnxscript", "torchvision")


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    os.environ.pop("GRAFTJIT_CHECK", None)  # checks run everything twice
    names = options.models or list(BY_NAME)
    systems = tuple(s for s in SYSTEMS if s == "eager" or s in options.systems)
    settings = Settings(systems, options.rounds, options.sample, options.threads, options.limit)
    try:
        results = Results(_head(settings), options.out, resume=True, may_differ=("commit",))
    except ResultsError as error:
        print(error, file=sys.stderr)
        return 2
    for name in names:
        if results.done("engines", name) is None:
            record = measure(name, settings) | {"commit": results.head["machine"]["commit"]}
            results.add(record)
            print(f"{name}: {line(record)}", flush=True)
    records = [found for name in names if (found := results.done("engines", name))]
    text = markdown(results.head, records)
    print(f"\n{text}", end="")
    if options.table:
        options.table.write_text(text, encoding="utf-8")
    if options.chart:
        _draw(results.head, records, options.chart)
    return int(any(_wrong(record) for record in records))


def _head(settings: Settings) -> dict[str, Any]:
    import torch

    if settings.threads:
        torch.set_num_threads(settings.threads)
    engines = {name: machine.version(name) for name in PACKAGES}
    return {
        "settings": dataclasses.asdict(settings) | {"engines": engines},
        "machine": machine.describe(0),
        "peak": peak.rate(),
    }


def _wrong(record: Record) -> bool:
    """A level of graftjit that failed, or gave something else."""
    return any("problem" in record["systems"].get(system, {}) for system in OURS)


def _draw(head: dict[str, Any], records: Sequence[Record], stem: Path) -> None:
    bars = []
    for record in records:
        times = {s: row["median"] for s, row in record["systems"].items() if "median" in row}
        if eager := times.get("eager"):
            ratios = {system: ms / eager for system, ms in times.items()}
            bars.append(charts.Bar(record["workload"], eager * 1e3, ratios))
    seen = head["machine"]
    try:
        charts.draw("Engines", f"{seen['processor']}, {seen['threads']} threads", bars, stem)
    except charts.NoMatplotlib as error:
        print(error, file=sys.stderr)


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(BY_NAME))
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS),
                        help="default: all; eager is always there")  # fmt: skip
    parser.add_argument("--out", type=Path, help="a file that gets a record, as JSON, a model")
    parser.add_argument("--table", type=Path, help="a file that gets the tables, as Markdown")
    parser.add_argument("--chart", type=Path, help="a chart, STEM.png and STEM.svg", metavar="STEM")
    parser.add_argument("--rounds", type=int, default=11, help="rounds of turns (11)")
    parser.add_argument("--sample", type=float, default=0.2, help="seconds of a turn (0.2)")
    parser.add_argument("--threads", type=int, default=0, help="of each system; as torch has them")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a first call (600)")
    parsed = parser.parse_intermixed_args(words)
    if unknown := [name for name in parsed.models if name not in BY_NAME]:
        parser.error(f"no such model: {', '.join(unknown)}")
    if parsed.rounds < 2:
        parser.error("--rounds is at least 2")
    return parsed


if __name__ == "__main__":
    # So that an end from outside leaves no stopped processes behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
