"""What the tests of whole programs on the fake devices share: run compiled beside plain Python, compare everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import graftjit


def same(found: Any, wanted: Any) -> None:
    """Equal values, and the same devices, strides and needs of gradients."""
    if isinstance(wanted, torch.Tensor):
        assert isinstance(found, torch.Tensor)
        assert found.device == wanted.device and found.stride() == wanted.stride()
        assert found.requires_grad == wanted.requires_grad
        torch.testing.assert_close(found, wanted, equal_nan=True)
    elif isinstance(wanted, (tuple, list)):
        assert type(found) is type(wanted) and len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            same(found[key], wanted[key])
    elif isinstance(wanted, torch.nn.Module):
        same(dict(found.state_dict()), dict(wanted.state_dict()))
        same([p.grad for p in found.parameters()], [p.grad for p in wanted.parameters()])
    else:
        assert found == wanted


def seeded(fn: Callable[..., Any], *args: Any) -> Any:
    """The call, from the same random state on all devices."""
    torch.manual_seed(5)
    torch.cuda.manual_seed_all(5)
    return fn(*args)


def check(
    fn: Callable[..., Any],
    make: Callable[[], tuple[Any, ...]],
    calls: int = 3,
    breaks: tuple[str, ...] = (),
    **options: Any,
) -> graftjit.Report:
    """`fn` compiled gives what it gives, also in what it writes to its arguments, which `make` makes."""
    compiled = graftjit.jit(fn, **options)
    for _ in range(calls):
        mine, plain = seeded(make), seeded(make)
        same(seeded(compiled, *mine), seeded(fn, *plain))
        same(mine, plain)
    report = graftjit.report(compiled)
    assert tuple(found.code for found in report.breaks) == breaks, str(report)
    assert report.recompile_count == 0, str(report)
    return report


def cuda(*sizes: int, index: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers on a fake device."""
    return torch.randn(*sizes, device=f"cuda:{index}").to(dtype)
