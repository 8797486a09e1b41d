"""Recurrent networks in training, beside plain Python: the library's kernel for LSTMs of float32, loops over the steps elsewhere."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import graftjit

KINDS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
CASES = [("lstm", torch.float32), ("gru", torch.float32), ("rnn", torch.float32), ("lstm", torch.float64)]  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=[f"{k} {str(t)[6:]}" for k, t in CASES])
def test_gradients(kind: str, dtype: torch.dtype) -> None:
    """What the library's kernel keeps for its backward it makes only where gradients are asked for."""
    torch.manual_seed(0)
    plain = KINDS[kind](6, 8, num_layers=2, batch_first=True, dropout=0.3, dtype=dtype)
    other = copy.deepcopy(plain)
    compiled, found = graftjit.compile(other), []
    for model, run in ((plain, plain), (other, compiled)):
        torch.manual_seed(1)
        x = torch.randn(3, 4, 6, dtype=dtype, requires_grad=True)
        for _ in range(3):
            y, state = run(x)
            (y.square().sum() + sum(one.sum() for one in state)).backward()
        found.append((y, x.grad, *(p.grad for p in model.parameters()), torch.get_rng_state()))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_step_in_one_function() -> None:
    """Its state goes from step to step, detached."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        layers, last = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 1)
        weights = [*layers.parameters(), *last.parameters()]
        optimizer = torch.optim.SGD(weights, lr=0.1)

        def step(x: Any, state: Any) -> Any:
            y, state = layers(x, state)  # noqa: B023
            loss = last(y).square().mean()  # noqa: B023
            optimizer.zero_grad()  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023
            return loss.detach(), tuple(one.detach() for one in state)

        run, state, losses = graftjit.jit(step) if compiled else step, None, []
        for _ in range(4):
            loss, state = run(torch.randn(3, 5, 6), state)
            losses.append(loss)
        found.append((losses, state, weights, [weight.grad for weight in weights]))
    torch.testing.assert_close(found[1], found[0])


def test_inference_keeps_nothing_for_a_backward() -> None:
    layers = nn.LSTM(6, 8, batch_first=True)
    x = torch.randn(3, 5, 6)
    with torch.no_grad():
        torch.testing.assert_close(graftjit.compile(layers)(x), layers(x))
