"""What a first call does in a fresh process, counted: no figure here depends on how fast the machine is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

_PROBE = """
import dataclasses, json, sys
import torch
started, decorated, make = [], [], dataclasses._process_class

def process(cls, *rest):
    if cls.__module__.startswith("graftjit"):
        decorated.append(cls.__qualname__)
    return make(cls, *rest)

def audit(name, arguments):
    if name in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.system"):
        started.append(str(arguments[0]))

dataclasses._process_class = process
before = set(sys.modules)
sys.addaudithook(audit)
import graftjit
at_import = sorted(set(sys.modules) - before)
torch.set_grad_enabled(False)
x, y = torch.arange(8.), torch.ones(8)
got = graftjit.jit(lambda x, y: torch.sin(x) + y * 2)(x, y)
assert (got - (torch.sin(x) + y * 2)).abs().max() < 1e-6
print(json.dumps({"started": started, "decorated": decorated, "import": at_import,
                  "modules": sorted(set(sys.modules) - before)}))
"""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """What two processes tell, one after the other, over one kernel store that is empty at first."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GRAFTJIT_")}
    environment["GRAFTJIT_CACHE_DIR"] = str(tmp_path_factory.mktemp("store"))
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROBE],
            capture_output=True, text=True, env=environment, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def test_one_run_of_the_compiler_and_none_when_the_store_has_it(first):
    assert [len(one["started"]) for one in first] == [1, 0], first


def test_importing_loads_neither_capture_nor_codegen(first):
    late = ("graftjit.capture.", "graftjit.codegen.")
    assert [name for name in first[1]["import"] if name.startswith(late)] == []


def test_a_call_on_the_cpu_loads_nothing_for_others(first):
    unwanted = ("triton", "graftjit.codegen.triton.renderer", "graftjit.runtime.doctor",
                "graftjit.runtime.store.bundle", "graftjit.runtime.report.text.render", "numpy.testing")  # fmt: skip
    assert [name for name in first[1]["modules"] if name.startswith(unwanted)] == []


def test_classes_are_made_by_the_cheap_decorator(first):
    """The standard one compiles six functions a class; only what users make themselves needs it."""
    assert first[0]["decorated"] == ["JitConfig"]
