"""The fake CUDA device for the tests of this folder that ask for it (`fake_cuda`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..fake_cuda import device


def pytest_collection_finish(session: pytest.Session) -> None:
    """Autograd counts devices once, before its first backward: they must be there by then."""
    if not device.why_not() and any(
        "fake_cuda" in getattr(item, "fixturenames", ()) for item in session.items
    ):
        device.prepare()


@pytest.fixture
def fake_cuda() -> Iterator[None]:
    """Two CUDA devices over host memory, `torch.cuda` with stand-ins."""
    if reason := device.why_not():
        pytest.skip(reason)
    with device.fake_cuda():
        yield
