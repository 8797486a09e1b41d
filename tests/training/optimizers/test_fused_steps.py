"""`fused=True` optimizers inside a jitted step, beside torch's fused kernels: values, states, versions, and with a gradient
scaler's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import graftjit

from ..steps import batch
from .pairs import Made, Pair

FUSED: dict[str, Made] = {
    "sgd": lambda ps: optim.SGD(ps, lr=0.1, fused=True),
    "sgd nesterov": lambda ps: optim.SGD(
        ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True
    ),
    "sgd dampening": lambda ps: optim.SGD(
        ps, lr=0.01, momentum=0.9, dampening=0.2, maximize=True, fused=True
    ),
    "adam amsgrad": lambda ps: optim.Adam(ps, lr=0.01, fused=True, amsgrad=True, weight_decay=0.1),
    "adam": lambda ps: optim.Adam(ps, lr=0.01, fused=True),
    "adam tensor lr": lambda ps: optim.Adam(ps, lr=torch.tensor(0.01), fused=True),
    "adamw maximize": lambda ps: optim.AdamW(ps, lr=0.01, fused=True, maximize=True),
    "adamw amsgrad": lambda ps: optim.AdamW(ps, lr=0.01, fused=True, amsgrad=True),
    "adagrad": lambda ps: optim.Adagrad(ps, lr=0.1, lr_decay=0.01, fused=True),
    "adagrad maximize": lambda ps: optim.Adagrad(
        ps, lr=0.1, maximize=True, weight_decay=0.1, fused=True
    ),
}  # fmt: skip
STEPS = 8


@pytest.mark.parametrize("name", FUSED)
def test_steps(name: str) -> None:
    """Versions are compared by `Pair`: torch's fused kernels raise none but those of the counts."""
    Pair(FUSED[name]).settles(STEPS)


KINDS: dict[str, Callable[[], list[torch.Tensor]]] = {
    "bfloat16": lambda: [torch.randn(20).to(torch.bfloat16), torch.randn(3, 5).to(torch.bfloat16)],
    "float16": lambda: [torch.randn(33).to(torch.float16)],
    "two dtypes": lambda: [torch.randn(3), torch.randn(2, 2, dtype=torch.float64)],
    "layouts": lambda: [torch.randn(6, 4).t(), torch.randn(()), torch.randn(2, 8)],
}
BOUNDS = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 2e-6, torch.float64: 1e-12}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUSED)
def test_kinds_of_parameters(name: str, kind: str) -> None:
    """Through `step` alone, with and without what a gradient scaler sets on the optimizer."""
    if "float16" in kind and "sgd " in name:
        return  # torch's kernel reads the new buffer before it writes it
    outcomes = []
    for compiled in (True, False):
        torch.manual_seed(0)
        params = [nn.Parameter(one) for one in KINDS[kind]()]
        opt = FUSED[name](params)
        run = graftjit.jit(opt.step) if compiled else opt.step
        found: list[Any] = []
        for number in range(7):
            generator = torch.Generator().manual_seed(number)
            for p in params:
                p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
            scales = number in (2, 3, 4) and "adagrad" not in name
            if scales:
                opt.grad_scale, opt.found_inf = torch.tensor(8.0), torch.tensor(float(number == 3))
            run()
            if scales:
                del opt.grad_scale, opt.found_inf
            found += [p.detach().clone() for p in params] + [p.grad.clone() for p in params]
            found += [t.clone() for s in opt.state.values() for t in s.values() if t is not None]
        outcomes.append(found)
        versions = [p._version for p in params]
        assert versions == [0] * len(params)
    for mine, theirs in zip(*outcomes, strict=True):
        bound = BOUNDS[theirs.dtype]
        torch.testing.assert_close(mine, theirs, rtol=bound, atol=bound)


def test_a_backward_after_the_step_sees_new_parameters() -> None:
    """A fused step raises no version: a second backward through it computes with what it wrote."""

    def twice(w: Any, opt: Any, x: torch.Tensor) -> None:
        loss = (x * w.exp()).sum() + (w * w).sum()
        loss.backward(retain_graph=True)
        opt.step()
        loss.backward()

    found = []
    for fn in (graftjit.jit(twice), twice):
        torch.manual_seed(0)
        w = nn.Parameter(torch.randn(5))
        opt = optim.SGD([w], lr=0.1, fused=True)
        for number in range(3):
            fn(w, opt, torch.arange(5.0) + number)
            found.append((w.detach().clone(), w.grad.clone(), w._version))
    for mine, theirs in zip(found[:3], found[3:], strict=True):
        torch.testing.assert_close(mine[:2], theirs[:2])
        assert mine[2] == theirs[2]


