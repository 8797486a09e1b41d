"""Any sequence of events has a report: every list is finite, every rendering is made, JSON is read back."""

from __future__ import annotations

import dataclasses
import json
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graftjit.ir.graph.summary import Sketch, SketchNode
from graftjit.ir.location import Location
from graftjit.runtime import codes
from graftjit.runtime.events import events
from graftjit.runtime.report.json_form import LISTS
from graftjit.runtime.report.report import Report

from .trace_checks import checked

KINDS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
]
TEXTS = st.sampled_from(["", "f", "g.<locals>.h", "x", "<b>&\n\t\x1b[0m", "k0_add", "é" * 200])
TIMES = st.sampled_from([0.0, 1e-9, 1e-4, 3.0])
BY_NAME = {
    "code": st.sampled_from([*codes.CODES][::9] + ["", "??", "ZZ999"]),
    "frame": st.sampled_from(["f", "g", ""]),
    "entry": st.integers(0, 3),
    "graph": st.sampled_from(["g", ""]),
    "part": st.sampled_from(["", "forward", "backward"]),
    "device": st.sampled_from(["cpu", "cuda:0"]),
    "at": st.sampled_from([1e9, 1e9 + 1, 1e9 + 2]),
    "span": st.sampled_from([(), (1, 4)]),
}
BY_TYPE = {
    str: TEXTS,
    int: st.integers(0, 5),
    float: TIMES,
    bool: st.booleans(),
    Location: st.builds(
        Location,
        st.sampled_from(["?", __file__, "/nowhere/f.py", "<stdin>"]),
        st.sampled_from([None, 0, 3, 10**6]),
        st.sampled_from([None, 3, 1]),
        st.sampled_from([None, 0, 500]),
        st.sampled_from([None, 1]),
    ),
}


def values(name: str, kind: typing.Any) -> st.SearchStrategy:
    if name in BY_NAME:
        return BY_NAME[name]
    if kind in BY_TYPE:
        return BY_TYPE[kind]
    if kind is Sketch:
        return st.builds(Sketch, nodes=st.lists(made(SketchNode), max_size=3), text=TEXTS)
    if dataclasses.is_dataclass(kind):
        return made(kind)
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        if parts[-1] is Ellipsis:
            return st.lists(values("", parts[0]), max_size=3).map(tuple)
        return st.tuples(*(values("", part) for part in parts))
    assert parts[1] is type(None), kind
    return st.none() | values("", parts[0])


def made(kind: type) -> st.SearchStrategy:
    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    return st.fixed_dictionaries({f.name: values(f.name, hints[f.name]) for f in fields}).map(
        lambda given: kind(**given)
    )


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of([made(kind) for kind in KINDS]), max_size=25))
def test_any_sequence_folds_and_renders(found):
    report = Report("f", tuple(found))
    for name in LISTS:
        assert len(getattr(report, name)) <= 4 * sum(
            1
            + sum(len(getattr(e, name, ())) for name in ("guards", "steps", "programs"))
            + sum(len(one.steps) for one in getattr(e, "programs", ()))
            for e in found
        )
    assert report.text() and report.html()
    again = Report.from_json(report.json())
    assert again.json() == report.json()
    assert {name: getattr(again, name) for name in LISTS} == {
        name: getattr(report, name) for name in LISTS
    }
    checked(json.loads(json.dumps(report.trace())))
    assert not report.diff(again) and not again.diff(report)


@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of([made(kind) for kind in KINDS]), max_size=25), st.integers(0, 25))
def test_more_events_never_take_a_break_or_recompile_away(found, cut):
    before, after = Report("f", tuple(found[:cut])), Report("f", tuple(found))
    assert before.break_count <= after.break_count
    assert before.recompile_count <= after.recompile_count
    assert before.graph_count <= after.graph_count
    assert Report("f", tuple(found)).json() == after.json()  # a fold is pure


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_event_alone(kind):
    report = Report("f", (kind(),))
    assert report.text() and report.html() and json.loads(report.json())
