"""Whole programs on the fake devices, compiled beside plain Python: values, devices, effects, exceptions.

With kernels (a fake driver and compiler, Triton's interpreter) where `compiled` says so, as ATen steps elsewhere.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from .fake_programs import check, cuda

pytestmark = pytest.mark.usefixtures("fake_gpu")


def _pointwise(x, y):
    return (x * y + 1).relu() - x.exp().log1p(), (x > y).sum()


def _norms(x, weight):
    size = x.shape[-1:]
    return F.layer_norm(x, size, weight), F.rms_norm(x, size, weight), x.softmax(-1)


def _losses(x, targets):
    return F.cross_entropy(x, targets), F.mse_loss(x, x * 2), F.nll_loss(x.log_softmax(-1), targets)


def _gathers(x, rows):
    return x[rows], F.embedding(rows, x), x.gather(0, rows[:, None].expand(3, x.shape[1]))


def _scalar_of_the_cpu(x, scalar):
    return x * scalar + scalar, scalar.cuda() + x


def _writes(x, y):
    x.add_(y)
    x[0] = 3
    view = x[1:]
    view.mul_(2)
    return view, x.sum()


def _views(x):
    return x.t(), x.view(-1)[2:], x.unsqueeze(0).expand(2, *x.shape), x[::2]


def _indexes(x, at):
    y = x.clone()
    y[[1, 3]] = x[at] * 2
    return x[[2, 0, 0]] + 1, x[at, [1, 2]], y


def _numbers_written(x, number):
    y = x * 2
    y[0] = 3
    y[:, 1] = number
    x[1:] = 0.5
    return y + 1


def _copies(x, y):
    z = torch.empty(4)
    z.copy_(x)
    w = torch.empty(4, device="cuda:1", dtype=torch.float64)
    w.copy_(x + 1)
    x.copy_(y)
    y[:2].copy_(w[2:])
    return z + 1, w * 2


def _dropout(x):
    return F.dropout(x, 0.5, True) + 1, torch.rand_like(x), torch.randn(3, device=x.device)


def _moves(x):
    here = x.cpu() * 2
    there = here.to("cuda:1") + 1
    return there, here.cuda(), there.to(x.device), x.to(x.device), x.to("cuda")


def _factories(x):
    return (
        torch.zeros(3, device="cuda") + x.sum(), torch.arange(4, device=x.device), x.new_ones(2),
        torch.ones_like(x, device="cuda:1"), torch.tensor([1.0, 2.0], device=x.device) * x.mean(),
        torch.full((2,), 3.0, device=torch.device("cuda", 1)),
    )  # fmt: skip


def _asks(x):
    if x.is_cuda and x.device.type == "cuda" and x.device.index == 0:
        return x + (1 if x.device == torch.device("cuda:0") else 2), x.get_device()
    return x - 1, str(x.device)


PROGRAMS = {
    "pointwise": (_pointwise, lambda: (cuda(3, 5), cuda(5))),
    "norms": (_norms, lambda: (cuda(3, 8), cuda(8))),
    "losses": (_losses, lambda: (cuda(4, 6), torch.tensor([0, 5, 2, 3], device="cuda"))),
    "gathers": (_gathers, lambda: (cuda(4, 6), torch.tensor([3, 0, 3], device="cuda"))),
    "a scalar of the cpu": (_scalar_of_the_cpu, lambda: (cuda(3), torch.tensor(2.0))),
    "writes": (_writes, lambda: (cuda(4, 3), cuda(3))),
    "views": (_views, lambda: (cuda(4, 3),)),
    "indices of the processor": (_indexes, lambda: (cuda(4, 3), torch.tensor([2, 0]))),
    "numbers written": (_numbers_written, lambda: (cuda(4, 3), torch.tensor(2.5))),
    "copies between devices": (_copies, lambda: (cuda(4), torch.randn(4))),
    "dropout": (_dropout, lambda: (cuda(20),)),
    "dropout on another device": (_dropout, lambda: (cuda(20, index=1),)),
    "moves": (_moves, lambda: (cuda(4),)),
    "factories": (_factories, lambda: (cuda(4),)),
    "questions": (_asks, lambda: (cuda(4),)),
    "questions of another device": (_asks, lambda: (cuda(4, index=1),)),
    "one element and others": (
        lambda x, y: (torch.cat([x, y]) * 2, F.pad(x, (2, 3)) + 1), lambda: (cuda(1), cuda(3))
    ),
    "two devices": (lambda x, y: (x * 2, y.sum() + 1), lambda: (cuda(4), cuda(4, index=1))),
    "cpu and cuda": (lambda x, y: (x * 2 + 1, (y + 1) * 2), lambda: (cuda(4), torch.randn(4))),
    "bfloat16": (_norms, lambda: (cuda(3, 8, dtype=torch.bfloat16), cuda(8, dtype=torch.bfloat16))),
    "products": (lambda x, w, b: F.linear(x, w, b).relu(), lambda: (cuda(3, 4), cuda(5, 4), cuda(5))),
}  # fmt: skip


FREE = {"views", "gathers", "moves"}  # whether they have kernels is not what they are about


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_plain_python_gives(fake_gpu, name):
    fn, arguments = PROGRAMS[name]
    report = check(fn, arguments)
    assert name in FREE or fake_gpu.launches, str(report)


@pytest.mark.parametrize("name", ["pointwise", "norms", "gathers", "writes", "views"])
def test_a_program_of_any_size(fake_gpu, name):
    fn, arguments = PROGRAMS[name]
    report = check(fn, arguments, dynamic=True)
    assert name in FREE or fake_gpu.launches, str(report)
