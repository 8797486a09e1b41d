"""Branches whose body replaces tensors of locals: one graph, and the gradients of eager mode."""

from __future__ import annotations

import random
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import graftjit

from ..harness import agrees
from .series import giving, series

whole = agrees(graphs=1, breaks=0, recompiles=0)
broken = agrees(breaks=None)


def rows(grad=False):
    made = torch.Generator().manual_seed(5)
    some = [torch.randn(5, generator=made) for _ in range(4)]
    return [one.requires_grad_(grad) for one in (*some, -torch.ones(5), torch.ones(5))]


def world(fn):
    """The function, called with one of the tensors after the other, without gradients."""
    return series(torch.no_grad()(fn), rows())


class Layer(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(self.up(x).relu()))


class Skipping(nn.Module):
    """Layers that are skipped at random, with the lines of one way to write that."""

    def __init__(self, step, dropout=0.0, n=3):
        super().__init__()
        self.layers = nn.ModuleList([Layer(dropout) for _ in range(n)])
        self.step = step

    def forward(self, x):
        return self.step(self, x * 2).sin()


def goes_on(model, h):
    for layer in model.layers:
        if model.training and torch.rand([]) < 0.5:
            continue
        h = layer(h)
    return h


def by_a_flag(model, h):
    for layer in model.layers:
        to_drop = False
        if model.training:
            drawn = torch.rand([])
            if drawn < 0.5:
                to_drop = True
        if to_drop:
            outputs = (None, None)
        else:
            outputs = (layer(h),)
            h = outputs[0]
    return h


def by_a_truth(model, h):
    for layer in model.layers:
        drawn = torch.rand([])
        skips = model.training and drawn < 0.5
        if not skips:
            h = layer(h)
        if skips:
            outputs = (None, None)  # noqa: F841
    return h


def by_numbers_of_python(model, h):
    for layer in model.layers:
        if model.training and random.random() < 0.5:
            continue
        h = layer(h)
    return h


def by_numbers_of_numpy(model, h):
    for layer in model.layers:
        drawn = np.random.uniform(0, 1)
        skips = model.training and drawn < 0.5
        if not skips:
            h = layer(h)
    return h


def without_a_loop(model, h):
    first, second, _ = model.layers
    if torch.rand([]) < 0.5:
        h = first(h)
    if torch.rand([]) < 0.5:
        h = second(h)
    return h


def trained(step, dropout=0.0, calls=8, plain=False):
    """What some calls with gradients give and leave behind, in eager mode and compiled."""
    torch.manual_seed(3)
    model = Skipping(step, dropout)
    model.load_state_dict({k: 0.3 * torch.randn_like(v) for k, v in model.state_dict().items()})
    call = (lambda x: step(model, x)) if plain else model
    found = []
    run = graftjit.jit(call)
    for fn in (call, run):
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        mine = []
        for _ in range(calls):
            model.zero_grad()
            x = torch.randn(2, 4, requires_grad=True)
            y = fn(x)
            y.square().sum().backward()
            gradients = [one.grad for one in (x, *model.parameters())]
            mine.append(([y.detach(), *gradients], y is x, y.is_leaf, torch.get_rng_state()))
        found.append((mine, (random.getstate(), np.random.get_state()[2])))
    (eager, state), (compiled, state_after) = found
    assert state == state_after
    for (wanted, *facts, drawn), (got, *facts_after, drawn_after) in zip(
        eager, compiled, strict=True
    ):
        assert [one is None for one in wanted] == [one is None for one in got]
        torch.testing.assert_close(got, wanted)
        assert facts == facts_after
        assert torch.equal(drawn, drawn_after)
    return run.report()


def is_whole(report):
    assert (report.break_count, report.recompile_count) == (0, 0), report


def test_a_step_that_goes_on():
    is_whole(trained(goes_on))


def test_a_step_that_goes_on_with_dropout():
    is_whole(trained(goes_on, 0.4))


