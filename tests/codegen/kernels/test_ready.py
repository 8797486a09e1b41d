"""Kernels that are compiled with the package: taken where they are of this very text, else built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import graftjit
from graftjit.codegen.build import cxx as build
from graftjit.codegen.build import flags
from graftjit.codegen.kernels import convolution, matmul_bf16
from graftjit.codegen.kernels import libraries as ready
from graftjit.codegen.kernels import registry as replaced
from graftjit.runtime.process import hardware as device
from graftjit.runtime.store.store import Library

HERE = [one for one in flags.READY if flags.ready_here() and one.needs <= device.cpu().features]
pytestmark = pytest.mark.skipif(
    not HERE, reason="no kernels are compiled with the package for this processor"
)
KERNELS = [
    one for one in replaced.KERNELS if HERE and one.FILE.partition(".")[0] in HERE[0].kernels
]
ONE = [pytest.param(one, id=one.FILE) for one in KERNELS]
x, w, b = torch.randn(64, 96), torch.randn(128, 96), torch.randn(128)


def text(one: replaced.Kernel) -> str:
    return ready.text_of(one.FILE)


@pytest.mark.parametrize("one", ONE)
def test_the_one_of_this_text_is_found(one: replaced.Kernel) -> None:
    found = ready.find(one.SYMBOL, text(one))
    assert found is not None, "build the extension: make, or python setup.py build_ext --inplace"
    assert found.addresses[one.SYMBOL]


@pytest.mark.parametrize("one", ONE)
def test_another_text_is_built(one: replaced.Kernel) -> None:
    assert ready.find(one.SYMBOL, text(one) + " ") is None
    assert ready.find("another_f32", text(one)) is None


def test_a_processor_that_lacks_something_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    here = device.cpu()

    def without(feature: str) -> Library | None:
        less = replace(here, features=here.features - {feature})
        monkeypatch.setattr(device, "cpu", lambda: less)
        return ready.find(convolution.SYMBOL, text(convolution))

    narrow = without("avx512vl")
    assert narrow is not None and narrow.path.name.startswith("_ready_avx2")
    assert ready.find(matmul_bf16.SYMBOL, text(matmul_bf16)) is None
    assert without("fma") is None


def test_nothing_is_compiled_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_given: object, **_more: object) -> None:
        raise AssertionError("a compiler was asked for")

    monkeypatch.setattr(build, "load", compiled)
    assert set(replaced.load(KERNELS).addresses) == {one.SYMBOL for one in KERNELS}


def made(find: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    monkeypatch.setattr(ready, "find", find)
    graftjit.reset()
    return graftjit.jit(lambda x, w, b: torch.nn.functional.linear(x, w, b))(x, w, b)


@pytest.mark.skipif(not device.slow_mkl(), reason="products are the library's here")
def test_the_built_one_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    own = made(ready.find, monkeypatch)
    assert torch.equal(own, made(lambda *_: None, monkeypatch))
    assert (own - (x.double() @ w.double().t() + b).float()).abs().max() < 1e-4
