"""Hooks: of modules and of all modules, before and after, with keywords, always called, backward, on tensors."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules import module as all_modules

from .kinds import SAME, kind, unsettled
from .objects import Box

M = torch.arange(6.0).reshape(3, 2) / 4 - 0.5


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU()).requires_grad_(False)


def gradient_of(net):
    """A program that gives a model's value and the gradient of what goes in."""

    def f(x):
        x = x.detach().requires_grad_()
        y = net(x)
        (g,) = torch.autograd.grad(y.sum(), x)
        return y.detach(), g

    return f


@kind
def forward_hook():
    net = model()
    yield net, (M,)
    handle = net[1].register_forward_hook(lambda m, args, out: out + 1)
    yield
    handle.remove()
    yield SAME


@kind
def forward_hook_of_the_root():
    net = model()
    yield net, (M,)
    first = net.register_forward_hook(lambda m, args, out: out + 1)
    yield
    second = net.register_forward_hook(lambda m, args, out: out * 2)
    yield
    first.remove()
    yield
    second.remove()
    yield SAME


@kind
def hooks_reordered():
    net = model()
    net.register_forward_hook(lambda m, args, out: out + 1)
    yield net, (M,)
    net.register_forward_hook(lambda m, args, out: out * 2, prepend=True)
    yield
    net._forward_hooks.move_to_end(next(iter(net._forward_hooks)))
    yield


@kind
def forward_pre_hook():
    net = model()
    yield net, (M,)
    handle = net[0].register_forward_pre_hook(lambda m, args: (args[0] * 3,))
    yield
    handle.remove()
    yield SAME


@kind
def hooks_with_keywords():
    class Own(nn.Module):
        def forward(self, x, k=1):
            return x * k

    net = Own()

    def f(x):
        return net(x, k=2)

    yield f, (M,)
    pre = net.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"k": kwargs["k"] + 5}), with_kwargs=True
    )
    yield
    post = net.register_forward_hook(
        lambda m, args, kwargs, out: out - kwargs["k"], with_kwargs=True
    )
    yield
    pre.remove()
    yield
    post.remove()
    yield SAME


@unsettled
def hook_that_is_always_called():
    class Own(nn.Module):
        def forward(self, x):
            if self.fails:
                raise ValueError("failed")
            return x + 1

    seen = []
    net = Own()
    net.fails = False

    def f(x):
        try:
            return net(x), len(seen) > 0
        except ValueError:
            return x - 1, len(seen) > 0

    yield f, (M,)
    handle = net.register_forward_hook(lambda m, args, out: seen.append(1), always_call=True)
    net.fails = True
    yield
    handle.remove()
    seen.clear()
    net.fails = False
    yield


@kind
def hook_whose_function_changes():
    o = Box(n=1)

    def hook(m, args, out):
        return out + o.n

    net = model()
    net.register_forward_hook(hook)
    yield net, (M,)
    o.n = 5
    yield
    hook.__code__ = (lambda m, args, out: (out * 2, o)[0]).__code__
    yield


@unsettled
def hook_that_looks_but_does_not_touch():
    net = model()
    seen = []
    yield net, (M,)
    handle = net.register_forward_hook(lambda m, args, out: seen.append(tuple(out.shape)))
    yield
    print(len(seen))
    handle.remove()
    yield SAME


@kind
def global_forward_hook():
    net = model()
    yield net, (M,)
    handle = all_modules.register_module_forward_hook(lambda m, args, out: out + 1)
    try:
        yield
    finally:
        handle.remove()
    yield SAME


@kind
def global_forward_pre_hook():
    net = model()
    yield net, (M,)
    handle = all_modules.register_module_forward_pre_hook(lambda m, args: (args[0] * 2,))
    try:
        yield
    finally:
        handle.remove()
    yield SAME


@kind
def global_backward_hook():
    net = model()
    f = gradient_of(net)
    yield f, (M,)
    handle = all_modules.register_module_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
    try:
        yield
    finally:
        handle.remove()
    yield


