"""The line on a terminal while something takes long."""

from __future__ import annotations

import io
import sys
import time

from graftjit.runtime import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_that_is_erased(monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 0.02)
    monkeypatch.setattr(progress, "STEP", 0.02)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.told("building f"):
        time.sleep(0.2)
    text = sys.stderr.getvalue()
    assert "graftjit: building f (0 s)" in text
    assert text.endswith("\r\033[K")


def test_nothing_for_what_is_quick_or_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.told("building f"):
        pass
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(progress, "AFTER", 0.0)
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.told("building f"):
            time.sleep(0.05)
        assert stream is None or stream.getvalue() == ""
