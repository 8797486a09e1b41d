"""JitConfig(background=True): calls run at once, operator by operator, and by kernels when these are built."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch

import graftjit
from graftjit import JitConfig, jit
from graftjit.codegen.build import background
from graftjit.codegen.build import cxx as build
from graftjit.codegen.build.background import Background
from graftjit.runtime.errors import BuildError
from graftjit.runtime.process.session import SESSION

LATER = JitConfig(background=True)


@pytest.fixture
def gate(monkeypatch, tmp_path):
    """An empty store, and a compiler that waits for the gate to open."""
    opened, run = threading.Event(), build._compile

    def held(*args, **kwargs):
        assert threading.current_thread() is not threading.main_thread()
        opened.wait(60)
        return run(*args, **kwargs)

    monkeypatch.setattr(build, "_compile", held)
    with SESSION.override(cache_dir=tmp_path):
        yield opened
        opened.set()
        background.BACKGROUND.wait(60)


def program(x, y):
    return torch.tanh(x * 2 + y).sum(-1) + 0.1253


def codes(made):
    return [note.code for note in made.report().notes]


def test_calls_run_by_operators_until_the_kernels_are_there(gate):
    made, x, y = jit(program, config=LATER), torch.randn(4, 5), torch.randn(5)
    for _ in range(3):
        assert torch.equal(made(x, y), program(x, y))
    assert codes(made) == ["FB315"] and made.report().frames[0].kernels == 0
    assert not graftjit.wait(0.01)
    gate.set()
    assert graftjit.wait(60)
    torch.testing.assert_close(made(x, y), program(x, y))
    report = made.report()
    assert report.frames[0].kernels == 1 and report.graph_count == 1 and report.recompile_count == 0


def test_sizes_that_vary(gate):
    made = jit(program, config=LATER, dynamic=True)
    for rows in (3, 4, 6):
        made(torch.randn(rows, 5), torch.randn(5))
    gate.set()
    graftjit.wait(60)
    for rows in (3, 7):
        x, y = torch.randn(rows, 5), torch.randn(5)
        torch.testing.assert_close(made(x, y), program(x, y))
    assert made.report().recompile_count == 0


def test_what_is_stored_already_is_there_at_once(gate):
    gate.set()
    x, y = torch.randn(4, 5), torch.randn(5)
    jit(program, config=LATER)(x, y)
    graftjit.wait(60)

    def again(x, y):
        return torch.tanh(x * 2 + y).sum(-1) + 0.1253

    made = jit(again, config=LATER)
    made(x, y)
    assert codes(made) == [] and made.report().frames[0].kernels == 1


def test_a_break_and_what_follows_it(gate):
    def broken(x):
        y = torch.sin(x) * 0.127
        print("", end="")
        return torch.cos(y) * 2

    made, x = jit(broken, config=LATER), torch.randn(7)
    assert torch.equal(made(x), broken(x))
    gate.set()
    graftjit.wait(60)
    torch.testing.assert_close(made(x), broken(x))
    assert made.report().frames[0].kernels == 2


def test_a_compiler_that_fails(gate, monkeypatch):
    def refused(*args, **kwargs):
        raise BuildError("the compiler is gone")

    monkeypatch.setattr(build, "_compile", refused)
    with SESSION.override(check=False):
        made, x, y = jit(program, config=LATER), torch.randn(3, 5), torch.randn(5)
        made(x, y)
        graftjit.wait(60)
        assert torch.equal(made(x, y), program(x, y))
        assert codes(made) == ["FB315", "FB306"]


def test_calls_while_it_is_exchanged(gate):
    """Threads that run the one program while it becomes the other."""
    made, x, y = jit(program, config=LATER), torch.randn(64, 512), torch.randn(512)
    wanted, wrong, over = program(x, y), [], threading.Event()
    made(x, y)

    def work():
        while not over.is_set():
            found = made(x, y)
            if not torch.allclose(found, wanted, 1e-4, 1e-4):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.set()
    graftjit.wait(60)
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong and made.report().frames[0].kernels == 1


def test_explain_waits_for_the_kernels(monkeypatch, tmp_path):
    with SESSION.override(cache_dir=tmp_path):
        report = graftjit.explain(jit(program, config=LATER), torch.randn(4, 5), torch.randn(5))
    assert report.frames[0].kernels == 1


def test_jobs_in_order_failures_and_forks():
    done: list[int] = []
    queue = Background()

    def fail():
        raise ValueError("a fault")

    for number in range(3):
        queue.submit("", lambda number=number: done.append(number))
    assert queue.wait(10) and done == [0, 1, 2]
    queue.submit("", fail)
    queue.submit("", lambda: done.append(3))
    with pytest.raises(ValueError, match="a fault"):
        queue.wait(10)
    assert queue.wait(10) and done == [0, 1, 2, 3]


@pytest.mark.parametrize("more", [True, False])
def test_a_child_takes_up_what_its_parent_was_at(more):
    held = threading.Event()
    queue = Background()
    queue.submit("", held.wait)
    child = os.fork()
    if child == 0:
        queue.after_fork()
        held.set()
        if more:
            queue.submit("", lambda: None)
        os._exit(0 if queue.wait(10) and not queue._jobs else 1)
    held.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert queue.wait(10)


def test_a_child_that_ends_begins_nothing():
    held, done = threading.Event(), []
    queue = Background()
    queue.submit("", held.wait)
    queue.submit("", lambda: done.append(1))
    child = os.fork()
    if child == 0:
        queue.after_fork()
        queue.close()
        os._exit(0 if queue._thread is None and not queue._jobs else 1)
    held.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert queue.wait(10) and done == [1]


SCRIPT = """
import torch
from graftjit import JitConfig, jit
f = jit(lambda x: torch.tanh(x) * 0.3217, config=JitConfig(background=True))
print(f(torch.zeros(3)).tolist())
"""


def test_a_process_that_ends_meanwhile(tmp_path):
    environment = {**os.environ, "GRAFTJIT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0.0, 0.0, 0.0]\n", "")
    assert list(tmp_path.rglob("*.so"))  # the next process finds it
