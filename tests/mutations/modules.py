"""Modules of torch: parameters, buffers, submodules, training, conversions, state dicts, parametrizations."""

from __future__ import annotations

import copy
import types
import warnings

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from .kinds import SAME, kind
from .objects import Box

M = torch.arange(6.0).reshape(3, 2) / 4 - 0.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = nn.Linear(2, 2)
        self.act = nn.ReLU()
        self.register_buffer("offset", torch.ones(2))
        self.scale = 2.0

    def forward(self, x):
        return self.b(self.act(self.a(x))) * self.scale + self.offset


class Layers(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@kind
def parameter_replaced():
    net = Net().requires_grad_(False)
    yield net, (M,)
    net.a.weight = nn.Parameter(torch.ones(2, 2), requires_grad=False)
    yield SAME
    net.a.weight = nn.Parameter(torch.ones(3, 2), requires_grad=False)
    net.a.bias = None
    net.b = nn.Linear(3, 2).requires_grad_(False)
    yield


@kind
def parameters_with_gradients_replaced():
    net = Net()
    yield net, (M,)
    net.a.weight = nn.Parameter(torch.ones(2, 2))
    yield SAME
    net.a.weight.requires_grad_(False)
    yield
    net.a.weight.requires_grad_()
    yield SAME


@kind
def parameter_data():
    net = Net().requires_grad_(False)
    yield net, (M,)
    net.a.weight.data = torch.ones(2, 2)
    yield SAME
    net.a.weight.data.mul_(3)
    yield SAME
    nn.init.zeros_(net.b.bias)
    yield SAME


@kind
def state_dict_loaded():
    net, other = Net().requires_grad_(False), Net()
    yield net, (M,)
    net.load_state_dict(other.state_dict())
    yield SAME
    net.load_state_dict({name: t + 1 for name, t in other.state_dict().items()}, assign=True)
    net.requires_grad_(False)
    yield SAME


@kind
def state_dict_of_another_dtype_assigned():
    net = Net().requires_grad_(False)

    def f(x):
        return net(x.to(net.a.weight.dtype))

    yield f, (M,)
    net.load_state_dict({name: t.double() for name, t in net.state_dict().items()}, assign=True)
    net.requires_grad_(False)
    yield


@kind
def optimizer_steps():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    yield net, (M,)
    net(M).sum().backward()
    optimizer.step()
    yield SAME
    optimizer.zero_grad()
    yield SAME


@kind
def buffers():
    net = Net().requires_grad_(False)
    yield net, (M,)
    net.offset = torch.zeros(2)
    yield SAME
    net.offset.add_(3)
    yield SAME
    net.register_buffer("offset", torch.full((1,), 7.0))
    yield
    net.offset = None
    net.offset = torch.ones(2)
    yield SAME


@kind
def buffer_registered_later():
    class Own(nn.Module):
        def forward(self, x):
            return x + getattr(self, "extra", 1)

    net = Own()
    yield net, (M,)
    net.register_buffer("extra", torch.ones(2))
    yield
    del net.extra
    yield SAME
    net.register_parameter("extra", nn.Parameter(torch.ones(2), requires_grad=False))
    yield
    del net.extra
    net.extra = 4
    yield


@kind
def buffer_that_becomes_a_parameter():
    net = Net().requires_grad_(False)
    yield net, (M,)
    del net.offset
    net.offset = nn.Parameter(torch.full((2,), 5.0), requires_grad=False)
    yield
    del net.offset
    net.offset = 3.0
    yield


@kind
def submodule_replaced_in_a_module():
    net = Net().requires_grad_(False)
    first = net.act
    yield net, (M,)
    net.act = nn.Tanh()
    yield
    net.add_module("act", nn.Identity())
    yield
    net.act = first
    yield SAME
    net._modules["act"] = nn.Sigmoid()
    yield


@kind
def submodule_deleted():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x) if hasattr(self, "act") else x - 1

    net = Own()
    yield net, (M,)
    del net.act
    yield
    net.act = nn.Tanh()
    yield
    net.__dict__["act"] = torch.sin
    yield


