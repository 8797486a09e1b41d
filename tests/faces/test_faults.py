"""A fault of graftjit itself, at any stage from a call to its gradients: plain Python's result, an event, one warning.

`STAGES` names a function a stage; each fails in turn. The program has an effect, which must happen once a call.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import linecache
import os
import subprocess
import sys
import time
import types
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import graftjit
from graftjit import JitConfig, jit, wait
from graftjit.codegen.build import cxx as build
from graftjit.codegen.build import translation_units as units
from graftjit.dispatch import unit
from graftjit.runtime import _native
from graftjit.runtime.autograd import joint_program
from graftjit.runtime.errors import BuildError, InternalError
from graftjit.runtime.executor import lower as executor
from graftjit.runtime.process import fault_origin
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.report.folds import FOLDS

# stage -> (module, function). What fails there is caught at the miss: WN607, and plain Python from then on.
STAGES = {
    "a miss begins": ("graftjit.dispatch.unit", "Unit._refused"),
    "the state of the interpreter": ("graftjit.dispatch.refusals", "snapshot"),
    "a view of the frame": ("graftjit.dispatch.unit", "_view"),
    "another thread's entry": ("graftjit.dispatch.unit", "_made_meanwhile"),
    "adoption of a shared recipe": ("graftjit.dispatch.shared_entries", "Place.find"),
    "what has changed": ("graftjit.dispatch.unit", "change_of"),
    "whether it is worth it": ("graftjit.dispatch.eviction", "Eviction.worth"),
    "what varies": ("graftjit.runtime.guards.dynamic_sizes", "Variation.observe"),
    "capture": ("graftjit.capture.capture", "capture"),
    "the walk": ("graftjit.capture.torch_models.calls", "to_argument"),
    "a shape": ("graftjit.ir.trace.recorder", "Recorder.infer"),
    "a node": ("graftjit.ir.trace.recorder", "Recorder.node"),
    "the end of a trace": ("graftjit.ir.trace.tracer", "Tracer.finish"),
    "replacement code": ("graftjit.capture.emit.emitter", "Emitter.push"),
    "the assembler": ("graftjit.capture.bytecode.assembler", "Assembler.finish"),
    "the backend": ("graftjit.codegen.backend", "compile_graph"),
    "the event of a graph": ("graftjit.codegen.backend", "emit_compiled"),
    "the mirror": ("graftjit.runtime.guards.mirror", "mirror"),
    "what an entry holds": ("graftjit.runtime.guards.weak_rows", "hold_weakly"),
    "guards": ("graftjit.runtime.guards.compiler", "compile_rows"),
    "events": ("graftjit.dispatch.unit_events", "captured"),
    "publishing": ("graftjit.dispatch.shared_entries", "Recipe.entry"),
    "events that are shared": ("graftjit.dispatch.unit", "keep_emitted"),
    "observers": ("graftjit.runtime.events.observers", "publish"),
}
# What fails there is caught by the backend, which replays the calls as they were written: WN606.
PLANNING = {
    "the key of a plan": ("graftjit.codegen.plan_cache.cache", "key_of"),
    "planning": ("graftjit.codegen.pipeline", "programmed"),
    "passes": ("graftjit.codegen.pipeline", "optimize"),
    "fusion": ("graftjit.codegen.schedule.plan", "plan"),
    "rendering": ("graftjit.codegen.cpp.renderer", "render"),
    "the compiler": ("graftjit.codegen.build.cxx", "load"),
    "loading": ("graftjit.runtime.executor.lower", "load"),
}


def breaks_down(monkeypatch: Any, stage: tuple[str, str], line: str = "") -> list[str]:
    """The function of this stage fails from now on, by this line; the list has an item a failure."""
    module, path = stage
    *classes, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in classes:
        owner = getattr(owner, part)
    failed: list[str] = []

    # A line of graftjit's own, by which a fault is told from what the program raises.
    line = line or f"raise LookupError('a fault of ours in {path}')"
    text = f"def fault(*_, **__):\n    failed.append(1)\n    {line}\n"
    scope: dict[str, Any] = {"failed": failed}
    exec(compile(text, importlib.import_module(module).__file__ or "", "exec"), scope)

    assert hasattr(owner, name)
    monkeypatch.setattr(owner, name, scope["fault"])
    monkeypatch.setattr(SESSION, "_warned", set())
    return failed


@pytest.fixture
def unchecked() -> Any:
    """The native callable asks no mirror: that is GRAFTJIT_CHECK's, and read at import."""
    before = _native.set_callbacks(policy=None, state_for=None, check=None, on_rerun=None)
    _native.set_callbacks(**{**before, "check": None})
    with SESSION.override(check=False):
        yield
    _native.set_callbacks(**before)


