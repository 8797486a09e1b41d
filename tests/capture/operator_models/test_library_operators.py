"""Operators that a program registers (`torch.library`): one step of the graph, by fake rule, schema and formula."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from graftjit import JitConfig, jit

from ..harness import agrees, t
from . import library as lib

ops = torch.ops.graftlib
one_graph = agrees(graphs=1, breaks=0)
trained = agrees(breaks=0, backward=True)


# -- inference -------------------------------------------------------------------------------------
@one_graph
def test_calls_and_defaults():
    def f(x):
        return (
            lib.sine(x * 2) + 1,
            lib.sine(x, k=3.0) * 2,
            ops.sine(x),
            ops.sine.default(x, 2.0) - 1,
        )

    return f, (t(3, 4),)


@one_graph
def test_lists_and_keywords():
    def f(x):
        return lib.weighted([x, x * 2], [1, 3], by=0.5) + 1

    return f, (t(3, 4),)


@one_graph
def test_several_results_and_numbers():
    def f(x):
        whole, summed, n = lib.parts(x * 2)
        a, b = lib.twice(x + 1)
        return whole * summed * n, a * b, n

    return f, (t(3, 4),)


@one_graph
def test_operators_of_a_library():
    def f(x):
        return ops.tripled(x * 2) + lib.of_triton(x + 1)

    return f, (t(3, 4),)


@one_graph
def test_under_vmap():
    def f(x):
        return torch.vmap(lib.batched)(x * 2) + 1

    return f, (t(3, 4),)


@agrees(graphs=2, breaks=1, codes=("GB143",))
def test_an_operator_without_a_rule():
    def f(x):
        return lib.without_rule(x * 2) + 1

    return f, (t(3, 4),)


@agrees(graphs=2, breaks=1, codes=("GB143",))
def test_an_explicit_composite_without_a_rule():
    def f(x):
        return ops.explicit(x * 2) + 1

    return f, (t(3, 4),)


@agrees(graphs=2, breaks=1, codes=("GB102",))
def test_a_composite():
    def f(x):
        return ops.composite(x * 2, 3) + 1

    return f, (t(3, 4),)


@agrees(graphs=2, breaks=1, codes=("GB143",))
def test_a_view():
    def f(x):
        return ops.window(x * 2) + 1

    return f, (t(3, 4),)


def test_what_is_missing_is_said():
    def f(x):
        return lib.without_rule(x * 2) + 1

    run = jit(f)
    run(t(3))
    assert 'torch.library.register_fake("graftlib::without_rule")' in str(run.report())


def test_sizes_that_vary():
    """A fake rule runs on symbolic sizes."""
    run = jit(lambda x: lib.sine(x * 2).sum(0) + 1, dynamic=True)
    for n in (3, 5, 7, 11):
        x = t(n, 4)
        assert torch.allclose(run(x), lib.sine(x * 2).sum(0) + 1, atol=1e-6)
    assert run.report().break_count == 0
    assert run.report().graph_count == 1


@agrees(breaks=0)
def test_a_size_that_data_decide():
    def f(x):
        found = lib.positive(x * 2)
        return found + 1, found.sum(), found.shape[0]

    return f, (t(3, 4),), [lambda: (t(5, 4),), lambda: (-t(4) - 4,)]


@agrees()
def test_autocast_around():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            return lib.sine(y.float()) + 1

    return f, (t(3, 3),)


# -- writes ----------------------------------------------------------------------------------------
@one_graph
def test_writes_to_an_argument_and_to_a_value():
    def f(x):
        y = x * 2
        lib.scale_(y, 3.0)
        z = y + 1
        lib.scale_(y, 2.0)
        lib.scale_(x, 0.5)
        return y, z, x + 1

    return f, (t(3, 4),)


@one_graph
def test_writes_through_views():
    def f(x):
        y = x * 2
        lib.scale_(y[0], 3.0)
        lib.scale_(x[1:], 0.5)
        return y, y.sum(), x * 2

    return f, (t(3, 4),)


@one_graph
def test_writes_and_a_result():
    def f(x, out):
        y = lib.put(x * 2, out)
        local = torch.empty_like(x)
        z = lib.put(y, local)
        return y + out, z, local * 2

    return f, (t(3, 4), torch.zeros(3, 4))


@one_graph
def test_writes_to_a_list():
    def f(x):
        a, b = x * 2, x + 1
        lib.each_([a, b], 3.0)
        return a + b

    return f, (t(3, 4),)


def test_a_write_raises_the_version():
    run = jit(lambda x: lib.scale_(x, 2.0))
    x = t(3)
    for _ in range(3):
        before = x._version
        run(x)
        assert x._version == before + 1


@agrees()
def test_a_write_before_an_operator_that_raises():
    class Box:
        n = 0

    box = Box()

    def f(x):
        box.n += 1
        lib.scale_(x, -1.0)
        try:
            return lib.checked(x), box.n
        except ValueError as error:
            return str(error), box.n

    return f, (t(3).abs(),), [lambda: (-t(3).abs(),), lambda: (t(3).abs(),)]


def test_an_operator_that_raises_after_a_write():
    def f(x):
        y = x * 2
        lib.scale_(x, 2.0)
        return lib.checked(y) + 1

    def outcome(run, x):
        try:
            return run(x), x
        except ValueError as error:
            return str(error), x

    run = jit(f)
    for given in (t(3) + 2, t(3), t(3) + 5):
        (wanted, written), (found, here) = outcome(f, given.clone()), outcome(run, given.clone())
        assert torch.equal(written, here)
        assert type(wanted) is type(found)
        assert wanted == found if isinstance(wanted, str) else torch.equal(wanted, found)


# -- gradients -------------------------------------------------------------------------------------
def leaf(*shape: int) -> torch.Tensor:
    return t(*shape).requires_grad_()


@trained
def test_a_formula():
    def f(x):
        return lib.sine(x * 2, 3.0) * x, lib.cosine(x).sum()

    return f, (leaf(3, 4),)


@trained
def test_a_formula_of_a_library():
    def f(x):
        return ops.squared(x + 1) * x

    return f, (leaf(3, 4),)


@agrees(backward=True)
def test_several_results_of_a_formula():
    def f(x, y):
        a, b = lib.gated(x * 2, y)
        return a * b, x + 1

    return f, (leaf(3), leaf(3))


@pytest.mark.parametrize("which", [0, 1])
def test_one_result_of_a_formula_that_is_not_linear(which):
    def f(x, y):
        a, b = lib.gated(x * 2, y)
        return a * 3, b * 2

    found = []
    for run in (f, jit(f)):
        for _ in range(2):
            x, y = leaf(3), leaf(3)
            run(x, y)[which].sum().backward()
            found.append((x.grad, y.grad))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_an_operator_without_a_formula():
    run = jit(lambda x: lib.without_formula(x * 2) + x)
    for _ in range(2):
        y = run(leaf(3))
        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            y.sum().backward()
    assert run.report().break_count == 0


@agrees(breaks=0)
def test_a_step_of_training():
    model = nn.Linear(4, 4)
    with torch.no_grad():
        model.weight.copy_(t(4, 4))
        model.bias.copy_(t(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)

    def f(x):
        optimizer.zero_grad()
        loss = lib.sine(model(x), 2.0).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), model.weight.detach().clone()

    return f, (t(3, 4),)


@trained
def test_in_a_checkpoint():
    def f(x):
        return checkpoint(lambda y: lib.sine(y * 2, 2.0) * y, x, use_reentrant=False) + 1

    return f, (leaf(3, 4),)


def test_a_second_derivative():
    def f(x):
        y = lib.sine(x * 2).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        return first.square().sum()

    x = leaf(3)
    (wanted,) = torch.autograd.grad(f(x), x)
    run = jit(lambda x: lib.sine(x * 2).sum())
    for _ in range(2):
        x = leaf(3)
        (first,) = torch.autograd.grad(run(x), x, create_graph=True)
        (found,) = torch.autograd.grad(first.square().sum(), x)
        assert torch.allclose(wanted, found, atol=1e-6)
    inside = jit(f)
    x = leaf(3)
    (found,) = torch.autograd.grad(inside(x), x)
    assert torch.allclose(wanted, found, atol=1e-6)
    assert inside.report().break_count == 0


# -- effects ---------------------------------------------------------------------------------------
@agrees()
def test_a_list_that_a_kernel_and_the_function_use():
    calls = lib.CALLS
    calls.clear()

    def f(x):
        calls.append("before")
        y = lib.noted(x * 2)
        return y + 1, list(calls)

    return f, (t(3),)


def test_a_kernel_is_called_once_a_run():
    run = jit(lambda x: lib.noted(x * 2) + lib.noted(x * 2) + lib.noted(x).sum() * 0)
    run(t(3))
    lib.CALLS.clear()
    run(t(3))
    assert lib.CALLS == ["kernel"] * 3
    assert run.report().break_count == 0


def test_an_unused_result_does_not_remove_the_call():
    run = jit(lambda x: (lib.noted(x), x * 2)[1])
    run(t(3))
    lib.CALLS.clear()
    run(t(3))
    assert lib.CALLS == ["kernel"]


# -- rules that are untrue or replaced -------------------------------------------------------------
@pytest.mark.parametrize(
    ("op", "text"), [(lib.turned, "strides"), (lib.shorter, "sizes")], ids=["strides", "sizes"]
)
def test_an_untrue_rule(op, text, caplog):
    def f(x):
        return op(x * 2) + 1

    run = jit(f)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            found, wanted = run(t(3, 4)), f(t(3, 4))
            assert torch.equal(found, wanted)
            assert found.stride() == wanted.stride()
    said = [one.getMessage() for one in caplog.records if "WN609" in one.getMessage()]
    assert len(said) <= 1  # once a process
    assert text in str(run.report())
    assert {"GB143"} == {one.code for one in run.report().breaks}


def scaled(by: float, rule=torch.empty_like, formula: float = 1.0):
    op = torch.library.custom_op(
        "graftlib::scaled",
        lambda x: torch.from_numpy(x.detach().numpy() * np.float32(by)),
        mutates_args=(),
        schema="(Tensor x) -> Tensor",
    )
    op.register_fake(rule)
    op.register_autograd(lambda ctx, g: g * formula)
    return op


def test_a_formula_that_is_registered_again():
    op = scaled(2.0)
    run = jit(lambda x: op(x) * 3)

    def gradient():
        x = leaf(3)
        run(x).sum().backward()
        return x.grad

    assert torch.equal(gradient(), torch.full((3,), 3.0))
    op.register_autograd(lambda ctx, g: g * 5)
    assert torch.equal(gradient(), torch.full((3,), 15.0))


def test_a_kernel_that_is_registered_again():
    op = scaled(2.0)
    run = jit(lambda x: op(x) + 1)
    assert torch.equal(run(torch.ones(3)), torch.full((3,), 3.0))
    op.register_kernel("cpu", lambda x: x * 7)
    assert torch.equal(run(torch.ones(3)), torch.full((3,), 8.0))


def test_an_operator_that_is_defined_again():
    def make(by):
        made = torch.library.Library("graftlib_again", "DEF")
        made.define("scaled(Tensor x) -> Tensor")
        made.impl("scaled", lambda x: x * by, "CPU")
        torch.library.register_fake("graftlib_again::scaled", torch.empty_like, lib=made)
        return made

    made = make(2.0)
    run = jit(lambda x: torch.ops.graftlib_again.scaled(x) + 1)
    assert torch.equal(run(torch.ones(3)), torch.full((3,), 3.0))
    made._destroy()
    with pytest.raises((AttributeError, RuntimeError)):
        run(torch.ones(3))
    made = make(5.0)
    assert torch.equal(run(torch.ones(3)), torch.full((3,), 6.0))
    made._destroy()


def test_a_rule_that_is_given_later():
    op = torch.library.custom_op(
        "graftlib::later", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    run = jit(lambda x: op(x * 2) + 1)
    run(t(3))
    assert run.report().break_count == 1
    op.register_fake(torch.empty_like)
    assert torch.equal(run(t(3)), t(3) * 4 + 1)
    assert run.report().graph_count == 3  # two around the break, then one


def test_at_the_level_of_measured_schedules():
    run = jit(lambda x: lib.sine(x * 2) + 1, config=JitConfig(jit_level="O2"))
    assert torch.allclose(run(t(3, 4)), lib.sine(t(3, 4) * 2) + 1, atol=1e-6)
