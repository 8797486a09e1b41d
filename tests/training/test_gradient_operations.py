"""`GradOperation`, `grad` and `value_and_grad` in all combinations of their options, over functions and cells, plain, jitted and
nested, beside torch.autograd in plain Python."""

from __future__ import annotations

import itertools

import pytest
import torch

import graftjit
from graftjit import ParameterTuple, nn, ops
from graftjit.runtime.autograd.differentiate import leaves

torch.manual_seed(0)
W = torch.randn(4, 3, requires_grad=True)
B = torch.randn(3, requires_grad=True)
FLAGS = list(itertools.product((False, True), repeat=2))


def function(x, y):
    """Two results of different shapes, the second a dict of one more: x with weights, y without."""
    z = torch.tanh(x @ W + B)
    return z * y, {"sum": (z**2).sum(0)}


class Layer(nn.Cell):
    """The same over its own parameters, of which one is frozen; with something to remember."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(W.detach().clone())
        self.b = torch.nn.Parameter(B.detach().clone())
        self.frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
        self.calls = 0

    def construct(self, x, y):
        self.calls += 1
        z = torch.tanh(x @ self.w + self.b) * self.frozen
        return z * y, {"sum": (z**2).sum(0)}


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = (5, 4), (5, 3), (5, 3), (3,)
    x, y, first, second = (torch.randn(shape, generator=generator) for shape in shapes)
    return (x, y), (first, second)


def expected(target, weights, inputs, sens):
    """(gradients of inputs, of weights), by torch.autograd of leaves that are this call's own."""
    given = [one.detach().clone().requires_grad_() for one in inputs]
    found = torch.autograd.grad(leaves(target(*given)), [*given, *weights], sens)
    return tuple(found[: len(given)]), tuple(found[len(given) :])


class Around(nn.Cell):
    """Differentiates its network, as programs for static graphs are written."""

    def __init__(self, make, network):
        super().__init__()
        self.network, self.make = network, make

    def construct(self, *inputs, **named):
        return self.make(self.network)(*inputs, **named)


WAYS = {
    "plain": lambda make, target: make(target),
    "over a jitted one": lambda make, target: make(graftjit.jit(target)),
    "jitted": lambda make, target: graftjit.jit(make(target)),
    "inside": lambda make, target: graftjit.jit(lambda *a, **k: make(target)(*a, **k)),
    "inside of a jitted one, jitted": lambda make, target: graftjit.jit(
        lambda *a, **k: make(graftjit.jit(target))(*a, **k)
    ),
    "in a jitted cell": lambda make, target: graftjit.jit(Around(make, target)),
}
WEIGHTS = {
    "none": lambda ps: None,
    "a ParameterTuple": ParameterTuple,
    "a list, turned": lambda ps: ps[::-1],
}


def close(found, wanted):
    torch.testing.assert_close(found, wanted)
    assert not any(one.requires_grad for one in leaves(found))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("sens", [None, "last", "named"])
@pytest.mark.parametrize(("get_all", "get_by_list"), FLAGS)
def test_all_options(get_all, get_by_list, sens, weights, way):
    graftjit.reset()  # callables of one code share, and report what each of them met
    cell = Layer()
    for target, own in ((function, [W, B]), (cell, [cell.w, cell.b])):
        if weights == "none" and get_by_list and target is function:
            continue  # refused: test_gradient_faces
        given = WEIGHTS[weights](own)
        operation = ops.GradOperation(get_all, get_by_list, sens is not None)
        asked = WAYS[way](lambda one, o=operation, g=given: o(one, g), target)
        for seed in range(2):
            inputs, seeds = batch(seed)
            of_inputs, of_weights = expected(
                target, given or own, inputs, seeds if sens else [torch.ones_like(s) for s in seeds]
            )
            calls = cell.calls
            found = asked(
                *inputs, *[seeds] * (sens == "last"), **({"sens": seeds} if sens == "named" else {})
            )
            assert cell.calls == calls + (target is cell)
            if get_by_list:
                close(found, (of_inputs, of_weights) if get_all else of_weights)
            else:
                close(found, of_inputs if get_all else of_inputs[0])
        assert all(one.grad is None for one in own)
        if way in ("jitted", "inside"):
            report = graftjit.report(asked)
            assert report.break_count == 0, report.text()


