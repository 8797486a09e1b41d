"""Parameters, buffers and modules that a frame makes."""

from __future__ import annotations

import torch
from torch import nn

from ..harness import agrees, t


class Net(nn.Module):
    def __init__(self, width):
        self.width = width  # before the tables exist
        super().__init__()
        self.first = nn.Linear(3, width)
        self.act = nn.ReLU()
        self.second = nn.Linear(width, 2, bias=False)
        self.scale = nn.Parameter(torch.full((2,), 0.5))
        self.register_buffer("places", torch.arange(2.0), persistent=False)
        self.register_parameter("absent", None)
        self.apply(self.begin)

    def begin(self, module):
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.weight, 0.25)
            module.weight.data.mul_(0.5)
            if module.bias is not None:
                module.bias.data.zero_()

    def forward(self, x):
        return self.second(self.act(self.first(x))) * self.scale + self.places


@agrees(breaks=0)
def test_parameters():
    def f(x):
        a, b = nn.Parameter(torch.ones(3) * 2), nn.Parameter(x * 2, requires_grad=False)
        kinds = [
            type(a),
            isinstance(a, nn.Parameter),
            isinstance(a, nn.Buffer),
            isinstance(x, nn.Parameter),
        ]
        facts = a.requires_grad, b.requires_grad, a.grad_fn, a.shape, nn.Parameter().shape
        return (x * a + b).detach(), kinds, facts, nn.Parameter(data=a) is a

    return f, (t(3),)


@agrees(breaks=0)
def test_gradients_of_a_parameter():
    def f(x):
        with torch.no_grad():
            p = nn.Parameter(x + 1)
        (p * x).sum().backward()
        with torch.no_grad():
            p -= p.grad
        return p.grad, p * 2

    return f, (t(3),)


@agrees(breaks=0)
def test_a_parameter_shares_its_memory():
    def f(x):
        y = x + 1
        p = nn.Parameter(y)
        p.data.add_(1)
        with torch.no_grad():
            p[0] = 7
        return y * 1, p.detach() * 2

    return f, (t(3),)


@agrees()
def test_a_parameter_over_an_input_is_written():
    def f(x):
        p = nn.Parameter(x)
        with torch.no_grad():
            p.add_(1)
        return x * 2

    return f, (t(3),)


@agrees(codes=("GB114",))
def test_a_parameter_that_leaves():
    def f(x):
        p = nn.Parameter(x * 2)
        return p, p * 3

    return f, (t(3),)


@agrees(breaks=0, backward=True)
def test_a_module_of_the_frame():
    w = nn.Parameter(t(3))

    def f(x):
        return Net(4)(x * w), w

    return f, (t(2, 3),)


@agrees(breaks=0)
def test_changes_of_a_module_of_the_frame():
    def f(x):
        net = Net(4).eval()
        del net.act
        net.act, net.first.bias, net.places = nn.Tanh(), None, x[0, :2]
        setattr(net, "extra", 3)
        delattr(net, "width")
        names = list(net.state_dict()), [name for name, _ in net.named_parameters()]
        found = []
        for name, item in (("act", 3), ("scale", x), ("first", None)):
            try:
                setattr(net, name, item)
                found.append(name)
            except TypeError as error:
                found.append(str(error))
        net.first = nn.Identity()
        return (
            net.act(x),
            names,
            found,
            hasattr(net, "width"),
            net.extra,
            net.training,
            len(list(net.children())),
        )

    return f, (t(2, 3),)


@agrees(breaks=0)
def test_layers_of_the_frame():
    def f(x):
        norm = nn.LayerNorm(3)(nn.BatchNorm1d(3)(x))
        lists = nn.ParameterList([nn.Parameter(torch.ones(3))])
        dicts = nn.ParameterDict({"a": nn.Parameter(torch.ones(3))})
        return norm, nn.Conv1d(2, 4, 1)(x[None]).shape, lists[0] * x + dicts["a"]

    return f, (t(2, 3),)


@agrees(codes=("GB126",))
def test_a_module_that_leaves():
    def f(x):
        net = Net(4)
        return net(x), net.scale

    return f, (t(2, 3),)


@agrees(breaks=0)
def test_leaves():
    w = nn.Parameter(t(3))

    def f(x):
        y, p = x * w, nn.Parameter(x)
        with torch.no_grad():
            z, v = x * w, (x + 1)[0]
        found = [one.is_leaf for one in (x, x + 1, y, y.detach(), y[0], p, p * 2, z, v, x[0])]
        return found, [one.grad_fn is None for one in (x, p, z, y.detach())]

    return f, (t(3),)


@agrees()
def test_leaves_that_change():
    def f(x, y):
        z = x + 1
        before = z.is_leaf, z.grad_fn is None
        z.add_(y)
        return before, z.is_leaf, x.is_leaf, z

    w = nn.Parameter(t(3))
    return f, (t(3), w), [lambda: (w, t(3)), lambda: (w * 2, t(3))]