@kind
def submodule_wrapped():
    class Twice(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(self.inner(x))

    net = Net().requires_grad_(False)
    first = net.a
    yield net, (M,)
    net.a = Twice(net.a)
    yield
    net.a = Twice(net.a)
    yield
    net.a = first
    yield SAME


@kind
def module_list_changed():
    net = Layers(nn.Linear(2, 2), nn.ReLU()).requires_grad_(False)
    yield net, (M,)
    net.layers.append(nn.Linear(2, 2).requires_grad_(False))
    yield
    net.layers.insert(0, nn.Tanh())
    yield
    del net.layers[0], net.layers[-1]
    yield
    net.layers[1] = nn.Sigmoid()
    yield
    net.layers.extend([nn.Identity()])
    yield
    net.layers = nn.ModuleList()
    yield


@kind
def sequential_changed():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).requires_grad_(False)
    yield net, (M,)
    net[1] = nn.Tanh()
    yield
    net.append(nn.Softmax(-1))
    yield
    net.pop(2)
    net.insert(1, nn.Identity())
    yield
    net._modules["0"], net._modules["1"] = net._modules["1"], net._modules["0"]
    yield
    net._modules.move_to_end("0")
    yield


@kind
def module_dict_changed():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})

        def forward(self, x):
            for name, part in self.parts.items():
                x = part(x) + len(name)
            return x if "extra" in self.parts else self.parts["a"](x)

    net = Own()
    yield net, (M,)
    net.parts["a"] = nn.Sigmoid()
    yield
    net.parts["extra"] = nn.Identity()
    yield
    del net.parts["extra"]
    net.parts["a"] = net.parts.pop("a")
    yield
    net.parts.clear()
    net.parts.update({"a": nn.ReLU(), "b": nn.Tanh()})
    yield


@kind
def parameter_list_and_dict_changed():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = nn.ParameterList([torch.ones(2), torch.ones(2) * 2])
            self.table = nn.ParameterDict({"k": torch.ones(2)})

        def forward(self, x):
            for p in self.items:
                x = x * p
            for p in self.table.values():
                x = x + p
            return x

    net = Own().requires_grad_(False)
    yield net, (M,)
    net.items.append(nn.Parameter(torch.full((2,), 3.0), requires_grad=False))
    yield
    net.table["l"] = nn.Parameter(torch.full((2,), 3.0), requires_grad=False)
    yield
    net.items[0] = nn.Parameter(torch.full((2,), 5.0), requires_grad=False)
    yield SAME
    net.table.pop("l")
    yield


@kind
def training_of_one_submodule():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.BatchNorm1d(2)).eval()
    net.requires_grad_(False)
    yield net, (M,)
    net[1].train()
    yield
    net[1].eval()
    yield SAME
    net[2].train()
    yield
    net.eval()
    yield SAME
    net[2].training = True
    yield


@kind
def training_of_the_whole():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).requires_grad_(False)
    yield net, (M,)
    net.eval()
    yield
    net.train()
    yield SAME
    net.train(False)
    yield SAME


@kind
def training_read_by_the_program():
    class Own(nn.Module):
        def forward(self, x):
            return x + 1 if self.training else x - 1

    net = Own()
    yield net, (M,)
    net.eval()
    yield
    net.train()
    yield SAME


@kind
def running_statistics():
    net = nn.BatchNorm1d(2).requires_grad_(False)
    yield net, (M,)
    net.reset_running_stats()
    yield SAME
    net.momentum = 0.5
    yield
    net.eval()
    net.running_mean.fill_(3)
    yield
    net.track_running_stats = False
    net.running_mean = net.running_var = None
    yield


@kind
def rates_and_constants_of_layers():
    net = nn.Sequential(nn.LeakyReLU(0.1), nn.LayerNorm(2), nn.Softmax(-1))
    net.requires_grad_(False)
    yield net, (M,)
    net[0].negative_slope = 0.9
    yield
    net[1].eps = 0.5
    yield
    net[2].dim = 0
    yield
    net[0].inplace = True
    yield (M.clone(),)


@kind
def dtype_of_a_model():
    net = Net().requires_grad_(False)

    def f(x):
        return net(x.to(net.a.weight.dtype))

    yield f, (M,)
    net.double()
    yield
    net.to(torch.bfloat16)
    yield
    net.half()
    yield
    net.float()
    yield SAME


