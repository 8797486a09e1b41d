"""Backwards in which some results have no gradient: what hangs on those alone is None, not zero, and nothing runs for it."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import graftjit


def t(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def _parts(x, w, b):
    y = x * w
    first, second = y.sin().chunk(2, 1)
    return first * 2, second.exp() + b.sum(), y.sum(0)


def _written(x, w, b):
    y = (x * w).tanh()
    z = torch.zeros_like(y)
    z[1:] = y[:-1]
    z[0] += b
    return z, y @ w.t(), b.square()


FUNCTIONS = {
    "apart": lambda x, w, b: (x.sin(), w.exp(), b * 2),
    "joined": lambda x, w, b: ((y := F.linear(x, w, b[:4])).relu(), y.softmax(-1), y.sum()),
    "loss and logits": lambda x, w, b: (F.cross_entropy(y := x @ w + b, torch.tensor([0, 1, 2, 3])), y, y.argmax(1)),
    "parts": _parts,
    "written": _written,
    "views": lambda x, w, b: ((y := x * w)[0], y.t(), w[1] * b),
    "norms": lambda x, w, b: ((y := F.layer_norm(x @ w, (4,), b)), y.mean(), y.std(0)),
    "stacked": lambda x, w, b: (torch.stack([x, w]), torch.cat([x, w * 2])[2:6], (x - w).cumsum(0)),
}  # fmt: skip


CHOICES = ((True, False, False), (False, True, False), (False, False, True), (True, False, True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_choice_of_results(name: str) -> None:
    function, jitted = FUNCTIONS[name], graftjit.jit(FUNCTIONS[name])
    for _ in range(2):
        for chosen in CHOICES:
            found = []
            for run in (function, jitted):
                leaves = [t(4, 4), t(4, 4), t(4)]
                outs = [o for o, one in zip(run(*leaves), chosen, strict=True) if one]
                outs = [o for o in outs if o.requires_grad]
                total = sum(((o * o).sum() for o in outs), leaves[0].sum() * 0)
                found.append(torch.autograd.grad(total, leaves, allow_unused=True))
            for a, b in zip(*found, strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    torch.testing.assert_close(a, b)
    assert "FB317" not in str(jitted.report())


def test_what_is_missing_is_no_zero() -> None:
    """A zero times the infinite slope at 0 would be nan."""
    for run in (f := lambda x: (x * 2, (x * 2).sqrt().sum(0)), graftjit.jit(f)):
        x = torch.zeros(4, requires_grad=True)
        run(x)[0].sum().backward()
        torch.testing.assert_close(x.grad, torch.full((4,), 2.0))


def test_a_model_that_gives_its_loss_and_more() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 5))

    def step(x, target):
        logits = model(x)
        return F.cross_entropy(logits, target), logits

    jitted = graftjit.jit(step)
    x, target = torch.randn(7, 6), torch.randint(5, (7,))
    for run in (step, jitted, jitted):
        model.zero_grad()
        run(x, target)[0].backward()
        if run is step:
            expected = [p.grad for p in model.parameters()]
        torch.testing.assert_close([p.grad for p in model.parameters()], expected)
    assert "FB317" not in str(jitted.report())


def test_sizes_that_vary() -> None:
    jitted = graftjit.jit(lambda x, w: ((x @ w).tanh(), x.sum(1) * w.sum()))
    w = t(4, 4)
    for n, at in ((2, 0), (3, 1), (5, 0), (7, 1), (9, 0)):
        x = t(n, 4)
        (g,) = torch.autograd.grad(jitted(x, w)[at].sum(), x)
        other = (x @ w).tanh().sum() if at == 0 else (x.sum(1) * w.sum()).sum()
        torch.testing.assert_close(g, torch.autograd.grad(other, x)[0])


# -- by some inputs --------------------------------------------------------------------------------
def _behind(x, w):
    y = x.sin() + w.exp()
    return y * 2, y + x.cos()


def _one_by_another(x, w):
    y = x.sin() + w.exp()
    return y, (y + w.exp()).square(), y.reshape(-1)


BY_SOME = {
    "one result": lambda x, w: x.sin() + w.exp(),
    "behind what is freed": lambda x, w: (x.sin() + w.exp()).tanh(),
    "two results": _behind,
    "in segments": _one_by_another,
}


def _by_some(function, moves):
    leaves, found = [t(3, 4), t(4)], []
    results = function(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    for at, asked in moves:
        one = results[at % len(results)]
        try:
            found += torch.autograd.grad(one.sum(), [leaves[k] for k in asked], allow_unused=True)
        except RuntimeError as error:
            # What a backward that raises has freed depends on the order of its nodes.
            return [*found, str(error).split(",")[0]]
    return found


@pytest.mark.parametrize("name", BY_SOME)
def test_a_backward_by_some_inputs_frees_what_these_need(name: str) -> None:
    jitted = graftjit.jit(BY_SOME[name])
    kinds = [*itertools.product(range(3), [(0,), (1,), (0, 1)])]
    for moves in itertools.product(kinds, kinds, [(0, (0,)), (1, (1,))]):
        for a, b in zip(_by_some(jitted, moves), _by_some(BY_SOME[name], moves), strict=True):
            assert type(a) is type(b), (moves, a, b)
            assert torch.allclose(a, b) if isinstance(a, torch.Tensor) else a == b, (moves, a, b)


def test_a_backward_by_its_own_result_frees_what_that_needs() -> None:
    for function in (graftjit.jit(lambda x: x * x.sin()), lambda x: x * x.sin()):
        result = function(t(3, 4))
        result.sum().backward(inputs=[result])
        with pytest.raises(RuntimeError, match="a second time"):
            result.sum().backward()


# -- by results ------------------------------------------------------------------------------------
class _Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w, x + w

    @staticmethod
    def backward(ctx, g, h):
        x, w = ctx.saved_tensors
        return w * g + h, x * g + h


BY_RESULTS = {
    "an operator that saves": lambda x, w: (x.sin() * w,),
    "an operator that saves nothing": lambda x, w: (x.sin() + w.exp(),),
    "results that share what they save": lambda x, w: ((h := (x * w).tanh()) * w, h.exp() + x, h.sum()),
    "results apart": lambda x, w: (x.sin(), w.exp(), x + w),
    "one by another": lambda x, w: ((y := x.sin() * w), (y + w.exp()).square(), y.reshape(-1)),
    "views": lambda x, w: ((y := x * w)[0], y.t(), (w.exp() * x)[1:]),
    "an operator of two results": lambda x, w: (*torch.var_mean(x * w, 0), w.sin()),
    "a result without a gradient": lambda x, w: (*(x * w).cummax(0), w.exp() * x),
    "a custom function": lambda x, w: (*_Kept.apply(x.sin(), w), w.exp()),
}  # fmt: skip


def _by_results(function, moves):
    """What backwards of (result, inputs by number, whether the graph is retained) give."""
    leaves = [t(4, 4), t(4, 4)]
    results = [one for one in function(*leaves) if one.requires_grad]
    everything, seen = [*results, *leaves], []
    for at, asked, retain in moves:
        one = results[at % len(results)]
        inputs = [everything[k % len(everything)] for k in asked]
        try:
            one.backward(torch.ones_like(one), retain_graph=retain, inputs=inputs)
        except RuntimeError as error:
            return [*seen, str(error).split(",")[0]]
        seen += [None if x.grad is None else x.grad.clone() for x in everything]
    return seen


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("name", BY_RESULTS)
def test_a_backward_by_results_runs_their_operators(name: str) -> None:
    """It frees what these have saved, and no other operator's, and raises if that is freed."""
    jitted = graftjit.jit(BY_RESULTS[name])
    asked = ((0,), (1,), (-1,), (0, -1), (0, 1))
    for first in itertools.product(range(2), asked, (False, True)):
        for second in itertools.product(range(2), asked, (False,)):
            moves = first, second, (1, (0, 1), False)
            ours, theirs = _by_results(jitted, moves), _by_results(BY_RESULTS[name], moves)
            for a, b in zip(ours, theirs, strict=True):
                assert type(a) is type(b), (moves, a, b)
                same = torch.allclose(a, b) if isinstance(a, torch.Tensor) else a == b
                assert same, (moves, a, b)
