"""Tables and indices for gathers and scatters, and what bad indices raise."""

from __future__ import annotations

import torch

from graftjit.runtime.executor import lower as executor

from ..harness import check


def table(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(shape, generator=generator) * 20).to(dtype)


def index(high: int, *shape: int, low: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def outcome(run, *inputs):
    """What a call gives or raises."""
    try:
        return run(*inputs)
    except Exception as error:
        return type(error), str(error)


def fails_alike(fn, good, bad, kernels: int = 1) -> None:
    """Compiled for good inputs, given bad ones: eager's exception, natively and in the mirror."""
    made = check(fn, *good, kernels=kernels)
    expected = outcome(fn, *bad)
    assert isinstance(expected[0], type)
    assert outcome(made.run, *bad) == expected
    assert outcome(executor.PythonProgram(made.spec), *bad) == expected
    check(fn, *good)
