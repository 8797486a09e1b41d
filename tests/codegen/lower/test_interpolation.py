"""Interpolation as kernels: places to the bit of eager's, errors against float64 no larger, layouts, special values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from graftjit import jit
from graftjit.codegen.programs.shadow import differs
from graftjit.ir.trace.substitutes import AS_PLAIN

from ..harness import check, make
from ..symbolic import check_open

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# (mode, dimensions)
NEAREST = [(mode, rank) for mode in ("nearest", "nearest-exact") for rank in (1, 2, 3)]
MIXED = [("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)]
# what is asked for, of each dimension
SIZES: dict[str, dict[str, Any]] = {
    "twice": {"scale_factor": 2.0},
    "up": {"scale_factor": 1.7},
    "about twice": {"scale_factor": 2.05},  # as many as twice for some sizes, at other places
    "down": {"scale_factor": 0.37},
    "as it is": {"scale_factor": 1.0},
    "nearly": {"scale_factor": 1.03},
    "recomputed": {"scale_factor": 1.7, "recompute_scale_factor": True},
    "size": {"size": 19},
    "one": {"size": 1},
    "large": {"size": 150},
}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else
    x.contiguous(memory_format=torch.channels_last_3d) if x.dim() == 5 else x.mT.contiguous().mT,
    "cut": lambda x: torch.cat([x, x], -1)[..., 1 : 1 + x.shape[-1]],
    "turned": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
}  # fmt: skip


def some(rank: int, channels: int = 5, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank + channels)
    sides = {1: (33,), 2: (10, 33), 3: (4, 7, 10)}[rank]
    return torch.randn(2, channels, *sides, generator=generator, dtype=torch.float64).to(dtype)


def interpolation(mode: str, how: dict[str, Any], aligned: bool | None = None) -> Any:
    return lambda x: F.interpolate(x, mode=mode, align_corners=aligned, **how)


def every(mode: str, rank: int, corners: tuple[bool | None, ...]) -> Callable[..., Any]:
    """All sizes in one graph."""
    sizes = {**SIZES, "large": {"size": (3, 9, 50)}} if rank == 3 else SIZES
    fns = [
        interpolation(mode, how, aligned)
        for aligned in corners
        for how in sizes.values()
        if not (aligned and "recompute_scale_factor" in how)
    ]
    return lambda x: tuple(fn(x) for fn in fns)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode, rank", NEAREST)
def test_the_same_neighbours(mode: str, rank: int, layout: str, dtype: torch.dtype) -> None:
    if dtype != torch.float32 and (rank != 2 or layout in ("cut", "turned")):
        return  # places are those of float32, but for doubles: of two dimensions they are looked at
    fn, x = every(mode, rank, (None,)), LAYOUTS[layout](some(rank, dtype=dtype))
    found = make(lambda x: [one * 1 for one in fn(x)], x)
    assert not found.library
    for ours, theirs in zip(found.run(x), fn(x), strict=True):
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "cut"])
@pytest.mark.parametrize("mode, rank", MIXED)
def test_errors_are_eagers(mode: str, rank: int, layout: str, dtype: torch.dtype) -> None:
    if layout == "cut" and dtype != torch.float32:
        return
    fn, x = every(mode, rank, (False, True)), LAYOUTS[layout](some(rank, dtype=dtype))
    found = make(fn, x)
    assert not found.library
    for ours, theirs, exact in zip(found.run(x), fn(x), fn(x.double()), strict=True):
        assert ours.stride() == theirs.stride() and ours.dtype == theirs.dtype
        error, bound = (ours - exact).abs().max(), (theirs - exact).abs().max()
        least = torch.finfo(dtype).eps * exact.abs().max()
        # eager in float64 is its own reference: both are a few roundings from the exact one
        assert error <= max(2 * bound, (8 if dtype == torch.float64 else 1) * least)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_eagers_to_the_bit(dtype: torch.dtype) -> None:
    fn, x = every("linear", 1, (False, True)), some(1, dtype=dtype)
    for ours, theirs in zip(make(fn, x).run(x), fn(x), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("side", [1, 2, 15, 17, 33, 200])
def test_all_sides_of_a_row(side: int, dtype: torch.dtype) -> None:
    """Places far apart and near, rows of fewer and more elements than there are lanes."""
    x = torch.randn(3, 2, side).to(dtype)
    fns = [
        interpolation(mode, {"size": out})
        for mode in ("nearest", "linear")
        for out in (1, 3, 8, 15, 16, 17, 33, 40, 65)
    ]
    found = make(lambda x: [fn(x) for fn in fns], x)
    for ours, fn in zip(found.run(x), fns, strict=True):
        assert not differs(ours, fn(x))


@pytest.mark.parametrize("mode, rank", MIXED)
def test_special_values(mode: str, rank: int) -> None:
    few = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, 3e38])
    generator = torch.Generator().manual_seed(3)
    for sizes in ({"scale_factor": 2.0}, {"size": 7}):
        x = some(rank)
        x = torch.where(torch.rand(x.shape, generator=generator) < 0.7, x,
                        few[torch.randint(0, 7, x.shape, generator=generator)])  # fmt: skip
        for ordered in (x, LAYOUTS["channels_last"](x)):
            fn = interpolation(mode, sizes)
            ours, theirs = make(fn, ordered).run(ordered)[0], fn(ordered)
            assert torch.equal(ours.isnan(), theirs.isnan())
            assert torch.equal(ours.isinf(), theirs.isinf())


def test_neighbours_are_one_kernel() -> None:
    x, y = some(2), torch.randn(2, 5, 20, 66)
    check(lambda x, y: F.interpolate(x, scale_factor=2.0, mode="bilinear") * y + 1, x, y, kernels=1)
    check(lambda x, y: F.interpolate(x, size=(20, 66), mode="bicubic").relu() + y, x, y, kernels=1)
    check(lambda x: F.interpolate(x, size=(5, 8), mode="bilinear").sum(-1), x, kernels=1)
    check(lambda x: F.interpolate(x[:, 1:3].mT, scale_factor=3.0, mode="bilinear"), x, kernels=1)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("channels", [3, 6])
def test_images_of_bytes(mode: str, channels: int) -> None:
    generator = torch.Generator().manual_seed(channels)
    x = torch.randint(0, 256, (2, channels, 21, 30), dtype=torch.uint8, generator=generator)
    sizes = ({"size": (13, 50)}, {"scale_factor": 2.0}, {"scale_factor": 2.03})
    fns = [interpolation(mode, how) for how in sizes]
    for image in (x, x.contiguous(memory_format=torch.channels_last)):
        found = make(lambda x: [*(fn(x) for fn in fns), *(fn(x) ^ 1 for fn in fns)], image)
        expected = [*(fn(image) for fn in fns), *(fn(image) ^ 1 for fn in fns)]
        for ours, theirs in zip(found.run(image), expected, strict=True):
            assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()


def opened(mode: str, how: dict[str, Any]) -> Any:
    """As a call is traced."""
    return lambda x: AS_PLAIN[F.interpolate](x, mode=mode, **how)


def test_open_sizes() -> None:
    def batches(size: int) -> list[torch.Tensor]:
        return [torch.randn(size, 6, 12, 15)]

    def images(size: int) -> list[torch.Tensor]:
        return [torch.randn(2, 3, size, 2 * size + 1)]

    sizes = (6, 9, 21, 40)
    for mode in ("bilinear", "bicubic"):
        for how in ({"scale_factor": 2.0}, {"size": (31, 32)}):
            check_open(opened(mode, how), batches, ((0,),), sizes, kernels=1)
    check_open(opened("nearest", {"size": (31, 32)}), batches, ((0,),), sizes, library=None)
    check_open(opened("bilinear", {"size": (31, 32)}), images, ((2, 3),), sizes, library=None)


@pytest.mark.parametrize("mode, rank", MIXED + NEAREST)
def test_gradients(mode: str, rank: int) -> None:
    x, y = some(rank).requires_grad_(), some(rank).requires_grad_()
    fn = interpolation(mode, {"scale_factor": 1.7})
    fn(torch.tanh(x)).square().sum().backward()
    jit(lambda y: fn(torch.tanh(y)).square())(y).sum().backward()
    torch.testing.assert_close(y.grad, x.grad)
