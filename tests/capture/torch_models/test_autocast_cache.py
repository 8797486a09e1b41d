"""Autocast keeps casts of weights until its outermost block is left: compiled parts use that cache as eager does."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from graftjit import JitConfig, jit
from graftjit.runtime.guards import tensor_access as tensors
from graftjit.runtime.process.session import SESSION

LOW = torch.bfloat16
M = torch.tensor([[0.5, -1.0], [2.0, 0.25]])
World = Iterator[Any]
WORLDS: list[Callable[[Any], World]] = []


def world(made: Callable[[Any], World]) -> Callable[[Any], World]:
    WORLDS.append(made)
    return made


@contextlib.contextmanager
def inference(**settings: Any) -> Iterator[None]:
    with torch.no_grad(), torch.autocast("cpu", dtype=LOW, **settings):
        yield


@world
def changed_behind_the_cache(through: Any) -> World:
    w = nn.Parameter(M.clone())
    f = through(lambda x: torch.mm(x, w) * 2)
    with inference():
        yield f(M)
        w.data.mul_(2)
        yield f(M)
        w.mul_(2)
        yield f(M), torch.mm(M, w)
        torch.clear_autocast_cache()
        yield f(M)
    with inference():
        yield f(M)
    yield f(M).sum().item()


@world
def plain_and_compiled_share_it(through: Any) -> World:
    w, v = nn.Parameter(M.clone()), nn.Parameter(M * 3)
    f = through(lambda x: torch.relu(torch.mm(x, w) + torch.mm(x, v)))
    with inference():
        yield torch.mm(M, w)
        w.data.mul_(2)
        yield f(M)
        v.data.mul_(2)
        yield torch.mm(M, v), f(M)


@world
def used_twice_in_one_graph(through: Any) -> World:
    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, 0.5)
    nn.init.constant_(layer.bias, 1.0)

    def f(x):
        y = torch.relu(layer(x))
        layer.weight.mul_(2)
        return layer(y) + 1

    f = through(f)
    for _ in range(2):
        with inference():
            yield f(M)
            yield f(M), layer.weight.detach()


@world
def a_block_inside_of_one_that_is_off(through: Any) -> World:
    w = nn.Parameter(M.clone())

    def f(x):
        with torch.autocast("cpu", dtype=LOW):
            return torch.mm(x, w) * 2

    f = through(f)
    with torch.no_grad():
        for _ in range(2):
            yield f(M)
            w.data.mul_(2)
        with torch.autocast("cpu", dtype=LOW), torch.autocast("cpu", enabled=False):
            for _ in range(2):
                yield f(M)
                w.data.mul_(2)
        yield f(M)


@world
def without_the_cache(through: Any) -> World:
    w = nn.Parameter(M.clone())
    f = through(lambda x: torch.mm(x, w) * 2)
    with inference(cache_enabled=False):
        for _ in range(3):
            yield f(M)
            w.data.mul_(2)


@world
def casts_by_hand_are_not_kept(through: Any) -> World:
    w = nn.Parameter(M.clone())
    f = through(lambda x: (torch.mm(x, w), w.to(LOW) * 2, w.bfloat16(), torch.sum(w, 0, dtype=LOW)))
    with inference():
        for _ in range(3):
            yield f(M)
            w.data.mul_(2)


@world
def tensors_that_are_not_kept(through: Any) -> World:
    leaf, half = M.clone(), nn.Parameter(M.half())
    view, result = nn.Parameter(M.clone()).view(2, 2), nn.Parameter(M.clone()) * 1
    f = through(lambda x, w: torch.mm(x, w) * 2)
    with inference():
        for tensor in (leaf, half, view, result, leaf):
            yield f(M, tensor)
            tensor.data.mul_(2)
            yield f(M, tensor)


@world
def across_a_break(through: Any) -> World:
    w = nn.Parameter(M.clone())

    def f(x):
        y = torch.mm(x, w) + 1
        gc.get_threshold()  # a break
        w.data.mul_(2)
        return torch.mm(y, w) * 2

    f = through(f)
    for _ in range(2):
        with inference():
            yield f(M)
            yield f(M)


@world
def a_block_of_the_frame_that_breaks(through: Any) -> World:
    w, layer = nn.Parameter(M.clone()), nn.Linear(2, 2)
    nn.init.constant_(layer.weight, 0.5)
    nn.init.constant_(layer.bias, 1.0)

    def written(x):
        x = x + 1
        with torch.autocast("cpu", dtype=LOW):
            y = torch.mm(x, w) + 1
            gc.get_threshold()
            w.mul_(2)
            y = torch.mm(y, w) * 2
        return y.float() + torch.mm(x, w)

    def nested(x):
        with torch.autocast("cpu", dtype=LOW):
            y = layer(x)
            with torch.autocast("cpu", enabled=False):
                y = layer(y.float())
            layer.weight.data.mul_(2)
            gc.get_threshold()
            return layer(y) + written(x)

    f = through(nested)
    with torch.no_grad():
        for _ in range(3):
            yield f(M)


@world
def a_block_of_an_inlined_function_that_breaks(through: Any) -> World:
    w = nn.Parameter(M.clone())

    def block(x):
        with torch.autocast("cpu", dtype=LOW):
            y = torch.relu(torch.mm(x, w))
            gc.get_threshold()
            w.mul_(2)
            return torch.mm(y, w)

    @torch.autocast("cpu", dtype=LOW)
    def decorated(x):
        y = torch.mm(x, w)
        gc.get_threshold()
        w.data.mul_(2)
        return torch.mm(y, w)

    f = through(lambda x: block(x * 2).float() + decorated(x) * 2)
    with torch.no_grad():
        for _ in range(3):
            yield f(M)


@world
def a_weight_that_is_written_before_its_first_cast_in_a_graph(through: Any) -> World:
    w = nn.Parameter(M.clone())

    def f(x):
        w.mul_(2)
        return torch.mm(x, w) * 2

    f = through(f)
    for _ in range(2):
        with inference():
            yield torch.mm(M, w)
            yield f(M)
            yield f(M)
        with inference():
            yield f(M)


@world
def gradients_through_kept_casts(through: Any) -> World:
    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, 0.5)
    nn.init.constant_(layer.bias, 1.0)
    f = through(lambda x: torch.relu(layer(layer(x))) * 2)
    for _ in range(2):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=LOW):
            loss = f(M).sum() + f(M + 1).sum()
        loss.backward()
        yield loss.detach(), layer.weight.grad.clone(), layer.bias.grad.clone()


@world
def sizes_that_vary(through: Any) -> World:
    layer = nn.Linear(2, 3)
    nn.init.constant_(layer.weight, 0.25)
    nn.init.constant_(layer.bias, 1.0)
    f = through(lambda x: torch.relu(layer(x)) * x.shape[0])
    with inference():
        for rows in (2, 3, 5, 7):
            yield f(torch.ones(rows, 2))
            layer.weight.data.mul_(2)


@pytest.mark.parametrize("route", ["native", "operators", "program"])
@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize("made", WORLDS, ids=lambda made: made.__name__)
def test_casts_are_those_of_eager(made, level, route, request):
    wanted = list(made(lambda f: f))
    if route != "native":
        request.addfinalizer(tensors.bind)
        tensors.bind([route])  # without it
    found = list(made(lambda f: jit(f, config=JitConfig(jit_level=level))))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_a_cast_that_was_kept_while_the_weight_got_other_sizes():
    """Eager takes it as it is, of the old sizes; kernels made for the new ones cannot, and cast anew."""
    w = nn.Parameter(torch.ones(2, 2))
    f = jit(lambda x: torch.mm(x, w) * 2)
    with inference(), SESSION.override(check=False):
        f(M)
        w.data = torch.ones(2, 300)
        torch.clear_autocast_cache()
        assert f(M).shape == (2, 300)
        w.data = torch.ones(2, 2)
        torch.clear_autocast_cache()
        f(M)
        w.data = torch.ones(2, 300)
        found = f(M)
    assert found.shape == (2, 300)
    assert math.isclose(found[1, 299].item(), 4.5)
