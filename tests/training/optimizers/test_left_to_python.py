"""Optimizers whose step Python runs (LBFGS, SparseAdam, sparse gradients): named breaks, each once, and values as in
plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import graftjit

STEPS = 6


def codes(jitted: Any) -> list[str]:
    return [row.code for row in jitted.report().breaks]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(32, 6, generator=generator).double(),
        torch.randn(32, 1, generator=generator).double(),
    )


def closure_of(net: nn.Module, opt: optim.Optimizer) -> Callable[[], torch.Tensor]:
    x, y = batch()

    def closure() -> torch.Tensor:
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        return loss

    return closure


def by_closure(opt: optim.Optimizer, closure: Callable[[], torch.Tensor]) -> Any:
    loss: Any = opt.step(closure)
    return loss * 2, opt


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("compiled", [False, True])
def test_lbfgs(search: str | None, compiled: bool) -> None:
    """One break, at the step. A jitted closure is one program, which all of its calls use."""
    nets = [net(), net()]
    opts = [
        optim.LBFGS(one.parameters(), lr=0.2, max_iter=4, line_search_fn=search) for one in nets
    ]
    closures = [closure_of(one, opt) for one, opt in zip(nets, opts, strict=True)]
    if compiled:
        closures[0] = graftjit.jit(closures[0])
    jitted = graftjit.jit(by_closure)
    for number in range(STEPS):
        ours, _ = jitted(opts[0], closures[0])
        theirs, _ = by_closure(opts[1], closures[1])
        torch.testing.assert_close(ours, theirs)
        for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
            torch.testing.assert_close(p, q)
            torch.testing.assert_close(p.grad, q.grad)
        if number == 1:
            before = jitted.report().graph_count
    assert codes(jitted) == ["GB115"]
    assert jitted.report().graph_count == before
    if compiled:
        report = closures[0].report()  # type: ignore[attr-defined]
        assert report.break_count == 0
        assert len(report.entries) <= 2  # without gradients, and with them


SPARSE: dict[str, tuple[Any, list[str]]] = {
    "SparseAdam": (lambda ps: optim.SparseAdam(ps, lr=0.1), ["GB114", "GB115"]),
    "SGD": (lambda ps: optim.SGD(ps, lr=0.1), ["GB114", "FB304"]),
    "Adagrad": (lambda ps: optim.Adagrad(ps, lr=0.1), ["GB114", "FB304"]),
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_gradients(name: str) -> None:
    """One break at the backward that makes them, and one at the step that reads them."""

    def step(table: Any, opt: Any, rows: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        opt.zero_grad()
        loss = ((table(rows).mean(1) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    def table() -> nn.Embedding:
        torch.manual_seed(0)
        return nn.Embedding(40, 4, sparse=True, dtype=torch.float64)

    make, expected = SPARSE[name]
    tables = [table(), table()]
    opts = [make(list(one.parameters())) for one in tables]
    jitted = graftjit.jit(step)
    generator = torch.Generator().manual_seed(0)
    for number in range(STEPS):
        rows = torch.randint(0, 40, (5, 3), generator=generator)
        y = torch.randn(5, 4, generator=generator).double()
        ours = jitted(tables[0], opts[0], rows, y)
        torch.testing.assert_close(ours, step(tables[1], opts[1], rows, y))
        torch.testing.assert_close(tables[0].weight, tables[1].weight)
        found, wanted = (one.weight.grad for one in tables)
        assert found.is_sparse and wanted.is_sparse  # type: ignore[union-attr]
        torch.testing.assert_close(found, wanted)
        if number == 1:
            before = jitted.report().graph_count
    assert codes(jitted) == expected
    assert jitted.report().graph_count == before