NAMES = itertools.count()


def program() -> Any:
    """A function that shares with no other one, so that nothing of it is known."""
    scope: dict[str, Any] = {}
    text = f"def f(x, log):\n    log.append(len(log))\n    return x * 2 + {next(NAMES)}\n"
    exec(compile(text, "fault.py", "exec"), scope)
    return scope["f"]


def warned(caplog: Any, code: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if code in r.getMessage()]


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_plain_python_and_told(stage, monkeypatch, caplog, tmp_path, unchecked):
    f, seen = program(), []
    run = jit(f)
    with SESSION.override(check=False, cache_dir=tmp_path):
        run(torch.ones(2, dtype=torch.float64), [])  # what follows is a recompile
        failed = breaks_down(monkeypatch, stage)
        for _ in range(3):
            torch.testing.assert_close(run(torch.ones(3), seen), f(torch.ones(3), []))
        monkeypatch.undo()
    assert failed and seen == [0, 1, 2]
    (warning,) = warned(caplog, "WN607")
    for words in (
        "f: an internal fault",
        f"a fault of ours in {stage[1]}",
        "results are right",
        "report it",
    ):
        assert words in warning
    assert "PL205" in [note.code for note in run.report().notes]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fault_holds_nothing_of_the_call(threads, monkeypatch, unchecked):
    """What was told of it is text: the frames of its traceback end, and with them what the call was given. Beside another
    thread each attempt fails."""

    class Given(list):
        pass

    monkeypatch.setattr(unit, "other_threads", lambda: threads > 1)

    run, given = jit(program()), Given()
    alive = weakref.ref(given)
    failed = breaks_down(monkeypatch, STAGES["a node"])
    gc.disable()
    try:
        run(torch.ones(3), given)
        del given
        assert failed and alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("stage", PLANNING.values(), ids=PLANNING)
def test_the_calls_as_written_and_told(stage, monkeypatch, caplog, tmp_path):
    f, seen = program(), []
    run = jit(f)
    with SESSION.override(check=False, cache_dir=tmp_path):
        failed = breaks_down(monkeypatch, stage)
        for _ in range(2):
            torch.testing.assert_close(run(torch.ones(3), seen), f(torch.ones(3), []))
        monkeypatch.undo()
    assert failed and seen == [0, 1]
    assert len(warned(caplog, "WN606")) == 1 and not warned(caplog, "WN607")


@pytest.mark.parametrize("stage", (STAGES | PLANNING).values(), ids=STAGES | PLANNING)
def test_a_failure_under_check(stage, monkeypatch, tmp_path):
    with SESSION.override(check=True, cache_dir=tmp_path):
        run = jit(program())
        run(torch.ones(2, dtype=torch.float64), [])
        breaks_down(monkeypatch, stage)
        with pytest.raises(Exception, match="a fault of ours"):
            run(torch.ones(3), [])


# What a line of ours may say that fails, in a function of graftjit, and whether that is a fault of ours.
LINES = {
    "None + 1": True,
    "[1, 2][5]": True,
    "a, b = (1, 2, 3)": True,
    "for _ in None: pass": True,
    "given.index(3)": True,
    "for _ in zip([1], [1, 2], strict=True): pass": True,
    "of_ours(1, 2)": True,
    "changing(given)": True,
    "given.missing": True,
    "raise RuntimeError('as torch says')": False,
    "torch.ones(2) + torch.ones(3)": False,
    "torch.ones(2)[5]": False,
    "torch.add(torch.ones(2), 'a')": False,
    "operator(torch.ones(2), torch.ones(3))": False,
    "operator(*[torch.ones(2), torch.ones(3)])": False,
    "int(torch.ones(2))": False,
    "raised_by_the_program()": False,
}


