"""Convolutions on a GPU run over NHWC, and nothing outside of the program sees it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit
from graftjit.ir.graph.layout import is_channels_last
from graftjit.ir.passes import pipeline

from .fake_programs import same

aten = torch.ops.aten


class Block(nn.Module):
    """Two convolutions with norms, and what came in added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))  # fmt: skip
        self.first, self.second = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        y = F.relu(self.first(self.one(x)))
        return F.relu(self.second(self.two(y)) + x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.pool = nn.Conv2d(3, 8, 3, padding=1), nn.MaxPool2d(2)
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        features = self.blocks(self.pool(F.relu(self.stem(x))))
        return self.head(features.mean((2, 3))), features


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that passes have made."""
    found, optimize = [], pipeline.optimize

    def kept(*args, **kwargs):
        found.append(optimize(*args, **kwargs))
        return found[-1]

    for place in ("codegen.pipeline", "ir.autograd.partition"):
        monkeypatch.setattr(f"graftjit.{place}.optimize", kept)
    return found


def made():
    torch.manual_seed(0)
    net = Net().cuda()
    return graftjit.compile(net), net


def operands(graphs, target):
    calls = [node for graph in graphs for node in graph.nodes if node.target is target]
    return [one for node in calls for one in node.args if getattr(one, "meta", None) is not None and len(one.meta.shape) == 4]  # fmt: skip


@torch.no_grad()
def test_inference(fake_gpu, graphs):
    compiled, net = made()
    net.eval()
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8, device="cuda")
        same(compiled(x), net(x))
    for target, count in ((aten.convolution.default, 10), (aten.max_pool2d_with_indices.default, 1)):  # fmt: skip
        found = operands(graphs, target)
        assert len(found) == count
        assert all(is_channels_last(one.meta.shape, one.meta.stride) for one in found)
    # Kernels with tiles turn the blocks' four weights, and nothing between two convolutions.
    sources = [kernel.source for kernel in graftjit.report(compiled).kernels]
    assert sum("YBLOCK" in source for source in sources) == 4, sources


def test_training(fake_gpu, graphs):
    compiled, net = made()
    other = made()[1]
    for _ in range(2):
        x = torch.randn(2, 3, 8, 8, device="cuda")
        for module, called in ((net, compiled), (other, other)):
            module.zero_grad()
            scores, features = called(x)
            (scores.square().sum() + features.mean()).backward()
        for one, two in zip(net.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-4)
            assert one.grad.stride() == two.grad.stride()
        for one, two in zip(net.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(one, two)
    found = operands(graphs, aten.convolution_backward.default)
    assert found
    assert all(is_channels_last(one.meta.shape, one.meta.stride) for one in found)


CASES = {
    "a weight that is written later": lambda x, w, g: (F.conv2d(x, w, padding=1), w.mul_(2), F.conv2d(x, w, padding=1)),
    "an image that is written later": lambda x, w, g: (F.conv2d(x, w), x.add_(1), F.conv2d(x, w)),
    "a view of what a convolution reads": lambda x, w, g: (F.conv2d((x * 2).relu(), w), (x * 2).relu().view(-1)),
    "a result that is returned and read": lambda x, w, g: (y := F.conv2d(x, w).relu(), F.conv2d(y, g)),
    "a result that is written": lambda x, w, g: (y := F.conv2d(x, w).add_(1), F.conv2d(y, g), y.mul_(2)),
    "one image for two": lambda x, w, g: F.conv2d((y := x.sin()), w) + F.conv2d(y, w * 2) + y[:, :4, :6, :6],
    "groups": lambda x, w, g: F.conv2d(F.conv2d(x, w).relu(), w[:, :2], groups=2),
    "transposed": lambda x, w, g: F.conv_transpose2d(F.conv2d(x, w), g),
    "one column": lambda x, w, g: F.conv2d(x[..., :3], w).relu() + 1,
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_values_strides_and_writes(fake_gpu, name, dynamic):
    compiled = graftjit.jit(CASES[name], dynamic=dynamic)
    for rows in (2, 2, 3):
        torch.manual_seed(rows)
        ours = [torch.randn(*shape, device="cuda") for shape in ((rows, 4, 8, 8), (4, 4, 3, 3), (4, 4, 1, 1))]  # fmt: skip
        theirs = [one.clone() for one in ours]
        same(compiled(*ours), CASES[name](*theirs))
        same(ours, theirs)