POSITIONS = {
    "first": (0, lambda gs: gs[0]),
    "second": (1, lambda gs: gs[1]),
    "one in a tuple": ((1,), lambda gs: gs[1:]),
    "both, turned": ((1, 0), lambda gs: gs[::-1]),
    "none": (None, lambda gs: None),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize(("has_aux", "with_weights"), FLAGS)
def test_positions_weights_and_what_is_beside(has_aux, with_weights, position, way):
    where, chosen = POSITIONS[position]
    if where is None and not with_weights:
        return  # refused: test_gradient_faces
    cell = Layer()
    for target, own in ((function, [W, B]), (cell, [cell.w, cell.b])):
        weights = ParameterTuple(own) if with_weights else None

        def make(one, weights=weights):
            return ops.value_and_grad(one, where, weights, has_aux)

        def gradients_alone(one, weights=weights):
            return ops.grad(one, where, weights, has_aux)

        both, alone = WAYS[way](make, target), WAYS[way](gradients_alone, target)
        for seed in range(2):
            inputs, seeds = batch(seed)
            ones = [torch.ones_like(s) for s in seeds]
            if has_aux:
                ones[1].zero_()
            of_inputs, of_weights = expected(target, own, inputs, ones)
            wanted = chosen(of_inputs)
            if with_weights:
                wanted = of_weights if where is None else (wanted, of_weights)
            result = torch.utils._pytree.tree_map(torch.detach, target(*inputs))
            close(both(*inputs), (result, wanted))
            close(alone(*inputs), (wanted, result[1:]) if has_aux else wanted)


# -- gradients of gradients ---------------------------------------------------------------------------------
class Cubic(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def construct(self, x, y):
        return x**3 * self.w + x * y**2


OF_WEIGHTS = {"get_by_list": True}
# What is asked of a first gradient, what then of that, and the result by hand: of x**3 w + x y**2.
NESTED = {
    "first, first": ({}, {}, lambda x, y, w: 6 * x * w),
    "all, first": ({"get_all": True}, {}, lambda x, y, w: 6 * x * w + 2 * y),
    "first, all": ({}, {"get_all": True}, lambda x, y, w: (6 * x * w, 2 * y)),
    "first, weights": ({}, OF_WEIGHTS, lambda x, y, w: (3 * x**2,)),
    "weights, first": (OF_WEIGHTS, {}, lambda x, y, w: 3 * x**2),
    "first, both": (
        {}, {"get_all": True, **OF_WEIGHTS}, lambda x, y, w: ((6 * x * w, 2 * y), (3 * x**2,)),
    ),
    "all, both": (
        {"get_all": True}, {"get_all": True, **OF_WEIGHTS},
        lambda x, y, w: ((6 * x * w + 2 * y, 2 * y + 2 * x), (3 * x**2,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("nested", NESTED)
def test_gradients_of_gradients(nested, way):
    inner, outer, by_hand = NESTED[nested]
    cell = Cubic()
    for target in (cell, lambda x, y: cell.construct(x, y)):

        def make(one):
            weights = ParameterTuple([cell.w])
            first = ops.GradOperation(**inner)(one, weights)
            return ops.GradOperation(**outer)(first, weights)

        asked = WAYS[way](make, target)
        for seed in range(2):
            generator = torch.Generator().manual_seed(seed)
            x, y = (torch.randn(3, generator=generator) for _ in range(2))
            close(asked(x, y), by_hand(x, y, cell.w.detach()))
            with torch.no_grad():
                cell.w *= 1.5


@pytest.mark.parametrize("way", WAYS)
def test_a_sensitivity_of_the_first_and_of_the_second_gradient(way):
    cell = Cubic()

    def make(one):
        first = ops.GradOperation(sens_param=True)(one)
        return ops.GradOperation(get_all=True, sens_param=True)(first)

    asked = WAYS[way](make, cell)
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        x, y, s, t = (torch.randn(3, generator=generator) for _ in range(4))
        w = cell.w.detach()
        # of s (3 x**2 w + y**2), by x, y and s, times t
        by_hand = (6 * x * w * s * t, 2 * y * s * t, (3 * x**2 * w + y**2) * t)
        close(asked(x, y, s, t), by_hand)


@pytest.mark.parametrize("mode", [graftjit.PYNATIVE_MODE, graftjit.GRAPH_MODE])
def test_inputs_and_weights_of_one_cell_in_turn(mode):
    cell, once = Layer(), ops.GradOperation(get_all=True)
    listed = ops.GradOperation(get_by_list=True)
    both = ops.GradOperation(get_all=True, get_by_list=True)
    graftjit.set_context(mode=mode)
    try:
        for turn in range(9):
            inputs, seeds = batch(turn)
            ones = [torch.ones_like(s) for s in seeds]
            weights = [cell.w, cell.b] if turn < 6 else [cell.b]
            of_inputs, of_weights = expected(cell, weights, inputs, ones)
            if turn % 3 == 0:
                close(once(cell)(*inputs), of_inputs)
            elif turn % 3 == 1:
                close(listed(cell, ParameterTuple(weights))(*inputs), of_weights)
            else:
                close(both(cell, weights)(*inputs), (of_inputs, of_weights))
            if turn == 4:
                cell.w.requires_grad_(False)
                close(listed(cell)(*inputs), of_weights[1:])
                cell.w.requires_grad_(True)
            with torch.no_grad():
                cell.w -= 0.1
    finally:
        graftjit.set_context(mode=graftjit.PYNATIVE_MODE)


class Stopped(nn.Cell):
    """Which part of it has a gradient changes between calls."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        self.stop = True

    def construct(self, x, y):
        held = ops.stop_gradient((x * self.w, [y])) if self.stop else (x * self.w, [y])
        return held[0] * x * held[1][0]


@pytest.mark.parametrize("way", WAYS)
def test_stopped_gradients(way):
    cell = Stopped()
    both = WAYS[way](lambda one: ops.GradOperation(True, True)(one, [cell.w]), cell)
    for turn in range(6):
        cell.stop = turn % 2 == 0
        x, y = torch.randn(3), torch.randn(3)
        w = cell.w.detach()
        if cell.stop:
            wanted = (x * w * y, torch.zeros(3)), (torch.zeros(3),)
        else:
            wanted = (2 * x * w * y, x * w * x), (x * x * y,)
        close(both(x, y), wanted)