@pytest.mark.parametrize("line", LINES)
def test_whose_an_exception_is(line):
    def of_ours() -> None:
        pass

    def changing(given: Any) -> None:
        raise AssertionError

    def raised_by_the_program() -> None:
        raise LookupError

    of_ours.__module__ = changing.__module__ = "graftjit.runtime.process.faults"
    text = f"def fault(given):\n    {line}\n"
    file = os.path.join(os.path.dirname(fault_origin.__file__), f"text{abs(hash(line))}.py")
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {
        "torch": torch, "operator": torch.add, "of_ours": of_ours, "changing": of_ours,
        "raised_by_the_program": raised_by_the_program,
    }  # fmt: skip
    exec(compile(text, file, "exec"), scope)
    with pytest.raises(Exception) as raised:
        scope["fault"]([1, 2])
    assert fault_origin.is_ours(raised.value) is LINES[line]


SLIPS = {
    "TypeError": "None + 1",
    "ValueError": "a, b = (1, 2, 3)",
    "IndexError": "[1, 2][5]",
}
WHERE_THEY_COME = {
    "a rule": ("graftjit.ir.trace.recorder", "Recorder.node"),
    "what the backward needs": ("graftjit.runtime.autograd.joint_program", "Holder.__call__"),
}


# Rules look up dimensions that the program names: an IndexError there may be torch's.
SLIPPED = [
    (stage, line)
    for where, stage in WHERE_THEY_COME.items()
    for kind, line in SLIPS.items()
    if (where, kind) != ("a rule", "IndexError")
]


@pytest.mark.parametrize(("stage", "line"), SLIPPED)
def test_slips_of_classes_that_torch_raises_too(stage, line, monkeypatch, caplog):
    failed = breaks_down(monkeypatch, stage, line)
    x, o = torch.ones(3, requires_grad=True), Owner(False)
    with SESSION.override(check=False):
        torch.testing.assert_close(jit(_plain)(x, o), _plain(x, o))
    assert failed and len(warned(caplog, "WN607")) == 1


# Programs by what is around them, and what fails in their runs.
def _plain(x: Any, o: Any) -> Any:
    return (x * o.w).sum()


def _stored(x: Any, o: Any) -> Any:
    o.n += 1
    return (x * o.w).sum()


def _caught(x: Any, o: Any) -> Any:
    o.buffer += 1
    try:
        return (x * o.w)[o.at].sum()
    except IndexError:
        return x.sum() * 3


def _counted(x: Any, o: Any) -> Any:
    o.buffer += 1
    return (x * o.w * o.buffer).sum()


RUNS = {
    "what the backward needs": ("graftjit.runtime.autograd.joint_program", "Holder.__call__"),
    "the forward": ("graftjit.runtime.autograd.joint_program", "JointProgram.__call__"),
}


class Owner:
    def __init__(self, outside: bool) -> None:
        self.n, self.buffer, self.at = 0, torch.zeros(()), torch.tensor([0, 9 if outside else 2])
        self.w = torch.linspace(0.5, 1, 3).requires_grad_()


@pytest.mark.parametrize("outside", [False, True], ids=["", "raises"])
@pytest.mark.parametrize("f", [_plain, _stored, _caught, _counted])
@pytest.mark.parametrize("stage", RUNS.values(), ids=RUNS)
def test_a_run_that_fails_before_it_has_written(stage, f, outside, monkeypatch, caplog):
    found = []
    for run in (f, jit(f)):
        x, o = torch.ones(3, requires_grad=True), Owner(outside)
        with SESSION.override(check=False):
            for call in range(3):
                if run is not f and call == 1:
                    failed = breaks_down(monkeypatch, stage)
                run(x, o).backward()
        found.append((o.n, o.buffer, x.grad, o.w.grad))
    assert failed
    torch.testing.assert_close(found[1], found[0])
    (warning,) = warned(caplog, "WN607")
    assert "This call ran in plain Python" in warning


