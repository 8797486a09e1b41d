"""Programs that train: gradients, optimizers, hooks and state of modules, inside and around jitted functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..harness import agrees, t


def net(*, norm=False, drop=0.0):
    torch.utils.hooks.RemovableHandle.next_id = 0  # it names hooks
    torch.manual_seed(0)
    layers = [nn.Linear(3, 4), nn.ReLU()]
    if norm:
        layers.append(nn.BatchNorm1d(4))
    if drop:
        layers.append(nn.Dropout(drop))
    return nn.Sequential(*layers, nn.Linear(4, 2))


@agrees(calls=4)
def test_a_whole_step():
    model = net(norm=True, drop=0.25)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def f(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach(), [p.detach().clone() for p in model.parameters()]

    return f, (t(4, 3), torch.tensor([0, 1, 1, 0]))


@agrees(calls=4)
def test_steps_around_a_jitted_loss():
    model = net(norm=True)
    opt = torch.optim.Adam(model.parameters(), lr=0.1)

    def f(x, y):
        return F.mse_loss(model(x), y)

    def step(loss):
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        opt.zero_grad(set_to_none=len(steps) % 2 == 0)
        steps.append(1)

    steps = []
    return f, (t(4, 3), t(4, 2)), [step, step, step]


@agrees(calls=4)
def test_gradients_add_up_and_are_read():
    w = t(3).requires_grad_()

    def f(x):
        (x * w).sum().backward()
        total = w.grad.sum()
        if w.grad.abs().max() > 2:
            w.grad = None
        return total, w.grad is None

    return f, (t(3),)


@agrees(calls=3)
def test_parameters_updated_by_hand():
    model = net()

    def f(x):
        loss = model(x).pow(2).sum()
        grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=False)
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads, strict=True):
                p -= 0.05 * g
        return loss.detach(), sum(p.sum() for p in model.parameters()).detach()

    return f, (t(2, 3),)


@agrees(calls=3)
def test_an_average_of_the_weights():
    model, mean = net(), net()

    def f(x):
        y = model(x)
        with torch.no_grad():
            for p, q in zip(model.parameters(), mean.parameters(), strict=True):
                q.mul_(0.9).add_(p, alpha=0.1)
        return y, mean(x).detach()

    def change():
        with torch.no_grad():
            model[0].weight.add_(1)

    return f, (t(2, 3),), [change, change]


@agrees(calls=2)
def test_gradients_of_gradients():
    def f(x):
        y = (x**3).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        return y.detach(), g.detach(), h

    return f, (t(3).requires_grad_(),)


@agrees(backward=True)
def test_frozen_parts_and_detached_parts():
    model = net()

    def f(x):
        with torch.no_grad():
            hidden = model[0](x)
        live = model[2](model[1](hidden))
        return live, live.detach() * 2, hidden.requires_grad, (live * hidden.sum()).mean()

    def freeze():
        for p in model[2].parameters():
            p.requires_grad_(False)

    def thaw():
        model.requires_grad_(True)

    return f, (t(2, 3),), [freeze, thaw]


@agrees(backward=True)
def test_hooks_of_tensors_and_modules():
    model = net()
    seen = []

    def f(x):
        y = model(x)
        return y * 2, len(seen)

    def add():
        model[0].weight.register_hook(lambda g: seen.append(1) or g * 0)
        model[0].register_forward_hook(lambda m, a, out: out + 1)

    def retain():
        model[2].register_full_backward_hook(lambda m, a, b: seen.append(2))

    return f, (t(2, 3),), [add, retain, lambda: seen.clear()]


@agrees(calls=4)
def test_modes_of_a_module():
    model = net(norm=True, drop=0.5)

    def f(x, train):
        model.train(train)
        y = model(x)
        return y, model.training, model[2].training, model[2].num_batches_tracked.clone()

    return f, (t(4, 3), True), [lambda: (t(4, 3), False), lambda: (t(4, 3), True)]


@agrees(calls=3)
def test_state_dicts_and_reloading():
    model, other = net(), net()
    with torch.no_grad():
        other[0].weight.mul_(2)

    def f(x):
        state = {k: v.clone() for k, v in model.state_dict().items()}
        y = model(x)
        model.load_state_dict(other.state_dict())
        z = model(x)
        model.load_state_dict(state)
        return y, z, list(state)

    return f, (t(2, 3),)


@agrees(calls=3)
def test_moved_and_cast_modules():
    model = net()

    def f(x):
        return model(x.to(next(model.parameters()).dtype)).sum()

    return f, (t(2, 3),), [lambda: model.double() and None, lambda: model.float() and None]


@agrees(calls=3)
def test_functions_of_functions():
    def loss(w, x):
        return (torch.tanh(x @ w) ** 2).sum()

    def f(w, x):
        g = torch.func.grad(loss)(w, x)
        v = torch.func.vmap(lambda row: (row * 2).sum())(x)
        return g, v, torch.func.jacrev(lambda a: a.sin())(w)

    return f, (t(3), t(2, 3))


@agrees(backward=True)
def test_an_input_that_is_written_and_needs_a_gradient():
    def f(x):
        y = x * 2
        y.add_(1)
        z = y[0]
        z.mul_(3)
        y[1:] = 0
        return y, z

    return f, (t(3).requires_grad_(),)


@agrees(backward=True)
def test_in_place_errors_of_autograd():
    def f(x, n):
        y = x.exp()
        z = y.sum()
        if n:
            y.add_(1)
        try:
            z.backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
        return x.grad

    return f, (t(3).requires_grad_(), 0), [lambda: (t(3).requires_grad_(), 1)]
