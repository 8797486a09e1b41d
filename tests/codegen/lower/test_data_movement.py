"""Operators that move elements, read by fused work: against eager over dtypes, strides and places."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit

from ..harness import check
from ..symbolic import check_open

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
)  # fmt: skip


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return (torch.randn(shape, generator=generator) * 20).to(dtype)


def used(x: torch.Tensor) -> torch.Tensor:
    """Something after the move, for it to be worth a kernel."""
    return torch.where(x != 0, x, 1)


MOVES = {
    "pad_last": lambda x: F.pad(x, (2, 3)),
    "pad_two": lambda x: F.pad(x, (1, 0, 2, 1), value=1),
    "pad_all": lambda x: F.pad(x, (1, 1, 0, 2, 3, 0)),
    "pad_wide": lambda x: F.pad(x, (40, 33)),
    "crop": lambda x: F.pad(x, (-2, -3)),
    "crop_and_pad": lambda x: F.pad(x, (-2, 3, 4, -1)),
    "pad_of_view": lambda x: F.pad(x.transpose(0, 2)[1:], (1, 2, 1, 0)),
    "cat_last": lambda x: torch.cat([x, x[..., 3:], x[..., :2]], -1),
    "cat_first": lambda x: torch.cat([x, x[:1]], 0),
    "cat_many": lambda x: torch.cat([x[:, i : i + 1] for i in range(5)], 1),
    "cat_empty": lambda x: torch.cat([x, x[:, :0], x], 1),
    "stack": lambda x: torch.stack([x, x.flip(0)], -1),
    "roll": lambda x: torch.roll(x, 3, -1),
    "roll_back": lambda x: torch.roll(x, -2, 1),
    "roll_two": lambda x: torch.roll(x, (5, 2), (0, 2)),
    "roll_flat": lambda x: torch.roll(x.flatten(), 7),
    "flip": lambda x: x.flip(-1),
    "flip_two": lambda x: x.flip(0, 2),
    "of_transposed": lambda x: torch.roll(x.transpose(0, 2), 2, 0),
    "stepped": lambda x: torch.cat([x, x], 2)[..., ::2],
    "zeros": lambda x: torch.cat([torch.zeros_like(x), x], -1),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_moves(name, dtype):
    fn, x = MOVES[name], numbers(4, 5, 37, dtype=dtype)
    check(lambda x: used(fn(x)), x, library=None)
    check(lambda x: fn(x), x, library=None)
    check(lambda x: used(fn(used(x))), x, library=None)
    if dtype in (torch.float32, torch.bfloat16):
        check(lambda x: fn(x).sum(-1), x, library=None)
        check(lambda x: fn(x).amax(0), x, library=None)
        check(lambda x: torch.softmax(fn(x) / 9, -1), x, library=None)
    check(lambda x: used(fn(x)), numbers(37, 4, 5, dtype=dtype).permute(1, 2, 0), library=None)


@pytest.mark.parametrize("mode", ("reflect", "replicate", "constant", "circular"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_padding_modes(mode, dtype):
    x = numbers(2, 3, 9, 21, dtype=dtype)
    check(lambda x: F.pad(x, (2, 3, 1, 4), mode=mode) + 1, x, library=None)
    check(lambda x: F.pad(x, (2, 0), mode=mode) + 1, x[0], library=None)


@pytest.mark.parametrize(
    "size", ({"scale_factor": 2}, {"scale_factor": 1.7}, {"size": 13}, {"size": 50})
)
def test_nearest_upsampling(size):
    check(lambda x: F.interpolate(x, **size) * 2, numbers(2, 3, 20), library=None)
    check(lambda x: F.interpolate(x, **size) * 2, numbers(2, 3, 20, 11), library=None)
    check(lambda x: F.interpolate(x, **size) * 2, numbers(1, 2, 5, 4, 3), library=None)
    square = numbers(2, 3, 20, 11).contiguous(memory_format=torch.channels_last)
    check(lambda x: F.interpolate(x, **size) * 2, square, library=None)


@pytest.mark.parametrize(
    "size", [{"scale_factor": 2.0}, {"scale_factor": 3}, {"size": (14, 33)}, {"size": (7, 55)}]
)
def test_larger_by_whole_numbers_is_a_kernel(size: dict[str, Any]) -> None:
    for x in (numbers(2, 3, 7, 11), numbers(2, 3, 11, 7).transpose(2, 3)):
        check(lambda x: F.interpolate(x, **size), x)
        check(lambda x: F.interpolate(x * 2, **size) + 1, x)
    check(lambda x: F.interpolate(x, **size), numbers(2, 3, 7, 11).bfloat16())


def test_sizes_whose_places_round_stay_eager_s() -> None:
    for side in range(1, 60):  # 1 / 3.0 and 1 / 7.0 are not exact: some places lie one lower
        x = torch.arange(float(side)).reshape(1, 1, side)
        for times in (3, 7):
            check(lambda x, n=times: F.interpolate(x, scale_factor=float(n)), x, library=None)
            check(lambda x, n=times: F.interpolate(x, size=n * x.shape[2]), x, library=None)


def test_what_moves_is_computed_where_it_is_read():
    x, y = numbers(6, 40), numbers(6, 24)
    check(lambda x: F.pad(x.relu(), (1, 1)) * 2, x, kernels=1)
    check(lambda x: torch.roll(x * 2 + 1, 1, 1) - 3, x, kernels=1)
    check(lambda x: (x + 1).flip(1) * 2, x, kernels=1)
    check(lambda x, y: torch.roll(x, 1, 1) + x * y.sum(), x, y, kernels=2)
    check(lambda x: (torch.roll(x.relu(), 1, 1) + x.relu(), x.relu()), x, library=None)
    check(lambda x: F.layer_norm(F.pad(x, (0, 24)), (64,)), x, kernels=1)


def rotary(q, cos, sin):
    half = q.shape[-1] // 2
    turned = torch.cat([-q[..., half:], q[..., :half]], -1)
    return q * cos + turned * sin


def test_rotary_is_one_kernel():
    check(rotary, numbers(2, 3, 16, 64), numbers(16, 64), numbers(16, 64), kernels=1)
    check(rotary, numbers(2, 3, 16, 20), numbers(16, 20), numbers(16, 20), kernels=1)
    made = check(
        rotary, *(numbers(*s, dtype=torch.bfloat16) for s in ((2, 16, 64), (16, 64), (16, 64)))
    )
    assert len(made.kernels) == 1


def test_alone_they_are_atens():
    for fn in (MOVES["pad_last"], MOVES["roll"], MOVES["flip"], MOVES["cat_last"]):
        assert len(check(fn, numbers(4, 5, 37), library=None, kernels=0).library) == 1


def test_open_sizes():
    make = lambda n: (numbers(n, 9), numbers(n, 4))  # noqa: E731
    sizes = (5, 9, 2)
    check_open(lambda x, y: torch.cat([x, y], 1) * 2, make, ((0,), (0,)), sizes)
    check_open(lambda x, y: torch.cat([x, y, x], 1).sum(1), make, ((0,), (0,)), sizes, kernels=1)
    wide = lambda n: (numbers(3, n), numbers(3, 2 * n))  # noqa: E731
    check_open(lambda x, y: torch.cat([x, y], 1) * 2, wide, ((1,), (1,)), (5, 40, 17))
    check_open(lambda x, y: F.pad(x, (1, 2)) * 2, wide, ((1,), (1,)), (5, 40, 17), kernels=1)
    check_open(
        lambda x, y: x.flip(1) * 2 + F.pad(y, (0, 1)).sum(),
        wide,
        ((1,), (1,)),
        (5, 40, 17),
        library=None,
    )


FOLDED = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "log_softmax of columns": lambda x: x.log_softmax(0),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "centred": lambda x: x - x.mean(-1, keepdim=True),
    "cumsum": lambda x: x.cumsum(-1),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
}  # fmt: skip
MOVED = {
    "roll": lambda x: x.roll(1, -1),
    "roll of both": lambda x: x.roll((1, 2), (0, 1)),
    "flip": lambda x: x.flip(-1),
    "pad": lambda x: F.pad(x, (1, 2)),
    "cat": lambda x: torch.cat([-x[..., 2:], x[..., :2]], -1),
    "slice": lambda x: x[:, 1:] * 2,
}  # fmt: skip


@pytest.mark.parametrize("moved", MOVED)
@pytest.mark.parametrize("folded", FOLDED)
def test_what_folds_rows_and_is_moved_along_them(folded: str, moved: str) -> None:
    """The whole row is folded, whichever part of it is read where."""
    fold, move = FOLDED[folded], MOVED[moved]
    x = torch.randn(5, 9)
    check(lambda x: (move(fold(x)), fold(x).exp().sum(-1)), x, library=None)
    check(lambda x: move(fold(x)) * 2, x, library=None)


@pytest.mark.parametrize("write", [torch.Tensor.clamp_max_, torch.Tensor.add_, torch.Tensor.copy_])
def test_writes_keep_the_strides_of_empty_tensors(write: Any) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        copy = x.clone()
        write(copy, y)
        return copy

    for shape, stride in (((0,), (2,)), ((1, 0, 3), (6, 6, 2)), ((4, 0), (1, 4))):
        given = [torch.empty(20).as_strided(shape, stride) for _ in range(2)]
        assert graftjit.jit(f)(*given).stride() == f(*given).stride()
