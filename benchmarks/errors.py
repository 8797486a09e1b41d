"""Errors against float64, and whether two systems give the same.

In: results of workloads (tensors in tuples, lists, dicts). Out: for each system the largest and the root-mean-square error, and
both in units of eager's. The reference is the workload itself in float64: the same seed, float inputs and the module's floats
converted after they were made, float64 as default dtype meanwhile.

One draw says little of a system: of dozens of outputs the worst is by chance twice as far off as eager's, and a net of many layers
doubles a rounding error at each. So `over` takes several draws: of each output the median over them, in units of eager's error of
the same draw, and then the worst output. A kernel that is worse than eager's is so in each draw.

The unit is eager's error of the same output, but at least half a unit in the last place of the largest value of that output (of its
root mean square for the second): where eager happens to be exact, an error that no rounding could avoid is not called infinite.
Outputs that are not floats have no error: `same` compares them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .steps import Step, outcome
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
    """Absolute errors of the worst output, and the worst of all outputs in units of eager's. Over several draws (`over`): the
    largest errors, and medians in units of eager's; `worst`: the worst output of any draw."""

    largest: float
    rms: float
    largest_of_eager: float | None = None
    rms_of_eager: float | None = None
    draws: int = 1
    worst: float | None = None


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
        return outcome(function, tuple(map(_to_double, inputs)))
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


@dataclass(frozen=True, slots=True)
class Draw:
    """Errors of one draw, by system: (largest, rms) of each float output, and the same in units of eager's."""

    absolute: dict[str, list[tuple[float, float]]]
    of_eager: dict[str, list[tuple[float, float]]]


def draw(results: dict[str, Any], exact: Any) -> Draw:
    """Without eager among the systems there are no units."""
    expected = list(leaves(exact))
    flat = {system: list(leaves(result)) for system, result in results.items()}
    floats = [i for i, value in enumerate(expected) if value.is_floating_point()]
    absolute = {
        system: [_of_one(own[i], expected[i]) for i in floats] for system, own in flat.items()
    }
    if "eager" not in flat:
        return Draw(absolute, {system: [] for system in flat})
    units = [
        _unit(error, expected[i], flat["eager"][i].dtype)
        for i, error in zip(floats, absolute["eager"], strict=True)
    ]
    of_eager = {
        system: [(_ratio(e[0], u[0]), _ratio(e[1], u[1])) for e, u in zip(own, units, strict=True)]
        for system, own in absolute.items()
    }
    return Draw(absolute, of_eager)


def over(draws: Sequence[Draw]) -> dict[str, Error]:
    """By system of the first draw, over the draws that have it. Without float outputs there is nothing."""
    found: dict[str, Error] = {}
    for system in draws[0].absolute:
        own = [one.absolute[system] for one in draws if system in one.absolute]
        if not own[0]:
            continue
        ratios = [one.of_eager[system] for one in draws if system in one.of_eager]
        medians = [
            [
                statistics.median(ratio[part] for ratio in output)
                for output in zip(*ratios, strict=True)
            ]
            for part in (0, 1)
        ]
        found[system] = Error(
            max(largest for errors in own for largest, _ in errors),
            max(rms for errors in own for _, rms in errors),
            max(medians[0], default=None),
            max(medians[1], default=None),
            len(own),
            max((value for ratio in ratios for pair in ratio for value in pair), default=None),
        )
    return found


def errors(results: dict[str, Any], exact: Any) -> dict[str, Error]:
    """Of one draw."""
    return over([draw(results, exact)])
