"""Losses as one kernel with their reduction: values, errors, layouts, what is not finite, open sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graftjit

from ..harness import check, make
from ..symbolic import check_open


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * 3).to(dtype)


X, Y = numbers(20, 30), numbers(20, 30, seed=2)
LOSSES = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth l1": F.smooth_l1_loss,
    "smooth l1, beta": lambda x, y, **k: F.smooth_l1_loss(x, y, beta=0.3, **k),
    "smooth l1 of 0": lambda x, y, **k: F.smooth_l1_loss(x, y, beta=0.0, **k),
    "huber": F.huber_loss,
    "huber, delta": lambda x, y, **k: F.huber_loss(x, y, delta=2.5, **k),
    "soft margin": lambda x, y, **k: F.soft_margin_loss(x, y.sign(), **k),
    "bce with logits": F.binary_cross_entropy_with_logits,
    "bce, weights": lambda x, y, **k: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), weight=y[:1].abs(), pos_weight=x[0].abs(), **k
    ),
    "kl": F.kl_div,
    "poisson": lambda x, y, **k: F.poisson_nll_loss(x, y.abs(), **k),
    "multilabel": lambda x, y, **k: F.multilabel_soft_margin_loss(x, y.sigmoid(), **k),
    "triplet": lambda x, y, **k: F.triplet_margin_loss(x, y, x.sin() + y, **k),
    "margin ranking": lambda x, y, **k: F.margin_ranking_loss(x, y, y.sign(), **k),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.filterwarnings("ignore")
def test_losses(name, reduction):
    fn = lambda x, y: LOSSES[name](x, y, reduction=reduction)  # noqa: E731
    for dtype in (torch.float32, torch.float64):
        check(fn, X.to(dtype), Y.to(dtype))
        check(fn, numbers(30, 20).t().to(dtype), Y.to(dtype), library=None)
    check(fn, X.bfloat16(), Y.bfloat16(), library=None)
    check(lambda x, y: fn(x * 2, y + 1) * 3, X, Y)
    if "weights" not in name:
        check(fn, X[:0], Y[:0], library=None)


def test_one_kernel():
    for name in ("mse", "smooth l1", "huber", "bce with logits"):
        check(lambda x, y, name=name: LOSSES[name](x * 2, y), X, Y, kernels=1)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16))
def test_log_sigmoid(dtype):
    x = numbers(7, 40, dtype=dtype)
    x.view(-1)[:6] = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), -100])
    check(F.logsigmoid, x)
    check(lambda x: F.logsigmoid(x * 2) + 1, x, kernels=1)
    both = make(lambda x: torch.ops.aten.log_sigmoid_forward(x), x)
    assert [str(op) for op in both.library] == ["aten.log_sigmoid_forward.default"]


def test_what_is_not_finite():
    x, y = X.clone(), Y.clone()
    x.view(-1)[:4] = torch.tensor([float("inf"), -float("inf"), float("nan"), 1e30])
    for name in ("mse", "smooth l1", "huber", "bce with logits", "soft margin"):
        check(lambda x, y, name=name: LOSSES[name](x, y, reduction="none"), x, y)


def test_errors_are_no_larger_than_twice_eagers():
    x, y = torch.randn(300, 700), torch.rand(300, 700)
    for name in ("mse", "smooth l1", "huber", "bce with logits", "soft margin"):
        fn = LOSSES[name]
        for reduction in ("mean", "none"):
            call = lambda x, y, fn=fn, r=reduction: fn(x, y, reduction=r)  # noqa: E731
            found, eager, exact = graftjit.jit(call)(x, y), call(x, y), call(x.double(), y.double())
            least = exact.abs().max() * 2**-23
            assert (found - exact).abs().max() <= 2 * max((eager - exact).abs().max(), least), name


def test_what_raises_stays_with_aten():
    made = make(F.binary_cross_entropy, X.sigmoid(), Y.sigmoid())
    assert [str(op) for op in made.library] == ["aten.binary_cross_entropy.default"]
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        graftjit.jit(F.binary_cross_entropy)(X, Y.sigmoid())


def test_open_sizes():
    for name in ("mse", "smooth l1", "huber", "soft margin"):
        fn = lambda x, y, name=name: LOSSES[name](x, y)  # noqa: E731
        make = lambda n: (numbers(n, 9), numbers(n, 9, seed=3))  # noqa: E731
        check_open(fn, make, ((0,), (0,)), (5, 2, 40), kernels=1)
