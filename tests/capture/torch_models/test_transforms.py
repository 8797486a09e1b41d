"""torch.func's transforms in a jitted function, over and under it: vmap, grad, jacobians, jvp, and what breaks."""

from __future__ import annotations

import functools
import subprocess
import sys

import torch
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vmap
from torch.overrides import TorchFunctionMode

from graftjit import JitConfig, jit

from ...training.custom.functions import Times
from ..harness import agrees


def t(*shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) * 0.37).sin().reshape(shape)


# -- vmap ------------------------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0, grad=False)
def test_vmap_with_a_tensor_of_the_frame():
    def fn(x, w):
        return vmap(lambda row: (row * w).sin().sum())(x) + 1

    return fn, (t(5, 3), t(3))


@agrees(graphs=1, breaks=0)
def test_vmap_nested_as_masks_are_made():
    def mask(b, h, q, k):
        return (k <= q) & (b >= 0) & (h >= 0)

    def fn(x):
        f = mask
        for dims in [
            (None, None, None, 0),
            (None, None, 0, None),
            (None, 0, None, None),
            (0, None, None, None),
        ]:
            f = vmap(f, in_dims=dims, out_dims=0)
        made = f(torch.arange(1), torch.arange(2), torch.arange(3), torch.arange(4))
        return made, x.sum()

    return fn, (t(3),)


@agrees(graphs=1, breaks=0, grad=False)
def test_vmap_of_dicts_tuples_and_keywords():
    def fn(x):
        def f(d, *, scale):
            return {"a": d["x"] * d["y"], "b": (d["x"].sum(), scale)}

        return vmap(f, in_dims=({"x": 0, "y": None},), out_dims={"a": 1, "b": (0, 0)})(
            {"x": x, "y": x[0]}, scale=x.flip(0)
        )

    return fn, (t(5, 3),)


batched = vmap(lambda row: row.sum() + 1)


@agrees(graphs=1, breaks=0)
def test_a_function_that_was_transformed_outside():
    def fn(x):
        return batched(x) * 2

    return fn, (t(5, 3),)


@agrees(breaks=0)
def test_effects_of_the_function_happen_once():
    def fn(x, seen):
        def f(row):
            seen.append(tuple(row.shape))
            return row * 2

        return vmap(f)(x)

    return fn, (t(5, 3), [])


@agrees()
def test_effects_in_chunks_happen_as_often_as_in_python():
    def fn(x, seen):
        def f(row):
            seen.append(1)
            return row * 2

        return vmap(f, chunk_size=2)(x)

    return fn, (t(5, 3), [])


@agrees()
def test_a_tensor_that_escapes():
    def fn(x):
        kept = []

        def f(row):
            kept.append(row)
            return row * 2

        made = vmap(f)(x)
        return made, kept[0] + 1

    return fn, (t(5, 3),)


@agrees()
def test_errors_are_those_of_torch():
    def fn(x, how):
        if how == 0:
            return vmap(lambda row: row * 2, in_dims=7)(x)
        if how == 1:
            return vmap(lambda row: 3)(x)
        if how == 2:
            return vmap(lambda row: row.item())(x)
        if how == 3:
            return vmap(lambda row: row if row.sum() > 0 else -row)(x)
        return vmap(lambda row: row + torch.rand(3))(x)

    x = t(5, 3)
    return fn, (x, 0), [lambda: (x, 1), lambda: (x, 2), lambda: (x, 3), lambda: (x, 4)]


@agrees(graphs=1, breaks=0)
def test_random_numbers_inside():
    def fn(x):
        return vmap(lambda row: row + torch.rand(3), randomness="different")(x), torch.rand(2)

    return fn, (t(5, 3),)


@agrees()
def test_a_write_inside():
    def fn(x, w):
        def f(row):
            w.add_(1)
            return row * w

        return vmap(f)(x), w

    return fn, (t(5, 3), t(3))


# -- derivatives -----------------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0)
def test_grad():
    def fn(w):
        return grad(lambda v: (v.sin() ** 2).sum())(w) * 2

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_gradients_of_single_samples():
    def fn(w, x, y):
        def loss(w, x, y):
            return ((x @ w) - y) ** 2

        return vmap(grad(loss), in_dims=(None, 0, 0))(w, x, y)

    return fn, (t(3), t(5, 3), t(5))


@agrees(graphs=1, breaks=0)
def test_grad_of_parameters_in_a_dict_with_a_value_and_more():
    def fn(params, x):
        def loss(params, x):
            h = torch.tanh(x @ params["w"] + params["b"])
            return h.square().mean(), h

        return grad_and_value(loss, has_aux=True)(params, x)

    return fn, ({"w": t(3, 4), "b": t(4)}, t(5, 3))