def test_a_run_that_fails_when_it_has_written(monkeypatch):
    run, x, o = jit(_counted), torch.ones(3, requires_grad=True), Owner(False)
    with SESSION.override(check=False):
        run(x, o)
        breaks_down(monkeypatch, ("graftjit.runtime.autograd.joint_program", "JointProgram._rest"))
        with pytest.raises(InternalError, match="failed after it had written to its inputs"):
            run(x, o)
    assert o.buffer == 2  # once a call


def _failing_steps(monkeypatch: Any) -> list[int]:
    """Programs call operators by Python, and from now on the first of each program fails."""
    failed: list[int] = []
    form = executor.call_form

    def call_form(step: Any) -> Any:
        _, slots, numbers = form(step)
        text = "def fault(*_):\n    failed.append(1)\n    raise LookupError('a fault of ours')\n"
        scope: dict[str, Any] = {"failed": failed}
        exec(compile(text, executor.__file__, "exec"), scope)
        return scope["fault"], slots, numbers

    monkeypatch.setattr(executor, "call_form", call_form)
    monkeypatch.setattr(executor.aten_calls, "plan", lambda *_: None)
    monkeypatch.setattr(SESSION, "_warned", set())
    return failed


def _writes_later(x: Any, n: Any) -> Any:
    y = torch.linalg.inv(x)
    n += y.sum()
    return y * 2


def _writes_before(x: Any, n: Any) -> Any:
    n += 1
    return torch.linalg.inv(x) * n


@pytest.mark.parametrize("f", [_writes_later, _writes_before])
def test_a_program_without_gradients_that_writes(f, monkeypatch, caplog, tmp_path):
    failed, x, n = _failing_steps(monkeypatch), torch.eye(3), torch.zeros(())
    with SESSION.override(check=False, cache_dir=tmp_path):
        run = jit(f)
        if f is _writes_before:
            with pytest.raises(InternalError, match="failed after it had written to its inputs"):
                run(x, n)
        else:
            torch.testing.assert_close(run(x, n), x * 2)
    assert failed and n == (1 if f is _writes_before else 3)  # once
    assert len(warned(caplog, "WN607")) == (f is _writes_later)


def _a_function(x: Any, o: Any) -> Any:
    y = x * 2
    return lambda: y + 1


def _a_dict_at_a_break(x: Any, o: Any) -> Any:
    found = {"y": x * 2}
    print(end="")
    return lambda: found["y"] + 1


def _a_set_without_tensors(x: Any, o: Any) -> Any:
    found = {1, 2}
    found.add(3)
    return lambda: x * 2 + len(found) - 2


# What is made again after a program has run, and what fails there. Nothing outside has been changed.
REBUILT = [
    (_a_function, "make_function"),
    (_a_dict_at_a_break, "fill_dict"),
    (_a_set_without_tensors, "replay_set"),
]


@pytest.mark.parametrize(("f", "name"), REBUILT, ids=[name for _, name in REBUILT])
def test_a_value_that_cannot_be_made_again(f, name, monkeypatch, caplog):
    failed = breaks_down(monkeypatch, ("graftjit.capture.helpers", name))
    x, o = torch.ones(3), Owner(False)
    with SESSION.override(check=False):
        torch.testing.assert_close(jit(f)(x, o)(), torch.full((3,), 3.0))
    (warning,) = warned(caplog, "WN607")
    assert failed and "This call ran in plain Python" in warning
    monkeypatch.setattr(SESSION, "_warned", set())
    with SESSION.override(check=True), pytest.raises(LookupError, match="a fault of ours"):
        jit(types.FunctionType(f.__code__.replace(co_name="g"), f.__globals__))(x, o)


def _stores(x: Any, o: Any) -> Any:
    o.n += 1
    o.items.append(x * 2)
    return x + 1


def _stores_and_makes(x: Any, o: Any) -> Any:
    o.n += 1
    y = x * 2
    return lambda: y


