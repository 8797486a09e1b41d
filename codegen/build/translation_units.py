"""Translation units: a large source is split into parts that several processors compile at the same
time.

In: the text of a graph's unit. Its kernels are functions at the outermost level that share only
what precedes them. Out: texts, each with some of the kernels and about the same amount of work; and
one library linked from all of them, and from objects that have other kernels of the unit.
`codegen.build.cxx` compiles the whole unit if a part fails.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Characters of kernels, some hundredths of a second: the start of another compiler and a link cost
# as much.
SMALL = 4_000
TIMEOUT = 60.0  # seconds for one run of the compiler

_KERNEL = re.compile(r'^extern "C" void (\w+)\(void \*\*buffers.*?^}\n', re.MULTILINE | re.DOTALL)


def processors() -> int:
    """The number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def kernels(text: str) -> dict[str, str]:
    """Name -> text of each kernel."""
    return {found.group(1): found.group() for found in _KERNEL.finditer(text)}


def replaced(text: str, by: Callable[[str, str], str]) -> str:
    """The text with `by(name, text)` in place of each kernel."""
    return _KERNEL.sub(lambda found: by(found.group(1), found.group()), text)


def is_small(text: str) -> bool:
    """Whether it is not worth a compiler of its own for a part of the kernels."""
    return sum(map(len, kernels(text).values())) < SMALL


def parts(text: str, most: int) -> list[str]:
    """The text in up to `most` parts; in one if it is small."""
    kernels = [found.group() for found in _KERNEL.finditer(text)]
    count = min(most, len(kernels), sum(map(len, kernels)) // SMALL)
    if count < 2:
        return [text]
    loads, chosen = [0] * count, [set[int]() for _ in range(count)]
    for number in sorted(range(len(kernels)), key=lambda n: -len(kernels[n])):
        least = loads.index(min(loads))
        loads[least] += len(kernels[number])
        chosen[least].add(number)
    return [_only(text, kept) for kept in chosen]


def _only(text: str, kept: set[int]) -> str:
    numbers = iter(range(text.count("\n")))
    return _KERNEL.sub(lambda found: found.group() if next(numbers) in kept else "", text)


def end(one: subprocess.Popen[Any]) -> None:
    """Kill a compiler that still runs, and the processes that it started."""
    if one.poll() is None:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()


def compile_parts(
    texts: Sequence[str],
    command: Sequence[str],
    link: Sequence[str],
    target: Path,
    known: Sequence[bytes] = (),
) -> list[bytes] | None:
    """The objects of all parts, compiled side by side and linked to one library with the `known`
    objects; None if that failed."""
    environment = {**os.environ, "TMPDIR": str(target.parent)}
    running: list[subprocess.Popen[bytes]] = []
    objects = [target.with_name(f"part{number}.o") for number in range(len(texts))]
    until = time.monotonic() + TIMEOUT
    try:
        for text, made in zip(texts, objects, strict=True):
            source = made.with_suffix(".cpp")
            source.write_text(text)
            running.append(
                subprocess.Popen(
                    [*command, "-c", "-o", str(made), str(source)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
            )
        if any(one.wait(max(until - time.monotonic(), 0.0)) for one in running):
            return None
    except subprocess.TimeoutExpired:
        return None
    finally:
        for one in running:
            end(one)
    contents = [one.read_bytes() for one in objects]
    for number, content in enumerate(known):
        objects.append(target.with_name(f"known{number}.o"))
        objects[-1].write_bytes(content)
    linked = [*command, "-x", "none", "-o", str(target), *map(str, objects), *link]
    done = subprocess.run(
        linked, capture_output=True, env=environment, check=False, timeout=TIMEOUT
    )
    return None if done.returncode else contents
