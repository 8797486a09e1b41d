"""The parent's side of a system's process: requests, answers, limits of time, and its sleep.

Between its turns a process is stopped with all its threads and children, so that pools that spin
while they wait, and compilers that work on in the background, take nothing of another system's
turn.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from .. import isolated
from ..first_call import caches_in


class Failed(Exception):
    """What the table says instead of a time."""


class Process:
    """One system on one model, with caches of its own below `folder`, empty at first."""

    def __init__(self, model: str, system: str, threads: int, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.result, self._errors = folder / "result.pt", folder / "stderr"
        command = [sys.executable, "-m", "benchmarks.engines.worker", model, system, str(threads),
                   str(self.result)]  # fmt: skip
        with self._errors.open("w") as errors:
            self.child = subprocess.Popen(
                command, cwd=isolated.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True, start_new_session=True,
                env=isolated.environment(threads) | caches_in(str(folder)),
            )  # fmt: skip

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            isolated.end(self.child)
        except ProcessLookupError:  # it has ended by itself
            self.child.communicate()

    def ask(self, limit: float, **request: Any) -> dict[str, Any]:
        """Wakes the process for one answer. Raises `Failed`."""
        assert self.child.stdin is not None and self.child.stdout is not None
        try:
            self._signal(signal.SIGCONT)
            self.child.stdin.write(json.dumps(request) + "\n")
            self.child.stdin.flush()
            if not select.select([self.child.stdout], [], [], limit)[0]:
                raise Failed(f"not ready after {limit:.0f} s")
            line = self.child.stdout.readline()
            self._signal(signal.SIGSTOP)
        except (BrokenPipeError, ProcessLookupError):
            line = ""
        if not line:
            raise Failed(isolated.ended_with(self.child.wait(), self._errors.read_text()))
        answer = json.loads(line)
        if "problem" in answer:
            raise Failed(answer["problem"])
        return answer

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self.child.pid, number)
