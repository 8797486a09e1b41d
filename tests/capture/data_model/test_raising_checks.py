"""Branches on tensor data of which one side only raises: checks of the graph.

PYTEST_DONT_REWRITE: the programs have assertions of their own.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graftjit import jit
from graftjit.runtime.process.session import SESSION

from ..harness import agrees, t
from .series import giving, series, trained

GOOD = [t(4), t(4) + 1, t(4) - 3]
BAD = [t(4), torch.tensor([1.0, float("nan"), 3.0, 4.0]), t(4) + 1, t(4) * 1e30, t(4) - 3]


def good(fn):
    """No check fires."""
    return series(fn, GOOD)


def bad(fn):
    """Checks fire in some calls."""
    return series(fn, BAD)


def beside(fn, other):
    """Checks fire in some calls of fn(x, other)."""
    first, *rest = BAD
    return fn, (first, other), [giving(one, other) for one in rest]


def finite(h):
    if not torch.isfinite(h).all():
        raise ValueError(f"not finite: {h.tolist()}")
    return h


# -- the forms -------------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0, recompiles=0, codes=())
def test_nothing_fires():
    def f(x):
        h = x.sin() * 2
        if torch.isnan(h).any():
            raise ValueError("nan")
        assert (h < 5).all(), f"too large: {h.max().item()}"
        return h + h.sum()

    return good(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_raise():
    def f(x):
        h = x * 1e20
        if torch.isnan(h).any():
            raise ValueError("nan")
        if (h > 1e30).any():
            raise OverflowError("large", h)
        return h + 1

    return bad(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_an_assertion():
    def f(x):
        h = x * 1e20
        assert torch.isfinite(h).all(), f"{h.max().item():.2f}"
        return h + 1

    return bad(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_several_conditions():
    def f(x):
        h = x.exp()
        if torch.isnan(h).any() or (h == 0).any():
            raise ValueError("bad")
        assert not (torch.isinf(h).any() or (h.sum() < 0))
        return h + 1

    return bad(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_torchs_assertions():
    def f(x):
        h = x * 1e20
        torch._assert(torch.isfinite(h).all(), "not finite")
        torch._assert_async((h < 1e30).all())
        return h + 1

    return bad(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_numbers_that_the_graph_reads():
    def f(x):
        h = x * 1e20
        most, count = h.max().item(), (h > 0).sum().item()
        if most > 1e30:
            raise OverflowError(f"large: {most}")
        assert most == most, "nan"
        if not count:
            raise ValueError("none")
        bad = bool((h < -1e22).any())
        assert not bad
        return h * count

    return bad(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_torchs_check():
    def f(x):
        h = x * 1e20
        torch._check(bool(torch.isfinite(h).all()))
        torch._check((h < 1e30).all().item(), lambda: f"large: {h}")
        return h + 1

    return bad(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_the_truth_of_a_number():
    def f(x):
        total = (x * 2).sum()
        if total:
            raise ValueError("not zero")
        return total + 1

    nan = torch.tensor([0.0, float("nan"), 0.0])
    return series(f, [torch.zeros(3), t(3), torch.zeros(3), nan])


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_tensor_of_one_element_with_a_gradient():
    def f(x):
        h = (x * 2).sum(0, keepdim=True)
        assert h
        return h + 1

    values = [torch.ones(3), torch.zeros(3), torch.ones(3)]
    return series(f, [one.requires_grad_() for one in values])


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_check_in_a_helper():
    def f(x):
        return finite(finite(x * 1e20) + 1) * 2

    return bad(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_check_in_a_loop_and_in_a_block():
    def f(x):
        for _ in range(3):
            with torch.no_grad():
                x = x * 1e15
                if torch.isnan(x).any():
                    raise ValueError("nan")
        return x

    return bad(f)


@agrees()
def test_several_elements():
    def f(x):
        h = x * 2
        assert h > 0
        return h

    return good(f)


# -- what else the frame does ----------------------------------------------------------------------
@agrees(graphs=1, breaks=0, recompiles=0)
def test_effects_around_a_check():
    seen = []

    def f(x):
        seen.append("before")
        h = finite(x * 1e20)
        seen.append(h)
        return h + 1, seen

    return bad(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_writes_around_a_check():
    def f(x, kept):
        kept.add_(1)
        h = finite(x * 1e20)
        kept.mul_(2)
        return kept + h

    kept = torch.ones(4)
    return beside(f, kept)


@agrees(breaks=1)
def test_a_write_that_cannot_wait():
    def f(x, kept):
        kept[:, 0].add_(1)
        h = finite(x * 1e20)
        return kept + h

    kept = torch.ones(4, 4).t().expand(3, 4, 4)[0, ::2]
    return beside(f, kept)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_random_numbers_around_a_check():
    def f(x):
        noise = torch.rand(4)
        h = finite(x * 1e20)
        return h + noise + torch.rand(4)

    return bad(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_another_error_after_a_check():
    def f(x, index):
        h = finite(x * 1e20)
        return F.embedding(index, h[:, None])

    index = torch.tensor([1, 4])
    return beside(f, index)


@agrees(graphs=2, breaks=1, recompiles=0)
def test_a_break_after_a_check():
    def f(x):
        h = finite(x * 1e20)
        print(h.shape)
        return h + 1

    return bad(f)


@agrees()
def test_a_handler_of_the_frame_makes_it_a_branch():
    def f(x):
        h = x * 1e20
        try:
            if torch.isnan(h).any():
                raise ValueError("nan")
        except ValueError:
            return x.nan_to_num()
        return h

    return bad(f)


@agrees()
def test_a_handler_of_a_caller_makes_it_a_branch():
    def f(x):
        with contextlib.suppress(TypeError):
            try:
                return finite(x * 1e20)
            except ValueError as error:
                return str(error)

    return bad(f)


@agrees()
def test_a_side_that_may_return_is_a_branch():
    def f(x):
        h = x.sin()
        if h.sum() > 0:
            if h[0] > 0:
                return h - 1
            raise ValueError("negative")
        return h + 1

    return bad(f)


# -- training --------------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0, recompiles=0, backward=True, codes=())
def test_a_gradient_through_checked_values():
    def f(x, layer):
        h = layer(x).tanh()
        if torch.isnan(h).any():
            raise ValueError("nan")
        loss = (h**2).mean()
        assert torch.isfinite(loss), "the loss"
        return loss, h

    return trained(f)


@agrees(graphs=1, breaks=0, recompiles=0, backward=True)
def test_a_gradient_and_a_check_that_fires():
    def f(x, layer):
        h = layer(x).tanh()
        if h.sum() > 1:
            raise ValueError("large")
        return (h**2).mean()

    return trained(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_step_of_training_with_a_check():
    def f(x, layer):
        layer.zero_grad()
        loss = (layer(x) ** 2).mean()
        if loss > 1.5:
            raise ValueError("large")
        loss.backward()
        with torch.no_grad():
            for one in layer.parameters():
                assert torch.isfinite(one.grad).all()
                one -= 0.1 * one.grad
        return loss

    return trained(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_batch_norm_before_a_check():
    layer = nn.BatchNorm1d(3)

    def f(x):
        h = layer(x)
        if h.abs().max() > 1.6:
            raise ValueError("large")
        return h, layer

    made = torch.Generator().manual_seed(5)
    return series(f, [torch.randn(4, 3, generator=made) for _ in range(6)])


@pytest.mark.parametrize("grad", [False, True])
def test_a_checked_function_under_no_grad(grad):
    run = jit(finite)
    with torch.set_grad_enabled(grad):
        assert torch.equal(run(t(3)), t(3))
        with pytest.raises(ValueError, match="not finite"):
            run(t(3) / 0)
        assert torch.is_grad_enabled() is grad


def test_the_check_is_a_native_step():
    with SESSION.override(check=False):  # a comparison would be around the program
        run = jit(finite)
        run(t(3))
    (entry,) = run.state.entries
    assert entry.kind == "direct" and "check" in entry.target.routes
