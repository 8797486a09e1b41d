"""The time line as a trace that Perfetto opens: its form, its rows, and that slices lie in each other or apart."""

from __future__ import annotations

import json

import torch

from graftjit import jit
from graftjit.runtime.events.events import Captured, Compiled, StepFacts, Timed
from graftjit.runtime.report.report import Report

from .trace_checks import checked


def broken(x):
    y = x.sin() + 1
    print(end="")
    return y.cos() * 2


def test_a_program_on_the_time_line(tmp_path):
    run = jit(broken)
    for n in (3, 4, 5):
        run(torch.ones(n, 2))
    report = run.report()
    path = report.save(tmp_path / "x.trace.json")
    found = checked(json.loads(path.read_text()))
    kinds = {event.get("cat") for event in found}
    assert {"capture", "stage", "build", "break", "recompile"} <= kinds
    names = [event["args"]["name"] for event in found if event["ph"] == "M"]
    assert "broken" in names
    assert json.loads(report.save(tmp_path / "x.json").read_text())["schema"] == 1


def test_one_call_of_each_timed_graph():
    steps = tuple(StepFacts(name=f"k{n}", operators=("add",), reads=8, writes=8) for n in range(3))
    report = Report(
        "f",
        (
            Compiled(frame="f", graph="g", entry=7, steps=steps),
            Captured(frame="f", graphs=1, entry=7, seconds=(("capture", 0.2),)),
            Timed(frame="f", graph="g", entry=7, steps=(("k0", 1e-6, 3), ("k2", 4e-6, 3))),
        ),
    )
    found = [e for e in checked(report.trace()) if e["pid"] == 2 and e["ph"] == "X"]
    assert [(e["name"], round(e["ts"], 3), round(e["dur"], 3)) for e in found] == [
        ("k0", 0.0, 1.0),
        ("k2", 1.0, 4.0),
    ]
    assert found[0]["args"] == {"operators": "add", "device": "cpu", "bytes": 16}
    again = Report.from_json(report.json())
    assert again.trace() == report.trace()


def test_nothing_happened():
    assert checked(Report("f").trace()) == []
