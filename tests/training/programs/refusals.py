"""Programs that autograd refuses, or that ask it for something special: what is said, and what is left."""

from __future__ import annotations

from typing import Any

import torch

from .common import Table, backward_inside, base, leaf

program = Table()


@program
def twice(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    l = jit(base)(x, w).sum()
    l.backward()
    l.backward()


@program
def twice_whole(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    l = jit(lambda x, w: base(x, w).sum())(x, w)
    l.backward()
    l.backward()


@program
def twice_grad(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    l = jit(lambda x, w: base(x, w).sum())(x, w)
    torch.autograd.grad(l, x)
    torch.autograd.grad(l, x)


@program
def twice_after_a_write_to_a_part(jit: Any) -> Any:
    """The backward of such a write saves no tensor, and runs once."""

    def f(x):
        y = x + x
        y[:, 0] = 0
        return y

    l = jit(f)(leaf(3, 4)).sum()
    l.backward()
    l.backward()


@program
def twice_inside(jit: Any) -> Any:

    def f(x, w):
        l = base(x, w).sum()
        l.backward()
        l.backward()

    jit(f)(leaf(3, 4), leaf(4, 2))


@program
def twice_inside_grad(jit: Any) -> Any:

    def f(x, w):
        l = base(x, w).sum()
        torch.autograd.grad(l, x)
        return torch.autograd.grad(l, x)

    return jit(f)(leaf(3, 4), leaf(4, 2))


@program
def spent_backward(jit: Any) -> Any:
    jit(backward_inside)(leaf(3, 4), leaf(4, 2)).backward()


@program
def spent_grad(jit: Any) -> Any:
    x = leaf(3, 4)
    torch.autograd.grad(jit(backward_inside)(x, leaf(4, 2)), x)


@program
def spent_grad_other(jit: Any) -> Any:
    x = leaf(3, 4)
    torch.autograd.grad(jit(backward_inside)(x, leaf(4, 2)), leaf(3))


@program
def spent_grad_unused(jit: Any) -> Any:
    x = leaf(3, 4)
    return torch.autograd.grad(jit(backward_inside)(x, leaf(4, 2)), leaf(3), allow_unused=True)


@program
def saved_changed(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    h = x * 1
    l = jit(base)(h, w).sum()
    h.add_(1)
    l.backward()


@program
def saved_out_changed(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    y = jit(lambda x: x.exp())(x)
    y.add_(1)
    y.sum().backward()


@program
def non_scalar(jit: Any) -> Any:
    jit(base)(leaf(3, 4), leaf(4, 2)).backward()


@program
def non_scalar_inside(jit: Any) -> Any:

    def f(x, w):
        base(x, w).backward()

    jit(f)(leaf(3, 4), leaf(4, 2))


@program
def unused(jit: Any) -> Any:
    x, w, z = (leaf(3, 4), leaf(4, 2), leaf(2))
    f = jit(lambda x, w, z: base(x, w).sum())
    torch.autograd.grad(f(x, w, z), (x, z))


@program
def unused_inside(jit: Any) -> Any:

    def f(x, w, z):
        return torch.autograd.grad(base(x, w).sum(), (x, z))

    jit(f)(leaf(3, 4), leaf(4, 2), leaf(2))


@program
def no_grad_out(jit: Any) -> Any:
    f = jit(lambda x: x.detach().sum())
    f(leaf(3)).backward()


@program
def no_grad_inside(jit: Any) -> Any:

    def f(x):
        x.detach().sum().backward()

    jit(f)(leaf(3))


@program
def seed_shape(jit: Any) -> Any:
    jit(base)(leaf(3, 4), leaf(4, 2)).backward(torch.ones(4, dtype=torch.float64))


@program
def seed_shape_inside(jit: Any) -> Any:

    def f(x, w, s):
        base(x, w).backward(s)

    jit(f)(leaf(3, 4), leaf(4, 2), torch.ones(4, dtype=torch.float64))


@program
def leaf_inplace(jit: Any) -> Any:
    jit(lambda x: x.add_(1))(leaf(3))


@program
def leaf_view_inplace(jit: Any) -> Any:
    jit(lambda x: x[0].add_(1))(leaf(3))


@program
def backward_inputs(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    jit(base)(x, w).sum().backward(inputs=[w])
    return (x.grad, w.grad)


@program
def backward_inputs_inside(jit: Any) -> Any:

    def f(x, w):
        base(x, w).sum().backward(inputs=[w])

    x, w = (leaf(3, 4), leaf(4, 2))
    jit(f)(x, w)
    return (x.grad, w.grad)


@program
def inference(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    f = jit(base)
    f(x, w)
    with torch.inference_mode():
        y = f(x, w)
    return (y.is_inference(), y.requires_grad)


@program
def inference_back(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    f = jit(base)
    with torch.inference_mode():
        y = f(x, w)
    (y * x.sum()).sum().backward()


@program
def grad_mode_inside(jit: Any) -> Any:

    def f(x, w):
        with torch.no_grad():
            a = x * 2
        with torch.set_grad_enabled(False):
            b = w * 2
        return ((a @ b).requires_grad, (x @ w).sum())

    x, w = (leaf(3, 4), leaf(4, 2))
    r, l = jit(f)(x, w)
    l.backward()
    return (r, x.grad)


@program
def materialize(jit: Any) -> Any:

    def f(x, z):
        return torch.autograd.grad((x * x).sum(), (x, z), materialize_grads=True)

    return jit(f)(leaf(3), leaf(2))


@program
def detach_(jit: Any) -> Any:
    y = jit(base)(leaf(3, 4), leaf(4, 2))
    y.detach_()
    return (y.requires_grad, y.is_leaf)


@program
def requires_grad_off(jit: Any) -> Any:
    y = jit(base)(leaf(3, 4), leaf(4, 2))
    y.requires_grad_(False)


@program
def hook_raises(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    f = jit(base)

    def bad(g):
        raise KeyError("no")

    x.register_hook(bad)
    f(x, w).sum().backward()


@program
def hook_bad_shape(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    f = jit(base)
    x.register_hook(lambda g: g[:1])
    f(x, w).sum().backward()


@program
def complex_bwd(jit: Any) -> Any:
    x = torch.randn(
        3, dtype=torch.complex128, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    y = jit(lambda x: (x * x).sum())(x)
    y.backward()


@program
def complex_bwd2(jit: Any) -> Any:
    x = torch.randn(
        3, dtype=torch.complex128, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    y = jit(lambda x: (x * x).abs().sum())(x)
    y.backward()
    return x.grad
