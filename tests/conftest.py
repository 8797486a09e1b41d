"""Settings for every test: checks on, two threads, one kernel store that all test processes share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# Before anything of graftjit reads its options. A developer's own setting wins.
os.environ.setdefault("GRAFTJIT_CHECK", "1")
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault(
    "GRAFTJIT_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"graftjit-tests-{os.getuid()}")
)

import pytest
import torch

torch.set_num_threads(2)


@pytest.fixture(autouse=True)
def _seeded():
    """Each test starts from the same random state and leaves torch's global settings as they were."""
    torch.manual_seed(0)
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    yield
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)


@pytest.fixture
def session():
    """A fresh session with the options of the test process."""
    from graftjit.runtime.session import Session

    return Session()
