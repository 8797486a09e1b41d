"""torch.func.vjp and linearize in a jitted function: the function that they return, called, kept, or called too late."""

from __future__ import annotations

import torch
from torch.func import functionalize, grad, jacrev, linearize, vjp, vmap

from ..harness import agrees


def t(*shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) * 0.37).sin().reshape(shape)


def f(x):
    return torch.tanh(x * x.flip(0)).sin()


# -- in the graph ----------------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0, backward=True, level="O1")
def test_vjp_with_a_tensor_of_the_frame():
    def fn(w, x):
        y = w * 2
        out, back = vjp(lambda v: (v * y).sin(), x * 3)
        return back(torch.ones(3))[0] + out, back(out)[0]

    return fn, (t(3).requires_grad_(), t(3).cos().requires_grad_())


@agrees(graphs=1, breaks=0)
def test_jacobians_by_hand():
    def fn(x):
        out, back = vjp(f, x)
        _, forth = linearize(f, x)
        return out, vmap(back)(torch.eye(3))[0], vmap(forth)(torch.eye(3)), jacrev(f)(x)

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_containers_and_aux():
    def fn(x):
        def body(d, y):
            return {"a": d["x"] * y, "b": (y.sin(),)}, d["x"] + 1

        out, back, aux = vjp(body, {"x": x, "z": x + 1}, x.cos(), has_aux=True)
        return out, aux, back({"a": x, "b": (x * 2,)})

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_linearize_of_several():
    def fn(w, x):
        def body(d, y):
            return d["x"] * y * w, y.sum()

        out, forth = linearize(body, {"x": x}, x.cos())
        return out, forth({"x": torch.ones(3)}, x)

    return fn, (t(3), t(3).cos())


@agrees(graphs=1, breaks=0)
def test_inside_of_other_transforms():
    def fn(x):
        def norm(y):
            return (vjp(f, y)[1](torch.ones(3))[0] ** 2).sum()

        def second(y):
            _, back = vjp(lambda z: vjp(f, z)[1](torch.ones(3))[0], y)
            return back(y)[0]

        rows = vmap(lambda row: vjp(torch.sin, row)[1](row)[0])(torch.stack([x, x + 1]))
        return grad(norm)(x), second(x), rows

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_a_product_under_no_grad():
    def fn(x):
        out, back = vjp(f, x)
        with torch.no_grad():
            return out, back(torch.ones(3))[0], back.__name__, back.__qualname__

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_effects_happen_once():
    def fn(x, log):
        def body(y):
            log.append(y.shape)
            return y.sin()

        out, back = vjp(body, x)
        return out, back(x), back(x * 2)

    return fn, (t(3), [])


# -- breaks ----------------------------------------------------------------------------------------------
@agrees()
def test_the_function_outlives_the_graph():
    def fn(x):
        y = x * 2
        out, back = vjp(f, y)
        print(end="")
        return back(torch.ones(3))[0] + out, y

    return fn, (t(3),)


@agrees()
def test_the_function_is_returned():
    def fn(x):
        def maker(y):
            return vjp(f, y * 2)

        return maker(x)[1], linearize(f, x)[1]

    def around(x):
        back, forth = fn(x)
        return back(torch.ones(3)), forth(torch.ones(3))

    return around, (t(3),)


@agrees()
def test_what_is_read_changes_before_the_call():
    def fn(x):
        y, w = x * 2, x.cos()
        out, back = vjp(lambda v: (v * w).sin(), y)
        w.add_(1)
        try:
            return out, back(torch.ones(3))[0]
        except RuntimeError as error:
            return str(error).split(":")[0]

    return fn, (t(3),)


@agrees()
def test_random_numbers():
    def fn(x):
        out, back = vjp(lambda v: torch.nn.functional.dropout(v, 0.5), x)
        return out, back(torch.ones(3))[0], linearize(lambda v: v * 2, x)[1](x)

    return fn, (t(30),)


@agrees(backward=True)
def test_grad_mode_changes_before_the_call():
    def fn(w):
        with torch.no_grad():
            out, back = vjp(f, w * 2)
        return back(torch.ones(3).requires_grad_())[0], out

    return fn, (t(3).requires_grad_(),)


@agrees(backward=True)
def test_linearize_keeps_no_history_of_what_it_folds():
    def fn(w, x):
        out, forth = linearize(lambda y: (y * w).sin(), x)
        return out, forth(torch.ones(3)), grad(lambda v: (v * w).sum())(x)

    return fn, (t(3).requires_grad_(), t(3).cos().requires_grad_())


@agrees()
def test_wrong_arguments_raise():
    def fn(x):
        texts = []
        _, back = vjp(f, x)
        _, forth = linearize(f, x)
        for function, value in ((back, (x, x)), (back, x[:2]), (forth, x[:2]), (forth, x.double())):
            try:
                function(value)
            except RuntimeError as error:
                texts.append(str(error))
        back(x, retain_graph=False)
        try:
            back(x)
        except RuntimeError as error:
            texts.append(str(error))
        return texts

    return fn, (t(3),)


@agrees()
def test_levels_of_transforms_are_left():
    def fn(x):
        made = functionalize(f)(x)
        jacobian = torch.autograd.functional.jacobian(f, x, vectorize=True, strategy="forward-mode")
        return made, jacobian, torch._C._functorch.maybe_current_level()

    return fn, (t(3),)
