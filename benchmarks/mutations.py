"""Programs that are changed between two calls: how many of them each system gets right.

`python -m benchmarks.mutations [--system NAME] [--backend NAME] [--only WORD] [--jobs N] [--json FILE]` plays the table
of tests/mutations in plain Python and through a system, and prints "right", "wrong" (a value or an exception that
plain Python does not give, at some call) or "error" (the system raises what Python does not). Every world runs in a
process of its own, forked. Nothing is timed. `--backend` is torch.compile's: with "eager" only its guards and
capture are judged, and it takes minutes, not an hour.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from tests.capture.harness import Describer, difference
from tests.mutations import KINDS, play

from .systems import SYSTEMS

TOLERANCE = 1e-4
SECONDS = 600  # for one world


def outcome(run: Callable[..., Any], fn: Any, args: tuple[Any, ...]) -> Any:
    """What the caller gets: a value, or the kind of an exception."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return "returned", Describer().describe(run(*args))
        except Exception as error:
            return "raised", type(error).__name__, f"{error}"[:200]


def judge(name: str, wrap: Callable[[Any], Any]) -> tuple[str, str]:
    """The verdict on one world, and where it parts from plain Python."""
    world = KINDS[name].world
    plain = play(world, lambda fn: fn, outcome, lambda run: 0)
    try:
        found = play(world, wrap, outcome, lambda run: 0)
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"[:300]
    for number, (wanted, got) in enumerate(zip(plain, found, strict=True)):
        for one, other in zip(wanted.calls, got.calls, strict=True):
            if one[0] == other[0] == "raised" and one[1] == other[1]:
                continue  # messages are compared by the tests of graftjit; here the kind is enough
            where = difference(one, other, TOLERANCE)
            if where is not None:
                verdict = "error" if other[0] == "raised" and one[0] == "returned" else "wrong"
                return verdict, f"step {number}: plain {where}"[:300]
    return "right", ""


def apart(name: str, wrap: Callable[[Any], Any]) -> tuple[str, str]:
    """`judge` in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, name, wrap))
    child.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(SECONDS) else ("error", f"more than {SECONDS} seconds")
    except EOFError:
        return "error", "the process died"
    finally:
        child.kill()
        child.join()


def _child(pipe: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):
        pipe.send(judge(name, wrap))


def measure(
    names: list[str], wrap: Callable[[Any], Any], jobs: int
) -> Iterator[tuple[str, str, str]]:
    with ThreadPoolExecutor(jobs) as pool:
        for name, (verdict, where) in zip(
            names, pool.map(lambda n: apart(n, wrap), names), strict=True
        ):
            yield name, verdict, where


def system(name: str, backend: str | None) -> Callable[[Any], Any]:
    """How a system takes a program; its imports are done here, before processes are forked."""
    wrap = SYSTEMS[name]
    if name == "torch.compile" and backend is not None:
        wrap = lambda fn: torch.compile(fn, backend=backend)  # noqa: E731
    wrap(lambda x: x)(torch.zeros(1))
    return wrap


def main() -> int:
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("--system", action="append", choices=[*SYSTEMS])
    read.add_argument("--backend")
    read.add_argument("--only", default="")
    read.add_argument("--jobs", type=int, default=1)
    read.add_argument("--json", type=Path)
    options = read.parse_args()
    names = [name for name in KINDS if options.only in name]
    record: dict[str, Any] = {}
    for name in options.system or ["graftjit", "torch.compile"]:
        wrap, rows = system(name, options.backend), {}
        for kind, verdict, where in measure(names, wrap, options.jobs):
            rows[kind] = verdict, where
            if verdict != "right":
                print(f"{name}: {verdict}: {kind}\n    {where}", flush=True)
        counts = collections.Counter(verdict for verdict, _ in rows.values())
        record[name] = {"counts": counts, "rows": rows}
        words = ", ".join(f"{counts[word]} {word}" for word in ("right", "wrong", "error"))
        print(f"{name}: {words}, of {len(names)} worlds", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"torch": torch.__version__, **record}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
