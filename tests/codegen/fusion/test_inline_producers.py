"""What was moved, cut or turned is computed by the kernel that reads it (`codegen.fusion.inline_producers`), with eager's values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ..harness import check, make
from ..symbolic import check_open

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
)  # fmt: skip


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(shape, generator=generator) * 20).to(dtype)


def windows(x: torch.Tensor, side: int) -> torch.Tensor:
    batch, h, w, c = x.shape
    x = x.view(batch, h // side, side, w // side, side, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, c)


def images(x: torch.Tensor, side: int, h: int, w: int) -> torch.Tensor:
    x = x.view(-1, h // side, w // side, side, side, x.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, h, w, x.shape[-1])


def used(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x != 0, x, 1)


SHIFTS = ((-4, -4), (3, 0), (0, 5), (-1, 9), (13, -40), (200, 7), (12, 8))


@pytest.mark.parametrize("shifts", SHIFTS, ids=str)
def test_shifted_windows_are_one_kernel(shifts: tuple[int, int]) -> None:
    for c in (3, 16, 21):
        x = numbers(2, 12, 8, c)
        check(lambda x: windows(torch.roll(x, shifts, (1, 2)), 4), x, kernels=1)
        check(lambda x: used(windows(torch.roll(x, shifts, (1, 2)), 2)), x, kernels=1)
        check(lambda x: windows(torch.roll(x * 3 + 1, shifts, (1, 2)), 4).exp(), x / 20, kernels=1)
        check(lambda x: used(windows(torch.roll(x, shifts, (3, 1)), 4)), x, kernels=1)
        check(lambda x: windows(torch.roll(x, shifts, (1, 2)), 4).sum(1), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_moves_behind_one_another(dtype: torch.dtype) -> None:
    x = numbers(3, 5, 12, 40, dtype=dtype)
    for fn in (
        lambda x: F.pad(torch.roll(x.flip(-1), (3, -5), (-2, -1)), (4, 4, 4, 4), value=1)[..., 2:-6, 6:-2].contiguous(),
        lambda x: used(torch.roll(F.pad(x, (3, 1, 2, 2)), (-7, 5), (2, 3))),
        lambda x: used(torch.roll(torch.roll(x, 3, -1), -50, -1)),
        lambda x: used(F.pad(torch.roll(x, 5, 2), (-3, 2, 4, -1)).transpose(1, 2)),
        lambda x: used(F.pad(x.flip(2), (0, 0, 3, 3)).reshape(3, 5, -1)[:, :, 5:99]),
        lambda x: used(F.pad(x.flip(-1), (3, 2))[..., 1:-1].flip(-1)),
        lambda x: used(torch.cat([x.flip(-1), torch.roll(x, 1, 3)], 2).permute(0, 2, 1, 3)),
        lambda x: used(torch.roll(windows(torch.roll(x, (1, 2), (1, 2))[:, :4], 2), (9, 3, 1), (0, 1, 2))),
        lambda x: torch.roll(images(x.reshape(-1, 4, 40), 2, 6, 10), (2, -3), (1, 2)),
    ):  # fmt: skip
        check(fn, x, library=None)
        check(fn, numbers(12, 40, 5, 3, dtype=dtype).permute(3, 2, 0, 1), library=None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flips_are_read_backwards(dtype: torch.dtype) -> None:
    for length in (1, 5, 16, 33, 70):
        x = numbers(3, length, dtype=dtype)
        check(lambda x: used(x.flip(1)), x)
        check(lambda x: used(x.flip(0, 1)), x)
        check(lambda x: used(F.pad(x.flip(1), (3, 40))), x, library=None)
        check(lambda x: used(F.pad(x.flip(1), (-1, 2))), F.pad(x, (2, 2)))
        check(lambda x: used(torch.roll(x.flip(1), 3, 1)), x)


CUTS: dict[str, Any] = {
    "heads": (lambda x: (x.sigmoid().view(2, 6, 3, 8).transpose(1, 2) * 2).contiguous(), (2, 6, 24), 1),
    "patches": (lambda x: (x / 255).view(2, 3, 4, 5, 2, 7).permute(0, 2, 4, 3, 5, 1).reshape(2, 8, 105), (2, 3, 20, 14), 1),
    "channels": (lambda x: (x * 2).view(2, 4, 3, 30).transpose(1, 2).reshape(2, 12, 30).relu(), (2, 12, 30), 1),
    "columns": (lambda x: (x.exp() + 1).t().contiguous() * 2, (40, 50), 1),
    "rows": (lambda x: x.tanh().view(6, 4, 10).sum(1), (24, 10), 1),
    "part": (lambda x: x.tanh().view(6, 4, 10)[:, 1].softmax(-1), (24, 10), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_work_before_a_view_that_cuts(name: str) -> None:
    fn, shape, kernels = CUTS[name]
    check(fn, numbers(*shape) / 20, kernels=kernels)
    check(fn, (numbers(*shape) / 20).bfloat16(), library=None)


def test_what_others_need_lies_in_memory() -> None:
    x = numbers(4, 6, 10) / 20
    check(lambda x: (x.exp(), windows(x.exp()[None], 2) + 1), x, kernels=2)
    twice = make(
        lambda x: windows((y := x.exp())[None], 2) + y.view(2, 2, 3, 2, 10)[0, 0, 0, 0, 0], x
    )
    assert len(twice.kernels) == 2
    check(lambda x: torch.roll(x, 1, 2) @ x.mT + torch.roll(x, 1, 2).sum(), x, library=None)
    check(lambda x: F.embedding(torch.arange(3), torch.roll(x[0], 2, 0)) * 2, x, library=None)
    check(
        lambda x: (torch.roll(x, 1, 1).view(8, 3, 10) * 2, torch.roll(x, 1, 1).view(2, 12, 10) + 1),
        x,
        library=None,
    )


def test_writes_in_between_are_kept_apart() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = torch.roll(x, 1, 0)
        x.add_(1)
        return windows(y, 2) * x.sum()

    made = make(fn, numbers(2, 4, 6, 5))
    x, theirs = numbers(2, 4, 6, 5), numbers(2, 4, 6, 5)
    torch.testing.assert_close(made.run(x)[0], fn(theirs))


def test_open_sizes() -> None:
    make = lambda n: (numbers(3, n, 8),)  # noqa: E731
    check_open(
        lambda x: (x.exp() + 1).view(3, -1, 2, 4).transpose(1, 2) * 2, make, ((1,),), (5, 9, 2)
    )
    check_open(lambda x: F.pad(x.flip(1), (1, 2)).transpose(1, 2) * 2, make, ((1,),), (5, 9, 40))
    check_open(
        lambda x: torch.roll(x, 3, 1).transpose(1, 2) * 2, make, ((1,),), (5, 9, 40), library=None
    )
