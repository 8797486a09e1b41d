"""Hooks of modules, tensors and state dicts, registered and removed inside and between the calls."""

from __future__ import annotations

import torch
from torch import nn

from ..harness import agrees, t
from .layers import handles_from_zero, model_of_layers


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
    # The compiled part may save fewer tensors than the operators do.
    packed = set()

    def f(x):
        y = x * 2
        y.retain_grad()
        with torch.autograd.graph.saved_tensors_hooks(lambda v: packed.add(1) or v, lambda v: v):
            z = (y * y).sum()
        z.backward()
        return y.grad, z.detach(), bool(packed)

    return f, (t(3).requires_grad_(),)


@agrees()
def test_hooks_that_change_the_module():
    handles_from_zero()
    model = model_of_layers().eval()

    def first(m, args, out):
        m.weight.data.mul_(0.5)
        m.count = getattr(m, "count", 0) + 1
        return (out, m.count)[0]

    def pre(m, args):
        if len(m._forward_hooks) < 3:
            m.register_forward_hook(lambda m, a, o: o + 1)
        return args

    model[0].register_forward_hook(first)
    model[3].register_forward_pre_hook(pre)

    def f(x):
        return model(x), getattr(model[0], "count", 0), len(model[3]._forward_hooks)

    return f, (t(2, 3),), [lambda: None] * 4
