"""One module in each mode, a process each, and what differs between them.

In: a module's name. Out: a `Difference` for each test and mode whose outcome is not that of the plain run. A process that
dies or stands still is an outcome of the test that was running; the tests behind it run in another process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LEFT_OUT = Path(__file__).with_name("left_out.txt")
MODES = ("jit", "frame")
# Of one test: of the processor's time, which does not depend on what else runs; by the clock, so many times as much.
SECONDS = float(os.environ.get("CPYTHON_TEST_SECONDS", 120))
BY_THE_CLOCK = 6
MOST_PROCESSES = 25  # of one module in one mode


@dataclass(frozen=True)
class Outcome:
    kind: str  # passed, failed, skipped, expected failure, unexpected success, fault, crashed, hung
    text: str = ""


@dataclass(frozen=True)
class Difference:
    module: str
    test: str
    mode: str
    plain: str
    other: str
    text: str

    def __str__(self) -> str:
        return f"{self.test:<70} {self.mode:<6} {self.plain:<10} {self.other}"


@dataclass(frozen=True)
class Row:
    """What is not compared: tests by a pattern, in one mode or all of them ("*"), and why."""

    test: str
    mode: str
    reason: str

    def covers(self, test: str, mode: str) -> bool:
        return fnmatchcase(test, self.test) and self.mode in (mode, "*")


def left_out() -> list[Row]:
    """The rows of left_out.txt: test, mode, reason."""
    rows = []
    for line in LEFT_OUT.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            test, mode, reason = line.split(None, 2)
            rows.append(Row(test, mode, reason))
    return rows


def compare(module: str, modes: tuple[str, ...] = MODES) -> tuple[int, list[Difference]]:
    """How many tests the plain run passed, and what the other modes give otherwise."""
    rows = left_out()
    plain, trouble = outcomes(module, "plain", _skipped(rows, module, "plain"))
    same = {t for t, o in plain.items() if o.kind in ("passed", "expected failure")}
    found = [Difference(module, module, "plain", "", "broken", text) for text in trouble]
    known = {test.partition(" #")[0] for test in plain}
    not_plain = known - {test.partition(" #")[0] for test in same}
    for mode in modes:
        skipped = _skipped(rows, module, mode) | not_plain
        skipped |= {test for test in known if any(row.covers(test, mode) for row in rows)}
        jitted, trouble = outcomes(module, mode, skipped)
        found += [Difference(module, module, mode, "", "broken", text) for text in trouble]
        seen: set[str] = set()
        for test in plain:
            name = test.partition(" #")[0]
            if name in skipped | seen or test not in same:
                continue
            other = jitted.get(test, Outcome("not run"))
            if other.kind != plain[test].kind and not (other.kind == "not run" and trouble):
                wanted = plain[test].kind
                found.append(Difference(module, test, mode, wanted, other.kind, other.text))
                seen.add(name)  # once, however many of its runs differ
    return len({test.partition(" #")[0] for test in same}), found


def _skipped(rows: list[Row], module: str, mode: str) -> set[str]:
    """Tests that are left out by their full names: those never begin."""
    return {
        row.test for row in rows if row.test.startswith(module + ".") and row.mode in (mode, "*")
    }


def outcomes(module: str, mode: str, skipped: set[str]) -> tuple[dict[str, Outcome], list[str]]:
    """Each test's outcome in one mode, and what went wrong outside of tests."""
    found: dict[str, Outcome] = {}
    trouble: list[str] = []
    for _ in range(MOST_PROCESSES):
        ran = {test.partition(" #")[0] for test in found}
        rows, end, errors = _process(module, mode, skipped | ran)
        begun = None
        for row in rows:
            if "begins" in row:
                begun = row["begins"]
            elif "ended" in row:
                found[row["ended"]] = Outcome(row["outcome"], row["text"])
                begun = None
            elif "fixture" in row:
                trouble.append(f"{row['fixture']}\n{row['text']}")
        if rows and rows[-1].get("done"):
            break
        if begun is None:  # before the first test, or between two
            trouble.append(f"{end}\n{errors}")
            break
        found[begun] = Outcome(end, errors)
    return found, trouble


def _process(module: str, mode: str, skipped: set[str]) -> tuple[list[dict], str, str]:
    """The rows that one process wrote, how it ended, and the end of what it printed."""
    folder = Path(tempfile.mkdtemp(prefix="cpython-"))
    results, errors = folder / "results", folder / "errors"
    results.touch()
    command = [sys.executable, "-P", "-m", "tests.cpython.worker", module, mode, str(results)]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # temporary files of tests go where they are removed
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(folder)}
    try:
        with errors.open("w") as seen:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=seen,
                text=True, env=environment, start_new_session=True,
            )  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(json.dumps(sorted(skipped)))
            process.stdin.close()
            end = _wait(process, results)
        rows = [json.loads(line) for line in _whole_lines(results)]
        return rows, end, errors.read_text(errors="replace")[-6000:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _whole_lines(results: Path) -> Iterator[str]:
    for line in results.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield line


def _wait(process: subprocess.Popen, results: Path) -> str:
    """Wait for the end, or for as long as one test may take without a word."""
    size, since, spent = -1, time.monotonic(), 0.0
    while process.poll() is None:
        now = results.stat().st_size
        if now != size:
            size, since, spent = now, time.monotonic(), _processor_time(process.pid)
        elif (
            _processor_time(process.pid) - spent > SECONDS
            or time.monotonic() - since > SECONDS * BY_THE_CLOCK
        ):
            process.send_signal(signal.SIGABRT)  # faulthandler writes where it stands
            time.sleep(1)
            _end_group(process)
            process.wait()
            return "hung"
        time.sleep(0.02)
    _end_group(process)
    code = process.returncode
    return f"crashed ({signal.Signals(-code).name if code < 0 else f'exit {code}'})"


def _processor_time(pid: int) -> float:
    """Seconds of the processor's time that a process has used; 0 where it is over or cannot be asked."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _end_group(process: subprocess.Popen) -> None:
    """End what the tests have left running."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
