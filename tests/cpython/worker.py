"""One module of CPython's own tests in one mode, in this process.

    python -m tests.cpython.worker MODULE MODE RESULTS < skipped.json

In: the name of a module of `test`, a mode of `modes.MODES`, the file to write to, and on stdin the JSON list of tests to
skip. Out: a JSON line when a test begins and another when it has ended, so that who started this process knows which test
took it down. Each test runs twice: once to be compiled, once to be answered from what was compiled.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from . import modes

RUNS = tuple(range(1, 1 + int(os.environ.get("CPYTHON_TEST_RUNS", 2))))


class Told(unittest.TestResult):
    """Writes each test's outcome down as soon as it is known."""

    def __init__(self, out: TextIO, faults: list[str]) -> None:
        super().__init__()
        self.out, self.faults = out, faults
        self.outcome, self.text = "passed", ""

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.outcome, self.text = "passed", ""
        self.faults.clear()
        self._write({"begins": test.graftjit_id})

    def stopTest(self, test: Any) -> None:
        super().stopTest(test)
        if self.faults:
            self.outcome, self.text = "fault", self.faults[0]
        self._write({"ended": test.graftjit_id, "outcome": self.outcome, "text": self.text})
        self.failures.clear()
        self.errors.clear()

    def addError(self, test: Any, err: Any) -> None:
        if not hasattr(test, "graftjit_id"):  # setUpClass, setUpModule
            self._write({"fixture": str(test), "text": self._exc_info_to_string(err, _Anyone)})
            return
        self._failed(test, err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._failed(test, err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._failed(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        if self.outcome == "passed":
            self.outcome, self.text = "skipped", reason

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.outcome = "expected failure"

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.outcome = "unexpected success"

    def _failed(self, test: Any, err: Any) -> None:
        if self.outcome == "failed":
            return
        self.outcome, self.text = "failed", self._exc_info_to_string(err, test)

    def _write(self, row: dict[str, Any]) -> None:
        self.out.write(json.dumps(row) + "\n")
        self.out.flush()


class _Anyone:
    failureException = AssertionError


def main() -> None:
    name, mode, results = sys.argv[1:4]
    skipped = set(json.load(sys.stdin))
    out = open(results, "a", encoding="utf-8")  # noqa: SIM115 (open as long as the process lives)
    faulthandler.enable()
    os.chdir(tempfile.mkdtemp())  # tests write files where they stand; the parent removes it
    sys.argv[1:] = []
    transform, faults = modes.MODES[mode]()
    _allow_nothing_big()
    module = importlib.import_module(f"test.{name}")
    suite = unittest.TestSuite()
    for test in chosen(module, skipped, transform):
        suite.addTest(test)
    # The collections that tests ask for need not look at torch.
    gc.collect()
    gc.freeze()
    with open(os.devnull, "w") as nowhere:
        sys.stdout = nowhere
        suite.run(Told(out, faults))
        sys.stdout = sys.__stdout__
    out.write(json.dumps({"done": True}) + "\n")
    out.close()
    os._exit(0)  # threads and objects that a test has left behind do not matter


def _allow_nothing_big() -> None:
    """No resource beyond what the standard run of CPython's tests has: no network, nothing slow, no large memory."""
    from test import support

    support.use_resources = []
    support.verbose = 0


def chosen(module: Any, skipped: set[str], transform: Callable) -> Iterator[Any]:
    """The tests of a module, each as often as `RUNS` says, with the method that runs put through `transform`."""
    made: dict[str, Any] = {}
    pairs = [list(_tests(unittest.defaultTestLoader.loadTestsFromModule(module))) for _ in RUNS]
    for again in zip(*pairs, strict=True):
        for run, test in zip(RUNS, again, strict=True):
            known = test.id().removeprefix("test.")
            if known in skipped:
                continue
            method = getattr(test, test._testMethodName)
            if known not in made:
                made[known] = transform(method)
            run_it = made[known](method)
            run_it.__dict__.update(getattr(method, "__dict__", {}))
            setattr(test, test._testMethodName, run_it)
            test.graftjit_id = f"{known} #{run}"
            yield test


def _tests(suite: Any) -> Iterator[unittest.TestCase]:
    """The test methods of a suite; documentation tests and modules that failed to load are none."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _tests(test)
        elif getattr(test, "_testMethodName", "runTest") != "runTest":
            if type(test).__name__ == "_FailedTest":
                raise ImportError(test.id())
            yield test


if __name__ == "__main__":
    main()
