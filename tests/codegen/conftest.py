"""An empty kernel store for the tests of codegen that ask for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """An empty store."""
    from graftjit.runtime.process.session import SESSION

    with SESSION.override(cache_dir=tmp_path):
        yield SESSION.store
