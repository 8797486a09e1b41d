"""What holds for all tests: checks on, a kernel store of the checkout, fixed seeds, a clean context."""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tiers
from tests.streams import OwnStream

# Before anything of graftjit is imported. `make test` says the same.
os.environ.setdefault("GRAFTJIT_CHECK", "1")
# Tests count calls and entries, which must not depend on times, also where they switch checks off.
os.environ.setdefault("GRAFTJIT_TRIALS", "0")
os.environ.setdefault(
    "GRAFTJIT_CACHE_DIR", str(Path(__file__).resolve().parent.parent / ".kernels")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the files under tests/golden anew"
    )
    tiers.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    tiers.configure(config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return tiers.ignore(collection_path, config) if collection_path.is_file() else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.select(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    tiers.skip_when_time_is_over(item)


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Most tests print where they need a break."""
    shown = sys.stdout
    own = sys.stdout = OwnStream(shown)
    yield
    if sys.stdout is own:
        sys.stdout = shown


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tiers.summarise(terminalreporter)


@pytest.fixture(scope="module")
def our_products() -> Iterator[None]:
    """Matrix products are kernels of ours, as on the machine that wrote the documents: on Intel's they are MKL's."""
    from graftjit.runtime.process import hardware as device

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "slow_mkl", lambda: device.cpu().isa in device.VECTORS)
        yield


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written rather than compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[str, str], None]:
    """`golden(name, text)`: tests/golden/NAME holds this text; `--update-golden` writes it instead."""

    def hold(name: str, text: str) -> None:
        file = Path(__file__).parent / "golden" / name
        if update_golden:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        wanted = file.read_text(encoding="utf-8") if file.exists() else ""
        assert text == wanted, f"{name} differs; pytest --update-golden writes it anew"

    return hold


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """`bench("name")`: a module of the benchmarks, which are no part of the package; forgotten after the test."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parent.parent))
    yield lambda name: importlib.import_module(f"benchmarks.{name}")
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _same_start() -> Iterator[None]:
    import numpy as np
    import torch

    from graftjit.context import reset_context
    from graftjit.dispatch.shared_entries import SHARED

    SHARED.forget()  # a function that several tests compile begins anew
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(2)
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    made, restored = torch.nn.Module.__init__, torch.nn.Module.__setstate__
    reset_context()
    yield
    reset_context()
    # torch.compile replaces them, by functions that call id(): a break where a frame makes modules.
    torch.nn.Module.__init__, torch.nn.Module.__setstate__ = made, restored  # type: ignore[method-assign]
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)
