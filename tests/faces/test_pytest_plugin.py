"""The plugin for pytest: what its fixture and its marker do to tests, and that it costs nothing where it is not used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]

TESTS = """
import pytest
import torch
from graftjit import graft_break, jit

@jit
def clean(x):
    return torch.sin(x) * 2

@jit
def broken(x):
    y = torch.sin(x)
    graft_break("here")
    return y * 2

@jit
def number(x, n):
    return torch.sin(x) ** n

@pytest.mark.graft_clean
def test_clean():
    clean(torch.ones(3))

@pytest.mark.graft_clean
def test_broken():
    broken(torch.ones(3))

@pytest.mark.graft_clean
def test_broken_again():
    broken(torch.ones(3))  # compiled by the test before this one: the break is met here too

@pytest.mark.graft_clean(max_breaks=1, max_recompiles=0)
def test_a_limit():
    broken(torch.ones(3))

@pytest.mark.graft_clean(allow=("GB140", "RC"), max_recompiles=0)
def test_what_is_allowed():
    broken(torch.ones(3, dtype=torch.float64))

def test_not_marked():
    broken(torch.ones(1, 1, 1))

@pytest.mark.graft_clean
def test_one_recompile_is_usual():
    for n in (2, 3):
        number(torch.ones(2), n)

@pytest.mark.graft_clean(max_recompiles=0)
def test_recompiled():
    number(torch.ones(2), 4.5)

@pytest.mark.graft_clean
def test_gone_functions_count():
    def local(x):
        y = torch.sin(x)
        graft_break("here")
        return y
    jit(local)(torch.ones(2))

@pytest.mark.graft_clean(allow="GB1040")
def test_no_such_code():
    pass

@pytest.mark.graft_clean(max_brakes=1)
def test_no_such_limit():
    pass

@pytest.mark.graft_clean
def test_its_own_failure():
    assert broken(torch.ones(5)) is None

def test_fixture(graft_report):
    before = graft_report()
    assert before.break_count == before.graph_count == 0
    jit(lambda x: torch.cos(x) + 1)(torch.ones(3))
    report = graft_report()
    assert report.graph_count == 1 and len(report.frames) == 1
    report.assert_clean()
"""


def test_marker_and_fixture(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(TESTS)
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    monkeypatch.setenv("PYTHONPATH", path)
    done = pytester.runpytest_subprocess(
        "-p", "graftjit_pytest", "-p", "no:cacheprovider", "-rA", "--strict-markers", "--tb=short"
    )
    passed = (
        "clean",
        "a_limit",
        "what_is_allowed",
        "not_marked",
        "one_recompile_is_usual",
        "fixture",
    )
    failed = (
        "broken",
        "broken_again",
        "recompiled",
        "gone_functions_count",
        "no_such_code",
        "no_such_limit",
        "its_own_failure",
    )
    for words, names in (("PASSED", passed), ("FAILED", failed)):
        for name in names:
            done.stdout.fnmatch_lines([f"{words} *::test_{name}" + " - *" * (words == "FAILED")])
    done.assert_outcomes(passed=len(passed), failed=len(failed))
    out = done.stdout.str()
    assert "the report of test_broken is not clean: 1 graph break (allowed: 0)" in out
    assert 'graft_break("here")' in out and "GB140" in out  # the report itself
    assert "did you mean 'GB1" in out and "max_brakes" in out
    assert "watching.py" not in out and "graftjit_pytest.py" not in out  # no frames of ours


def test_loaded_by_its_name_it_imports_nothing() -> None:
    say = "import sys; sys.path.insert(0, {!r}); import graftjit_pytest; print([m for m in ('torch', 'graftjit') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", say.format(str(ROOT))], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    text = (ROOT / "pyproject.toml").read_text()
    assert (
        'graftjit_pytest = "graftjit_pytest"' in text and 'py-modules = ["graftjit_pytest"]' in text
    )