# -- with a gradient scaler ------------------------------------------------------------------------
SCALED: dict[str, Made] = {
    "adam fused": FUSED["adam"],
    "sgd fused": FUSED["sgd nesterov"],
    "sgd": lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9),
    "adamw": lambda ps: optim.AdamW(ps, lr=0.01),
}


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("name", SCALED)
def test_an_enabled_gradient_scaler(name: str, clip: bool) -> None:
    """Steps whose gradients are infinite or nan are skipped, and the scale shrinks and grows."""

    def train(net: Any, made: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        opt, scaler = made
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(opt)
        scaler.update()
        return loss.detach()

    pair = Pair(SCALED[name], function=train)
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=3) for _ in range(2)]
    offsets = set()
    for number in range(20):
        x, y = batch(number)
        if number in (4, 9, 10):
            x[0, 0] = float("nan") if number == 9 else float("inf")
        for fn, net, opt, scaler in zip(
            (pair.jitted, train), pair.nets, pair.opts, scalers, strict=True
        ):
            fn(net, (opt, scaler), x, y)
        same_numbers(pair)
        assert scalers[0].state_dict() == scalers[1].state_dict()
        offsets.add(scalers[0]._scale._version - scalers[1]._scale._version)
        if number == 12:
            graphs = pair.compiles()
    assert pair.compiles() == graphs
    assert len(offsets) == 1  # the first scale, which a graph made, begins at a version of its own
    expected = 0 if "fused" in name else 1
    assert len(pair.breaks()) == expected, pair.breaks()


def same_numbers(pair: Pair) -> None:
    """Parameters, gradients and states, where they are numbers."""
    for p, q in zip(pair.nets[0].parameters(), pair.nets[1].parameters(), strict=True):
        close_numbers(p, q)
        close_numbers(p.grad, q.grad)
        mine, theirs = pair.opts[0].state.get(p, {}), pair.opts[1].state.get(q, {})
        assert list(mine) == list(theirs)
        for key in theirs:
            close_numbers(mine[key], theirs[key])


def close_numbers(a: Any, b: Any) -> None:
    if not isinstance(b, torch.Tensor):
        assert type(a) is type(b)
        return
    torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6, equal_nan=True)


def test_the_scalers_operators() -> None:
    """Their values and versions, for the factors and the interval of a program."""

    def check(grads: Any, found: torch.Tensor, inverse: torch.Tensor) -> None:
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)

    def update(scale: torch.Tensor, count: torch.Tensor, found: torch.Tensor) -> Any:
        return torch._amp_update_scale_(scale, count, found, 1.7, 0.3, 2)

    check_jitted, update_jitted = graftjit.jit(check), graftjit.jit(update)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        for inverse in (1.0, 1 / 3.0):
            for bad in (None, float("inf"), float("nan")):
                results = []
                for fn in (check_jitted, check):
                    torch.manual_seed(1)
                    grads = [torch.randn(5).to(dtype), torch.randn(2, 3).to(dtype)]
                    if bad is not None:
                        grads[1][0, 0] = bad
                    found = torch.zeros(())
                    fn(grads, found, torch.tensor(inverse))
                    results.append([*grads, found, torch.tensor([t._version for t in grads])])
                torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)
    results = []
    for fn in (update_jitted, update):
        scale, count = torch.tensor(3.3), torch.tensor(0, dtype=torch.int32)
        results.append([])
        for bad in (0, 0, 0, 1, 0, 0, 2, 0):
            assert fn(scale, count, torch.tensor(float(bad))) is scale
            results[-1] += [scale.item(), count.item(), scale._version, count._version]
    assert results[0] == results[1]
    huge = [torch.tensor(3e38), torch.tensor(3e38)]
    for fn, scale in zip((update_jitted, update), huge, strict=True):
        fn(scale, torch.tensor(1, dtype=torch.int32), torch.tensor(0.0))
    assert huge[0] == huge[1]