def _writes_and_makes(x: Any, o: Any) -> Any:
    o.buffer.add_(1)
    o.n += 0
    y = x * 2
    return lambda: y


EFFECTS = [
    (_stores, "change_list"),
    (_stores_and_makes, "make_function"),
    (_writes_and_makes, "make_function"),
]


@pytest.mark.parametrize(("f", "name"), EFFECTS, ids=[f.__name__ for f, _ in EFFECTS])
def test_a_fault_among_effects(f, name, monkeypatch):
    """Python cannot begin again, for something would happen twice: the error says so, once and for each call."""
    failed = breaks_down(monkeypatch, ("graftjit.capture.helpers", name))
    o = Owner(False)
    o.items = []
    run = jit(f)
    with SESSION.override(check=False):
        for call in range(1, 3):
            with pytest.raises(InternalError, match="failed while it changed") as raised:
                run(torch.ones(3), o)
            assert len(failed) == call and o.n + o.buffer == call
            assert raised.value.code == "ER505" and "GRAFTJIT_DISABLE" in str(raised.value)
            assert isinstance(raised.value.__cause__, LookupError)


def test_a_programs_own_exception_among_effects():
    class Key:
        def __init__(self) -> None:
            self.asked = 0

        def __hash__(self) -> int:
            self.asked += 1
            if self.asked > 2:
                raise ValueError("asked too often")
            return 1

    def f(x: Any, key: Any) -> Any:
        found = {key: x * 2}
        print(end="")
        return found

    texts = []
    for run in (f, jit(f)):
        key = Key()
        for _ in range(4):
            try:
                texts.append(str(run(torch.ones(2), key)[key]))
            except ValueError as error:
                texts.append((str(error), error.__context__))
    assert texts[:4] == texts[4:]


def test_a_plan_that_cannot_be_taken_over(monkeypatch, caplog, tmp_path):
    f = program()
    with SESSION.override(check=False, cache_dir=tmp_path):
        run = jit(f)
        run(torch.ones(3), [])
        for stage in ("recall", "loaded"):
            failed = breaks_down(monkeypatch, ("graftjit.codegen.plan_cache.cache", stage))
            graftjit.reset()
            torch.testing.assert_close(run(torch.ones(3), []), f(torch.ones(3), []))
            monkeypatch.undo()
            assert failed and not {"FB303", "FB306"} & {n.code for n in run.report().notes}
    assert len(warned(caplog, "WN607")) == 2


IN_THE_BACKGROUND = {
    "building": ("graftjit.codegen.pipeline", "_finished"),
    "the event": ("graftjit.codegen.pipeline", "emit_compiled"),
}


@pytest.mark.parametrize("stage", IN_THE_BACKGROUND.values(), ids=IN_THE_BACKGROUND)
def test_in_the_background(stage, monkeypatch, caplog, tmp_path):
    f = program()
    with SESSION.override(check=False, cache_dir=tmp_path):
        failed = breaks_down(monkeypatch, stage)
        run = jit(f, config=JitConfig(background=True))
        for _ in range(2):
            torch.testing.assert_close(run(torch.ones(3), []), f(torch.ones(3), []))
            assert wait(60)
    assert failed and len(warned(caplog, "WN606")) == 1


def test_a_program_that_fails_as_plain_python_does(monkeypatch, caplog):
    """It is the program's own exception, with nothing of ours around it."""

    def f(x: Any, at: Any, seen: list[int]) -> Any:
        seen.append(0)
        return (x * 2)[at].sum()

    monkeypatch.setattr(SESSION, "_warned", set())
    for grad in (False, True):
        run, seen, texts = jit(f), [], []
        for function in (run, run, f):
            x = torch.ones(3, requires_grad=grad)
            with pytest.raises(IndexError) as raised:
                function(x, torch.tensor([0, 9]), seen)
            texts.append((str(raised.value), raised.value.__context__))
        assert texts[0] == texts[1] == texts[2] and len(seen) == 3
    assert not warned(caplog, "WN607")


BACKWARD = {
    "dividing": ("graftjit.codegen.training", "divide"),
    "missing gradients": ("graftjit.codegen.training", "without"),
    "building": ("graftjit.codegen.backend", "_half"),
}


