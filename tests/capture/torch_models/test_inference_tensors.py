"""Writes to tensors that inference mode has made, outside of it: torch writes, and then raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graftjit

CONFIGS = [graftjit.JitConfig(jit_level=level) for level in ("O0", "O1")]


def _caught(a: Any, b: Any) -> Any:
    try:
        a.add_(1)
    except RuntimeError as error:
        return str(error)
    return b * 2


def _uncaught(a: Any, b: Any) -> Any:
    a.add_(1)
    b.add_(a)


def _detached(a: Any, b: Any) -> Any:
    a.detach().mul_(3)
    return a + b


def _view(a: Any, b: Any) -> Any:
    a[0].add_(b[1])
    a[1] = 7
    return a * 2


def _seen(f: Callable[..., Any], frozen: int, inside: bool) -> Any:
    with torch.inference_mode():
        args = [torch.ones(2), torch.ones(2)]
    if frozen < 2:
        args[1 - frozen] = torch.ones(2)
    with torch.inference_mode(inside):
        try:
            result = repr(f(*args))
        except RuntimeError as error:
            result = repr(error)
    return result, [one.tolist() for one in args]


@pytest.mark.parametrize("config", CONFIGS, ids=["O0", "O1"])
@pytest.mark.parametrize("f", [_caught, _uncaught, _detached, _view])
def test_a_write(f: Any, config: Any) -> None:
    jitted = graftjit.jit(f, config=config)
    jitted(torch.ones(2), torch.ones(2))
    for frozen in (0, 1, 2):
        for inside in (False, True, False):
            assert _seen(jitted, frozen, inside) == _seen(f, frozen, inside)
