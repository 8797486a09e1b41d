"""Jitted functions and compiled modules under transforms of torch.func: compiled, and as eager."""

import pytest
import torch
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

from graftjit import JitConfig, compile, jit, report


def same(found, expected):
    """Whether two nested results are equal, but for the rounding of other kernels."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=3e-5)
    return True


def t(*shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) * 0.37).sin().reshape(shape)


def loss(w, x):
    return (torch.tanh(x @ w) ** 2).sum()


def rows(w, x):
    return torch.tanh(x @ w)


def both(transform, *args, fn=loss, times=2):
    """The report of a jitted function, whose results under the transform equal eager's."""
    jitted = jit(fn)
    for _ in range(times):
        found, expected = transform(jitted)(*args), transform(fn)(*args)
        assert same(found, expected), (found, expected)
    return jitted.report()


def compiled(report):
    return bool(report.entries) and not report.break_count and not plain(report)


def plain(report):
    return [one for one in report.notes if one.code == "PL209"]


TRANSFORMS = {
    "grad": grad,
    "grad of the second": lambda f: grad(f, argnums=1),
    "grad of both": lambda f: grad(f, argnums=(0, 1)),
    "grad_and_value": grad_and_value,
    "vmap": lambda f: vmap(f, in_dims=(None, 0)),
    "vmap in chunks": lambda f: vmap(f, in_dims=(None, 0), chunk_size=2),
    "gradients of samples": lambda f: vmap(grad(f), in_dims=(None, 0)),
    "grad of vmap": lambda f: grad(lambda w, x: vmap(f, in_dims=(None, 0))(w, x).sum()),
    "jvp": lambda f: lambda w, x: jvp(f, (w, x), (w + 1, x)),
    "jvp of one": lambda f: lambda w, x: jvp(lambda w: f(w, x), (w,), (w + 1,)),
    "vjp": lambda f: lambda w, x: vjp(f, w, x)[1](torch.tensor(2.0)),
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "hessian": hessian,
    "jacrev of jacrev": lambda f: jacrev(jacrev(f)),
    "grad of grad": lambda f: grad(lambda w, x: grad(f)(w, x).square().sum()),
    "grad of grad, both arguments": lambda f: grad(
        lambda w, x: grad(lambda w, x: f(w, x).square(), argnums=(0, 1))(w, x)[0].sum()
    ),
    "jacfwd of grad": lambda f: jacfwd(grad(f), argnums=1),
    "jacfwd of gradients of samples": lambda f: jacfwd(vmap(grad(f), in_dims=(None, 0))),
    "jvp of vmap": lambda f: lambda w, x: jvp(vmap(f, in_dims=(None, 0)), (w, x), (w, x)),
    "grad of a jvp": lambda f: grad(lambda w, x: jvp(f, (w, x), (x[:4, :3], x))[1]),
    "inside other code": lambda f: grad(lambda w, x: f(w * 2, x.exp()).sin()),
    "twice": lambda f: grad(lambda w, x: f(w, x) * f(w.cos(), x)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_over_a_jitted_function(name):
    assert compiled(both(TRANSFORMS[name], t(4, 3), t(6, 4)))


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: lambda w, x: vjp(f, w, x)[1](torch.ones(6, 3)),
        lambda f: jacrev(f, argnums=(0, 1)),
        jacfwd,
        lambda f: vmap(jacrev(f), in_dims=(None, 0)),
        lambda f: vmap(f, in_dims=(1, None), out_dims=1),
    ],
)
def test_a_result_with_many_elements(transform):
    assert compiled(both(transform, t(4, 3), t(6, 4), fn=rows))


def test_nested_vmaps():
    def fn(a, b):
        return (a * b).sum() + a.max()

    transform = lambda f: vmap(vmap(f, in_dims=(None, 0)), in_dims=(0, None))  # noqa: E731
    assert compiled(both(transform, t(3, 5), t(4, 5), fn=fn))


def test_arguments_and_results_in_containers():
    def fn(params, *, x, scale=2.0, deep):
        h = x @ params["w"] + params["b"]
        return h.square().mean() * scale, {"h": h, "more": [deep[0] + 1]}

    def transform(f):
        def call(params, x):
            return grad(lambda p: f(p, x=x, deep=(x,)), has_aux=True)(params)

        return call

    assert compiled(both(transform, {"w": t(4, 3), "b": t(3)}, t(6, 4), fn=fn))


def test_numbers_that_vary_are_arguments_of_one_function():
    jitted = jit(lambda x, k: (x.sin() * k).sum())
    for k in range(2, 8):
        assert same(grad(jitted)(t(5), float(k)), grad(jitted.__wrapped__)(t(5), float(k)))
    assert len(jitted.report().entries) < 4


def test_linearize():
    both(lambda f: lambda w, x: linearize(f, w, x)[1](w, x), t(4, 3), t(6, 4))


