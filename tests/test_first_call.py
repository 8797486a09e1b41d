"""What a first call does in a fresh process, counted: no figure here depends on how fast the machine is."""

from __future__ import annotations

import importlib.util
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


def test_inference_loads_only_what_it_needs(first):
    """Neither gradients nor rare models. A module more takes time at the start of each program: the
    counts are those of today, with a few to spare."""
    rare = {
        *(f"capture.{name}" for name in LATE),
        *("ir.autograd", "ir.trace.joint", "ir.trace.regions", "ir.trace.custom_function"),
        *("ir.trace.hidden_results", "ir.trace.output_views", "codegen.training"),
        *("runtime.autograd.joint_program", "runtime.autograd.saving_hooks"),
        "runtime.autograd.custom_function",
    }
    rare = {f"graftjit.{name}" for name in rare}
    assert all(importlib.util.find_spec(name) for name in rare)
    assert [rare & set(one["modules"]) for one in first] == [set(), set()]
    assert "sysconfig" not in first[1]["import"]
    counts = [len(one["modules"]) for one in first]
    assert counts[0] <= 400 and counts[1] <= 313, counts
    assert len(first[1]["import"]) <= 100


# -- models that are loaded late -------------------------------------------------------------------
LATE = (
    "data_model.raising_checks",
    *("models.collectives", "models.functional_collectives", "models.process_groups"),
    *("models.copies", "models.legacy"),
    *("models.output", "models.parameters", "models.profiler_labels", "models.warning_filters"),
    *("models.tensor_comparisons", "models.weak_mappings"),
    *("models.distributions", "operations.called_numbers", "operations.drawn_tensors"),
    *("operator_models.attention_backends", "operator_models.control_flow"),
    "operator_models.library_operators",
    *("torch_models.autograd_function", "torch_models.checkpoints", "torch_models.data_parallel"),
    *("torch_models.differentiate", "torch_models.foreach", "torch_models.optimizer_rules"),
)

_LATE_PROBE = """
import torch
import graftjit
from torch.utils import checkpoint as of_torch
from graftjit.capture import model_tables
from graftjit.capture.values import registry

rows = dict(registry._PLACES)
assert {place.removeprefix("graftjit.capture.") for place in rows.values()} == set(NAMES), rows
real, x = of_torch.checkpoint, torch.randn(4, requires_grad=True)

def patched(fn, *args, **kwargs):
    return real(fn, *args, **kwargs) * 2

def program(x):
    return of_torch.checkpoint(torch.sin, x, use_reentrant=False).sum()

def both():
    call, made = graftjit.jit(program), []
    for one in (program, call, call):
        x.grad = None
        found = one(x)
        found.backward()
        made.append((found.detach().clone(), x.grad.clone()))
    for value, gradient in made[1:]:
        torch.testing.assert_close(value, made[0][0])
        torch.testing.assert_close(gradient, made[0][1])

of_torch.checkpoint = patched
both()
of_torch.checkpoint = real
both()
assert patched not in registry.BUILTINS
before = set(registry.BUILTINS)
for function in rows:
    registry.model_of(function)
assert not registry._PLACES
places = {place for function, place in rows.items() if function in registry.BUILTINS}
assert len(places) == len(NAMES), places
# No other callable than these, and graftjit's own, got a model.
assert [f for f in registry.BUILTINS.keys() - before - rows.keys()
        if not getattr(f, "__module__", "").startswith("graftjit.")
        and f.__module__ not in registry._OF_MODULES] == []
"""


def test_models_that_are_loaded_late(tmp_path):
    """Their rows name modules that have them; what the program patches in between gets no model."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"NAMES = {LATE}\n{_LATE_PROBE}"],
        capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "GRAFTJIT_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_classes_are_made_by_the_cheap_decorator(first):
    """The standard one compiles six functions a class; only what users make themselves needs it."""
    assert first[0]["decorated"] == ["JitConfig"]


_LISTED_PROBE = """
import importlib
import graftjit
from graftjit.capture import capture, model_tables
from graftjit.capture.values import registry

listed = {one for callables in model_tables.LATE.values() for one in callables}
before = set(registry.BUILTINS)
for name in model_tables.LATE:
    importlib.import_module(f"graftjit.capture.{name}")
made = [one for one in registry.BUILTINS.keys() - before if not registry._is_ours(one)]
made = [one for one in made if getattr(one, "__module__", "") not in registry._OF_MODULES]
assert made and [one for one in made if one not in listed] == []
"""


def test_each_callable_with_a_model_that_is_loaded_late_is_listed():
    """One that is not listed would have no model."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _LISTED_PROBE],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
