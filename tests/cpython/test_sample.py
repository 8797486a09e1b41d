"""A fixed part of CPython's own tests, plain and jitted; `python -m tests.cpython` runs all of them."""

from __future__ import annotations

import pytest

from . import running

# Modules that nothing differs in and that take seconds, over all that the long run covers.
SAMPLE = (
    "test_contains", "test_binop", "test_global", "test_opcodes", "test_raise", "test_dictcomps",
)  # fmt: skip


@pytest.mark.parametrize("module", SAMPLE)
def test_nothing_differs(module: str) -> None:
    passed, differences = running.compare(module)
    assert passed and not differences, "\n".join(f"{one}\n{one.text}" for one in differences)
