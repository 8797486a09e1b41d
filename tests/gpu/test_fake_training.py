"""Models on the fake devices with their gradients and optimizers, compiled beside plain Python; and breaks on the way."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit

from .fake_programs import check, cuda, same, seeded

pytestmark = pytest.mark.usefixtures("fake_gpu")


class Block(nn.Module):
    """A transformer's block of few features."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.Linear(8, 24, bias=False)
        self.out = nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(8, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        q, k, v = self.attention(self.norm(x)).unflatten(-1, (3, 2, 4)).unbind(-3)
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).flatten(-2)))
        return self.head(x + self.mlp(x))


class Net(nn.Module):
    """Convolutions, batch norm, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.head(x.mean((2, 3)))


def _step(model, optimizer, inputs, targets):
    optimizer.zero_grad()
    out = model(inputs)
    loss = F.cross_entropy(out.flatten(0, -2), targets.flatten())
    loss.backward()
    optimizer.step()
    return loss.detach()


def _tokens():
    return torch.randint(0, 10, (2, 5), device="cuda"), torch.randint(0, 10, (2, 5), device="cuda")


def _images():
    return cuda(3, 3, 8, 8), torch.randint(0, 5, (3,), device="cuda")


MODELS = {
    "block": (Block, _tokens),
    "dropout": (lambda: Block(0.3), _tokens),
    "net": (Net, _images),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_and_its_gradients(name):
    make, data = MODELS[name]

    def arguments():
        return (make().cuda(), *data())

    def run(model, inputs, targets):
        loss = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        loss.backward()
        return loss

    check(run, arguments, calls=1)
    model, inputs, _ = seeded(arguments)
    compiled = graftjit.compile(model)
    seeded(lambda: compiled(inputs).square().mean().backward())
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    seeded(lambda: model(inputs).square().mean().backward())
    same(found, [p.grad for p in model.parameters()])
    with torch.no_grad():
        same(seeded(compiled, inputs), seeded(model, inputs))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("name", ["block", "net"])
def test_whole_steps(name, optimizer):
    make, data = MODELS[name]
    results = []
    for wrap in (lambda fn: fn, graftjit.jit):
        model, batch = seeded(lambda: (make().cuda(), data()))
        made = optimizer(model.parameters(), lr=0.1)
        step = wrap(_step)
        losses = [step(model, made, *batch) for _ in range(4)]
        results.append((losses, dict(model.state_dict())))
    same(results[1], results[0])
    report = graftjit.report(step)
    assert not report.break_count, str(report)


def _asks_for_an_item(x):
    y = x * 2
    if y.sum().item() > 0:
        return y + 1
    return y - 1


def _synchronizes(x):
    y = x * 2
    torch.cuda.synchronize()
    return y + 1


def _on_a_stream(x):
    with torch.cuda.stream(torch.cuda.Stream()):
        y = x * 2
    return y + 1


def _under_a_device(x):
    with torch.cuda.device(1):
        y = torch.zeros(3, device="cuda")
    return y + 1, x + 1


BREAKS = {
    "an item": (_asks_for_an_item, ("GB105",)),
    "synchronize": (_synchronizes, ("GB118",)),
    "a stream": (_on_a_stream, None),
    "a device": (_under_a_device, None),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_breaks_are_told_and_right(name):
    fn, codes = BREAKS[name]
    compiled = graftjit.jit(fn)
    for _ in range(3):
        x = cuda(4)
        same(compiled(x), fn(x))
    report = graftjit.report(compiled)
    assert report.break_count
    if codes:
        assert tuple(found.code for found in report.breaks) == codes, str(report)


def test_an_index_out_of_range_raises(fake_gpu):
    compiled = graftjit.jit(lambda x, at: x[at] * 2)
    x = cuda(4)
    same(compiled(x, torch.tensor([1, 3], device="cuda")), x[[1, 3]] * 2)
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, torch.tensor([1, 4], device="cuda"))
    fake_gpu.errors.clear()  # the kernel's assertion


def test_random_numbers_of_a_device_go_on():
    compiled = graftjit.jit(lambda x: F.dropout(x, 0.5) + torch.rand_like(x))
    x = torch.ones(50, device="cuda:1")
    torch.cuda.manual_seed_all(7)
    mine = [compiled(x) for _ in range(3)]
    torch.cuda.manual_seed_all(7)
    same(mine, [F.dropout(x, 0.5) + torch.rand_like(x) for _ in range(3)])


def test_memory_comes_back():
    from ..fake_cuda.memory import memory

    def run(x, w):
        return torch.tanh(x @ w).softmax(-1).sum(0)

    compiled = graftjit.jit(run)
    x, w = cuda(8, 16), cuda(16, 8)
    compiled(x, w)
    before = memory().used
    for _ in range(3):
        compiled(x, w)
    assert memory().used == before


def test_a_second_backward_draws_the_same_numbers():
    def run(x):
        return F.dropout(x.sin(), 0.5) * x

    compiled = graftjit.jit(run)
    results = []
    for fn in (run, compiled):
        torch.cuda.manual_seed_all(3)
        x = torch.linspace(0, 1, 20, device="cuda:1").requires_grad_()
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        torch.rand(3, device="cuda:1")  # the generator goes on before the numbers are drawn again
        (second,) = torch.autograd.grad(first.sum(), x)
        results.append((first.detach(), second))
    same(results[1], results[0])
