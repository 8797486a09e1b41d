"""Two reports compared: what is new, gone or costs otherwise; moved lines are the same; reports from JSON, too."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from graftjit import JitConfig, jit
from graftjit.ir.location import Location
from graftjit.runtime.errors import NotClean, OptionError
from graftjit.runtime.events.events import (
    Captured,
    Compiled,
    Counted,
    Fallback,
    GraphBreak,
    RanPlain,
    Recompile,
    StepFacts,
    Timed,
)
from graftjit.runtime.report.report import Report


def at(line: int, file: str = "/home/a/f.py") -> Location:
    return Location(file, line, line, 4, 9, "f")


def broken(*lines: int, reason: str = "print", file: str = "/home/a/f.py") -> Report:
    found = (
        GraphBreak(frame="f", where=at(line, file), code="GB103", reason=reason) for line in lines
    )
    return Report("f", (Captured(frame="f", graphs=1), *found))


def test_equal_reports_have_no_difference():
    report = broken(3, 5)
    assert not report.diff(report) and report.diff(report).records == ()
    assert "no difference" in str(report.diff(report))


def test_a_moved_line_is_no_new_break():
    assert not broken(13, 15).diff(broken(3, 5))
    assert not broken(3, file="/ci/b/f.py").diff(broken(3))


def test_a_new_break_is_worse_and_one_that_is_gone_is_not():
    diff = broken(3, 5).diff(broken(3))
    (found,) = diff.records
    assert diff and diff.worse == [found]
    assert (found.kind, found.change, found.line, found.frame) == ("break", "new", 5, "f")
    diff = broken(3).diff(broken(3, 5, reason="print"))
    assert diff and not diff.worse and diff.of("break", "gone")[0].line == 5
    other = broken(3, reason="open").diff(broken(3))
    assert [(r.change, r.worse) for r in other.records] == [("new", True), ("gone", False)]


def timed(call: float, step: float, gap: float, library: int = 0) -> Report:
    return Report(
        "f",
        (
            GraphBreak(frame="f", where=at(3), code="GB103", reason="print"),
            Compiled(
                frame="f", graph="g", entry=1, library=library,
                steps=(StepFacts(name="k0_add", operators=("add",), shape="f32[4]"),),
            ),
            Captured(frame="f", graphs=1, entry=1),
            Counted(frame="f", hits=9, misses=1, samples=5, seconds=5 * call, inside=call),
            Counted(frame="f", resumed=True, after=at(3), gap_samples=2, gap=2 * gap),
            Timed(frame="f", graph="g", entry=1, steps=(("k0_add", step, 5),)),
        ),
    )  # fmt: skip


def test_times_that_differ_by_a_quarter_and_a_microsecond():
    before = timed(100e-6, 20e-6, 10e-6)
    assert not timed(110e-6, 20.9e-6, 11e-6).diff(before)
    diff = timed(200e-6, 40e-6, 5e-6).diff(before)
    assert [(r.kind, r.change, r.worse) for r in diff.records] == [
        ("frame", "more", True),
        ("kernel", "more", True),
        ("break", "less", False),
    ]
    frame = diff.records[0]
    assert (frame.before, frame.now, frame.unit) == (
        pytest.approx(1e-4),
        pytest.approx(2e-4),
        "seconds",
    )
    assert "! slower frame: f, 200.0 us per call, before 100.0" in diff.text()
    assert "  faster break: GB103" in diff.text()
    unmeasured = timed(0.0, 0.0, 0.0)
    assert not before.diff(unmeasured) and not unmeasured.diff(before)


def test_kernels_calls_frames_and_notes():
    step = dataclasses.replace
    old = timed(0, 0, 0)
    program = old.events[1]
    other = StepFacts(name="k0_mul", operators=("mul",), shape="f32[4]")
    call = StepFacts(name="mm", kind="call", operators=("aten.mm",), shape="f32[4]")
    new = Report(
        "f",
        (
            old.events[0],
            step(program, steps=(other, call), library=1),
            *old.events[2:],
            Fallback(frame="f", code="FB301", reason="w"),
            RanPlain(frame="g", code="PL201"),
            Recompile(frame="f", code="RC402", source="x"),
        ),
    )
    found = [(r.kind, r.change, r.worse) for r in new.diff(old).records]
    assert sorted(found) == sorted(
        [
            ("recompile", "new", True),
            ("plain", "new", True),
            ("fallback", "new", True),
            ("frame", "more", True),  # a library call
            ("frame", "new", False),
            ("kernel", "new", False),
            ("kernel", "gone", False),
            ("call", "new", False),
        ]
    )
    text = new.diff(old).text(60)
    assert max(map(len, text.splitlines())) <= 60 and "! new    recompile: RC402" in text
    json.dumps(new.diff(old).as_dict())


def test_a_live_report_against_one_that_was_saved(tmp_path):
    def fn(x):
        return torch.relu(x) + 1

    run = jit(fn, config=JitConfig(dynamic=False))
    run(torch.ones(3))
    path = run.report().save(tmp_path / "before.json")
    saved = Report.from_json(path.read_text())
    assert not run.report().diff(saved).worse
    run(torch.ones(4))
    diff = run.report().diff(saved)
    assert [(r.kind, r.change) for r in diff.worse] == [("recompile", "new")]
    assert saved.diff(run.report()).of("recompile", "gone")


def test_codes_that_are_allowed():
    report = broken(3, 5)
    report.assert_clean(allow=("GB103",))
    report.assert_clean(allow="GB103")
    with pytest.raises(NotClean, match="2 graph breaks"):
        report.assert_clean(allow=("GB104",))
    with pytest.raises(OptionError, match="GB9999"):
        report.assert_clean(allow=("GB9999",))
    Report("f", (RanPlain(frame="f", code="PL201"),)).assert_clean(allow=["PL201"])