@pytest.mark.parametrize("late", [False, True], ids=["from the beginning", "at the backward"])
@pytest.mark.parametrize("stage", BACKWARD.values(), ids=BACKWARD)
def test_gradients(stage, late, monkeypatch, caplog):
    def f(x: Any, log: list[int]) -> Any:
        log.append(0)
        return x.sin().sum(), x.cos()

    run, seen = jit(f), []
    theirs, ours = (torch.ones(3, requires_grad=True) for _ in range(2))
    with SESSION.override(check=False):
        failed = [] if late else breaks_down(monkeypatch, stage)
        for _ in range(2):
            found = run(ours, seen)[0]
            if late and not failed:
                failed = breaks_down(monkeypatch, stage)
            found.backward()
            f(theirs, [])[0].backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert seen == [0, 0]
    emitted = len(warned(caplog, "WN607")) + len(warned(caplog, "WN606"))
    assert emitted == (1 if failed else 0)


def _failing_backwards(monkeypatch: Any, error: Exception) -> list[int]:
    """Each backward program fails at the end of its run, with its arguments used up; the list has an item a failure."""
    built, failed = joint_program.JointProgram._built, []

    def failing(self: Any, missing: Any) -> Any:
        run, places = built(self, missing)

        def fails(arguments: list[Any]) -> Any:
            run(arguments)
            failed.append(0)
            raise error

        return fails, places

    monkeypatch.setattr(joint_program.JointProgram, "_built", failing)
    monkeypatch.setattr(SESSION, "_warned", set())
    return failed


def _written(x: Any, w: Any, n: int) -> Any:
    w = w * 1
    w.mul_(x)
    return (x * w).sin().sum() * n


def _buffer(x: Any, w: Any, n: int, seen: Any = torch.zeros(())) -> Any:  # noqa: B008
    seen += 1
    return (x * seen).sum() + w.exp().sum()


TRAINED = {
    "chain": lambda x, w, n: (x.sin() * w).softmax(-1).square().sum() * n,
    "drawn": lambda x, w, n: (torch.dropout(x * w, 0.5, True) * w).sum(),
    "two results": lambda x, w, n: (x @ w.t()).tanh().sum() + (w * n).sum(),
    "nothing saved": lambda x, w, n: (x + w).sum(),
    "written": _written,
    "a buffer": _buffer,
}


@pytest.mark.parametrize("retained", [False, True], ids=["once", "retained"])
@pytest.mark.parametrize("f", TRAINED.values(), ids=TRAINED)
def test_a_backward_that_fails_as_it_runs(f, retained, monkeypatch, caplog):
    found = []
    for run in (f, jit(f)):
        if run is not f:
            failed = _failing_backwards(monkeypatch, LookupError("a fault of ours"))
        torch.manual_seed(3)
        for one in f.__defaults__ or ():
            one.zero_()
        leaf, w = torch.rand(4, 5), torch.rand(4, 5)
        for one in (leaf, w):
            one.requires_grad_()
        with SESSION.override(check=False):
            for n in (2, 3, 4):  # a temporary, whose memory nothing else holds
                loss = run(leaf * 2, w, n)
                loss.backward(retain_graph=retained)
                if retained:
                    loss.backward()
        found += [leaf.grad, w.grad, torch.rand(2)]
    assert failed
    for theirs, ours in zip(found[:3], found[3:], strict=True):
        torch.testing.assert_close(ours, theirs)
    (warning,) = warned(caplog, "WN607")
    assert "Its backward runs the forward's calls again" in warning


def test_a_gradient_that_cannot_be_laid_out(monkeypatch, caplog):
    def f(x: Any) -> Any:
        return x.sin()

    failed, found = (
        breaks_down(monkeypatch, ("graftjit.runtime.autograd.joint_program", "laid_out")),
        [],
    )
    for run in (f, jit(f)):
        x = torch.ones(4, 4, requires_grad=True)
        with SESSION.override(check=False):
            run(x).backward(torch.rand(4, 4, generator=torch.Generator().manual_seed(1)).t())
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])
    assert failed and len(warned(caplog, "WN607")) == 1