@agrees(graphs=1, breaks=0)
def test_jacobians():
    def fn(w):
        return jacrev(torch.sin)(w), jacfwd(lambda v: v**2)(w), hessian(lambda v: (v**3).sum())(w)

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_jvp():
    def fn(w):
        return jvp(lambda v: (v.sin(), v.sum()), (w,), (torch.ones(3),))

    return fn, (t(3),)


@agrees(backward=True)
def test_parameters_under_a_transform():
    weight = torch.nn.Parameter(t(3))

    def fn(x):
        return vmap(lambda row: (row * weight).sum())(x)

    return fn, (t(5, 3),)


@agrees()
def test_requires_grad_is_seen_inside():
    def fn(w):
        seen = []

        def f(v):
            seen.append((v.requires_grad, torch.is_grad_enabled()))
            return v.sum()

        return grad(f)(w), seen

    return fn, (t(3),)


@agrees(grad=False)
def test_no_grad_around_and_inside():
    def fn(w):
        def f(v):
            with torch.no_grad():
                c = v * 2
            return (v * c).sum()

        return grad(f)(w)

    return fn, (t(3),)


def test_the_first_jvp_of_a_process_is_in_the_graph():
    """torch imports rules for it then, with a warning."""
    program = """if True:
        import torch
        from graftjit import jit
        f = jit(lambda x: torch.func.jvp(torch.sin, (x,), (x,)), fullgraph=True)
        print(torch.allclose(f(torch.ones(2))[1], torch.ones(2).cos()))
    """
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.split() == ["True"], ran.stderr


# -- a jitted function under a transform -----------------------------------------------------------------
def test_a_jitted_function_under_transforms():
    def fn(v):
        return (v.sin() * v).sum()

    jitted = jit(fn, config=JitConfig(jit_level="O0"))
    x = t(4, 3)
    for _ in range(2):
        for transform in (
            vmap,
            lambda f: vmap(grad(f)),
            lambda f: vmap(jacrev(f)),
            lambda f: vmap(hessian(f)),
        ):
            torch.testing.assert_close(transform(jitted)(x), transform(fn)(x))
        torch.testing.assert_close(jitted(x), fn(x))


# -- functions and what they are called ------------------------------------------------------------------
def wrapping(fn):
    "The decorator."

    @functools.wraps(fn)
    def inner(*args, **kwargs):
        "What stands for it."
        return fn(*args, **kwargs) + 1

    return inner


def top(x: int) -> float:
    "What is wrapped."
    return x * 2


@agrees(graphs=1, breaks=0)
def test_wraps():
    def fn(x):
        made = wrapping(wrapping(top))
        emitted = (
            made.__name__,
            made.__qualname__,
            made.__module__,
            made.__doc__,
            made.__annotations__,
        )
        return made(x), emitted, made.__wrapped__.__wrapped__ is top, wrapping(torch.sin).__name__

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_fields_of_a_made_function():
    def fn(x):
        def made(y: int, z=3) -> str:
            "Its text."
            return y

        before = (
            made.__name__,
            made.__doc__,
            made.__defaults__,
            made.__module__,
            made.__annotations__,
        )
        made.__name__, made.__doc__, made.extra = "other", "new", [1]
        made.gone = 1
        del made.gone
        return x + 1, before, made.__name__, made.__doc__, made.__dict__, hasattr(made, "gone")

    return fn, (t(3),)


def test_a_made_function_keeps_its_fields():
    def fn(x):
        made = wrapping(top)
        made.extra = [1]
        made.__module__ = "elsewhere"
        return x + 1, made, made.__dict__

    for function in (fn, jit(fn, config=JitConfig(jit_level="O0"))):
        _, made, names = function(t(3))
        assert (made.__name__, made.__doc__, made.__module__) == ("top", top.__doc__, "elsewhere")
        assert made.__dict__ is names and list(names) == ["__wrapped__", "extra"]
        assert made.__wrapped__ is top and made.__annotations__ == top.__annotations__


@agrees(recompiles=2)
def test_what_a_function_is_called_is_guarded():
    def named():
        pass

    def fn(x):
        return x * len(named.__name__), named.__doc__, named.__annotations__

    def rename():
        named.__name__ = "a longer name"

    def describe():
        named.__doc__ = "text"
        named.__annotations__["x"] = int

    return fn, (t(3),), [rename, describe]


# -- torch function modes --------------------------------------------------------------------------------
class Log(TorchFunctionMode):
    def __init__(self, out):
        super().__init__()
        self.out = out

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.out.append((func.__name__, types, len(args), kwargs is None))
        return func(*args, **(kwargs or {}))


