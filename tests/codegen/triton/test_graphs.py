"""Kernels that fusion makes of real functions, rendered as Triton and run in its interpreter, against eager.

The loop IR has two readers: what `codegen.schedule.plan` plans for the CPU must be as right in Triton text.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch
import torch.nn.functional as F

from graftjit.codegen.programs.shadow import differs

from .made import evaluate

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


def inputs(*shapes, dtype=torch.float32):
    return [torch.randn(shape).to(dtype) for shape in shapes]


def integers(*shapes):
    return [torch.randint(-20, 20, shape) for shape in shapes]


CASES = {
    "pointwise chain": (lambda x, y: F.gelu(x + y) * torch.sigmoid(x), inputs((7, 13), (13,))),
    "several outputs": (lambda x: (x.sin(), x.cos() > 0, x.long() // 3), inputs((5, 9))),
    "transposed": (lambda x, y: x.t() * 2 + y, inputs((40, 33), (33, 40))),
    "views": (lambda x: (x[:, ::2] + x.t()[:6, :3].contiguous()).reshape(-1), inputs((6, 6))),
    "softmax": (lambda x: torch.softmax(x, -1), inputs((4, 50))),
    "softmax of columns": (lambda x: torch.softmax(x, 0), inputs((50, 4))),
    "log softmax": (lambda x: F.log_softmax(x * 2, -1), inputs((3, 30))),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (20,), w, b), inputs((6, 20), (20,), (20,))),
    "rms norm": (
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
        inputs((6, 20), (20,)),
    ),
    "sum and mean": (lambda x: (x.sum(), x.mean(0), x.amax((0, 2))), inputs((3, 4, 5))),
    "variance": (lambda x: (x.var(-1), x.std(0)), inputs((6, 11))),
    "positions": (lambda x: (x.argmax(-1), x.argmin(0)), inputs((6, 11))),
    "long rows": (lambda x: (x - x.mean(-1, keepdim=True)).square().sum(-1), inputs((2, 1300))),
    "bfloat16": (
        lambda x, y: F.silu(x) * y + x.softmax(-1),
        inputs((5, 12), (5, 12), dtype=torch.bfloat16),
    ),
    "float16": (lambda x: F.layer_norm(x, (12,)).relu(), inputs((5, 12), dtype=torch.float16)),
    "float64": (lambda x: torch.tanh(x).sum(-1), inputs((5, 12), dtype=torch.float64)),
    "integers": (
        lambda x, y: (x // 3, x % 7, (x * y).sum(-1), x.clamp(-2, 5) * 2),
        integers((4, 6), (4, 6)),
    ),
    "flags": (lambda x: ((x > 0).any(-1), (x > -3).all(0), ~(x > 0)), inputs((4, 6))),
    "where": (lambda x, y: torch.where(x > y, x, torch.nan_to_num(y / 0)), inputs((8,), (8,))),
    "attention scores": (
        lambda s, m: torch.softmax(s.masked_fill(m > 0, float("-inf")) / 8, -1),
        [*inputs((2, 3, 5, 5)), torch.ones(5, 5).triu(1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_planned_kernels(worker, name):
    fn, tensors = CASES[name]
    with torch.no_grad():
        wanted = fn(*tensors)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    plan, found = evaluate(worker, fn, tensors)
    assert plan.kernels and len(plan.kernels) == len(plan.steps), plan.steps
    for ours, eager in zip(found, wanted, strict=True):
        ours = ours.view(eager.shape) if ours.shape != eager.shape else ours
        problem = differs(ours, eager)
        assert not problem, f"{problem}\nours {ours}\neager {eager}"