def test_a_backward_that_fails_under_check(monkeypatch):
    with SESSION.override(check=True):
        failed = _failing_backwards(monkeypatch, LookupError("a fault of ours"))
        loss = jit(lambda x: x.sin().sum())(torch.ones(3, requires_grad=True))
        with pytest.raises(LookupError, match="a fault of ours"):
            loss.backward()
    assert failed


# What fails where the gradients of a second derivative become a program.
SECOND = {
    "the trace": ("graftjit.codegen.second_order", "gradient_trace"),
    "its run": ("graftjit.runtime.autograd.second_order", "_with_numbers_of"),
}


@pytest.mark.parametrize("stage", SECOND)
def test_a_second_derivative_that_fails(stage, monkeypatch, caplog):
    def f(x: Any) -> Any:
        return (x.sin() * x).sum()

    failed, found = breaks_down(monkeypatch, SECOND[stage]), []
    for run in (f, jit(f)):
        with SESSION.override(check=False):
            for _ in range(2):
                x = torch.linspace(-1, 1, 5).requires_grad_()
                (gradient,) = torch.autograd.grad(run(x), x, create_graph=True)
                found += torch.autograd.grad(gradient.square().sum(), x)
    for theirs, ours in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(ours, theirs)
    assert len(failed) == 1 and len(warned(caplog, "WN607")) == 1
    monkeypatch.setattr(SESSION, "_warned", set())
    with SESSION.override(check=True), pytest.raises(LookupError, match="a fault of ours"):
        x = torch.ones(3, requires_grad=True)
        torch.autograd.grad(jit(lambda x: (x.cos() * x).sum())(x), x, create_graph=True)


def test_a_backward_that_fails_as_eagers_does(monkeypatch, caplog):
    """An operator of the program's own refuses in its backward: that is the program's exception, and no fault."""

    @torch.library.custom_op("graftfaults::refusing", mutates_args=())
    def refusing(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 3:
            raise ValueError("no more than 3")
        return x * 2

    refusing.register_fake(torch.empty_like)
    refusing.register_autograd(lambda context, gradient: refusing(gradient * 2) / 2)

    def f(x: Any) -> Any:
        return refusing(x).exp().sum()

    monkeypatch.setattr(SESSION, "_warned", set())
    texts = []
    for run in (f, jit(f)):
        loss = run(torch.full((3,), 0.9, requires_grad=True))
        with pytest.raises(ValueError, match="no more") as raised:
            loss.backward()
        texts.append((str(raised.value), raised.value.__context__))
    assert texts[0] == texts[1] == ("no more than 3", None)
    assert not warned(caplog, "WN607")


AT_A_BREAK = {
    "a resume function": ("graftjit.capture.emit.resume", "resume_code"),
    "the tail of a break": ("graftjit.capture.capture", "break_tail"),
    "what is told of a break": ("graftjit.dispatch.unit_events", "resumed"),
    "a question to tensor data": ("graftjit.runtime.guards.value_guards", "ValueProgram.compute"),
}


@pytest.mark.parametrize("stage", AT_A_BREAK.values(), ids=AT_A_BREAK)
def test_a_frame_that_breaks_and_asks(stage, monkeypatch, caplog, unchecked):
    def f(x: Any, ids: Any, log: list[int]) -> Any:
        log.append(len(log))
        y = x * 2 if ids.eq(0).any() else x * 3
        print(end="")
        return y + 1

    run, seen = jit(f), []
    if stage[1] == "ValueProgram.compute":  # guards ask, too
        run(torch.ones(3), torch.tensor([1, 4]), [])
    failed = breaks_down(monkeypatch, stage)
    for first in (1, 0, 1):
        x, ids = torch.ones(3), torch.tensor([first, 4])
        torch.testing.assert_close(run(x, ids, seen), f(x, ids, []))
    assert failed and seen == [0, 1, 2]
    assert warned(caplog, "WN607")


def test_reports(monkeypatch, caplog):
    run = jit(program())
    run(torch.ones(3), [])
    with SESSION.override(check=False):
        failed = breaks_down(monkeypatch, ("graftjit.runtime.report.timings", "timed"))
        assert run.report().graph_count == 1
        assert failed and "has no measurements of it" in warned(caplog, "WN607")[0]
        monkeypatch.setitem(FOLDS, "kernels", lambda _: {}["missing"])
        with pytest.raises(InternalError, match="kernels of a report could not be made"):
            run.report().kernels  # noqa: B018


def test_beside_torch_compile(monkeypatch, caplog):
    rules = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "torch._dynamo", sys.modules.get("torch._dynamo", rules))
    monkeypatch.setitem(sys.modules, "torch._dynamo.trace_rules", rules)
    rules.add = lambda room: {}[room]
    monkeypatch.setattr(SESSION, "_warned", set())
    with SESSION.override(check=False):
        f = program()
        torch.testing.assert_close(jit(f)(torch.ones(3), []), f(torch.ones(3), []))
    assert len(warned(caplog, "WN607")) == 1


