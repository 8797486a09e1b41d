"""`.grad` as autograd and the program store it: `grad_dtype`, and stores that torch refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graftjit

CONFIGS = [graftjit.JitConfig(jit_level=level) for level in ("O0", "O1")]
DTYPES = [torch.float32, torch.float64, None]


def _leaf(grad_dtype: Any) -> torch.nn.Parameter:
    leaf = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    leaf.grad_dtype = grad_dtype
    return leaf


def _backward(leaf: Any, x: Any) -> Any:
    (leaf * x).sum().backward()
    return leaf.grad


def _asked(leaf: Any, x: Any) -> Any:
    return torch.autograd.grad((leaf * x).sum(), leaf)


def _step(leaf: Any, x: Any) -> Any:
    optimizer = torch.optim.SGD([leaf], lr=0.1)
    (leaf * x).sum().backward()
    optimizer.step()
    return leaf.detach().clone()


def _store(leaf: Any, x: Any) -> Any:
    leaf.grad = x * 2
    return leaf * 2


def _seen(f: Callable[..., Any], leaf: Any, x: Any) -> Any:
    found = []
    for _ in range(2):
        try:
            result = repr(f(leaf, x))
        except Exception as error:
            result = repr(error)
        found.append((result, repr(leaf.grad)))
    return found


@pytest.mark.parametrize("config", CONFIGS, ids=["O0", "O1"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("f", [_backward, _asked, _step, _store])
def test_another_dtype_for_the_gradient(f: Any, dtype: Any, config: Any) -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    jitted = graftjit.jit(f, config=config)
    if f is not _store:  # an entry of a leaf without one must not answer
        jitted(_leaf(torch.bfloat16), x)
    assert _seen(jitted, _leaf(dtype), x) == _seen(f, _leaf(dtype), x)


@pytest.mark.parametrize("config", CONFIGS, ids=["O0", "O1"])
def test_a_tensor_as_its_own_gradient(config: Any) -> None:
    def made() -> Any:
        leaf = torch.nn.Parameter(torch.ones(2))
        log = []
        try:
            leaf.grad = leaf
        except RuntimeError as error:
            log.append(str(error))
        return log, leaf.grad

    def given(leaf: Any) -> Any:
        log = ["begun"]
        try:
            leaf.grad = leaf
        except RuntimeError as error:
            log.append(str(error))
        return log, leaf.grad

    for _ in range(2):
        assert graftjit.jit(made, config=config)() == made()
        leaf = torch.nn.Parameter(torch.ones(2))
        assert graftjit.jit(given, config=config)(leaf) == given(leaf)
