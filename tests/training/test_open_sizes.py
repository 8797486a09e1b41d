"""Models trained over batches of many sizes: gradients of eager's, and one compilation for all sizes but the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graftjit
from graftjit.ir.graph.layout import contiguous_strides, format_strides
from graftjit.ir.graph.nodes import Meta
from graftjit.ir.ops import several_sizes
from graftjit.ir.ops.several_sizes import over_sizes
from graftjit.ir.symbolic.shape_env import Facts
from graftjit.runtime.process.session import SESSION

from .beside import gradients

SIZES = (12, 20, 7, 33, 16, 3)
IMAGE = (3, 12, 12)
OPEN = object()
aten = torch.ops.aten


class Experts(nn.Module):
    """Rows of one expert each are gathered, computed, and added where they came from."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.expert = nn.Linear(8, 2), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        out = torch.zeros_like(x)
        return out.index_add_(0, rows, self.expert(x[rows]) * weights[rows, 0, None])


def conv_net(*middle: nn.Module, features: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), *middle, nn.Flatten(), nn.Linear(features, 5)
    )


def image(count: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(count, *IMAGE),)


def tokens(count: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(11, (count, 6)),)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[torch.Tensor, ...]]]] = {
    "batch_norm": (lambda: conv_net(nn.BatchNorm2d(4), nn.ReLU(), features=576), image),
    "max_pool": (lambda: conv_net(nn.ReLU(), nn.MaxPool2d(2), features=144), image),
    "avg_pool": (lambda: conv_net(nn.Tanh(), nn.AvgPool2d(3, 2, 1), features=144), image),
    "adaptive": (lambda: conv_net(nn.SiLU(), nn.AdaptiveAvgPool2d(1), features=4), image),
    "group_norm": (lambda: conv_net(nn.GroupNorm(2, 4), nn.GELU(), features=576), image),
    "grouped": (lambda: conv_net(nn.Conv2d(4, 4, 3, groups=4, bias=False), features=400), image),
    "pixel_shuffle": (lambda: conv_net(nn.PixelShuffle(2), features=576), image),
    "transposed": (lambda: conv_net(nn.ConvTranspose2d(4, 2, 2, 2), features=1152), image),
    "embedding": (lambda: nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 3)), tokens),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
                  lambda count: (torch.randn(count, 5, 8),)),
    "sequences": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
                  lambda count: (torch.randn(2, count, 8),)),
    "experts": (Experts, lambda count: (torch.randn(40, 8), torch.randperm(40)[:count])),
}  # fmt: skip


# Attention of torch before 2.13 takes no open sizes: each batch is compiled, as the report says.
RECOMPILES = (
    {} if torch.__version__ >= "2.13" else dict.fromkeys(("attention", "sequences"), len(SIZES) - 1)
)


@pytest.mark.parametrize("name", MODELS)
def test_one_compilation_for_all_sizes(name: str) -> None:
    make, batch = MODELS[name]
    torch.manual_seed(0)
    model = make()
    twin = make()
    twin.load_state_dict(model.state_dict())
    jitted = graftjit.jit(lambda *args: model(*args))
    for count in SIZES:
        args = batch(count)
        ours, theirs = jitted(*args), twin(*args)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        found, expected = (
            gradients(out, list(net.parameters())) for out, net in ((ours, model), (theirs, twin))
        )
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    for mine, other in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    report = graftjit.report(jitted)
    assert report.recompile_count <= RECOMPILES.get(name, 1), str(report)


def _asked(op: Any, *shapes: Any, strides: Any = contiguous_strides) -> tuple[Any, Any]:
    """The open size, and what `over_sizes` says of a sum-like operator over tensors; OPEN in a shape is that size."""
    facts = Facts()
    with facts.active():
        size = facts.symbol("int", 6, ("number", "a"), 2)
        given = [tuple(size if one is OPEN else one for one in shape) for shape in shapes]
        cpu = torch.device("cpu")
        metas = [Meta(shape, strides(shape), torch.float32, cpu) for shape in given]
        return size, over_sizes(op, tuple(metas), {}, pure=True)


def test_a_size_is_the_one_that_moves_alike() -> None:
    size, found = _asked(aten.cdist.default, (OPEN, 3), (4, 3))
    assert [str(one) for one in found.shape] == [str(size), "4"]
    assert [str(one) for one in found.stride] == ["4", "1"]


def test_where_nothing_moves_alike_there_is_no_answer() -> None:
    assert (
        _asked(aten.pixel_shuffle.default, (2, OPEN, 4))[1] is None
    )  # refused: a factor is missing
    assert _asked(aten.combinations.default, (OPEN,))[1] is None  # as many as pairs
    assert _asked(aten.cdist.default, (4, 3), (4, 3))[1] is None  # no size is open


def test_other_layouts_than_rows_are_not_answered() -> None:
    assert _asked(aten.clone.default, (OPEN, 3, 4, 4))[1] is not None
    channels_last = lambda shape: format_strides(shape, torch.channels_last)  # noqa: E731
    assert _asked(aten.clone.default, (OPEN, 3, 4, 4), strides=channels_last)[1] is None


@pytest.mark.parametrize("known", [6, "b"])
def test_sizes_known_to_be_equal_are_equal_in_every_trial(known: Any, monkeypatch: Any) -> None:
    """Kernels of backward operators trust their caller: a gradient of another size makes them read beyond it."""
    met = []
    monkeypatch.setattr(several_sizes, "run_sample", lambda op, args, *rest: met.append(args))
    facts, cpu = Facts(), torch.device("cpu")
    with facts.active():
        size = facts.symbol("int", 6, ("number", "a"), 2)
        other = facts.symbol("int", 6, ("number", "b"), 2) if known == "b" else known
        assert facts.ask("==", size, other)
        metas = [
            Meta((rows, 3), contiguous_strides((rows, 3)), torch.float32, cpu)
            for rows in (size, other)
        ]
        over_sizes(aten.tanh_backward.default, tuple(metas), {}, pure=True)
    assert all(gradient.shape == result.shape for gradient, result in met)


@pytest.mark.parametrize("check", [True, False])
def test_a_missing_gradient_of_a_size_that_is_a_quotient(check: bool) -> None:
    """The backward without a gradient of one result is built when autograd asks, long after the trace: zeros that stand
    for it have strides by a size of which only the trace knew that it is at least 1 (heads of a decoder's keys)."""

    def f(query: Any, memory: Any, weight: Any) -> Any:
        heads = (memory @ weight).view(query.shape[0], -1, 2, 4)
        keys, values = heads.tanh().split(2, -1)
        return (keys * query.sum()).sum(), values.relu()

    run = graftjit.jit(f)
    with SESSION.override(check=check):
        for batch, length in ((2, 6), (3, 5), (4, 7), (1, 3), (5, 1)):
            query, given = torch.randn(batch, 3), (torch.randn(batch * length, 8), torch.eye(8))
            sides = [[one.clone().requires_grad_() for one in given] for _ in range(2)]
            for call, side in zip((f, run), sides, strict=True):
                call(query, *side)[0].backward()
            for eager, ours in zip(*sides, strict=True):
                torch.testing.assert_close(ours.grad, eager.grad)
    assert not [event for event in run.report().notes if event.code == "PL205"]