@kind
def device_of_a_model():
    net = Net().requires_grad_(False)

    def f(x):
        return (net(x.to(net.a.weight.device)) * 0).shape, x + 1

    yield f, (M,)
    net.to("meta")
    yield
    net.to_empty(device="cpu")
    for p in net.state_dict().values():
        p.fill_(2)
    yield SAME


@kind
def gradients_of_some_parameters():
    net = Net()

    def f(x):
        y = net(x)
        return y.detach(), y.requires_grad

    yield f, (M,)
    net.requires_grad_(False)
    yield
    net.b.bias.requires_grad_()
    yield
    net.requires_grad_(True)
    yield SAME


@kind
def memory_format_of_a_model():
    net = nn.Conv2d(2, 2, 2).requires_grad_(False)
    image = torch.arange(32.0).reshape(1, 2, 4, 4)
    yield net, (image,)
    net.to(memory_format=torch.channels_last)
    yield
    yield (image.to(memory_format=torch.channels_last),)


@kind
def settings_of_a_convolution():
    net = nn.Conv2d(2, 2, 2).requires_grad_(False)
    image = torch.arange(32.0).reshape(1, 2, 4, 4)
    yield net, (image,)
    net.stride = (2, 2)
    yield
    net.padding = (1, 1)
    yield
    net.padding_mode = "circular"
    net._reversed_padding_repeated_twice = [1, 1, 1, 1]
    yield
    net.stride, net.padding, net.padding_mode = (1, 1), (0, 0), "zeros"
    yield SAME


@kind
def forward_of_the_instance():
    net = Net().requires_grad_(False)
    yield net, (M,)
    net.forward = lambda x: x * 3
    yield
    del net.forward
    yield SAME
    net.act.forward = torch.sin
    yield
    net.a.forward = types.MethodType(lambda self, x: x @ self.weight, net.a)
    yield


@kind
def forward_of_the_class():
    class Own(nn.Module):
        def forward(self, x):
            return x + 1

    net = nn.Sequential(Own(), nn.ReLU())
    first = Own.forward
    yield net, (M,)
    Own.forward = lambda self, x: x * 3
    yield
    Own.forward = first
    yield SAME
    nn_forward = nn.ReLU.forward
    try:
        nn.ReLU.forward = lambda self, x: x - 1
        yield
    finally:
        nn.ReLU.forward = nn_forward
    yield SAME


@kind
def call_of_the_class():
    class Own(nn.Module):
        def forward(self, x):
            return x + 1

    net = Own()

    def f(x):
        return net(x)

    yield f, (M,)
    Own.__call__ = lambda self, x: x * 9
    yield
    del Own.__call__
    yield SAME
    Own._call_impl = lambda self, x: x * 4
    yield


@kind
def class_of_a_module():
    net = Net().requires_grad_(False)
    yield net, (M,)
    net.act.__class__ = nn.Tanh
    yield
    net.act.__class__ = nn.ReLU
    yield


@kind
def getattr_of_a_module_class():
    class Own(nn.Module):
        def forward(self, x):
            return x + self.anything

        def __getattr__(self, name):
            return 3 if name == "anything" else super().__getattr__(name)

    net = Own()
    yield net, (M,)
    Own.__getattr__ = lambda self, name: 8 if name == "anything" else None
    yield
    net.anything = 1
    yield


@kind
def setattr_of_a_module_class():
    class Own(nn.Module):
        def forward(self, x):
            self.last = x
            return self.last + 1

    net = Own()
    yield net, (M,)
    Own.__setattr__ = lambda self, name, value: nn.Module.__setattr__(self, name, value * 2)
    yield
    del Own.__setattr__
    yield


@kind
def parametrization():
    class Doubled(nn.Module):
        def forward(self, w):
            return w * 2

    net = Net().requires_grad_(False)
    yield net, (M,)
    parametrize.register_parametrization(net.a, "weight", Doubled())
    yield
    net.a.parametrizations.weight.append(Doubled())
    yield
    net.a.parametrizations.weight.original.mul_(3)
    yield
    parametrize.remove_parametrizations(net.a, "weight", leave_parametrized=False)
    yield


