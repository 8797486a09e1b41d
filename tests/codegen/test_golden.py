"""The C++ text of kernels that fusion makes of thirty graphs, for vectors of 32 bytes: a change of any is to be seen.

Each file under tests/golden holds the program's steps in order and its kernels. `pytest --update-golden` writes them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from graftjit.codegen.cpp import renderer as cpp
from graftjit.codegen.kernels import matmul_bf16 as products_bf16
from graftjit.codegen.loops.kernel import Kernel
from graftjit.codegen.programs.compiled import record
from graftjit.codegen.schedule import plan as schedule
from graftjit.ir.passes.pipeline import optimize

from .harness import trace

GOLDEN = Path(__file__).parents[1] / "golden"
VECTOR_BYTES = 32


def f32(*shape):
    return torch.zeros(shape)


def bf16(*shape):
    return torch.zeros(shape, dtype=torch.bfloat16)


def i64(*shape):
    return torch.zeros(shape, dtype=torch.int64)


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def rotary(q, cos, sin):
    half = q.shape[-1] // 2
    turned = torch.cat([-q[..., half:], q[..., :half]], -1)
    return q * cos + turned * sin


def layer_block(x, r, w, b):
    y = F.layer_norm(x + r, (x.shape[-1],), w, b)
    return F.gelu(y), x + r


def attention(q, k, v):
    scores = q @ k.transpose(-1, -2) * 0.125
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return F.softmax(scores.masked_fill(~causal, float("-inf")), -1) @ v


def narrow(x, w, b, scale, v):
    return F.linear(F.gelu(F.layer_norm(F.linear(x, w, b), (2,), scale)), v)


def cross_entropy(x, target):
    return F.cross_entropy(x, target)


GRAPHS = {
    "sin_add": (lambda x, y: torch.sin(x) + y * 2, f32(1000), f32(1000)),
    "gelu_tanh_sigmoid": (lambda x: F.gelu(x) * torch.tanh(x) + torch.sigmoid(x), f32(64, 1000)),
    "bias_gelu": (lambda x, b: F.gelu(x + b), f32(32, 100), f32(100)),
    "swiglu": (lambda g, u: F.silu(g) * u, f32(8, 333), f32(8, 333)),
    "bf16_chain": (lambda x, y: F.relu(x * y + 1) * 0.5 - y, bf16(513), bf16(513)),
    "mixed_dtypes": (lambda x, y: (x + y).to(torch.float64) * 3, f32(40), bf16(40)),
    "int_where_mod": (lambda x: torch.where(x % 3 == 0, x // 2, -x), i64(1000)),
    "comparisons": (lambda x, y: ((x > y) & (x != 0)).logical_not(), f32(77), f32(77)),
    "casts": (lambda x: (x.int(), x.bool(), x.half()), f32(50)),
    "clamp_and_rounding": (lambda x: x.clamp(-1, 1).floor() + x.round(), f32(90)),
    "broadcast_difference": (lambda x, y: (x[:, None] - y[None]).abs(), f32(30, 8), f32(20, 8)),
    "transpose_add": (lambda x, y: x.t() + y, f32(120, 130), f32(130, 120)),
    "strided_views": (lambda x: x[::2, 1:] * 2 + x[1::2, :-1], f32(20, 31)),
    "linear_one_row": (
        lambda x, w, b: F.relu(F.linear(x, w, b)),
        f32(1, 200),
        f32(30, 200),
        f32(30),
    ),
    "linear_four_rows": (lambda x, w: F.linear(x, w) * 2, bf16(4, 200), bf16(30, 200)),
    "narrow_layers": (narrow, f32(50, 3), f32(2, 3), f32(2), f32(2), f32(3, 2)),
    "several_outputs": (lambda x: (x.exp(), x.exp() + 1, x * x), f32(6, 50)),
    "sum_all": (lambda x: (x * x).sum(), f32(100, 100)),
    "sum_rows": (lambda x: x.abs().sum(-1), f32(60, 70)),
    "column_statistics": (lambda x: (x.mean(0), x.amax(0)), f32(300, 40)),
    "variance": (lambda x: x.var(-1), f32(20, 200)),
    "arg_reductions": (lambda x: (x.argmax(-1), x.argmin(0)), f32(20, 64)),
    "any_all": (lambda x: ((x > 0).any(-1), (x > 0).all(-1)), f32(20, 64)),
    "softmax": (lambda x: torch.softmax(x, -1), f32(64, 1000)),
    "softmax_long_rows": (lambda x: torch.softmax(x, -1), f32(2, 200000)),
    "log_softmax_bf16": (lambda x: F.log_softmax(x, -1), bf16(16, 300)),
    "masked_softmax": (
        lambda x, m: torch.softmax(x.masked_fill(m, float("-inf")), -1),
        f32(4, 16, 48),
        torch.zeros(16, 48, dtype=torch.bool),
    ),
    "logsumexp": (lambda x: torch.logsumexp(x * 2, -1), f32(16, 90)),
    "layer_norm_gelu": (layer_block, f32(16, 256), f32(16, 256), f32(256), f32(256)),
    "rms_norm": (rms_norm, f32(16, 512), f32(512)),
    "group_norm": (lambda x, w: F.group_norm(x, 4, w) * 2, f32(2, 8, 6, 6), f32(8)),
    "batch_norm_relu": (
        lambda x, m, v: F.relu(F.batch_norm(x, m, v)),
        f32(2, 8, 5, 5),
        f32(8),
        f32(8) + 1,
    ),
    "rotary": (rotary, f32(2, 4, 16, 32), f32(16, 32), f32(16, 32)),
    "attention": (attention, f32(2, 16, 8), f32(2, 16, 8), f32(2, 16, 8)),
    "mlp": (
        lambda x, w, v: F.linear(F.relu(F.linear(x, w)), v),
        f32(4, 16),
        f32(32, 16),
        f32(8, 32),
    ),
    "cross_entropy": (cross_entropy, f32(32, 100), i64(32)),
    "embedding_positions": (
        lambda t, w, p: F.embedding(t, w) + p,
        i64(4, 16),
        f32(50, 24),
        f32(16, 24),
    ),
    "cat_cumsum": (lambda x, y: torch.cat([x, y], -1).cumsum(-1) * 2, f32(6, 20), f32(6, 12)),
    "cummax_columns": (lambda x: tuple(torch.cummax(x * 2, 0)), f32(40, 48)),
    "embedding_layer_norm": (
        lambda t, w, p, g: F.layer_norm(F.embedding(t, w) + p, (24,), g),
        i64(4, 16),
        f32(50, 24),
        f32(16, 24),
        f32(24),
    ),
    "gather_rows": (lambda x, i: torch.gather(x, 1, i) * 2, f32(30, 40), i64(30, 40)),
    "roll_difference": (lambda x: torch.roll(x, 1, 1) - x, f32(30, 40)),
    "pad_relu": (lambda x: F.pad(x.relu(), (1, 1, 1, 1)) * 2, f32(2, 3, 20, 30)),
    "arange_mask": (lambda x: x * (torch.arange(64) < 17), f32(9, 64)),
}


def text_of(name: str) -> str:
    fn, *given = GRAPHS[name]
    plan = schedule.plan(optimize(trace(fn, *given), check=True))
    steps = [
        step.nest.name if isinstance(step, Kernel) else str(step.target) for step in plan.steps
    ]
    lines = [f"// {number}. {step}" for number, step in enumerate(steps, 1)]
    texts: dict[str, str] = {}
    cpp.render([kernel.nest for kernel in plan.kernels], VECTOR_BYTES, texts=texts)
    kernels = [
        record(k.nest.name, texts[k.nest.name], k.nest.covers, k.bytes, cached=False).source
        for k in plan.kernels
    ]
    return "\n".join([*lines, "", *kernels])


@pytest.mark.parametrize("name", GRAPHS)
def test_golden(name, golden, monkeypatch):
    monkeypatch.setattr(products_bf16, "takes", lambda node: False)  # on all processors the same
    golden(f"{name}.cpp", text_of(name))


def test_no_golden_file_is_left_over():
    assert {file.stem for file in GOLDEN.glob("*.cpp")} == set(GRAPHS)
