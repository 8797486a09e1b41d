"""Tiers of the tests: which of them `make test-quick`, `make test` and `make test-all` run.

A test without a marker is in the tier `test`. The tables below mark whole folders and files: large families are a
`sweep`, of which `test` runs one of n, chosen by a hash of the tests' names (at least one of each file). Single tests
are marked where they stand. `conftest.py` hands pytest's hooks over to this file.

`--tier rest` runs what `test` leaves out. `--minutes N` skips whatever has not begun after N minutes, and lists it
by file: nothing is left out in silence.
"""

from __future__ import annotations

import collections
import time
from hashlib import sha1
from pathlib import Path

import pytest

MARKERS = {
    "quick": "quick: among the sharpest tests of its folder, and fast: in each tier",
    "slow": "slow: takes several seconds: only in the tier `all`",
    "sweep": "sweep(n): one test of a large family: the tier `test` runs one of n",
    "second": "second: a program at level O0, which also runs at O1: the tier `test` runs one of six",
}
SECOND = 6
TIERS = ("quick", "test", "rest", "all")
OUT_OF_TIME = "left out: the time is over"

# One test of how many is in the tier `test`: the longest path that matches counts. Seconds of CPU with a cold kernel
# store, of a whole folder or file, say why.
SWEEPS = {
    "tests/codegen": 8,  # 1,100 s
    "tests/codegen/programs/test_shadow.py": 1,
    "tests/fuzz": 5,  # 160 s
    "tests/gpu": 6,  # 60 s
    "tests/ir": 2,
    "tests/ir/test_dataclass.py": 1,
    "tests/ir/ops/test_rules.py": 5,  # 14 s a test
    "tests/ir/trace/test_opdb_trace.py": 5,  # 140 s
    "tests/training": 7,  # 560 s
    "tests/capture/emit/test_break_everywhere.py": 12,  # 250 s on the wall
    "tests/capture/test_every_fact.py": 4,
    "tests/capture/test_lifetimes.py": 3,  # 190 s
    "tests/capture/test_mutations.py": 5,  # 60 s a level
    "tests/capture/torch_models": 2,  # 180 s
    "tests/capture/values/test_dynamic.py": 2,
    "tests/runtime/cuda/test_driver.py": 4,
    "tests/dispatch/test_leaks.py": 8,  # 20 s a test
    "tests/dispatch/test_shared_entries.py": 3,  # 90 s
    "tests/distributed/test_divided.py": 3,  # 20 s
    "tests/distributed/test_reducers.py": 4,  # 85 s
    "tests/distributed/test_whole_steps.py": 3,  # 60 s
    "tests/page": 3,  # 90 s
    "tests/test_benchmarks.py": 8,  # 240 s
    "tests/test_docs.py": 3,  # 190 s
    "tests/test_package.py": 3,  # 100 s
    "tests/test_zoo.py": 2,  # 40 s
    "tests/test_notebooks.py": 12,  # 20 s a test
}
QUICK = (
    "tests/capture/programs/test_fuzzed.py",
    "tests/capture/test_guards.py",
    "tests/codegen/test_golden.py",
    "tests/faces/test_context.py",
    "tests/faces/test_programs.py",
    "tests/ir/graph/test_layout.py",
    "tests/ir/symbolic/test_symbols.py",
    "tests/runtime/guards/test_guard_program.py",
    "tests/runtime/process/test_options.py",
    "tests/test_footguns.py",
    "tests/test_imports.py",
    "tests/training/test_gradients.py",
)


def place(nodeid: str) -> float:
    """A number in [0, 1) that follows from the name of a test."""
    return int.from_bytes(sha1(nodeid.encode()).digest()[:4], "big") / 2**32


def share(item: pytest.Item) -> int:
    """The tier `test` has one of so many of the tests beside this one."""
    sweep = item.get_closest_marker("sweep")
    return (sweep.args[0] if sweep else 1) * (SECOND if item.get_closest_marker("second") else 1)


def in_test(items: list[pytest.Item]) -> set[str]:
    """The names of the tests that make up the tier `test`."""
    families: dict[tuple[str, int], list[str]] = collections.defaultdict(list)
    for item in items:
        if not item.get_closest_marker("slow"):
            families[item.nodeid.partition("::")[0], share(item)].append(item.nodeid)
    chosen = set()
    for (_file, one_of), names in families.items():
        chosen.update(sorted(names, key=place)[: -(-len(names) // one_of)])
    return chosen


def mark(item: pytest.Item) -> None:
    """Give a test the markers that its file or folder has in the tables."""
    file = item.nodeid.partition("::")[0]
    paths = [path for path in SWEEPS if file == path or file.startswith(f"{path}/")]
    if paths and item.get_closest_marker("sweep") is None:
        item.add_marker(pytest.mark.sweep(SWEEPS[max(paths, key=len)]))
    if file in QUICK:
        item.add_marker(pytest.mark.quick)


# -- pytest's hooks -----------------------------------------------------------------------------------
def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, default="all", help="the part of the tests to run")
    parser.addoption(
        "--minutes", type=float, help="skip tests that have not begun after so many minutes"
    )


def configure(config: pytest.Config) -> None:
    for text in MARKERS.values():
        config.addinivalue_line("markers", text)
    minutes = config.getoption("--minutes")
    config.stash[DEADLINE] = None if minutes is None else time.monotonic() + 60 * minutes


DEADLINE = pytest.StashKey[float | None]()


def ignore(path: Path, config: pytest.Config) -> bool | None:
    """The quick tier does not import files without a quick test."""
    if config.getoption("--tier") != "quick" or path.suffix != ".py":
        return None
    return path.relative_to(config.rootpath).as_posix() not in QUICK or None


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier; tell pytest of the others."""
    for item in items:
        mark(item)
    tier = config.getoption("--tier")
    if tier == "all":
        return
    names = in_test(items)
    gone = [item for item in items if (item.nodeid in names) == (tier == "rest")]
    if gone:
        held = set(map(id, gone))
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if id(item) not in held]


def skip_when_time_is_over(item: pytest.Item) -> None:
    deadline = item.config.stash[DEADLINE]
    if deadline is not None and time.monotonic() > deadline:
        pytest.skip(OUT_OF_TIME)


def summarise(reporter: pytest.TerminalReporter) -> None:
    """Say by file how many tests were left out for want of time."""
    left = collections.Counter(
        report.nodeid.partition("::")[0]
        for report in reporter.stats.get("skipped", [])
        if OUT_OF_TIME in str(report.longrepr)
    )
    if left:
        reporter.section(f"{left.total()} tests were left out, the time was over")
        for file, count in sorted(left.items()):
            reporter.line(f"{count:6d}  {file}")
