"""The interpreter ends in silence: nothing of ours speaks when what it watches dies last."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Held by globals, by cycles and by what never ends, so that much of it dies after its modules have.
PROGRAM = """
import builtins, sys
import torch
import graftjit

class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = torch.nn.Linear(size, size)
        self.me = self

    def forward(self, x):
        y = self.inner(x).relu()
        print(end="")
        return y + 1

x = torch.randn(2, 4)
models = [graftjit.compile(Model(4)) for _ in range(3)]
for model in models:
    model(x).sum().backward()

def applied(function, x):
    return function(x)

applied = graftjit.jit(applied)
functions = [eval(f"lambda x: x * {by}") for by in range(6)]
for function in functions:
    applied(function, x)

def steps(x):
    while True:
        x = x + 1
        yield x

alive = graftjit.jit(steps)(x)
next(alive)
wanted = models[0](x)  # its backward is never asked for
builtins.kept = (models, applied, functions, alive, wanted, graftjit.jit(lambda x: x - 1)(x))
sys.last_value = kept
ENDS
"""


@pytest.mark.parametrize("ends", ["", "sys.exit(0)", "del models, applied, functions"])
def test_the_interpreter_ends_in_silence(ends: str, tmp_path: Path) -> None:
    root = str(Path(__file__).parents[3])
    paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("ENDS", ends)],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
