"""The tiers of the tests: `test` and `rest` are all tests, each file has a part in `test`, and what is left out is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers

ROOT = Path(__file__).resolve().parent.parent


class Item:
    """A test as `tiers` sees it."""

    def __init__(self, nodeid: str, *marks: pytest.Mark) -> None:
        self.nodeid, self.marks = nodeid, {mark.name: mark for mark in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)


def family(file: str, count: int, *marks: pytest.MarkDecorator) -> list[Item]:
    return [Item(f"{file}::test[{n}]", *(one.mark for one in marks)) for n in range(count)]


def test_a_sweep_has_its_share_and_at_least_one_test() -> None:
    many = family("a.py", 100, pytest.mark.sweep(10))
    few = family("b.py", 3, pytest.mark.sweep(10))
    chosen = tiers.in_test(many + few)
    assert len(chosen) == 11
    assert len([name for name in chosen if name.startswith("b.py")]) == 1
    assert tiers.in_test(many) < chosen  # the same whatever runs beside it


def test_slow_tests_are_left_out_and_others_stay() -> None:
    slow, plain = family("a.py", 4, pytest.mark.slow), family("b.py", 4)
    assert tiers.in_test(slow + plain) == {item.nodeid for item in plain}


def test_a_second_level_is_a_family_of_its_own() -> None:
    first, second = family("a.py", 6), family("a.py", 12, pytest.mark.second)
    for item in second:
        item.nodeid += "-O0"
    assert len(tiers.in_test(first + second)) == 6 + 2


def test_the_tables_name_what_is_there() -> None:
    assert [path for path in (*tiers.SWEEPS, *tiers.QUICK) if not (ROOT / path).exists()] == []


def run_pytest(folder: Path, *options: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rs",
        *options,
        str(folder),
    ]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT), "PATH": ""}
    ).stdout  # fmt: skip


CONFTEST = """
import pytest
from tests import tiers
pytest_addoption = tiers.add_options
pytest_configure = tiers.configure
pytest_terminal_summary = lambda terminalreporter: tiers.summarise(terminalreporter)
pytest_collection_modifyitems = lambda config, items: tiers.select(config, items)
pytest_runtest_setup = lambda item: tiers.skip_when_time_is_over(item)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "@pytest.mark.sweep(4)\n@pytest.mark.parametrize('n', range(8))\ndef test_a(n): pass\n"
        "@pytest.mark.slow\ndef test_b(): pass\n"
    )
    return tmp_path


@pytest.mark.parametrize(("tier", "count"), [("test", 2), ("rest", 7), ("all", 9)])
def test_a_tier_runs_its_tests(folder: Path, tier: str, count: int) -> None:
    assert f"{count} passed" in run_pytest(folder, "--tier", tier)


def test_what_there_was_no_time_for_is_listed(folder: Path) -> None:
    seen = run_pytest(folder, "--minutes", "0")
    assert "9 skipped" in seen
    assert "9 tests were left out, the time was over" in seen
    assert "     9  test_a.py" in seen


def test_the_order_begins_with_the_tests_that_import_what_changed() -> None:
    from tools import order_tests as order

    found = order.importers([])
    assert found == {}
    edges = {"ir/a.py": {"ir/b.py", "tests/test_a.py"}, "ir/b.py": {"tests/test_b.py"}}
    away = order.distances(["ir/a.py"], edges)
    assert away == {"ir/a.py": 0, "ir/b.py": 1, "tests/test_a.py": 1, "tests/test_b.py": 2}


def test_imports_are_found_under_the_name_that_a_room_is_installed_as() -> None:
    from tools import order_tests as order

    files = [
        "ir/graph/nodes.py",
        "tests/ir/trace/test_trace.py",
        "ir/trace/tracer.py",
        "tests/ir/graph/test_layout.py",
    ]
    found = order.importers(files)
    assert "ir/trace/tracer.py" in found["ir/graph/nodes.py"]
    assert "tests/ir/trace/test_trace.py" in found["ir/trace/tracer.py"]
