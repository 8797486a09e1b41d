"""Programs that look at autograd, or use it in its less common ways, jitted and as they are: what they see, in which order, and what
they raise, in the same words."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import graftjit

from .programs import functions, refusals, watchers

PROGRAMS = {
    **watchers.program,
    **functions.program,
    **refusals.program,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_plain_python(name: str) -> None:
    expected = seen(PROGRAMS[name], lambda function: function)
    found = seen(PROGRAMS[name], graftjit.jit)
    same(found, expected)


def seen(program: Any, jit: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return program(jit)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def same(found: Any, expected: Any) -> None:
    assert "NameError" not in str(expected)
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert found.requires_grad == expected.requires_grad
        assert found.is_leaf == expected.is_leaf
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), (found, expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    else:
        assert found == expected
