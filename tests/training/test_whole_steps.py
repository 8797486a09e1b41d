"""Whole steps of models with indices and running statistics in one jitted function, beside plain Python: one graph each, and where
a target, a word or a label is out of range, all is left as eager leaves it."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.again = nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.last(self.again(self.second(x)).relu().mean((2, 3)))


class Block(nn.Module):
    """Attention and a perceptron; `llama`: root mean squares, rotated places and a gate."""

    def __init__(self, size: int, llama: bool) -> None:
        super().__init__()
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.heads, self.llama = 2, llama
        self.one, self.two = norm(size), norm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 2 * size), nn.Linear(size * (1 if llama else 2), size)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        at = torch.arange(x.shape[2], dtype=torch.float32)
        angle = at[:, None] * 10000 ** (-torch.arange(0, x.shape[3], 2) / x.shape[3])
        a, b = x[..., ::2], x[..., 1::2]
        return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        n, t, c = x.shape
        parts = self.qkv(self.one(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        if self.llama:
            q, k = self.turned(q), self.turned(k)
        seen = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.llama)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, c))
        h = self.up(self.two(x))
        if self.llama:
            a, b = h.chunk(2, -1)
            return x + self.down(F.silu(a) * b)
        return x + self.down(F.gelu(h))


class Words(nn.Module):
    def __init__(self, llama: bool) -> None:
        super().__init__()
        self.words, self.llama = nn.Embedding(20, 16), llama
        self.places = nn.Embedding(8, 16)
        self.blocks = nn.ModuleList([Block(16, llama) for _ in range(2)])
        self.head = nn.Linear(16, 20, bias=False)
        if llama:
            self.head.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x, mask = self.words(words), None
        if not self.llama:
            x = x + self.places(torch.arange(words.shape[1]))
            mask = (words != 0)[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x).flatten(0, 1)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=1e-3, eps=1e-3),
}


def draw(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def images(number: int, wrong: bool) -> tuple[torch.Tensor, ...]:
    y = torch.randint(0, 5, (4,), generator=draw(number))
    y[2] += 5 * wrong
    return torch.randn(4, 3, 8, 8, generator=draw(number)), y


def text(number: int, wrong: bool) -> tuple[torch.Tensor, ...]:
    words = torch.randint(1, 20, (2, 9), generator=draw(number))
    words[1, 4] += 20 * wrong
    return words[:, :-1].contiguous(), words[:, 1:].flatten()


MODELS: dict[str, tuple[Callable[[], nn.Module], Any, str]] = {
    "conv": (Conv, images, "SGD"),
    "bert": (lambda: Words(False), text, "AdamW"),
    "llama": (lambda: Words(True), text, "AdamW"),
}


def plain(net: Any, opts: Any, x: Any, y: Any) -> Any:
    opts[0].zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opts[0].step()
    return loss


def forward_first(net: Any, opts: Any, x: Any, y: Any) -> Any:
    loss = F.cross_entropy(net(x), y)
    opts[0].zero_grad(set_to_none=False)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opts[0].step()
    return loss.detach()


def micro_batches(net: Any, opts: Any, x: Any, y: Any) -> Any:
    """Gradients of several parts of a batch, the last of which may be wrong, added to those that are there."""
    total = 0
    for part, wanted in zip(x.chunk(2), y.chunk(2), strict=True):
        loss = F.cross_entropy(net(part), wanted) / 2
        loss.backward()
        total = total + loss.detach()
    opts[0].step()
    opts[0].zero_grad()
    return total


def scaled_by_hand(net: Any, opts: Any, x: Any, y: Any) -> Any:
    opts[0].zero_grad()
    loss = F.cross_entropy(net(x), y)
    (loss * 1024.0).backward()
    with torch.no_grad():
        for weight in net.parameters():
            if weight.grad is not None:
                weight.grad.div_(1024.0)
    opts[0].step()
    return loss


def counted(net: Any, opts: Any, x: Any, y: Any) -> Any:
    """What else a program notes down, and a handler that goes on."""
    net.steps = getattr(net, "steps", 0) + 1
    opts[0].zero_grad()
    try:
        loss = F.cross_entropy(net(x), y)
    except IndexError:
        net.failed = net.steps
        raise
    loss.backward()
    opts[0].step()
    return loss


STEPS = [plain, forward_first, micro_batches, scaled_by_hand, counted]


def frozen(net: nn.Module, opts: Any) -> dict[str, Any]:
    """All that a step changes."""
    found: dict[str, Any] = dict(net.state_dict())
    found |= {f"{name}.grad": weight.grad for name, weight in net.named_parameters()}
    found |= {name: getattr(net, name, None) for name in ("steps", "failed")}
    for number, opt in enumerate(opts):
        for name, weight in net.named_parameters():
            state = opt.state.get(weight, {})
            found |= {f"{number}.{name}.{key}": value for key, value in state.items()}
    return found


class Beside:
    """A step run jitted and as it is, each over a model and optimizers of its own."""

    def __init__(self, function: Any, make: Any, optimizers: Any, level: str = "O1") -> None:
        config = graftjit.JitConfig(jit_level=level)
        self.jitted = graftjit.jit(function, config=config)
        torch.manual_seed(0)
        net = make()
        self.sides = []
        for run in (self.jitted, function):
            model = copy.deepcopy(net)
            self.sides.append((run, model, optimizers(model)))
        self.versions: dict[str, int] = {}

    def run(self, *batch: Any) -> None:
        said = []
        for run, net, opts in self.sides:
            before = {name: weight.grad for name, weight in net.named_parameters()}
            try:
                out: Any = run(net, opts, *batch)
            except IndexError as error:
                out = str(error)
            kept = [weight.grad is before[name] for name, weight in net.named_parameters()]
            said.append((out, kept))
        (ours, kept), (theirs, expected) = said
        for a, b in zip(
            *(x if isinstance(x, tuple) else (x,) for x in (ours, theirs)), strict=True
        ):
            self.same("result", a, b)
        assert kept == expected
        mine, others = (frozen(net, opts) for _, net, opts in self.sides)
        assert list(mine) == list(others)
        for name, value in others.items():
            self.same(name, mine[name], value)

    def same(self, name: str, a: Any, b: Any) -> None:
        if not isinstance(b, torch.Tensor):
            assert a == b, name
            return
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}")
        assert (a.stride(), a.requires_grad, a.is_leaf) == (b.stride(), b.requires_grad, b.is_leaf)
        if not name.endswith("grad") and name != "result":
            moved = self.versions.setdefault(name, a._version - b._version)
            assert a._version - b._version == moved, name

    def is_whole(self) -> None:
        report = self.jitted.report()
        assert report.break_count == 0, report
        assert "FB301" not in str(report), report


CASES = [(name, step) for name in MODELS for step in STEPS]


@pytest.mark.parametrize(("name", "step"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_steps(name: str, step: Any) -> None:
    make, batch, optimizer = MODELS[name]
    both = Beside(step, make, lambda net: [OPTIMIZERS[optimizer](net.parameters())])
    for number in range(6):
        both.run(*batch(number, wrong=number == 3))
    both.is_whole()


@pytest.mark.parametrize("name", MODELS)
def test_operator_by_operator(name: str) -> None:
    make, batch, optimizer = MODELS[name]
    both = Beside(plain, make, lambda net: [OPTIMIZERS[optimizer](net.parameters())], "O0")
    for number in range(4):
        both.run(*batch(number, wrong=number == 2))
    both.is_whole()


def test_wrong_at_first() -> None:
    both = Beside(plain, Conv, lambda net: [OPTIMIZERS["SGD"](net.parameters())])
    for number in range(4):
        both.run(*images(number, wrong=number < 2))
    both.is_whole()


class Two(nn.Module):
    """A generator and what judges it, by kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = nn.Embedding(4, 8)
        self.maker = nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6)
        )
        self.judge = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 5))

    def make(self, noise: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        return self.maker(noise + self.kinds(kind))


def adversaries(net: Any, opts: Any, real: Any, noise: Any, kind: Any, labels: Any) -> Any:
    """Two backwards and two updates: the judge is written before the maker is looked up and judged again."""
    of_maker, of_judge = opts
    of_judge.zero_grad()
    fake = net.make(noise, kind)
    none = torch.full_like(kind, 4)
    judged = F.cross_entropy(net.judge(real), labels)
    judged = judged + F.cross_entropy(net.judge(fake.detach()), none)
    judged.backward()
    of_judge.step()
    of_maker.zero_grad()
    made = F.cross_entropy(net.judge(fake), kind)
    made.backward()
    of_maker.step()
    return judged.detach(), made.detach()


def both_of(net: Two) -> list[torch.optim.Optimizer]:
    maker = [*net.kinds.parameters(), *net.maker.parameters()]
    return [
        torch.optim.AdamW(maker, lr=1e-3, eps=1e-3),
        torch.optim.AdamW(net.judge.parameters(), lr=1e-3, eps=1e-3),
    ]


@pytest.mark.parametrize("wrong", ["", "kind", "label"])
def test_adversaries(wrong: str) -> None:
    both = Beside(adversaries, Two, both_of)
    for number in range(6):
        real, noise = torch.randn(2, 8, 8, generator=draw(number)).unbind(0)
        kind, labels = torch.randint(0, 4, (2, 8), generator=draw(number)).unbind(0)
        if number == 3 and wrong:
            (kind if wrong == "kind" else labels)[5] = 9
        both.run(real[:, :6].contiguous(), noise.contiguous(), kind.clone(), labels.clone())
    both.is_whole()


FIRST = """
import sys, torch, graftjit

@graftjit.jit
def step(x, w):
    w.grad = None
    loss = (x @ w).tanh().sum()
    loss.backward()
    return loss

step(torch.ones(5, 4), torch.ones(4, 8, requires_grad=True))
print(*[kernel.name for kernel in step.report().kernels])
"""


def test_backward_operators_are_fused_in_a_process_that_has_no_other_backward(tmp_path) -> None:
    environment = {**os.environ, "GRAFTJIT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout and "tanh_backward" not in done.stdout
