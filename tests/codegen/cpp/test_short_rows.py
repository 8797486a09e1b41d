"""Short rows are folded as many at a time as there are lanes, and what follows has a row in each (`codegen.cpp.turn`)."""

from __future__ import annotations

import pytest
import torch

import graftjit

from ..harness import check, make

SHAPES = ((16, 16), (48, 64), (37, 53), (130, 100), (17, 255), (200, 17), (1000, 32), (5, 40))


def distances(x, y):
    return (x[:, None, :] - y[None, :, :]).pow(2).sum(-1).sqrt()


def grouped(x):
    """Of rows of a length that is known, any number of them."""
    return x.view(-1, 20, 48).square().sum(-1).sqrt() + x.reshape(-1, 48).amax(-1).view(-1, 20)


def folds(x):
    return x.sum(-1), x.amax(-1), x.amin(-1), (x != 0).any(-1), (x > 0).all(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16,
                                   torch.int64, torch.int32, torch.int8], ids=str)  # fmt: skip
def test_folds(dtype: torch.dtype) -> None:
    for shape in SHAPES:
        check(folds, (torch.randn(shape) * 10).to(dtype))
    check(lambda x: (x.prod(-1), x.argmax(-1)), (torch.rand(50, 40) * 2).to(dtype))


def test_on_all_vector_sets(vector_set: str) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        check(folds, (torch.randn(45, 33) * 10).to(dtype))
    check(distances, torch.randn(30, 40), torch.randn(35, 40))


def test_nan_and_infinity_stay_in_their_rows() -> None:
    x = torch.randn(70, 40)
    x[3, 39], x[20, 0], x[33, 17], x[69, 5] = torch.nan, torch.inf, -torch.inf, torch.nan
    check(lambda x: (x.sum(-1), x.amax(-1), x.amin(-1), x.mean(-1)), x)


@pytest.mark.parametrize("sizes", [(40, 50, 64), (16, 16, 16), (7, 100, 33), (100, 3, 20)])
def test_all_pairs(sizes: tuple[int, int, int]) -> None:
    rows, others, columns = sizes
    x, y = torch.randn(rows, columns), torch.randn(others, columns)
    check(distances, x, y)
    check(lambda x, y: (x[:, None] - y).abs().amax(-1), x, y)
    check(lambda x, y: (x[:, None] - y).abs().sum(-1) * 2 + x[:, :1] - y[:, 1], x, y)
    check(lambda x, y, z: (x[:, None] * y + z).sum(-1), x, y, torch.randn(rows, others, columns))


def test_values_before_and_behind_the_fold() -> None:
    x, row, column = torch.randn(37, 50), torch.randn(37, 1), torch.randn(50)
    check(
        lambda x, r, c: ((x - r.exp()) * c).square().mean(-1) / (1 + r[:, 0] ** 2), x, row, column
    )
    check(lambda x, r: (x + r).sum(-1, keepdim=True) * r, x, row)
    check(lambda x: (x.sum(-1).to(torch.int64), x.abs().amax(-1) > 2), x)


def test_strided_operands() -> None:
    x = torch.randn(3, 40, 6, 70)
    check(lambda x: x[:, ::2, 1:, 5:].sum(-1), x)
    check(lambda x: x.permute(2, 0, 1, 3)[..., ::2].amax(-1), x)
    check(lambda x: x.flip(-1).mean(-1) + x[..., 0], x)
    check(lambda x: x.permute(0, 2, 1, 3).norm(dim=-1), x)


def test_errors_are_no_larger_than_twice_eagers() -> None:
    for columns in (20, 64, 250):
        x, y = torch.randn(100, columns), torch.randn(90, columns)
        exact = distances(x.double(), y.double())
        own, eager = make(distances, x, y).run(x, y)[0], distances(x, y)
        assert (own - exact).abs().max() <= 2 * (eager - exact).abs().max()


def test_sizes_that_change() -> None:
    fn = graftjit.jit(distances, dynamic=True)
    for rows, others in ((30, 40), (33, 17), (5, 100), (1, 2), (64, 64)):
        x, y = torch.randn(rows, 48), torch.randn(others, 48)
        torch.testing.assert_close(fn(x, y), distances(x, y))
    scores = graftjit.jit(grouped, dynamic=True)
    for rows in (30, 33, 5, 1, 64, 0):
        x = torch.randn(rows, 48 * 20)
        torch.testing.assert_close(scores(x), grouped(x))


def test_threads_share_them() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        check(distances, torch.randn(203, 64), torch.randn(119, 64))
        check(lambda x: x.sum(-1), torch.randn(5003, 64))
    finally:
        torch.set_num_threads(before)


def test_where_it_is_done() -> None:
    short, long = torch.randn(100, 64), torch.randn(100, 5000)
    assert "= fold_over(" in make(lambda x: x.sum(-1), short).source
    for fn, x in (
        (lambda x: x.sum(-1), long),
        (lambda x: x.argmax(-1), short),
        (lambda x: torch.softmax(x, -1), short),
        (lambda x: x.sum(-1), torch.randn(3, 64)),
    ):
        source = make(fn, x).source
        assert "= fold_over(" not in source