# -- modules ---------------------------------------------------------------------------------------
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 2))


def test_a_compiled_module_by_functional_call():
    model = network()
    made = compile(model)
    params = {name: one.detach() for name, one in model.named_parameters()}
    x, y = t(6, 4), t(6, 2)

    def over(module):
        def of(params, x, y):
            return ((functional_call(module, params, (x,)) - y) ** 2).mean()

        return (
            grad(of)(params, x, y),
            vmap(grad(of), in_dims=(None, 0, 0))(params, x, y),
            jacrev(of)(params, x, y),
        )

    for _ in range(2):
        assert same(over(made), over(model))
    assert compiled(report(made))
    assert all(type(one) is nn.Parameter for one in model.parameters())


def test_an_ensemble():
    models = [network() for _ in range(3)]
    params, buffers = stack_module_state(models)
    params = {name: one.detach() for name, one in params.items()}
    made = compile(models[0])

    def over(module):
        return vmap(lambda p, b, x: functional_call(module, (p, b), (x,)), in_dims=(0, 0, None))(
            params, buffers, t(6, 4)
        )

    assert same(over(made), over(models[0]))
    assert compiled(report(made))


def test_gradients_by_weights_around_a_transform():
    """The weights are not arguments, and autograd differentiates the transform's result by them."""
    model = network()
    jitted = jit(lambda x: model(x).square().sum())

    def over(f):
        model.zero_grad()
        found, value = grad_and_value(f)(t(4)), f(t(4))
        (found[0].sum() + found[1] + vmap(f)(t(6, 4)).sum() + value).backward()
        return found[0].detach(), [one.grad.clone() for one in model.parameters()]

    for _ in range(2):
        assert same(over(jitted), over(jitted.__wrapped__))
    assert compiled(jitted.report())


@pytest.mark.parametrize("name", ["grad", "vmap", "jvp", "hessian", "gradients of samples"])
def test_arguments_with_a_history(name):
    jitted = jit(loss)

    def over(f):
        w, x = t(4, 3).requires_grad_(), t(6, 4)
        found = TRANSFORMS[name](f)(w, x)
        found = sum(one.sum() for one in found) if isinstance(found, tuple) else found.sum()
        return found.detach(), torch.autograd.grad(found, w)

    assert same(over(jitted), over(loss))
    assert compiled(jitted.report())


def test_no_grad_around_a_transform():
    weight = t(4, 3).requires_grad_()

    def fn(x):
        return (x @ weight).sin().sum()

    jitted = jit(fn)
    for transform in (grad_and_value, vmap, jacfwd, lambda f: vmap(grad(f))):
        x = t(6, 4) if transform in (vmap,) else t(4)
        x = t(6, 4) if transform not in (grad_and_value, jacfwd) else x
        with torch.no_grad():
            found, expected = transform(jitted)(x), transform(fn)(x)
        assert same(found, expected)
        flat = found if isinstance(found, tuple) else (found,)
        assert not any(one.requires_grad for one in flat)
    assert compiled(jitted.report())


def test_no_grad_inside_a_transform():
    jitted = jit(lambda x: x.sin().sum())

    def over(f):
        def call(x):
            with torch.no_grad():
                c = f(x)
            return c * x.sum() + f(x)

        return grad(call)(t(4))

    assert same(over(jitted), over(jitted.__wrapped__))


def test_a_program_takes_no_history_from_a_transform():
    jitted = jit(loss)
    value = grad_and_value(jitted)(t(4, 3), t(6, 4))[1]
    assert not value.requires_grad and value.grad_fn is None


# -- random numbers --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "transform",
    [
        grad,
        grad_and_value,
        jacrev,
        lambda f: jacfwd(f, randomness="different"),
        lambda f: vmap(f, randomness="different"),
        lambda f: vmap(f, randomness="same"),
        lambda f: vmap(grad(f), randomness="different"),
        lambda f: grad(lambda x: vmap(f, randomness="same")(x).sum()),
        lambda f: lambda x: vmap(lambda y: f(x) + y.sum(), randomness="different")(t(3, 2)),
    ],
)
def test_random_numbers_are_those_of_eager(transform):
    def fn(x):
        return (nn.functional.dropout(x, 0.5) * x.sin()).sum() * torch.rand(())

    jitted = jit(fn)
    for _ in range(2):
        torch.manual_seed(3)
        found, after = transform(jitted)(t(6, 4)), torch.rand(2)
        torch.manual_seed(3)
        expected, expected_after = transform(fn)(t(6, 4)), torch.rand(2)
        assert same(found, expected) and same(after, expected_after)