def test_a_flag_and_an_empty_way():
    is_whole(trained(by_a_flag))


def test_a_truth_that_is_tested_twice():
    is_whole(trained(by_a_truth, 0.4))


def test_random_numbers_of_python():
    is_whole(trained(by_numbers_of_python, 0.4))


def test_random_numbers_of_numpy():
    is_whole(trained(by_numbers_of_numpy))


def test_branches_without_a_loop():
    is_whole(trained(without_a_loop))


def test_the_argument_itself_if_all_are_skipped():
    report = trained(goes_on, plain=True)
    assert report.break_count == 0, report


@whole
def test_a_condition_of_a_product():
    def f(x):
        h = x.sin()
        if (x @ h).cos() > 0 * torch.rand([]):
            h = h * 2 + x
        return h + 1

    return world(f)


@whole
def test_two_tensors_of_one_body():
    def f(x):
        a, b = x.sin(), x.cos()
        for i in range(3):
            if (a @ b).sin() > 0.1 * i:
                a, b = b * 2, a + x
        return a + 1, b.tanh()

    return world(f)


@whole
def test_a_branch_inside_of_another():
    def f(x):
        h = x.sin()
        if (x @ x).cos() > 0 * torch.rand([]):
            h = h + 1
            if (x @ h).sin() > 0 * torch.rand([]):
                h = h * x
        return h - x

    return world(f)


@whole
def test_a_flag_that_is_true_before():
    def f(x):
        h, keeps = x.sin(), True
        if (x @ x).cos() > 0 * torch.rand([]):
            keeps = False
        if keeps:
            h = h * 3
        return h + x

    return world(f)


@broken
def test_another_shape():
    def f(x):
        h = x.sin()
        if (x @ x).cos() > 0 * torch.rand([]):
            h = h[:2] * 2
        return h + 1

    return world(f)


@broken
def test_a_write_behind_the_branch():
    """In eager mode it changes `g` where the branch was not taken."""

    def f(x):
        g = h = x.sin()
        if (x @ x).cos() > 0 * torch.rand([]):
            h = h * 2
        h.add_(1)
        return g * h

    return world(f)


@broken
def test_both_tensors_leave():
    def f(x):
        g = h = x.sin()
        if (x @ x).cos() > 0 * torch.rand([]):
            h = h * 2
        return g, h

    return world(f)


@broken
def test_is_of_both_tensors():
    def f(x):
        g = h = x.sin()
        if (x @ x).cos() > 0 * torch.rand([]):
            h = h * 2
        return h + 1, g is h

    return world(f)


@broken
def test_an_effect_in_the_body():
    def f(x):
        h, seen = x.sin(), []
        if (x @ x).cos() > 0 * torch.rand([]):
            h = h * 2
            seen.append(1)
        return h + 1, seen

    return world(f)


@agrees(breaks=None, backward=True)
def test_a_body_without_a_history():
    """Where it ran, the argument has no gradient."""

    def f(x, w):
        h = x.sin()
        if (x @ x).cos() > 0 * torch.rand([]):
            h = x.detach() * 2
        return h + w

    w = torch.ones(5, requires_grad=True)
    first, *rest = rows(grad=True)
    return f, (first, w), [giving(one, w) for one in rest]


@agrees(graphs=1, breaks=0, recompiles=0, backward=True)
def test_a_body_of_other_arguments():
    """Each argument has a gradient only where the tensor that it gave is used."""

    def f(x, v, w):
        h = v * 2
        if (x @ x).cos() > 0 * torch.rand([]):
            h = w.sin()
        return h + x

    v, w = (torch.full((5,), one, requires_grad=True) for one in (2.0, 3.0))
    first, *rest = rows(grad=True)
    return f, (first, v, w), [giving(one, v, w) for one in rest]


