"""Custom autograd functions under transforms of torch.func in a jitted function."""

import pytest
import torch
from torch.func import grad, grad_and_value, jacfwd, jacrev, jvp, vjp, vmap

from graftjit import jit

from .functions import Times

FACTOR = 2.0


class Exp(torch.autograd.Function):
    """Saves a result, keeps a number, and has a result without a gradient."""

    @staticmethod
    def forward(x, k):
        return x.exp() * k, x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[0])
        ctx.k = inputs[1]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, h):
        return g * ctx.saved_tensors[0] * ctx.k, None


class Reads(Exp):
    @staticmethod
    def backward(ctx, g, h):
        return g * ctx.saved_tensors[0] * FACTOR, None


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * 5


def t(*shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) * 0.37).sin().reshape(shape)


def outcome(function, x):
    """The results and, if there is a history, the gradient of their sum."""
    x = x.clone().requires_grad_(x.requires_grad)
    found = function(x)
    total = sum(one.sum() for one in (found if isinstance(found, tuple) else (found,)))
    return found, torch.autograd.grad(total, x) if total.requires_grad else None


def agree(function, x):
    """The report of the jitted function, whose results and gradients equal eager's."""
    jitted = jit(function)
    for with_history in (False, True, False):
        x = x.detach().requires_grad_(with_history)
        torch.testing.assert_close(outcome(jitted, x), outcome(function, x))
    return jitted.report()


CAPTURED = {
    "grad": lambda x: grad(lambda v: Times.apply(v, v.sin()).sum())(x),
    "grad_and_value": lambda x: grad_and_value(lambda v: Times.apply(v, x).sum())(x),
    "gradients of samples": lambda x: vmap(grad(lambda v: Times.apply(v, v).sum()))(x),
    "a result without a gradient": lambda x: grad(
        lambda v: (Exp.apply(v, 2.5)[0] * Exp.apply(v, 1.0)[1]).sum()
    )(x),
    "grad of grad": lambda x: grad(lambda v: grad(lambda u: Exp.apply(u, 2.5)[0].sum())(v).sum())(
        x
    ),
    "jacrev": lambda x: jacrev(lambda v: Exp.apply(v, 2.5)[0])(x[0]),
    "jacrev of jacrev": lambda x: jacrev(jacrev(lambda v: Exp.apply(v, 2.5)[0].sum()))(x[0]),
    "vjp": lambda x: vjp(lambda v: Times.apply(v, v), x)[1](x),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_a_function_with_setup_context_is_captured(name):
    report = agree(CAPTURED[name], t(5, 3))
    assert report.break_count == 0 and report.graph_count


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: vmap(grad(lambda v: Exp.apply(v, 2.0)[0].sum()))(x), "vmap support"),
        (lambda x: jvp(lambda v: Times.apply(v, v), (x,), (x,)), None),
        (lambda x: jacfwd(lambda v: Times.apply(v, v))(x), None),
        (lambda x: grad(lambda v: Squared.apply(v).sum())(x), "setup_context"),
    ],
)
def test_errors_are_those_of_torch(function, error):
    """No rule for vmap, no `jvp`, no `setup_context`."""
    for run in (function, jit(function)):
        with pytest.raises((RuntimeError, NotImplementedError), match=error):
            run(t(5, 3))


def test_a_global_that_backward_reads_is_a_break():
    """It is read once for each level, at different times."""
    global FACTOR
    function = lambda x: grad(lambda v: Reads.apply(v, 2.5)[0].sum())(x)  # noqa: E731
    jitted = jit(function)
    try:
        for FACTOR in (2.0, 5.0):
            torch.testing.assert_close(outcome(jitted, t(4)), outcome(function, t(4)))
    finally:
        FACTOR = 2.0
    assert "GB134" in {one.code for one in jitted.report().breaks}
