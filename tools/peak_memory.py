"""What holds the memory of a workload's programs at their peak: `python tools/peak_memory.py WORKLOAD...`

For each program that the workload compiles (a training step has two): bytes at the peak, beside what eager needs at its
best, and the values alive there, the largest first, with the steps that make them and read them last. Estimates are
those by which `codegen.schedule.plan` weighs its plans; the line before them is what `benchmarks.memory` sees of a whole call.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from benchmarks.memory import peak
from benchmarks.systems import under
from benchmarks.workloads import BY_NAME

MOST = 24  # values shown of a program


def plans_of(name: str, seed: int = 0) -> list[Any]:
    """The plans of the programs that a workload runs, in the order in which they were made."""
    from graftjit.codegen import pipeline

    found: list[Any] = []
    before = pipeline.spec_of

    def kept(made: Any, *rest: Any, **named: Any) -> Any:
        found.append(made)
        return before(made, *rest, **named)

    pipeline.spec_of = kept
    try:
        for system in ("eager", "graftjit"):
            torch.manual_seed(seed)
            function, inputs = BY_NAME[name].make()
            wrapped = under(system, function)
            for _ in range(3):
                wrapped(*inputs)
            seen = peak(lambda: wrapped(*inputs))  # noqa: B023
            print(f"{name} under {system}: {_mib(seen.peak)} MiB, {_mib(seen.kept)} of them kept")
    finally:
        pipeline.spec_of = before
    return found


def _mib(nbytes: float) -> str:
    return f"{nbytes / 2**20:.3f}"


def show(made: Any) -> None:
    from graftjit.codegen.schedule import peak_memory as memory

    planned = memory.peak(made.steps, made.flow, made.scratch, made.over)
    eager = memory.peak_of_eager(made.flow)
    print(
        f"  {made.graph.name}: {_mib(planned)} MiB, eager at its best {_mib(eager)}; inputs come beside that"
    )
    lives = memory.lives(made.steps, made.flow, made.over)
    for what, those in (
        ("apart", [one for one in lives if one.node not in made.scratch]),
        ("workspace", [one for one in lives if one.node in made.scratch]),
    ):
        _table(what, those, made)


def _table(what: str, lives: list[Any], made: Any) -> None:
    """What is alive where this part of the memory is fullest."""
    if not lives:
        return
    held = {
        at: [one for one in lives if one.made <= at <= one.last] for at in range(len(made.steps))
    }
    at = max(held, key=lambda at: sum(one.nbytes for one in held[at]))
    total = sum(one.nbytes for one in held[at])
    print(
        f"    {what}: {_mib(total)} MiB at step {at} of {len(made.steps)}, {_label(made.steps[at])}"
    )
    for one in sorted(held[at], key=lambda one: -one.nbytes)[:MOST]:
        lies = f", over {made.over[one.node].name}" if one.node in made.over else ""
        until = _label(made.steps[one.last]) if one.last < len(made.steps) else "handed out"
        print(f"      {one.nbytes:9d}  {one.node.name:<24} {list(one.node.meta.shape)!s:<20} "
              f"{one.made} {_label(made.steps[one.made])} .. {one.last} {until}{lies}")  # fmt: skip


def _label(step: Any) -> str:
    nest = getattr(step, "nest", None)
    return nest.name if nest is not None else str(step.target).removesuffix(".default")


if __name__ == "__main__":
    with torch.no_grad():
        for workload in sys.argv[1:]:
            for one in plans_of(workload):
                show(one)
