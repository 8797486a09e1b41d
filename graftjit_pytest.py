"""The plugin for pytest: the fixture `graft_report`, and the marker `graft_clean` that keeps tests free of breaks.

pytest loads it by its entry point where graftjit is installed. It stands beside the package, not in it, for then it
imports nothing but pytest: neither graftjit nor torch is imported before a test asks for them. `graftjit.monitor` does
the work. docs/ci.md tells how it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

MARKER = (
    "graft_clean(max_breaks=0, max_recompiles=1, allow=()): what graftjit does during the test stays within these limits;"
    " allow: codes that do not count"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def graft_report() -> Iterator[Callable[[], Any]]:
    """A function that gives the graftjit.Report of what has been compiled since the test began."""
    from graftjit.monitor import watching

    with watching() as watch:
        yield watch.report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run the test; where it is marked, fail it if what was compiled is not clean."""
    marker = item.get_closest_marker("graft_clean")
    if marker is None:
        return (yield)
    from graftjit.monitor import limits_of, watching

    wrong = ""
    try:
        limits = limits_of(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        wrong = f"graft_clean: {error}".replace("limits_of() ", "")
    if wrong:
        pytest.fail(wrong, pytrace=False)
    with watching() as watch:
        result = yield
        found = watch.unclean(item.name, limits)
    if found:
        pytest.fail(found, pytrace=False)
    return result