# -- a result that others depend on ----------------------------------------------------------------
class TwoParts(nn.Module):
    """An encoder whose last tensor is a result, and a decoder that reads it."""

    def __init__(self, step):
        super().__init__()
        self.encoder, self.decoder = Skipping(step), Skipping(step)
        self.step = step

    def forward(self, x):
        memory = self.step(self.encoder, x * 2)
        return memory, self.step(self.decoder, memory * 3) * memory.cos()


def of_both(memory, y):
    (memory.square().sum() + y.square().sum()).backward()


def of_the_last(memory, y):
    y.square().sum().backward()


def of_the_first(memory, y):
    memory.square().sum().backward()


def one_after_the_other(memory, y):
    y.square().sum().backward(retain_graph=True)
    memory.square().sum().backward()


def through_the_first(memory, y):
    memory.register_hook(lambda gradient: gradient * 2)
    memory.retain_grad()
    y.square().sum().backward()
    return memory.grad


def of_one_by_the_other(memory, y):
    return torch.autograd.grad(y.square().sum(), memory)[0]


@pytest.mark.parametrize(
    "differentiate",
    [
        of_both,
        of_the_last,
        of_the_first,
        one_after_the_other,
        through_the_first,
        of_one_by_the_other,
    ],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("step", [goes_on, by_a_flag, by_a_truth], ids=lambda one: one.__name__)
def test_a_result_that_others_depend_on(step, differentiate):
    torch.manual_seed(3)
    model = TwoParts(step).double()
    model.load_state_dict({k: 0.3 * torch.randn_like(v) for k, v in model.state_dict().items()})
    run = graftjit.jit(model)
    found = []
    for fn in (model, run):
        torch.manual_seed(1)
        mine = []
        for _ in range(8):
            model.zero_grad()
            x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
            results = fn(x)
            more = differentiate(*results)
            gradients = [one.grad for one in (x, *model.parameters())]
            mine.append([*(one.detach() for one in results), more, *gradients])
        found.append(mine)
    for wanted, got in zip(*found, strict=True):
        assert [one is None for one in wanted] == [one is None for one in got]
        torch.testing.assert_close(got, wanted)
    is_whole(run.report())


@pytest.mark.parametrize("grad", [False, True])
def test_the_decorated_function_itself_replaces_its_argument(grad):
    """The frame drops its argument, a caller's object, in the body."""
    layers = [nn.Linear(4, 4) for _ in range(3)]

    @graftjit.jit
    def run(h):
        for layer in layers:
            if torch.rand([]) < 0.5:
                continue
            h = layer(h)
        h = h.sin()
        h.mul_(2)
        return h

    def plain(h):
        for layer in layers:
            if torch.rand([]) < 0.5:
                continue
            h = layer(h)
        return h.sin() * 2

    with torch.set_grad_enabled(grad):
        for seed in range(8):
            torch.manual_seed(seed)
            wanted = plain(torch.ones(2, 4)), torch.rand(1)
            torch.manual_seed(seed)
            torch.testing.assert_close((run(torch.ones(2, 4)), torch.rand(1)), wanted)
    is_whole(run.report())


def test_an_argument_that_its_caller_does_not_hold():
    """A weak reference shows that the frame keeps it no longer than in plain Python."""
    layers = [nn.Linear(4, 4) for _ in range(2)]

    def f(h, seen):
        for layer in layers:
            if torch.rand([]) < 0.5:
                continue
            h = layer(h)
        seen.append([one() is None for one in held])
        return h.sin()

    held = []
    run = graftjit.jit(f)

    def outcome(fn, seed):
        torch.manual_seed(seed)
        seen = []
        held.clear()

        def given():
            made = torch.ones(2, 4)
            held.append(weakref.ref(made))
            return made

        return seen, fn(given(), seen).tolist()

    for seed in range(6):
        wanted, found = outcome(f, seed), outcome(run, seed)
        assert wanted[0] == found[0]
        torch.testing.assert_close(torch.tensor(found[1]), torch.tensor(wanted[1]))
