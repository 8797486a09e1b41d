"""The benchmark commands run as users run them; and the rows of the table make what they say."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


def run(*arguments: str, folder: Path) -> tuple[str, dict]:
    target = folder / "result.json"
    environment = {k: v for k, v in os.environ.items() if k != "GRAFTJIT_CHECK"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compare", *arguments, "--json", str(target)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(target.read_text())


def test_call_and_its_json(tmp_path):
    text, told = run("call", "--only", "identity", "--rounds", "2", "--systems", "eager", "graftjit",
                     "--seed", "3", folder=tmp_path)  # fmt: skip
    assert "identity" in text and told["machine"]["seed"] == 3 and told["machine"]["torch"]
    eager, graft = told["rows"]
    assert eager["system"] == "eager" and eager["median"] > 0 and eager["rounds"] == 2
    assert graft["problem"] == "" and graft["ratios"]["eager"] > 0


def test_first_runs_fresh_processes(tmp_path):
    text, told = run(
        "first", "--only", "sin_add", "--repeat", "1", "--systems", "graftjit", folder=tmp_path
    )
    assert "sin_add" in text
    assert [row["caches"] for row in told["rows"]] == ["empty", "warm"]
    assert all(row["median"] > 0 and row["problem"] == "" for row in told["rows"])


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    names = ("workloads", "compare", "steady_state")
    yield [importlib.import_module(f"benchmarks.{name}") for name in names]
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_workloads_are_the_same_for_a_seed(modules):
    workloads = modules[0]
    assert len(workloads.BY_NAME) == len(workloads.WORKLOADS)
    assert {what for row in workloads.WORKLOADS for what in row.what} == {"call", "first", "steady"}
    for row in workloads.WORKLOADS:
        if "steady" in row.what and row.name != "block":
            continue  # large, and made the same way
        results = []
        for _ in range(2):
            torch.manual_seed(5)
            function, inputs = row.make()
            with torch.no_grad():
                results.append(function(*inputs))
        torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_verdicts(modules):
    verdict = modules[1]._verdict
    assert verdict([]) == ""
    assert verdict([(0.9, 1.0), (None, 1.0)]) == "?"
    assert verdict([(0.9, 1.0)]) == "kept" and verdict([(1.1, 1.0), (None, 1.0)]) == "MISSED"


def test_a_system_that_fails_or_differs_is_a_row(modules, monkeypatch):
    workloads, _compare, steady = modules

    def fails(function):
        raise RuntimeError("cannot do that")

    monkeypatch.setitem(steady.SYSTEMS, "graftjit", fails)
    monkeypatch.setitem(
        steady.SYSTEMS, "torch.compile", lambda function: lambda *xs: function(*xs) + 1
    )
    rows = steady.measure(workloads.BY_NAME["sin_add"], ["eager", "graftjit", "torch.compile"],
                          seed=0, rounds=2, sample_seconds=0.0005)  # fmt: skip
    assert [row.system for row in rows] == ["eager", "graftjit", "torch.compile"]
    assert rows[0].median > 0 and rows[0].problem == ""
    assert "cannot do that" in rows[1].problem and "not close" in rows[2].problem