def test_frames_below_a_break(monkeypatch, caplog):
    def inner(x: Any) -> Any:
        return x * 2

    def f(x: Any) -> Any:
        print(end="")
        return inner(x) + 1

    breaks_down(monkeypatch, ("graftjit.dispatch.frame_policy", "_policy"))
    with SESSION.override(check=False):
        torch.testing.assert_close(jit(f)(torch.ones(3)), torch.full((3,), 3.0))
    assert len(warned(caplog, "WN607")) <= 2


def test_an_unused_operator_with_several_results(caplog):
    def f(x: Any) -> Any:
        torch.nn.functional.logsigmoid(x)
        return x + 1

    with SESSION.override(check=False):
        torch.testing.assert_close(jit(f)(torch.zeros(4)), torch.ones(4))
    assert not warned(caplog, "WN60")


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300], ids=["NUL", "surrogate", "long"])
def test_a_cache_folder_that_cannot_be(name, tmp_path, caplog, monkeypatch):
    f = program()
    monkeypatch.setattr(SESSION, "_warned", set())
    with SESSION.override(check=False, cache_dir=tmp_path / name):
        torch.testing.assert_close(jit(f)(torch.ones(3), []), f(torch.ones(3), []))
    assert len(warned(caplog, "WN602")) == 1 and len(caplog.records) == 1


def test_a_compiler_that_hangs(monkeypatch, tmp_path):
    """It is ended, with what it has started."""
    monkeypatch.setattr(units, "TIMEOUT", 0.5)
    command = ["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/started; wait"]
    with pytest.raises(BuildError, match="did not finish within"):
        build._run(command, "", tmp_path / "kernel.so")
    number = (tmp_path / "started").read_text().strip()
    status = Path(f"/proc/{number}/stat")
    end = time.monotonic() + 20  # a signal takes its time where all cores are busy
    while status.exists() and status.read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)


FORKING = """
import os, sys, threading, time
import torch, graftjit

def f(x):
    return torch.softmax(x * 2, -1).sum()

first = threading.Thread(target=lambda: graftjit.jit(f)(torch.ones(3, 4)))
first.start()
time.sleep(float(sys.argv[1]))
child = os.fork()
if child == 0:
    g = graftjit.jit(lambda x: x.cos() + 1)
    os._exit(0 if torch.equal(g(torch.zeros(3)), torch.full((3,), 2.0)) else 1)
end = time.monotonic() + 60
while time.monotonic() < end:
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        first.join()
        sys.exit(os.waitstatus_to_exitcode(status))
    time.sleep(0.02)
os.kill(child, 9)
sys.exit("the child hung")
"""


@pytest.mark.parametrize("after", [0.02, 0.1, 0.25])
def test_a_fork_while_another_thread_compiles(after, tmp_path):
    """The first miss imports most of graftjit; a child must not find a module half imported."""
    environment = {k: v for k, v in os.environ.items() if k != "GRAFTJIT_CHECK"}
    environment["GRAFTJIT_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", FORKING, str(after)],
        capture_output=True, text=True, env=environment, timeout=200, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
