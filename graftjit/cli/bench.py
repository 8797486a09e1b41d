"""`python -m graftjit bench SCRIPT`: times a program's jitted calls against plain Python.

In: a script or module with its own arguments. It runs once. The calls of its jitted functions are
recorded, one for each compiled combination of arguments, and then repeated (`recorded_calls`). Out:
a table on stdout, and the exit status.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator

from ..runtime.process.session import SESSION
from . import recorded_calls, run_script
from .explain import all_modules, program_of
from .recorded_calls import Result

# A call is reported as slower than plain Python from this factor on; below it is noise.
SLOWER = 1.05
# Tolerated error, relative to the largest value of a result. Narrow floats differ by so much.
TOLERATED = 1e-2


def run(parsed: argparse.Namespace) -> int:
    program = program_of(parsed)
    with all_modules(parsed.all), recorded_calls.recording() as found:
        status, alive = run_script.run(program)
        if status:
            print(f"the script ended with {status}: nothing was timed", file=sys.stderr)
            return status
        results = [recorded_calls.measure(call, parsed.peer) for call in found.calls]
        del alive
    if not results:
        print("nothing was jitted: see --all, or put @graftjit.jit on a function", file=sys.stderr)
        return 1
    if SESSION.options.check:
        print("GRAFTJIT_CHECK is set: each jitted call is checked, and slow because of that")
    for line in table(results, parsed.peer):
        print(line)
    if found.left_out:
        print(f"{found.left_out} more combinations of arguments were compiled and are not timed")
    if parsed.json:
        with open(parsed.json, "w", encoding="utf-8") as stream:
            json.dump([dataclasses.asdict(result) for result in results], stream, indent=2)
    return int(any((result.error or 0.0) > TOLERATED for result in results))


def table(results: list[Result], peer: bool) -> Iterator[str]:
    """One line per call, grouped by function, with remarks."""
    columns = [
        "plain",
        "graftjit",
        "speedup",
        *(["torch.compile", "speedup"] if peer else []),
        "error",
    ]
    widths = [max(9, len(title)) for title in columns]
    wide = min(46, max(len(result.signature) for result in results) + 2)
    yield " " * wide + "  ".join(f"{t:>{w}}" for t, w in zip(columns, widths, strict=True))
    last = ""
    for result in results:
        if result.name != last:
            last = result.name
            yield last
        shown = (
            result.signature
            if len(result.signature) <= wide - 2
            else result.signature[: wide - 5] + "..."
        )
        cells = _cells(result, peer) if result.plain else []
        row = "  ".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=False))
        yield f"  {shown:<{wide - 2}}{row}".rstrip()
        if result.said:
            yield f"    {result.said}"
        if result.jitted > SLOWER * result.plain:
            times = result.jitted / result.plain
            yield (
                f"    takes {times:.2g} times as long as in plain Python: python -m graftjit"
                " explain says why"
            )


def _cells(result: Result, peer: bool) -> list[str]:
    cells = [_time(result.plain), _time(result.jitted), f"{result.plain / result.jitted:.2f}x"]
    if peer:
        cells += [_time(result.peer), f"{result.plain / result.peer:.2f}x"]
    error = result.error
    return [*cells, "-" if error is None else "none" if error == 0 else f"{error:.0e}"]


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1 or unit == "us":
            return f"{seconds * scale:.3g} {unit}"
    raise AssertionError