@kind
def full_backward_hook():
    net = model()
    f = gradient_of(net)
    yield f, (M,)
    handle = net[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
    yield
    handle.remove()
    yield


@kind
def full_backward_pre_hook():
    net = model()
    f = gradient_of(net)
    yield f, (M,)
    handle = net.register_full_backward_pre_hook(lambda m, go: (go[0] * 10,))
    yield
    handle.remove()
    yield


@kind
def hook_on_a_parameter():
    net = nn.Linear(2, 2)

    def f(x):
        (g,) = torch.autograd.grad(net(x).sum(), net.weight)
        return g

    yield f, (M,)
    handle = net.weight.register_hook(lambda g: g + 100)
    yield
    handle.remove()
    yield


@kind
def hook_after_accumulation():
    net = nn.Linear(2, 2, bias=False)  # no gradient is left from one call to the next

    def f(x):
        net.weight.grad = None
        net(x).sum().backward()
        return net.weight.grad.clone()

    yield f, (M,)
    handle = net.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(7))
    yield
    handle.remove()
    yield


@kind
def hooks_of_state_dicts():
    net = model()

    def f(x):
        for name, p in net.state_dict().items():
            x = x + p.sum() * len(name)
        return x

    yield f, (M,)
    handle = net._register_state_dict_hook(
        lambda m, state, prefix, meta: state.update(extra=torch.ones(1))
    )
    yield
    handle.remove()
    yield
    handle = net.register_state_dict_pre_hook(lambda m, prefix, keep: m[0].weight.mul_(2))
    yield
    handle.remove()
    yield


@unsettled
def hooks_of_registration():
    net = model()

    def f(x):
        net.made = nn.Identity()
        return net(x), len(net._modules)

    yield f, (M,)
    handle = all_modules.register_module_module_registration_hook(
        lambda m, name, sub: nn.ReLU() if name == "made" else None
    )
    try:
        yield
    finally:
        handle.remove()
    yield


@kind
def hook_tables_replaced():
    net = model()
    yield net, (M,)
    net._forward_hooks = {0: lambda m, args, out: out * 4}
    yield
    net._forward_hooks = {}
    yield
    net[1].__dict__["_forward_pre_hooks"][5] = lambda m, args: (args[0] + 9,)
    yield
    net[1]._forward_pre_hooks.clear()
    yield


@unsettled
def hook_put_on_during_the_call():
    net = model()
    o = Box(put=False)

    class Puts(nn.Module):
        def forward(self, x):
            if o.put:
                o.handle = net[1].register_forward_hook(lambda m, args, out: out + 50)
            return x

    def f(x):
        y = net(puts(x))
        if o.put:
            o.handle.remove()
        return y

    puts = Puts()
    yield f, (M,)
    o.put = True
    yield
    o.put = False
    yield


@kind
def hook_on_one_of_equal_layers():
    net = nn.Sequential(*[nn.Linear(2, 2).requires_grad_(False) for _ in range(4)])
    yield net, (M,)
    handle = net[2].register_forward_hook(lambda m, args, out: out * 2)
    yield
    handle.remove()
    yield SAME
    net[3].register_forward_hook(lambda m, args, out: out * 2)
    yield


@kind
def hook_of_saved_tensors():
    net = nn.Linear(2, 2)
    f = gradient_of(net)
    yield f, (M,)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float() * 2):
        yield
    yield


@kind
def node_hook():
    o = Box(hook=False)

    def f(x):
        x = x.detach().requires_grad_()
        y = x * 3
        if o.hook:
            y.grad_fn.register_hook(lambda gi, go: tuple(g if g is None else g * 10 for g in gi))
        return torch.autograd.grad(y.sum(), x)[0]

    yield f, (M,)
    o.hook = True
    yield
    o.hook = False
    yield


@kind
def lazy_modules_become_real():
    net = nn.Sequential(nn.LazyLinear(2), nn.ReLU())

    def f(x):
        return net(x).shape

    yield f, (M,)
    net[0].requires_grad_(False)
    yield
    net[0] = nn.LazyLinear(4)
    yield
