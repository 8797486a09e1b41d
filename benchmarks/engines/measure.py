"""One model under all systems: first calls one after the other, results beside eager's, then
rounds in turns.

In: a model's name, systems, settings. Out: a record of plain values. All processes are alive
during the rounds, one of them awake. A system that differs from eager by more than `TOLERANCE` of
an output's largest value is not timed; it computes something else.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import draw
from ..steady_state import in_turns, one_line, quartiles
from .models import BY_NAME
from .process import Failed, Process
from .systems import missing

# Of the largest value of the same output, in float32: other orders of summation stay far below,
# bfloat16 is above.
TOLERANCE = 1e-3

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run measures. `limit`: seconds for a first call."""

    systems: tuple[str, ...]
    rounds: int = 11
    sample_seconds: float = 0.2
    threads: int = 0  # 0: as torch has it
    limit: float = 600.0


def measure(model: str, settings: Settings) -> dict[str, Any]:
    """`systems`: name -> row; `flops` of a call. A model that cannot be made has a `problem`."""
    record: dict[str, Any] = {"kind": "engines", "workload": model, "systems": {}, "flops": 0}
    try:
        BY_NAME[model].make()
    except Exception as error:
        return record | {"problem": one_line(error)}
    rows: dict[str, Row] = record["systems"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="graftjit-bench-")))
        ready: dict[str, Process] = {}
        for system in settings.systems:
            if problem := missing(system):
                rows[system] = {"problem": problem}
                continue
            place = folder / str(len(rows))
            process = stack.enter_context(Process(model, system, settings.threads, place))
            rows[system] = _first(process, ready.get("eager"), settings.limit)
            record["flops"] = rows[system].pop("flops", 0) or record["flops"]
            if "problem" not in rows[system]:
                ready[system] = process
        _rounds(ready, rows, settings)
    return record


def _first(process: Process, eager: Process | None, limit: float) -> Row:
    """The first call, and how far its result is from eager's."""
    try:
        answer = process.ask(limit, do="first")
    except Failed as error:
        return {"problem": str(error)}
    row: Row = {"first": answer["seconds"], "flops": answer["flops"]}
    if eager is None:
        return row
    try:
        row |= difference(torch.load(process.result), torch.load(eager.result))
    except ValueError as error:
        return row | {"problem": str(error)}
    if not row["relative"] <= TOLERANCE:
        row["problem"] = f"other values than eager's: off by {row['difference']:.2g}"
    return row


def difference(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> Row:
    """`difference`: the largest of any output; `relative`: over that output's largest value.

    Raises ValueError if shapes or dtypes are others, or values that are no floats.
    """
    kinds = [[(tuple(one.shape), one.dtype) for one in own] for own in (found, expected)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"other outputs than eager's: {kinds[0]}, not {kinds[1]}")
    worst = relative = 0.0
    for own, other in zip(found, expected, strict=True):
        if not other.is_floating_point():
            if not torch.equal(own, other):
                raise ValueError("other whole numbers than eager's")
            continue
        largest = draw({"": own}, other).absolute[""][0][0]
        size = other.abs().max().item() if other.numel() else 0.0
        worst = max(worst, largest)
        relative = max(relative, largest / size if size else math.inf if largest else 0.0)
    return {"difference": worst, "relative": relative}


def _rounds(ready: dict[str, Process], rows: dict[str, Row], settings: Settings) -> None:
    """Adds milliseconds a call to the rows; what fails on the way has a problem instead."""

    def asked(system: str, **request: Any) -> Row:
        if "problem" not in rows[system]:
            try:
                return ready[system].ask(settings.limit, **request)
            except Failed as error:
                rows[system]["problem"] = str(error)
        return {"calls": 0, "us": math.nan}

    calls = {
        system: asked(system, do="calls", seconds=settings.sample_seconds)["calls"]
        for system in ready
    }
    times = in_turns(
        list(ready),
        settings.rounds,
        lambda system: asked(system, do="sample", calls=calls[system])["us"] / 1e3,
    )
    for system, samples in times.items():
        if "problem" not in rows[system]:
            low, _median, high = quartiles(samples)
            median = statistics.median(samples)
            rows[system] |= {"median": median, "low": low, "high": high, "calls": calls[system]}
