"""The event log and the session: order, keys, bounds, life time, threads, JSON lines, warnings."""

from __future__ import annotations

import dataclasses
import gc
import json
import logging
import os
import subprocess
import sys
import threading

import pytest
import torch

import graftjit
from graftjit.ir.location import Location
from graftjit.runtime.errors import OptionError
from graftjit.runtime.events import events
from graftjit.runtime.events import log as event_log
from graftjit.runtime.events.events import Compiled, FrameSeen, GraphBreak, Recompile
from graftjit.runtime.events.log import MAX_EVENTS_A_KEY, MAX_TEXT_A_KEY, EventLog
from graftjit.runtime.process.session import Session
from graftjit.runtime.report.report import Report
from graftjit.runtime.version import SCHEMA


@pytest.fixture
def session():
    """A session of its own, with the options of the test process."""
    return Session()


def code_of(text: str = "0"):
    return compile(text, "<test>", "eval")


def test_events_are_frozen_texts_and_go_to_json():
    where = Location("f.py", 3, 3, 1, 5, "f")
    event = GraphBreak(frame="f", where=where, code="GB104", reason="x.item()", inlined=(where,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.reason = "other"  # type: ignore[misc]
    seen = json.loads(json.dumps(events.as_json(event)))
    assert seen["event"] == "GraphBreak" and seen["where"]["line"] == 3
    assert seen["inlined"][0]["column"] == 1


def test_every_event_has_defaults_and_a_docstring():
    kinds = [
        k for k in vars(events).values() if isinstance(k, type) and issubclass(k, events.Event)
    ]
    assert len(kinds) > 10
    for kind in kinds:
        json.dumps(events.as_json(kind()))
        assert kind.__doc__ and not kind.__doc__.startswith(kind.__name__ + "(")


def test_keys_go_by_identity_and_order_is_kept():
    log, one, two = EventLog(), code_of(), code_of()
    assert one == two and one is not two
    for number in range(3):
        log.append(FrameSeen(frame=f"a{number}"), one)
        log.append(FrameSeen(frame=f"b{number}"), two)
    log.append(FrameSeen(frame="process"))
    assert [e.frame for e in log.of([one])] == ["a0", "a1", "a2"]
    assert [e.frame for e in log.of([two, one, one])] == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert [e.frame for e in log.of()][-1] == "process"
    log.clear(one)
    assert log.of([one]) == () and len(log.of([two])) == 3
    log.clear()
    assert log.of() == ()


def test_bound_keeps_the_first_and_the_latest_and_says_so():
    log, key = EventLog(), code_of()
    for number in range(MAX_EVENTS_A_KEY + 5):
        log.append(Recompile(entries=number), key)
    kept = [event.entries for event in log.of([key])]
    assert len(kept) == MAX_EVENTS_A_KEY
    assert kept[:256] == list(range(256)) and kept[256:] == list(range(261, MAX_EVENTS_A_KEY + 5))
    assert log.dropped([key]) == log.dropped() == 5


def test_texts_of_programs_are_bounded_the_oldest_go_first():
    log, key = EventLog(), code_of()
    for number in range(20):
        log.append(FrameSeen(frame="f"), key)
        log.append(Compiled(graph=str(number), source="x" * (1 << 20)), key)
    programs = [event for event in log.of([key]) if type(event) is Compiled]
    assert len(programs) == 20 and log.dropped([key]) == 12
    assert [bool(event.source) for event in programs] == [False] * 12 + [True] * 8
    log.append(Compiled(graph="large", source="x" * MAX_TEXT_A_KEY), key)
    assert [event.graph for event in log.of([key]) if getattr(event, "source", "")] == ["large"]


def test_guards_of_old_entries_go_and_are_still_counted():
    log, key = EventLog(), code_of()
    guards = tuple(events.GuardLine(kind="is", source="x", expected=str(n)) for n in range(1000))
    for _ in range(40):
        log.append(events.Captured(frame="f", guards=guards), key)
    report = Report("f", log.of([key]), log.dropped([key]))
    assert {entry.guards for entry in report.entries} == {1000} and len(report.guards) == 1000
    kept = sum(len(event.guards) for event in report.events)
    assert 0 < kept * 400 <= MAX_TEXT_A_KEY and report.dropped == 40 - kept // 1000


def test_a_storm_of_shapes_keeps_its_first_break_and_stays_small():
    def storm(x):
        y = x * 2
        print(end="")
        return y + 1

    run = graftjit.jit(storm, config=graftjit.JitConfig(dynamic=False, jit_level="O0"))
    with torch.no_grad():
        for n in range(1, 90):
            run(torch.ones(n))
    report = run.report()
    assert report.break_count == 1 and report.recompile_count > 20
    assert len(report.events) <= 2 * MAX_EVENTS_A_KEY + 10
    assert len(report.text().splitlines()) < 100


def test_calls_that_raise_fill_no_memory(session):
    key = code_of()
    with session.working_for(key, "f"):
        for n in range(3 * MAX_EVENTS_A_KEY):
            session.emit(events.RanPlain(code="GB108", reason=f"ValueError: {n % 3}"))
    report = Report("f", session.log.of([key]), session.log.dropped([key]))
    assert len(report.notes) == 3 and report.dropped == 2 * MAX_EVENTS_A_KEY
    assert sum(note.count for note in report.notes) == MAX_EVENTS_A_KEY


def test_events_go_with_their_code_object():
    log = EventLog()
    for _ in range(20):
        key = code_of()
        log.append(FrameSeen(), key)
    del key
    gc.collect()
    assert log.of() == () and len(log._shelves) == 1


def test_threads_lose_nothing():
    log, keys = EventLog(), [code_of() for _ in range(3)]

    def work():
        for _ in range(200):
            for key in keys:
                log.append(FrameSeen(), key)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(log.of([key])) for key in keys] == [800] * 3


def test_owner_of_the_work_at_hand(session):
    outer, inner = code_of(), code_of()
    seen_elsewhere = []
    with session.working_for(outer, "outer"):
        session.emit(FrameSeen())
        with session.working_for(inner, "inner"):
            session.emit(FrameSeen())
            thread = threading.Thread(target=lambda: seen_elsewhere.append(session.owner))
            thread.start()
            thread.join()
        session.emit(FrameSeen(frame="named"))
        session.emit(FrameSeen(), key=inner)
    session.emit(FrameSeen(frame="nobody's"))
    assert [e.frame for e in session.log.of([outer])] == ["outer", "named"]
    assert [e.frame for e in session.log.of([inner])] == ["inner", "outer"]
    assert [e.frame for e in session.log.of([None])] == ["nobody's"]
    assert seen_elsewhere == [(None, "", 0)]


def test_trace_writes_json_lines(session, tmp_path):
    with session.override(trace=tmp_path / "deep" / "traces"):
        session.emit(GraphBreak(code="GB103", reason="print"))
        session.emit(FrameSeen(frame="f"))
    session.emit(FrameSeen(frame="not traced"))
    (path,) = (tmp_path / "deep" / "traces").iterdir()
    assert path.name == f"graftjit-{os.getpid()}.jsonl"
    head, *lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert (head["trace"], head["schema"]) == ("graftjit", SCHEMA)
    assert head["graftjit"] and head["python"] and head["torch"] and head["began"] > 0
    assert [line["event"] for line in lines] == ["GraphBreak", "FrameSeen"]


def test_a_report_is_made_of_a_trace(session, tmp_path):
    where = Location("f.py", 3, 3, 1, 5, "f")
    guard = events.GuardLine(kind="type", source="x", expected="x is", where=where, path=("x",))
    node = events.SketchNode(name="a", op="aten.relu", type="f32[4]", inputs=("x",), where=where)
    seen = (
        GraphBreak(frame="f", where=where, code="GB104", reason="x.item()", inlined=(where,)),
        Compiled(frame="f", graph="g", sketch=events.Sketch(nodes=(node,)), entry=4),
        events.Captured(frame="f", guards=(guard,), seconds=(("capture", 0.5),), entry=4),
        Recompile(frame="f", failed=(events.GuardFailed(entry=4, source="x"),)),
        events.Counted(frame="f", hits=3, entry_hits=((4, 3),), after=where),
    )
    with session.override(trace=tmp_path):
        for event in seen:
            session.emit(event)
        session.warn_once("WN605", "no effect")
    (path,) = tmp_path.iterdir()
    report = Report.from_trace(path)
    assert report.events[:-1] == seen and report.dropped == 0
    assert [w.text for w in report.warnings] == ["no effect"]
    with path.open("a") as stream:
        stream.write('{"event": "OfTheFuture"}\n{"event": "GraphBr')
    again = Report.from_trace(path)
    assert again.events == report.events and again.dropped == 2


@pytest.mark.parametrize("text", ["", "[1]\n", '{"trace": "graftjit", "schema": 99}\n'])
def test_what_is_no_trace_is_refused(tmp_path, text):
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(OptionError):
        Report.from_trace(tmp_path / "t.jsonl")


_FORKS = """
import os, torch, graftjit
f = graftjit.jit(lambda x: x.relu() + 1)
f(torch.ones(3))
child = os.fork()
for _ in range(3):
    f(torch.ones(5, 5))
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""


def test_each_process_has_its_file_with_totals_at_the_end(tmp_path):
    environment = {**os.environ, "GRAFTJIT_TRACE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _FORKS], env=environment, check=False)
    assert done.returncode == 0
    reports = [Report.from_trace(path) for path in tmp_path.iterdir()]
    assert len(reports) == 2
    child, parent = sorted(reports, key=lambda report: report.frames[0].calls_seen)
    assert child.recompile_count == 1 and child.frames[0].calls_seen == 0  # it left at once
    assert parent.frames[0].calls_seen == 4 and parent.graph_count == 2
    assert "2 graphs" in parent.text()


def test_trace_that_cannot_be_written_warns_once(session, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with session.override(trace=tmp_path / "file" / "below"):
        session.emit(FrameSeen())
        session.emit(FrameSeen())
    assert len([r for r in caplog.records if "WN603" in r.getMessage()]) == 1
    assert len(session.log.of()) == 3


def test_warnings_are_given_once(session, caplog):
    for _ in range(3):
        session.warn_once("WN605", "no effect")
    session.warn_once("WN605", "another")
    assert len(caplog.records) == 2
    assert [e.text for e in session.log.of()] == ["no effect", "another"]


def test_debug_logs_by_level(session, caplog):
    logging.getLogger("graftjit").setLevel(logging.INFO)
    where = Location("f.py", 3)
    with session.override(debug=1):
        session.emit(GraphBreak(code="GB103", reason="print", where=where))
        session.emit(FrameSeen(frame="quiet at 1"))
    logging.getLogger("graftjit").setLevel(logging.NOTSET)
    (record,) = caplog.records
    assert "GB103" in record.getMessage() and "f.py:3" in record.getMessage()


def test_loggers_of_rooms_say_what_is_logged_without_debug(session, caplog):
    where = Location("f.py", 3)
    breaks = GraphBreak(code="GB103", reason="print", where=where)
    with session.override(debug=0):
        session.emit(breaks)
        assert not caplog.records  # silent
        with caplog.at_level(logging.INFO, "graftjit.capture"):
            session.emit(breaks)
            session.emit(FrameSeen(frame="quiet at INFO"))
        with caplog.at_level(logging.DEBUG, "graftjit"):
            session.emit(FrameSeen(frame="f"))
    seen = [(r.name, r.levelname) for r in caplog.records]
    assert seen == [("graftjit.capture", "INFO"), ("graftjit.capture", "DEBUG")]


def test_the_root_loggers_level_does_not_ask_for_our_lines(session, caplog):
    with caplog.at_level(logging.DEBUG), session.override(debug=0):  # of a program that logs
        session.emit(GraphBreak(code="GB103", reason="print", where=Location("f.py", 3)))
        session.emit(FrameSeen(frame="f"))
        assert not caplog.records
        session.warn_once("WN605", "no effect")
    assert len(caplog.records) == 1


def test_options_are_read_at_first_use(monkeypatch):
    session = Session()
    monkeypatch.setenv("GRAFTJIT_CHECK", "0")
    assert session.options.check is False
    monkeypatch.setenv("GRAFTJIT_CHECK", "1")
    assert session.options.check is False
    with session.override(check=True):
        assert session.options.check is True
    assert session.options.check is False


def test_a_finalizer_that_waits_for_another_thread_stops_no_log(monkeypatch):
    """Who emits may be interrupted by a finalizer that wants what a thread holds that emits, too."""
    log, key = EventLog(), code_of()
    theirs, taken, begun = threading.Lock(), threading.Event(), threading.Event()
    got = []

    def weighed(event):  # stands for a finalizer in the middle of `append`
        if event.frame == "first":
            begun.set()
            got.append(theirs.acquire(timeout=20))
        return 0

    def other():
        with theirs:
            taken.set()
            begun.wait(20)
            log.append(FrameSeen(frame="other"), key)

    monkeypatch.setattr(event_log, "_weight", weighed)
    thread = threading.Thread(target=other)
    thread.start()
    taken.wait(20)
    log.append(FrameSeen(frame="first"), key)
    thread.join()
    assert got == [True] and len(log.of([key])) == 2
