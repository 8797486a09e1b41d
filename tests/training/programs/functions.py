"""Programs with custom autograd functions, `torch.func`, `torch.autograd.functional` and forward mode around and inside of jitted functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad

from .common import Table, base, leaf

program = Table()


class New(torch.autograd.Function):
    @staticmethod
    def forward(x, k):
        return x.sin() * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g * x.cos() * ctx.k * 5, None)


class Old(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * 7


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


class NonDiff(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        i = x.argmax()
        ctx.mark_non_differentiable(i)
        ctx.set_materialize_grads(False)
        return (x * 2, i)

    @staticmethod
    def backward(ctx, g, gi):
        return None if g is None else g * 11


@program
def custom_new(jit: Any) -> Any:
    f = jit(lambda x, k: New.apply(x * 2, k).sum())
    x = leaf(3, 4)
    for k in (2, 2, 3):
        f(x, k).backward()
    return x.grad


@program
def custom_new_double(jit: Any) -> Any:
    f = jit(lambda x, k: New.apply(x * 2, k).sum())
    x = leaf(3, 4)
    (g,) = torch.autograd.grad(f(x, 2), x, create_graph=True)
    g.sum().backward()
    return (g, x.grad)


@program
def custom_old(jit: Any) -> Any:
    f = jit(lambda x: Old.apply(x * 2).sum())
    x = leaf(3, 4)
    for k in range(2):
        f(x).backward()
    return x.grad


@program
def custom_old_double(jit: Any) -> Any:
    f = jit(lambda x: Old.apply(x * 2).sum())
    x = leaf(3, 4)
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    g.sum().backward()


@program
def custom_dirty(jit: Any) -> Any:
    f = jit(lambda x: Dirty.apply(x * 2).sin().sum())
    x = leaf(3, 4)
    for k in range(2):
        f(x).backward()
    return x.grad


@program
def custom_nondiff(jit: Any) -> Any:

    def f(x):
        a, i = NonDiff.apply(x * 2)
        return (a.sum(), i)

    f = jit(f)
    x = leaf(3, 4)
    for k in range(2):
        l, i = f(x)
        l.backward()
    return (x.grad, i, i.requires_grad)


@program
def custom_call_old_style(jit: Any) -> Any:

    class Legacy(torch.autograd.Function):
        def forward(self, x):
            return x

        def backward(self, g):
            return g

    f = jit(lambda x: Legacy()(x))
    f(leaf(3))


@program
def func_grad(jit: Any) -> Any:
    f = jit(lambda x: (x.sin() * x).sum())
    x = leaf(5, grad=False)
    return ([torch.func.grad(f)(x) for _ in range(2)], torch.func.grad_and_value(f)(x))


@program
def func_vjp(jit: Any) -> Any:
    f = jit(base)
    x, w = (leaf(3, 4, grad=False), leaf(4, 2, grad=False))
    o, v = torch.func.vjp(f, x, w)
    return (o, v(torch.ones_like(o)))


@program
def func_jvp(jit: Any) -> Any:
    f = jit(base)
    x, w = (leaf(3, 4, grad=False), leaf(4, 2, grad=False))
    return torch.func.jvp(f, (x, w), (torch.ones_like(x), torch.ones_like(w)))


@program
def func_vmap(jit: Any) -> Any:
    f = jit(lambda x: (x * x).sum(0))
    return (torch.func.vmap(f)(leaf(3, 4)), torch.vmap(f, in_dims=1)(leaf(3, 4)))


@program
def func_jac(jit: Any) -> Any:
    f = jit(lambda x: x.sin() * x.sum())
    x = leaf(4, grad=False)
    return (
        torch.func.jacrev(f)(x),
        torch.func.jacfwd(f)(x),
        torch.func.hessian(lambda x: f(x).sum())(x),
    )


@program
def func_inside(jit: Any) -> Any:

    def f(x):
        g = lambda x: (x.sin() * x).sum()
        return (
            torch.func.grad(g)(x),
            torch.func.vmap(torch.func.grad(lambda a: a**3))(x),
            torch.func.jacrev(lambda a: a.cos() * a.sum())(x),
            torch.func.hessian(g)(x),
            torch.func.jvp(g, (x,), (x,)),
            torch.func.vjp(g, x)[1](torch.ones((), dtype=x.dtype)),
        )

    return [jit(f)(leaf(4, grad=False)) for _ in range(2)]


@program
def func_inside_grad(jit: Any) -> Any:

    def f(x):
        return torch.func.grad(lambda x: (x.sin() * x).sum())(x).sum()

    g = jit(f)
    x = leaf(4)
    g(x).backward()
    return x.grad


@program
def autograd_functional(jit: Any) -> Any:
    f = jit(lambda x: x.sin() * x.sum())
    x = leaf(4)
    return (
        torch.autograd.functional.jacobian(f, x),
        torch.autograd.functional.hessian(lambda x: f(x).sum(), x),
        torch.autograd.functional.vjp(f, x, torch.ones(4, dtype=x.dtype)),
        torch.autograd.functional.jvp(f, x, torch.ones(4, dtype=x.dtype)),
        torch.autograd.functional.jacobian(f, x, vectorize=True),
    )


@program
def dual(jit: Any) -> Any:
    f = jit(base)
    x, w = (leaf(3, 4, grad=False), leaf(4, 2, grad=False))
    f(x, w)
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x, torch.ones_like(x))
        o = f(d, w)
        p = forward_ad.unpack_dual(o)
        r = (p.primal, p.tangent)
        o2 = forward_ad.unpack_dual(f(x, w))
        r += (o2.tangent,)
    return r


@program
def dual_rg(jit: Any) -> Any:
    f = jit(base)
    x, w = (leaf(3, 4), leaf(4, 2))
    f(x, w).sum().backward()
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x, torch.ones_like(x))
        o = f(d, w)
        t = forward_ad.unpack_dual(o).tangent
        (g,) = torch.autograd.grad(t.sum(), w)
        return (t.detach(), g)


@program
def dual_param(jit: Any) -> Any:
    w = leaf(4, 2)
    f = jit(lambda x: base(x, w))
    x = leaf(3, 4, grad=False)
    f(x)

    class H:
        pass

    h = H()
    h.w = leaf(4, 2, grad=False)
    k = jit(lambda x: base(x, h.w))
    k(x)
    with forward_ad.dual_level():
        h.w = forward_ad.make_dual(h.w.detach(), torch.ones(4, 2, dtype=torch.float64))
        return forward_ad.unpack_dual(k(x)).tangent


@program
def dual_inside(jit: Any) -> Any:

    def f(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(x, x).sin()).tangent

    return jit(f)(leaf(4, grad=False))


@program
def is_grads_batched(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    y = jit(base)(x, w)
    return torch.autograd.grad(y, (x, w), torch.eye(3, dtype=torch.float64), is_grads_batched=True)


@program
def grad_batched_inside(jit: Any) -> Any:

    def f(x, w):
        y = base(x, w)
        return torch.autograd.grad(
            y, (x, w), torch.eye(3, dtype=torch.float64), is_grads_batched=True
        )

    return jit(f)(leaf(3, 4), leaf(4, 2))


@program
def sparse_gradient(jit: Any) -> Any:
    x = leaf(4, 2)
    rows = nn.functional.embedding(torch.tensor([1, 1, 3]), jit(lambda x: x * x)(x), sparse=True)
    rows.sum().backward()
    return x.grad.to_dense()
