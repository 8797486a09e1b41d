"""The line on a terminal while something takes long."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
import time

from graftjit.runtime.events import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_that_is_erased(monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 0.02)
    monkeypatch.setattr(progress, "STEP", 0.02)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.displayed("building f"):
        time.sleep(0.2)
    text = sys.stderr.getvalue()
    assert "graftjit: building f (0 s)" in text
    assert text.endswith("\r\033[K")


def test_nothing_for_what_is_quick_or_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.displayed("building f"):
        pass
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(progress, "AFTER", 0.0)
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.displayed("building f"):
            time.sleep(0.05)
        assert stream is None or stream.getvalue() == ""


def test_which_part_is_being_done(monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 0.02)
    monkeypatch.setattr(progress, "STEP", 0.02)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.displayed("compiling f"):
        time.sleep(0.1)
        progress.detail("kernels for 12 operators")
        time.sleep(0.2)
    text = sys.stderr.getvalue()
    assert "compiling f (0 s)" in text and "compiling f: kernels for 12 operators (0 s)" in text
    progress.detail("nobody is told")


FIRST_CALL = """
import torch
from graftjit import jit
from graftjit.runtime.events import progress
progress.AFTER = progress.STEP = 0.02
jit(lambda x: torch.softmax(x.sin(), -1) + 1, fullgraph=True)(torch.ones(4, 63))
print("done")
"""


def test_a_first_call_on_a_terminal(tmp_path):
    """The line is on the terminal while the kernels are built, and gone after it."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "GRAFTJIT_CACHE_DIR": str(tmp_path), "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", FIRST_CALL], stdout=subprocess.PIPE, stderr=theirs, check=True,
        env=environment, timeout=100,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the end of what a terminal says
        while chunk := os.read(ours, 65536):
            seen += chunk
    os.close(ours)
    assert done.stdout == b"done\n"
    assert b"graftjit: compiling <lambda>" in seen and b"kernels for" in seen
    assert seen.endswith(b"\r\x1b[K")
