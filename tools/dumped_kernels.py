"""A pytest plugin that writes down what each test hands to the C++ compiler; for tools/compare_kernels.py.

PYTHONPATH=tools .venv/bin/pytest -p dumped_kernels --dump-kernels DIR tests/codegen
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--dump-kernels", metavar="DIR", required=True, help="where the texts go")


@pytest.fixture(autouse=True)
def _dumped_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of this test, in the order in which it asks for them, each once."""
    from graftjit.codegen.build import cxx as build

    load, folder = build.load, Path(request.config.getoption("--dump-kernels"))
    name = re.sub(r"[^\w.=-]+", "_", request.node.nodeid)[-200:]
    texts: list[str] = []

    def dumped(source: str, *rest: Any, **options: Any) -> Any:
        if source not in texts:
            texts.append(source)
            (folder / f"{name}.{len(texts)}.cpp").write_text(source)
        return load(source, *rest, **options)

    monkeypatch.setattr(build, "load", dumped)