def test_dropout_under_grad_is_compiled():
    def fn(x):
        return (nn.functional.dropout(x, 0.5) * x.sin()).sum()

    jitted = jit(fn)
    torch.manual_seed(3)
    found = grad(jitted)(t(6, 4))
    torch.manual_seed(3)
    assert same(found, grad(fn)(t(6, 4))) and compiled(jitted.report())


def test_errors_of_randomness_are_those_of_torch():
    jitted = jit(lambda x: x + torch.rand(3))
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(jitted)(t(5, 3))


# -- what runs as written --------------------------------------------------------------------------
def test_effects_happen_as_in_eager():
    def over(jits):
        seen = []

        def fn(x):
            y = x.sin()
            seen.append(y)
            return y.sum()

        f = jit(fn) if jits else fn
        found = grad(lambda x: f(x) + seen.pop().exp().sum())(t(4))
        return found, seen, f

    found, expected = over(True), over(False)
    assert same(found[:2], expected[:2])
    assert plain(found[2].report())


def test_a_break_runs_as_written():
    def fn(x):
        print(end="")
        return x.sin().sum()

    made = both(grad, t(4), fn=fn)
    (one,) = plain(made)
    assert "a transform of torch.func" in one.reason and "torch.func" in one.reason


def test_writes_and_results_that_are_arguments():
    def writes(x):
        y = x * 2
        x.mul_(3)
        return y.sum() + x.sum()

    def view(x):
        return x.sum(), x[:2]

    def itself(x):
        return x.sum(), x

    both(lambda f: lambda x: grad(lambda x: f(x.clone()))(x), t(4), fn=writes)
    both(lambda f: grad(f, has_aux=True), t(4), fn=view)
    both(lambda f: grad(f, has_aux=True), t(4), fn=itself)


def test_a_tensor_of_the_level_in_the_closure():
    """A tensor that the function reads beside its arguments belongs to the level, too."""
    held = {}
    jitted = jit(lambda x: (x * held["w"]).sum())

    def over(f, with_level):
        def call(w):
            held["w"] = w if with_level else w.detach()
            return f(t(4)) + f(w)

        held["w"] = t(4)
        return grad(call)(t(4) + 1), f(t(4))

    for with_level in (False, True, False, True):
        assert same(over(jitted, with_level), over(jitted.__wrapped__, with_level))


def test_exceptions_are_those_of_the_function():
    def fn(x):
        if x.shape[0] == 4:
            raise ValueError("four")
        return x.sum()

    jitted = jit(fn)
    for transform in (grad, vmap, jacfwd):
        with pytest.raises(ValueError, match="four"):
            transform(jitted)(t(4) if transform is not vmap else t(5, 4))
    with pytest.raises(RuntimeError):
        grad(jitted)(t(5, 3) @ t(2, 2))


def test_integer_results_and_arguments():
    def fn(x, at):
        return x[at].sum(), x.argmax()

    def transform(f):
        return lambda x, at: (grad(f, has_aux=True)(x, at), vmap(f, in_dims=(0, None))(t(3, 5), at))

    assert compiled(both(transform, t(5), torch.tensor([1, 3]), fn=fn))


def test_complex_numbers():
    def fn(z):
        return (z * z.conj()).real.sum() + z.exp().abs().sum()

    z = torch.complex(t(5), t(5).flip(0))
    both(grad, z, fn=fn)
    both(jacfwd, t(5).double(), fn=lambda x: x.sin() * x)
    both(lambda f: lambda z: vjp(f, z)[1](z), z, fn=lambda z: z.exp() * z)


def test_methods_and_other_callables():
    class Model:
        def __init__(self):
            self.w = t(4)

        @jit
        def __call__(self, x):
            return (self.w * x).sin().sum()

    model = Model()
    assert same(grad(model)(t(4)), (model.w * t(4)).cos() * model.w)
    assert compiled(report(model))


def test_a_jitted_function_in_a_jitted_function_under_a_transform():
    inner = jit(lambda x: x.sin() * 2)
    outer = jit(lambda x: inner(x).sum() * x.mean())
    plainly = lambda x: (x.sin() * 2).sum() * x.mean()  # noqa: E731
    assert same(hessian(outer)(t(4)), hessian(plainly)(t(4)))
    assert compiled(outer.report())


def test_without_transforms_the_program_is_the_same():
    jitted = jit(loss, config=JitConfig(jit_level="O0"))
    for _ in range(2):
        assert same(jitted(t(4, 3), t(6, 4)), loss(t(4, 3), t(6, 4)))
        assert same(grad(jitted)(t(4, 3), t(6, 4)), grad(loss)(t(4, 3), t(6, 4)))


def test_reset_drops_what_transforms_compiled():
    jitted = jit(loss)
    grad(jitted)(t(4, 3), t(6, 4))
    jitted.reset()
    assert not jitted.report().entries
    assert same(grad(jitted)(t(4, 3), t(6, 4)), grad(loss)(t(4, 3), t(6, 4)))
