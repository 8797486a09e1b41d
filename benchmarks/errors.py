"""Errors against float64, and whether two systems give the same.

In: results of workloads (tensors in tuples, lists, dicts). Out: for each system the largest and the root-mean-square error, and
both in units of eager's. The reference is the workload itself in float64: the same seed, float inputs and the module's floats
converted after they were made, float64 as default dtype meanwhile.

The unit is eager's error of the same output, but at least half a unit in the last place of the largest value of that output (of its
root mean square for the second): where eager happens to be exact, an error that no rounding could avoid is not called infinite.
Outputs that are not floats have no error: `same` compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .steps import Step
from .workloads import Workload

# Relative and absolute tolerance beside eager, by dtype: differences of another order of summation, no more.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1e-4, 1e-4),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
}


@dataclass(frozen=True, slots=True)
class Error:
    """Absolute errors of the worst output, and the worst of all outputs in units of eager's."""

    largest: float
    rms: float
    largest_of_eager: float | None = None
    rms_of_eager: float | None = None


def leaves(result: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result, in order."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, dict):
        for value in result.values():
            yield from leaves(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from leaves(value)


def same(found: Any, expected: Any) -> None:
    """AssertionError unless it is the same up to `TOLERANCES`, dtypes and strides included."""
    ours, theirs = list(leaves(found)), list(leaves(expected))
    assert len(ours) == len(theirs), f"{len(ours)} tensors, {len(theirs)} expected"
    for own, other in zip(ours, theirs, strict=True):
        rtol, atol = TOLERANCES.get(other.dtype, (0.0, 0.0))
        torch.testing.assert_close(own, other, rtol=rtol, atol=atol)


def _to_double(value: Any) -> Any:
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if floating else value


def reference(workload: Workload, seed: int) -> Any:
    """What the workload gives in float64."""
    torch.manual_seed(seed)
    function, inputs = workload.make()
    if isinstance(function, (torch.nn.Module, Step)):
        function = function.double()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return function(*map(_to_double, inputs))
    finally:
        torch.set_default_dtype(before)


def _rms(values: torch.Tensor) -> float:
    return math.sqrt(values.square().mean().item()) if values.numel() else 0.0


def _of_one(found: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    exact = exact.to(torch.float64)
    # Equal infinities have no distance; a nan where there is none has an infinite one.
    distance = torch.where(found == exact, 0.0, (found.to(torch.float64) - exact).abs())
    distance = torch.where(found.isnan() & exact.isnan(), 0.0, distance).nan_to_num(math.inf)
    return distance.max().item() if distance.numel() else 0.0, _rms(distance)


def _unit(
    eager: tuple[float, float], exact: torch.Tensor, dtype: torch.dtype
) -> tuple[float, float]:
    finite = exact[exact.isfinite()].to(torch.float64)
    half = torch.finfo(dtype).eps / 2
    largest = finite.abs().max().item() if finite.numel() else 0.0
    return max(eager[0], half * largest), max(eager[1], half * _rms(finite))


def _ratio(value: float, unit: float) -> float:
    return value / unit if unit else (math.inf if value else 0.0)


def errors(results: dict[str, Any], exact: Any) -> dict[str, Error]:
    """By system. Without eager among the systems there are no units; without float outputs there is nothing."""
    expected = list(leaves(exact))
    found: dict[str, Error] = {}
    flat = {system: list(leaves(result)) for system, result in results.items()}
    floats = [i for i, value in enumerate(expected) if value.is_floating_point()]
    if not floats:
        return found
    for system, own in flat.items():
        each = {i: _of_one(own[i], expected[i]) for i in floats}
        units = {i: _unit(_of_one(flat["eager"][i], expected[i]), expected[i], flat["eager"][i].dtype)
                 for i in floats} if "eager" in flat else {}  # fmt: skip
        ratios = [(_ratio(each[i][0], u[0]), _ratio(each[i][1], u[1])) for i, u in units.items()]
        found[system] = Error(
            max(value[0] for value in each.values()),
            max(value[1] for value in each.values()),
            max((r[0] for r in ratios), default=None),
            max((r[1] for r in ratios), default=None),
        )
    return found