@kind
def weight_norm():
    net = Net().requires_grad_(False)
    yield net, (M,)
    parametrizations.weight_norm(net.a)
    yield
    parametrize.remove_parametrizations(net.a, "weight")
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(net.b)
        net.requires_grad_(False)
    yield
    nn.utils.remove_weight_norm(net.b)
    net.requires_grad_(False)
    yield


@kind
def pruning():
    net = Net().requires_grad_(False)
    yield net, (M,)
    prune.custom_from_mask(net.a, "weight", torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    yield
    net.a.weight_mask.fill_(1)
    yield
    prune.remove(net.a, "weight")
    yield


@kind
def spectral_norm():
    net = nn.Linear(2, 2).requires_grad_(False).eval()
    yield net, (M,)
    parametrizations.spectral_norm(net)
    net.eval()
    yield
    net.parametrizations.weight.original.mul_(3)
    yield


@kind
def weights_tied():
    net = Net().requires_grad_(False)
    yield net, (M,)
    net.b.weight = net.a.weight
    yield
    net.a.weight.data.mul_(2)
    yield SAME
    net.b.weight = nn.Parameter(net.a.weight.clone(), requires_grad=False)
    yield


@kind
def one_module_at_two_places():
    net = Layers(nn.Linear(2, 2), nn.Linear(2, 2)).requires_grad_(False)
    yield net, (M,)
    net.layers[1] = net.layers[0]
    yield
    net.layers[1] = nn.Linear(2, 2).requires_grad_(False)
    yield


@kind
def model_copied_and_exchanged():
    o = Box(net=Net().requires_grad_(False))

    def f(x):
        return o.net(x)

    yield f, (M,)
    o.net = copy.deepcopy(o.net)
    o.net.a.weight.mul_(2)
    yield SAME
    o.net = Net().requires_grad_(False)
    yield SAME
    o.net = nn.Linear(2, 2).requires_grad_(False)
    yield


@kind
def functional_call_of_other_weights():
    net = Net().requires_grad_(False)
    o = Box(weights={name: p + 1 for name, p in net.named_parameters()})

    def f(x):
        return torch.func.functional_call(net, o.weights, (x,))

    yield f, (M,)
    o.weights = {name: p * 2 for name, p in o.weights.items()}
    yield SAME
    o.weights.pop("a.bias")
    yield


@kind
def parameters_iterated():
    net = Net().requires_grad_(False)

    def f(x):
        for name, p in net.named_parameters():
            x = x + p.sum() * len(name)
        return x, sum(1 for _ in net.modules())

    yield f, (M,)
    net.extra = nn.Parameter(torch.ones(2), requires_grad=False)
    yield
    net.a.bias = None
    yield
    net.c = nn.Linear(2, 2).requires_grad_(False)
    yield


@kind
def private_tables_written():
    net = Net().requires_grad_(False)
    yield net, (M,)
    net._parameters["unread"] = None
    yield SAME
    del net._buffers["offset"]
    net._parameters["offset"] = torch.full((2,), 4.0)
    yield
    net.__dict__["scale"] = 9.0
    yield
    net.__dict__["act"] = torch.sin
    yield


@kind
def embedding_settings():
    net = nn.Embedding(5, 2, max_norm=None).requires_grad_(False)
    at = torch.tensor([1, 3])
    yield net, (at,)
    net.weight[1] = 7
    yield SAME
    net.max_norm = 1.0
    yield
    net.max_norm = None
    net.padding_idx = 1
    yield


@kind
def recurrent_weights():
    net = nn.GRU(2, 2, batch_first=True).requires_grad_(False)
    yield net, (M[None],)
    net.weight_ih_l0.mul_(2)
    yield
    net.batch_first = False
    yield
    net.bias_hh_l0.zero_()
    yield


@kind
def compiled_module_shares_state():
    net = Net().requires_grad_(False)
    yield net, (M,)
    net.scale = 5.0
    yield
    net.train()
    yield SAME
    net.b = nn.Linear(2, 2, bias=False).requires_grad_(False)
    yield
    net.forward = net.a.forward
    yield