class Double(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func is torch.sin:
            return torch.cos(*args)
        return made * 2 if func in (torch.Tensor.add, torch.add) else made


class AsIndex(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__getitem__ and isinstance(args[1], torch.Tensor):
            return torch.index_select(args[0], 0, args[1].reshape(1))
        return func(*args, **(kwargs or {}))


@agrees(breaks=0)
def test_a_mode_sees_what_torch_tells_it():
    def fn(x, out):
        with Log(out):
            y = x + 1
            z = torch.nn.functional.relu(y).sum()
            emitted = (
                y.shape,
                y.size(0),
                y.dim(),
                y[0],
                torch.zeros(3),
                -y,
                y.requires_grad,
                y[1:, None],
            )
        return z, emitted, x * 2

    return fn, (t(3), [])


@agrees(graphs=1, breaks=0)
def test_a_mode_that_changes_results():
    def fn(x):
        with Double():
            y, z = x.add(1), torch.sin(x)
        return y, z, x.add(1)

    return fn, (t(3),)


@agrees(breaks=0)
def test_modes_nested_and_left_by_an_exception():
    def fn(x, out):
        with Log(out), Double():
            y = x.add(1)
        try:
            with Log(out):
                raise ValueError
        except ValueError:
            pass
        return y, x.mul(2)

    return fn, (t(3), [])


@agrees(graphs=1, breaks=0)
def test_a_mode_around_vmap_with_a_tensor_index():
    def fn(x):
        with AsIndex():
            return vmap(lambda i: x[i].sum())(torch.arange(3))

    return fn, (t(3),)


held = Double()


@agrees(graphs=1, breaks=0)
def test_a_mode_from_outside():
    def fn(x):
        with held:
            return torch.sin(x)

    return fn, (t(3),)


@agrees(codes=("GB110", "PL209"))
def test_a_break_under_a_mode():
    def fn(x, out):
        y = x + 1
        with Log(out):
            y = y * 2
            print("inside")
            y = y * 3
        return y + 1

    return fn, (t(3), [])


# -- custom autograd functions ---------------------------------------------------------------------------
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x.exp() * k, torch.tensor([torch.is_grad_enabled(), *ctx.needs_input_grad])

    @staticmethod
    def backward(ctx, g, h):
        return g * ctx.saved_tensors[0], None


class Pick(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(row, at):
        return torch.index_select(row, 0, at.reshape(1)).squeeze(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return None, None


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g


kept = []


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        kept.append(ctx)
        return x + 1

    @staticmethod
    def backward(ctx, g):
        return g


@agrees(graphs=1, breaks=0)
def test_custom_functions_without_gradients():
    def fn(x):
        return Exp.apply(x, 2), Times.apply(x, x), vmap(Times.apply)(x, x), torch.is_grad_enabled()

    return fn, (t(3),)


@agrees(backward=True)
def test_custom_functions_with_gradients():
    def fn(x):
        return Exp.apply(x, 2)[0] + Times.apply(x, x)

    return fn, (t(3).requires_grad_(),)


@agrees()
def test_custom_functions_under_derivatives():
    def fn(x):
        return grad(lambda v: Times.apply(v, v).sum())(x)

    return fn, (t(3),)


@agrees()
def test_a_custom_function_that_returns_its_input():
    def fn(x):
        y = Same.apply(x)
        return y is x, y + 1

    return fn, (t(3),)


@agrees()
def test_a_custom_function_that_keeps_its_context():
    def fn(x):
        return Keeps.apply(x), type(kept.pop()).__name__, len(kept)

    return fn, (t(3),)


# -- modules made inside ---------------------------------------------------------------------------------
class Scale(torch.nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        return x * self.k


@agrees(graphs=1, breaks=0, grad=False)
def test_module_lists_are_cut():
    layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(4)])
    with torch.no_grad():
        for number, parameter in enumerate(layers.parameters()):
            parameter.fill_(number / 7)

    def fn(x):
        for layer in layers[:3]:
            x = layer(x)
        return torch.nn.Sequential(layers[3], torch.nn.ReLU())(x), len(layers[1:])

    return fn, (t(2, 3),)


@agrees(graphs=1, breaks=0)
def test_modules_without_parameters():
    def fn(x):
        made = Scale(3)
        made.eval()
        table = torch.nn.ModuleDict({"a": torch.nn.ReLU(), "b": made})
        for one in table.values():
            x = one(x)
        return x, made.training, [name for name, _ in table.named_children()]

    return fn, (t(3),)


@agrees()
def test_a_made_module_is_returned():
    def fn(x):
        made = torch.nn.Sequential(Scale(3), torch.nn.ReLU())
        return made(x), [type(one).__name__ for one in made], made.state_dict(), made[0].k

    return fn, (t(3),)


@agrees(graphs=1, breaks=0, backward=True)
def test_a_function_of_integers_under_a_transform_beside_gradients():
    """Integers have no gradient, so only the forward is used, whatever requires one around it."""
    weight = t(3).requires_grad_()

    def f(rows, at):
        scale = weight.exp()
        found = vmap(lambda row, k: Pick.apply(row, k) == 2)(rows, at)
        return (scale * found).sum()

    return f, (torch.arange(9).reshape(3, 3), torch.tensor([2, 0, 1]))
