"""Programs of the shapes of the static-graph documents print what plain Python prints, in either mode."""

from __future__ import annotations

import contextlib
import io
import math
import random
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import graftjit
from graftjit.context import reset_context

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
MODES = {"graph": graftjit.GRAPH_MODE, "pynative": graftjit.PYNATIVE_MODE}
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


def output_of(program: Path, mode: int) -> str:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    reset_context()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(program), init_globals={"MODE": mode}, run_name="program")
    return printed.getvalue()


def plain_output_of(program: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> str:
    """The same with `jit` and GRAPH_MODE taken away."""

    def untouched(function=None, **_options):
        if function is None:
            return untouched
        function.__wrapped__ = function
        return function

    with monkeypatch.context() as patched:
        for name in ("jit", "ms_function"):
            patched.setattr(graftjit, name, untouched)
        patched.setattr(graftjit.nn.Cell, "forward", lambda self, *a, **k: self.construct(*a, **k))
        return output_of(program, mode)


def assert_same_text(found: str, expected: str) -> None:
    """Equal but for numbers, and those equal within 1e-4 (what is printed has four digits)."""
    assert NUMBER.sub("#", found) == NUMBER.sub("#", expected)
    for one, other in zip(NUMBER.findall(found), NUMBER.findall(expected), strict=True):
        assert math.isclose(float(one), float(other), rel_tol=1e-4, abs_tol=1.5e-4), (one, other)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_prints_what_plain_python_prints(program, mode, monkeypatch):
    expected = plain_output_of(program, monkeypatch, MODES[mode])
    assert expected
    assert_same_text(output_of(program, MODES[mode]), expected)


def test_in_a_process_of_its_own(tmp_path):
    """Nothing of pytest around it: `python program.py`."""
    program = tmp_path / "program.py"
    program.write_text((Path(__file__).parent / "programs" / "old_names.py").read_text())
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stderr == ""
    numbers = [float(n) for n in NUMBER.findall(done.stdout)]
    assert numbers == [7.0] * 6 + [12.0] * 6 + [-1.0] * 6 + [12.0] * 6 + [-0.5] * 6


def test_graph_mode_compiles_without_a_decorator():
    graftjit.set_context(mode=graftjit.GRAPH_MODE)

    class Twice(graftjit.nn.Cell):
        def construct(self, x):
            return x + x

    cell = Twice()
    x = torch.ones(3)
    assert torch.equal(cell(x), x + x)
    report = graftjit.report(Twice.construct)
    assert report.graph_count == 1 and report.break_count == 0
    graftjit.set_context(mode=graftjit.PYNATIVE_MODE)
    assert torch.equal(cell(x), x + x)


def test_a_network_is_one_graph_in_graph_mode():
    graftjit.set_context(mode=graftjit.GRAPH_MODE)

    class Network(graftjit.nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers = graftjit.nn.SequentialCell(
                graftjit.nn.Dense(4, 8), graftjit.nn.ReLU(), graftjit.nn.Dense(8, 2)
            )

        def construct(self, x):
            return self.layers(x)

    model = Network()
    with torch.no_grad():
        model(torch.ones(2, 4))
    report = graftjit.report(Network.construct)
    assert (report.graph_count, report.break_count, len(report.frames)) == (1, 0, 1)


def test_a_network_built_inside_is_reported_with_its_place():
    def run(x):
        model = graftjit.nn.Dense(4, 2)
        return model(x)

    report = graftjit.explain(run, torch.ones(2, 4))
    first = run.__code__.co_firstlineno
    places = [r.line for r in [*report.breaks, *report.notes] if r.file == __file__]
    assert report.break_count == 0 or first + 1 in places
