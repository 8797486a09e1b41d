"""Makes the harness importable for the tests of codegen; an empty kernel store for those that ask."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """An empty store."""
    from graftjit.runtime.process.session import SESSION

    with SESSION.override(cache_dir=tmp_path):
        yield SESSION.store
