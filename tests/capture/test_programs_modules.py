"""Modules inside a frame: built, copied, asked, hooked, parametrized; and the contexts and subclasses around them."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from graftjit import jit

from .harness import agrees


def t(*shape):
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape) / 4 - 1


def handles_from_zero():
    torch.utils.hooks.RemovableHandle.next_id = 0


# -- built inside ---------------------------------------------------------------------------------------
@agrees(backward=True)
def test_linear_built_inside():
    def f(x):
        torch.manual_seed(3)
        layer = nn.Linear(3, 2)
        return layer(x), layer.weight, layer.bias

    return f, (t(2, 3),)


@agrees()
def test_built_without_seed_moves_the_generator():
    def f(x):
        y = nn.Linear(3, 2)(x)
        return y + torch.rand(2), nn.Dropout(0.5)(x)

    return f, (t(2, 3),)


@agrees(backward=True)
def test_sequential_built_inside():
    def f(x, width):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(3, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, 1)
        )
        net.train(False)
        return net(x), len(net), list(dict(net.named_parameters())), net

    return f, (t(2, 3), 4), [lambda: (t(2, 3), 5), lambda: (t(1, 3), 4)]


@agrees(backward=True)
def test_own_modules_built_inside():
    class Block(nn.Module):
        def __init__(self, width, depth=2):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
            self.scale = nn.Parameter(torch.ones(width))
            self.register_buffer("count", torch.zeros(()))
            self.width = width

        def forward(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x)) * self.scale
            self.count += 1
            return x

        def extra_repr(self):
            return f"width={self.width}"

    def f(x):
        torch.manual_seed(1)
        block = Block(3)
        y = block(block(x))
        return y, block.count, block, str(block)

    return f, (t(2, 3),)


@agrees()
def test_functional_modules_built_inside():
    def f(x):
        y = nn.ReLU()(x) + nn.GELU()(x) + nn.Softmax(dim=-1)(x)
        z = nn.MSELoss()(y, x) + nn.CrossEntropyLoss()(x, torch.tensor([0, 2]))
        p = nn.MaxPool1d(2)(x) + nn.AdaptiveAvgPool1d(1)(x)
        u = nn.Upsample(scale_factor=2)(x[None]) if x.dim() == 2 else x
        return y, z, p, u, nn.Flatten(0)(x), nn.Identity()(x) is x

    return f, (t(2, 3),)


@agrees(backward=True)
def test_modules_of_many_kinds_built_inside():
    def f(x):
        torch.manual_seed(2)
        a = nn.Embedding(5, 4)(torch.tensor([[0, 1, 4]]))
        b, _ = nn.GRU(4, 3, batch_first=True)(a)
        c, w = nn.MultiheadAttention(4, 2, batch_first=True)(a, a, a)
        d = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)(a)
        e = nn.Conv1d(3, 2, 2)(a)
        g = nn.BatchNorm1d(3)
        h = g(a)
        return b, c, w, d, e, h + x.sum(), g.running_mean, g.num_batches_tracked

    return f, (t(3),)


@agrees()
def test_modules_kept_outside():
    made = {}
    order = []

    def f(x, name):
        if name not in made:
            torch.manual_seed(len(made))
            made[name] = nn.Linear(3, 3)
            order.append(name)
        return made[name](x), len(made), list(order)

    return f, (t(2, 3), "a"), [
        lambda: (t(2, 3), "b"), lambda: (t(2, 3), "a"), lambda: made.clear(), lambda: (t(2, 3), "a"),
    ]  # fmt: skip


@agrees(backward=True)
def test_lazily_made_submodules():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = None
            self.extra = nn.ModuleDict()

        def forward(self, x):
            if self.layer is None:
                torch.manual_seed(0)
                self.layer = nn.Linear(x.shape[-1], 2)
            key = str(x.shape[0])
            if key not in self.extra:
                self.extra[key] = nn.Linear(2, 2)
            self.add_module("last", nn.ReLU())
            self.register_parameter("bias", nn.Parameter(torch.zeros(2)))
            self.register_buffer("seen", torch.ones(1), persistent=False)
            return self.last(self.extra[key](self.layer(x))) + self.bias + self.seen

    net = Lazy()
    return net.forward, (t(2, 3),), [lambda: (t(4, 3),), lambda: (t(2, 3),)]


@agrees()
def test_lazy_modules_of_torch():
    def world():
        torch.manual_seed(0)
        return nn.LazyLinear(2)

    torch.manual_seed(0)
    layer = nn.LazyLinear(2)

    def f(x):
        torch.manual_seed(5)
        y = layer(x)
        return y, type(layer).__name__, layer.in_features, world()(x).shape

    return f, (t(2, 3),)


# -- copied, asked, changed -----------------------------------------------------------------------------
def model_of_layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))


@agrees(backward=True)
def test_copies_of_modules():
    model = model_of_layers().eval()

    def f(x):
        other = copy.deepcopy(model)
        with torch.no_grad():
            other[0].weight.mul_(2)
        shallow = copy.copy(model)
        return (
            model(x),
            other(x),
            shallow(x),
            other[0].weight is model[0].weight,
            shallow[0] is model[0],
        )

    return f, (t(2, 3),), [lambda: [model[0].weight.data.fill_(0.5)] and None]


@agrees()
def test_state_dicts_inside():
    model, spare = model_of_layers(), model_of_layers()
    with torch.no_grad():
        for p in spare.parameters():
            p.mul_(3)

    def f(x):
        model.eval()
        before = model(x)
        state = model.state_dict()
        names = list(state)
        kept = {k: v.clone() for k, v in state.items()}
        model.load_state_dict(spare.state_dict())
        after = model(x)
        result = model.load_state_dict(kept, strict=True)
        return before, after, names, str(result), model(x)

    return f, (t(2, 3),), [lambda: [spare[0].weight.data.fill_(1.0)] and None]


@agrees()
def test_state_dicts_that_do_not_fit():
    model = model_of_layers()

    def f(x):
        model.eval()
        y = model(x)
        try:
            model.load_state_dict({"0.weight": torch.zeros(4, 3), "more": torch.zeros(1)})
        except RuntimeError as error:
            return y, str(error)
        return y

    return f, (t(2, 3),)


@agrees()
def test_questions_to_modules():
    model = model_of_layers()

    def f(x):
        total = x.sum()
        for name, p in model.named_parameters():
            total = total + p.sum() * len(name)
        for p in model.parameters(recurse=True):
            total = total + p.numel()
        kinds = [type(m).__name__ for m in model.modules()]
        named = [(n, type(m).__name__) for n, m in model.named_modules()]
        children = [n for n, _ in model.named_children()]
        buffers = [n for n, _ in model.named_buffers()]
        sizes = sum(p.numel() for p in model.parameters() if p.requires_grad)
        weight = model.get_parameter("0.weight")
        layer = model.get_submodule("3")
        return (
            total,
            kinds,
            named,
            children,
            buffers,
            sizes,
            weight is model[0].weight,
            layer is model[3],
            len(model),
        )

    return f, (t(2, 3),), [
        lambda: model.append(nn.Linear(2, 2)) and None, lambda: model.register_buffer("b", t(1)),
        lambda: model[0].requires_grad_(False) and None, lambda: model.__delitem__(1),
    ]  # fmt: skip


@agrees()
def test_modes_of_modules_inside():
    model = model_of_layers()

    def f(x, training):
        model.train(training)
        a = model(x)
        model.eval()
        b = model(x)
        flags = [m.training for m in model.modules()]
        model[2].train()
        return a, b, flags, model.training, model[2].training, model(x)

    return f, (t(2, 3), True), [lambda: (t(2, 3), False), lambda: (t(2, 3), True)]


@agrees(backward=True)
def test_requires_grad_and_zero_grad_inside():
    model = model_of_layers().eval()

    def f(x):
        model.requires_grad_(False)
        a = model(x)
        model[0].requires_grad_(True)
        b = model(x)
        model[0].weight.requires_grad = False
        c = model(x)
        model.requires_grad_()
        model.zero_grad()
        return (
            a,
            b,
            c,
            a.requires_grad,
            b.requires_grad,
            [p.requires_grad for p in model.parameters()],
        )

    return f, (t(2, 3),)


@agrees()
def test_modules_moved_and_applied_inside():
    model = model_of_layers().eval()

    def init(m):
        if isinstance(m, nn.Linear):
            nn.init.constant_(m.weight, 0.5)
            nn.init.zeros_(m.bias)

    def f(x):
        a = model(x)
        model.apply(init)
        b = model(x)
        model.double()
        c = model(x.double())
        model.to(torch.float32)
        same = model.to("cpu") is model
        return a, b, c, model(x), same, model[0].weight.dtype

    return f, (t(2, 3),)


@agrees()
def test_parameters_replaced_inside():
    model = model_of_layers().eval()

    def f(x):
        a = model(x)
        model[0].weight = nn.Parameter(torch.ones(4, 3))
        b = model(x)
        model[0].bias = None
        c = model(x)
        model[3].weight.data = torch.zeros(2, 4)
        d = model(x)
        model[3].weight.data.add_(1)
        del model[1]
        model[1] = nn.Identity()
        return a, b, c, d, model(x), model[0].bias is None, [type(m).__name__ for m in model]

    def again():
        model.insert(1, nn.ReLU())
        model[0].bias = nn.Parameter(torch.zeros(4))

    return f, (t(2, 3),), [again, again]


@agrees()
def test_initializers_inside():
    def f(x):
        torch.manual_seed(4)
        w = torch.empty(3, 3)
        nn.init.xavier_uniform_(w)
        v = nn.init.kaiming_normal_(torch.empty(2, 3), nonlinearity="relu")
        u = nn.init.orthogonal_(torch.empty(3, 3))
        nn.init.trunc_normal_(z := torch.empty(2), std=0.02)
        return x @ w, v, u, z

    return f, (t(2, 3),)


@agrees(backward=True)
def test_functional_call_inside():
    model = model_of_layers().eval()
    scale = nn.Parameter(torch.ones(4, 3))

    def f(x):
        other = {"0.weight": model[0].weight * 2, "0.bias": torch.zeros(4)}
        a = functional_call(model, other, (x,))
        b = functional_call(model, [{"0.weight": scale}, {"3.bias": torch.ones(2)}], x)
        return a, b, model(x), model[0].weight.sum()

    return (
        f,
        (t(2, 3),),
        [lambda: [model[3].weight.data.mul_(2)] and None, lambda: [scale.data.add_(1)] and None],
    )


@agrees(backward=True)
def test_parametrizations():
    import torch.nn.utils.parametrize as parametrize

    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).T

        def right_inverse(self, w):
            return w

    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())

    def f(x):
        a = layer(x)
        with parametrize.cached():
            b = layer(x) + layer.weight.sum()
        return a, b, layer.weight, parametrize.is_parametrized(layer)

    return f, (t(2, 3),), [
        lambda: [layer.parametrizations.weight.original.data.mul_(2)] and None,
        lambda: parametrize.remove_parametrizations(layer, "weight") and None, lambda: None,
    ]  # fmt: skip


@agrees(backward=True)
def test_parametrized_inside():
    import torch.nn.utils.parametrize as parametrize

    class Double(nn.Module):
        def forward(self, w):
            return w * 2

    def f(x):
        torch.manual_seed(0)
        layer = nn.Linear(3, 2)
        plain = layer(x)
        parametrize.register_parametrization(layer, "weight", Double())
        twice = layer(x)
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
        return plain, twice, layer(x)

    return f, (t(2, 3),)


@agrees(backward=True)
def test_weight_and_spectral_norm():
    from torch.nn.utils import parametrizations, spectral_norm, weight_norm

    handles_from_zero()
    torch.manual_seed(0)
    old_weight = weight_norm(nn.Linear(3, 2))
    old_spectral = spectral_norm(nn.Linear(3, 2))
    new_weight = parametrizations.weight_norm(nn.Linear(3, 2))
    new_spectral = parametrizations.spectral_norm(nn.Linear(3, 2))
    layers = [old_weight, old_spectral, new_weight, new_spectral]

    def f(x):
        return [layer(x) for layer in layers], [layer.weight for layer in layers]

    def calm():
        for layer in layers:
            layer.eval()

    return f, (t(2, 3),), [calm, lambda: [old_weight.weight_g.data.mul_(2)] and None]


# -- hooks ----------------------------------------------------------------------------------------------
@agrees(backward=True)
def test_hooks_registered_and_removed_inside():
    handles_from_zero()
    model = model_of_layers().eval()
    seen = []

    def f(x):
        a = model(x)
        h1 = model[0].register_forward_hook(lambda m, args, out: out * 2)
        h2 = model.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        h3 = model[3].register_forward_hook(lambda m, args, out: seen.append(tuple(out.shape)))
        b = model(x)
        h1.remove()
        h3.remove()
        c = model(x)
        h2.remove()
        return a, b, c, model(x), list(seen), len(model._forward_hooks)

    return f, (t(2, 3),)


@agrees(backward=True)
def test_hooks_put_on_between_the_calls():
    handles_from_zero()
    model = model_of_layers().eval()
    kept = []

    def f(x):
        return model(x * 2) + 1

    def twice(m, args, out):
        return out * 2

    def shift(m, args, kwargs):
        return (args[0] - 1,), kwargs

    return f, (t(2, 3),), [
        lambda: kept.append(model[0].register_forward_hook(twice)),
        lambda: kept.append(model[3].register_forward_pre_hook(shift, with_kwargs=True)),
        lambda: kept.append(model.register_forward_hook(twice, prepend=True)),
        lambda: kept.pop(0).remove(),
        lambda: kept.append(model.register_forward_hook(lambda m, a, o: None, always_call=True)),
        lambda: [h.remove() for h in kept] and None,
    ]  # fmt: skip


@agrees(backward=True)
def test_backward_hooks():
    handles_from_zero()
    model = model_of_layers().eval()
    seen = []
    model[0].register_full_backward_hook(lambda m, gi, go: seen.append(len(gi)))
    model[3].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    model[0].weight.register_hook(lambda g: g * 3)

    def f(x):
        y = model(x)
        z = y * 2
        z.register_hook(lambda g: seen.append(tuple(g.shape)))
        h = model[0].bias.register_hook(lambda g: g * 0)
        total = z.sum()
        total.backward()
        h.remove()
        return z.detach(), list(seen), model[0].weight.grad.clone()

    return f, (t(2, 3).requires_grad_(),)


@agrees()
def test_global_module_hooks():
    handles_from_zero()
    model = model_of_layers().eval()
    names = []
    kept = []

    def note(m, args, out):
        names.append(type(m).__name__)

    def f(x):
        return model(x), list(names)

    def inside(x):
        h = nn.modules.module.register_module_forward_pre_hook(lambda m, args: names.append("pre"))
        y = model(x)
        h.remove()
        return y

    def g(x):
        return f(x), inside(x), f(x)

    return g, (t(2, 3),), [
        lambda: kept.append(nn.modules.module.register_module_forward_hook(note)),
        lambda: kept.pop().remove(),
    ]  # fmt: skip


@agrees()
def test_hooks_of_state_dicts():
    handles_from_zero()
    model = model_of_layers()
    calls = []

    def after(module, state, prefix, local):
        calls.append(prefix)
        if prefix == "":
            state["extra"] = torch.ones(1)

    def f(x):
        h = model._register_state_dict_hook(after)
        g = model.register_state_dict_pre_hook(lambda m, prefix, keep: calls.append("pre" + prefix))
        l = model.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
        state = model.state_dict()
        model.load_state_dict({**state, "0.bias": x.sum().expand(4)})
        for handle in (h, g, l):
            handle.remove()
        return sorted(state), list(calls), model[0].bias + 1, len(model.state_dict())

    return f, (t(2, 3),)


@agrees()
def test_hooks_that_raise_or_replace():
    handles_from_zero()
    model = model_of_layers().eval()

    class Stop(Exception):
        pass

    def stop(m, args, out):
        raise Stop(out.sum().item() * 0)

    def f(x, how):
        if how == "stop":
            h = model[1].register_forward_hook(stop)
        else:
            h = model[1].register_forward_hook(lambda m, a, o: {"out": o}["out"] + 1)
        try:
            return model(x), None
        except Stop as error:
            return x + 1, error.args
        finally:
            h.remove()

    return f, (t(2, 3), "no"), [lambda: (t(2, 3), "stop"), lambda: (t(2, 3), "no")]


@agrees(backward=True)
def test_features_taken_by_hooks():
    handles_from_zero()
    model = model_of_layers().eval()
    features = {}

    def keep(name):
        def hook(module, args, out):
            features[name] = out.detach()

        return hook

    for index, layer in enumerate(model):
        layer.register_forward_hook(keep(index))

    def f(x):
        features.clear()
        y = model(x)
        return y, sum(v.sum() for v in features.values()), dict(features)

    return f, (t(2, 3),), [lambda: (t(1, 3),)]


@agrees(backward=True)
def test_saved_tensor_hooks_and_retained_gradients():
    packed = []

    def f(x):
        y = x * 2
        y.retain_grad()
        with torch.autograd.graph.saved_tensors_hooks(lambda v: packed.append(1) or v, lambda v: v):
            z = (y * y).sum()
        z.backward()
        return y.grad, z.detach(), len(packed)

    return f, (t(3).requires_grad_(),)


# -- contexts -------------------------------------------------------------------------------------------
@agrees(backward=True)
def test_grad_modes_nested_with_exceptions():
    def f(x, n):
        flags = []
        y = x * 2
        try:
            with torch.no_grad():
                flags.append(torch.is_grad_enabled())
                a = y * 3
                with torch.enable_grad():
                    b = y * 4
                    flags.append(torch.is_grad_enabled())
                    if n == 1:
                        raise ValueError("inside")
                with torch.set_grad_enabled(n == 2):
                    c = y * 5
                    if n == 2:
                        raise KeyError("deep")
        except (ValueError, KeyError) as error:
            flags.append(str(error))
            a = b = c = y
        flags.append(torch.is_grad_enabled())
        return y, a, b, c, flags, [v.requires_grad for v in (a, b, c)]

    return f, (t(3).requires_grad_(), 0), [
        lambda: (t(3).requires_grad_(), 1), lambda: (t(3).requires_grad_(), 2), lambda: (t(3), 0),
    ]  # fmt: skip


@agrees()
def test_grad_modes_and_exceptions_that_leave():
    def f(x, n):
        with torch.no_grad():
            y = x * 2
            if n == 1:
                raise ValueError("leaves")
            with torch.inference_mode():
                z = y + 1
                if n == 2:
                    y.view(77)
        return y, z, z.is_inference(), y.is_inference()

    return f, (t(3), 0), [lambda: (t(3), 1), lambda: (t(3), 2), lambda: (t(3), 0)]


@agrees(backward=True)
def test_grad_modes_as_decorators():
    @torch.no_grad()
    def quiet(x):
        return x * 2, torch.is_grad_enabled()

    @torch.enable_grad()
    def loud(x):
        return x * 3, torch.is_grad_enabled()

    @torch.inference_mode()
    def frozen(x):
        return x * 4, torch.is_inference_mode_enabled()

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def low(x, w):
        return x @ w

    @torch.set_grad_enabled(False)
    def off(x):
        return x + 1

    def f(x):
        @torch.no_grad()
        def inner(y):
            return y - 1

        with torch.no_grad():
            b = loud(x)
        return (
            quiet(x),
            loud(x),
            b,
            frozen(x.detach())[1],
            low(x, x.T),
            off(x),
            inner(x),
            torch.is_grad_enabled(),
        )

    return f, (t(2, 2).requires_grad_(),)


@agrees()
def test_inference_mode_inside():
    layer = model_of_layers().eval()

    def f(x):
        with torch.inference_mode():
            y = layer(x)
            a = torch.is_inference_mode_enabled()
        with torch.inference_mode(False):
            z = x * 2
        try:
            y.requires_grad_()
        except RuntimeError as error:
            return a, y, z, y.is_inference(), z.is_inference(), str(error)

    return f, (t(2, 3),)


@agrees(backward=True)
def test_autocast_inside():
    layer = model_of_layers().eval()

    def f(x):
        a = layer(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = layer(x)
            kind = torch.get_autocast_dtype("cpu")
            with torch.autocast("cpu", enabled=False):
                c = layer(x)
            d = F.softmax(b, -1) + b.sum()
        with torch.amp.autocast("cpu", dtype=torch.float16):
            e = x @ x.T
        return a, b, c, d, e, kind, torch.is_autocast_enabled("cpu")

    return f, (t(2, 3),)


@agrees()
def test_autocast_with_breaks_and_exceptions():
    def f(x, n):
        y = x @ x.T
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = y @ y
                print(y.dtype)
                z = y @ y
                if n == 1:
                    raise ValueError("out")
                if n == 2:
                    return y, z
        except ValueError:
            z = x @ x.T
        return y, z, z @ z.T, torch.is_autocast_enabled("cpu")

    return f, (t(2, 2), 0), [lambda: (t(2, 2), 1), lambda: (t(2, 2), 2), lambda: (t(2, 2), 0)]


@agrees()
def test_default_dtype_and_device_inside():
    def f(x):
        old = torch.get_default_dtype()
        a = torch.ones(2)
        torch.set_default_dtype(torch.float64)
        b = torch.ones(2) + torch.tensor([1.5, 2.5])
        torch.set_default_dtype(old)
        with torch.device("cpu"):
            c = torch.ones(2)
            with torch.device("meta"):
                d = torch.ones(2)
        torch.set_default_device("cpu")
        e = torch.zeros(2)
        torch.set_default_device(None)
        return a, b, c + x[:2], d.device, e, torch.get_default_dtype(), torch.get_default_device()

    return f, (t(3),)


@agrees()
def test_default_dtype_around_the_call():
    def f(x):
        return (
            torch.ones(2) + x[:2],
            torch.arange(2) / 2,
            1.5 + torch.zeros(1),
            torch.get_default_dtype(),
        )

    return f, (t(3),), [
        lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32),
        lambda: torch.set_default_dtype(torch.bfloat16), lambda: torch.set_default_dtype(torch.float32),
    ]  # fmt: skip


@agrees()
def test_devices_as_contexts_and_decorators():
    def shapes(n):
        with torch.device("meta"):
            return torch.ones(n).shape

    def f(x):
        dev = torch.device("cpu")
        with dev:
            a = torch.arange(3)
            print(a.device)
            b = nn.Linear(3, 2).weight.device
        return a + x, b, shapes(4)

    return f, (t(3),)


@agrees()
def test_devices_entered_by_hand():
    def f(x):
        device = torch.device("meta")
        device.__enter__()
        a = torch.ones(2).device
        device.__exit__(None, None, None)
        leave = torch.device("cpu").__exit__
        return x + torch.ones(3), a, callable(leave)

    return f, (t(3),)


@agrees()
def test_other_contexts_of_torch():
    def f(x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(9)
            a = torch.rand(2)
        with torch.autograd.set_detect_anomaly(False):
            b = x * 2
        with torch.autograd.profiler.record_function("part"):
            c = x + 1
        with torch.backends.mkldnn.flags(enabled=False):
            d = x @ x
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            q = x.view(1, 1, 1, -1)
            e = F.scaled_dot_product_attention(q, q, q)
        return a, b, c, d, e, torch.rand(1)

    return f, (t(4),)


@agrees()
def test_contexts_entered_by_hand_and_stacks():
    import contextlib

    def f(x, n):
        guard = torch.no_grad()
        guard.__enter__()
        a = torch.is_grad_enabled()
        guard.__exit__(None, None, None)
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if n:
                stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            y = x @ x.T
            b = torch.is_grad_enabled()
        with torch.no_grad() if n else contextlib.nullcontext():
            c = torch.is_grad_enabled()
        with torch.no_grad(), torch.enable_grad():
            d = torch.is_grad_enabled()
        return y, a, b, c, d, torch.is_grad_enabled()

    return f, (t(2, 2), 0), [lambda: (t(2, 2), 1), lambda: (t(2, 2), 0)]


@agrees()
def test_state_around_the_call():
    def f(x, w):
        return (
            x @ w,
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            (x * 2).requires_grad,
        )

    x, w = t(2, 2).requires_grad_(), t(2, 2)
    low = torch.autocast("cpu", dtype=torch.bfloat16)
    return f, (x, w), [
        lambda: low.__enter__() and None, lambda: torch.set_grad_enabled(False) and None,
        lambda: low.__exit__(None, None, None), lambda: torch.set_grad_enabled(True) and None,
    ]  # fmt: skip


# -- subclasses and __torch_function__ ------------------------------------------------------------------
class Units(torch.Tensor):
    """A tensor with a unit."""

    @staticmethod
    def of(data, unit):
        made = data.as_subclass(Units)
        made.unit = unit
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        units = {a.unit for a in args if isinstance(a, Units) and hasattr(a, "unit")}
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Units) and len(units) == 1:
            result.unit = next(iter(units))
        return result


@agrees()
def test_subclasses_as_arguments_and_attributes():
    class Box:
        pass

    box = Box()
    box.w = Units.of(t(3), "m")

    def f(x, u):
        a = u * 2
        b = x + box.w
        c = torch.stack([u, u])
        return (
            a,
            a.unit,
            type(a).__name__,
            b,
            b.unit,
            type(c).__name__,
            u.sum(),
            u.shape,
            isinstance(u, torch.Tensor),
        )

    return f, (t(3), Units.of(t(3), "s")), [
        lambda: (t(3), Units.of(t(3), "kg")), lambda: setattr(box.w, "unit", "km"), lambda: (t(3), Units.of(t(2), "s")),
    ]  # fmt: skip


@agrees()
def test_subclasses_made_inside():
    def f(x):
        u = Units.of(x * 2, "m")
        y = u + 1
        v = y.as_subclass(torch.Tensor)
        w = torch.Tensor._make_subclass(Units, x)
        return y, y.unit, v + 1, type(v).__name__, type(w).__name__, type(x + u).__name__

    return f, (t(3),)


@agrees()
def test_subclasses_without_overrides():
    class Plain(torch.Tensor):
        def twice(self):
            return self * 2

        @property
        def half(self):
            return self / 2

    def f(x, p):
        return x + p, p.twice(), p.half, type(p + 1).__name__, torch.relu(p), p[0], p.T.shape

    return f, (t(3), t(3, 1).as_subclass(Plain)), [lambda: (t(3), t(4, 1)[1:].as_subclass(Plain))]


@agrees()
def test_parameters_and_buffers_of_subclasses():
    class Marked(nn.Parameter):
        pass

    layer = nn.Linear(3, 2)
    layer.weight = Marked(t(2, 3))

    def f(x):
        p = nn.Parameter(x)
        return (
            layer(x),
            type(layer.weight).__name__,
            isinstance(p, nn.Parameter),
            p * 2,
            p.requires_grad,
            p.is_leaf,
        )

    return f, (t(1, 3),)


@agrees()
def test_objects_with_torch_function_that_are_no_tensors():
    class Scaled:
        def __init__(self, data, scale):
            self.data, self.scale = data, scale

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            plain = [a.data * a.scale if isinstance(a, Scaled) else a for a in args]
            return Scaled(func(*plain, **(kwargs or {})), 1)

        def __add__(self, other):
            return torch.add(self, other)

    outer = Scaled(t(3), 2)

    def f(x, s):
        a = torch.add(s, x)
        b = torch.relu(outer)
        c = Scaled(x, 5) + x
        d = torch.cat([outer, x])
        return a.data, b.data, c.data, a.scale, d.data

    return (
        f,
        (t(3), Scaled(t(3), 3)),
        [lambda: setattr(outer, "scale", 4), lambda: (t(3), Scaled(t(3), -1))],
    )


@agrees()
def test_modes_of_torch_functions():
    from torch.overrides import TorchFunctionMode

    seen = []

    class Double(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.sin else result

    def g(x):
        return torch.sin(x)

    def f(x):
        a = g(x)
        with Double():
            b = g(x)
            with torch._C.DisableTorchFunction():
                c = g(x)
        return a, b, c, g(x), list(seen)

    return f, (t(3),)


@agrees()
def test_dispatch_modes_and_wrapper_subclasses():
    from torch.utils._python_dispatch import TorchDispatchMode

    names = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            plain = [a.inner if isinstance(a, Wrapped) else a for a in args]
            out = func(*plain, **(kwargs or {}))
            return Wrapped(out) if isinstance(out, torch.Tensor) else out

    def f(x):
        with Log():
            y = torch.relu(x) + 1
        w = Wrapped(x)
        z = torch.relu(w * 2)
        return y, z.inner, list(names)

    return f, (t(3),)


@agrees()
def test_modules_without_parameters_built_inside():
    def f(x, y):
        loss = nn.CrossEntropyLoss(weight=torch.ones(3))(x, y)
        act = nn.Sequential(nn.ReLU(), nn.Tanh())
        class_ = nn.ModuleDict({"a": nn.ReLU()})
        drop = nn.Dropout(0.5)
        drop.eval()
        return (
            loss,
            act(x),
            len(act),
            act[0](x),
            class_["a"](x),
            drop(x),
            nn.BCEWithLogitsLoss(pos_weight=x[0])(x, x),
            act,
            [type(m).__name__ for m in act.modules()],
            nn.Softmax(1)(x),
            str(act),
        )

    return f, (t(2, 3), torch.tensor([0, 2]))


@agrees(graphs=1, breaks=0)
def test_sequentials_by_index():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Tanh())

    def f(x):
        return net[1](net[0](x)) + net[-1](x) + net[0].weight.sum(), len(net)

    return f, (t(2, 3),)


@agrees(graphs=2, breaks=0)
def test_default_devices_around_the_call():
    def f(x):
        y = torch.ones(3) + torch.arange(3) * torch.tensor(2.0)
        z = torch.zeros_like(x) + torch.from_numpy(np.ones(3)).sum() + torch.rand(3) * 0
        return y, z, torch.as_tensor([1.0]), F.relu(x), x.new_ones(1)

    return f, (t(3),), [
        lambda: torch.set_default_device("cpu"), lambda: None, lambda: torch.set_default_device(None),
    ]  # fmt: skip


@agrees()
def test_other_default_devices_around_the_call():
    def f(x):
        y = torch.ones(3)
        z = torch.zeros_like(x) + torch.from_numpy(np.ones(3)).sum()
        return (
            y.device,
            y.shape,
            z,
            torch.as_tensor([1.0]).device,
            F.relu(x),
            torch.empty(2, device="cpu").device,
        )

    return f, (t(3),), [
        lambda: torch.set_default_device("meta"), lambda: torch.set_default_device("cpu"),
        lambda: torch.set_default_device(None),
    ]  # fmt: skip


def test_modes_in_force_are_told():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    @jit
    def f(x):
        return x * 2 + 1

    f(t(3))
    for mode in (Count, Log, Count):
        with mode():
            assert torch.equal(f(t(3)), t(3) * 2 + 1)
    told = [row.reason for row in f.report().notes if row.code == "PL209"]
    assert len(told) == 2 and told[0].endswith("Count") and told[1].endswith("Log")
    assert f.report().graph_count == 1
