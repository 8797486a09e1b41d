"""A program that takes modules out of `sys.modules` meets no second copy of graftjit's."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

# What a program does around its first call, and what it takes away.
WORLDS = {
    "put back as it was": """
        with mock.patch.dict(sys.modules, {"other": None}):
            first()
        second()
    """,
    "all that came later is gone": """
        before = set(sys.modules)
        first()
        for name in set(sys.modules) - before:
            if name.startswith("graftjit"):
                del sys.modules[name]
        second()
    """,
    "each module is gone between any two calls": """
        first()
        for name in [name for name in sys.modules if name.startswith("graftjit")]:
            del sys.modules[name]
        second()
        import graftjit as again
        assert again is graftjit and sys.modules["graftjit"] is graftjit
    """,
}
PROGRAM = """
import sys
from unittest import mock
import torch
import graftjit

def first():
    assert graftjit.jit(lambda x: (x * 2).sin())(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]

def second():
    x = torch.zeros(3, requires_grad=True)
    run = graftjit.jit(lambda x: (x * 3).sin().sum())
    run(x).backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]
    report = run.report()
    assert not report.notes and len(report.kernels), report
    assert type(sys.modules["graftjit.capture.capture"]).__name__ == "module"
"""


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_there_is_one_copy_of_each_module(world: str) -> None:
    text = PROGRAM + textwrap.dedent(world) + "\nprint('done')\n"
    done = subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
