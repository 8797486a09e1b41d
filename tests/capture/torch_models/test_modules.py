"""Modules inside a frame: built, copied, asked, changed, saved."""

from __future__ import annotations

import copy
import io
import json
import pickle

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from ..harness import agrees, t
from .layers import handles_from_zero, model_of_layers


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


@agrees(backward=True)
def test_modules_with_ways_of_their_own():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.lin = nn.Linear(3, 3)
            self.calls = 0

        def __setattr__(self, name, value):
            if name == "calls":
                value = value + 0
            super().__setattr__(name, value)

        def __getattr__(self, name):
            if name == "virtual":
                return 3
            return super().__getattr__(name)

        def __call__(self, x, twice=False):
            self.calls += 1
            y = super().__call__(x)
            return y * 2 if twice else y

        def forward(self, x):
            return self.lin(x) * self.virtual

        def __len__(self):
            return 0

        def __bool__(self):
            return True

        def __contains__(self, name):
            return name in self._modules

    net = Own()

    def f(x):
        y = net(x, twice=True)
        if net and "lin" in net:
            y = y + len(net)
        return y, net.calls, hasattr(net, "virtual"), hasattr(net, "nothing")

    def patch():
        Own.forward = lambda self, x: self.lin(x) - 1

    def instance():
        net.forward = lambda x: x * 5

    return f, (t(2, 3),), [lambda: None, patch, instance, lambda: delattr(net, "forward")]


@agrees(backward=True)
def test_batch_norm_in_training():
    torch.manual_seed(0)
    a, b = nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None)
    c = nn.BatchNorm1d(3, affine=False, track_running_stats=False)
    d = nn.InstanceNorm1d(3, track_running_stats=True)

    def f(x):
        y = a(x) + b(x) + c(x)
        z = d(x[None].transpose(1, 2))
        count = a.num_batches_tracked.clone()
        return y, z, a.running_mean.clone(), int(b.num_batches_tracked), count

    def calm():
        a.eval()

    def train():
        a.train()

    return f, (t(4, 3),), [calm, train, lambda: a.reset_running_stats()]


# Not at O1: the frame differentiates one result of a compiled region, its caller another one (tests/test_footguns.py).
@agrees(backward=True, level="O0")
def test_utilities_of_nn():
    from torch.nn.utils import (
        clip_grad_norm_,
        clip_grad_value_,
        parameters_to_vector,
        prune,
        vector_to_parameters,
    )

    model = model_of_layers().eval()

    def f(x):
        v = parameters_to_vector(model.parameters())
        vector_to_parameters(v * 1.5, model.parameters())
        y = model(x)
        y.sum().backward()
        norm = clip_grad_norm_(model.parameters(), 0.1)
        clip_grad_value_(model.parameters(), 0.05)
        prune.l1_unstructured(model[0], "weight", amount=0.3)
        z = model(x)
        prune.remove(model[0], "weight")
        model.zero_grad()
        return y.detach(), norm, z, model(x), v.shape

    return f, (t(2, 3),)


@agrees()
def test_averaged_models():
    from torch.optim.swa_utils import AveragedModel

    model = model_of_layers().eval()
    average = AveragedModel(model)

    def f(x):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.1)
        average.update_parameters(model)
        return average(x), model(x), int(average.n_averaged)

    return f, (t(2, 3),)


@agrees()
def test_whole_training_steps():
    model = model_of_layers()
    model[2].p = 0.0
    opt = torch.optim.Adam(model.parameters(), lr=0.1)
    sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)

    def f(x, y):
        opt.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        sched.step()
        weights = [p.detach().clone() for p in model.parameters()]
        return loss.detach(), opt.param_groups[0]["lr"], weights

    return f, (t(2, 3), t(2, 2)), [lambda: None] * 3


@agrees()
def test_saving_and_pickling_inside():
    model = model_of_layers().eval()

    def f(x):
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        buffer.seek(0)
        state = torch.load(buffer, weights_only=True)
        other = pickle.loads(pickle.dumps(model))
        other.load_state_dict(state)
        data = json.loads(json.dumps({"n": x.shape[0], "v": x.tolist()}))
        return other(x), model(x), data["n"], torch.tensor(data["v"]), sorted(state)

    return f, (t(2, 3),)


@agrees()
def test_parameter_dicts_and_buffers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.ps = nn.ParameterDict({"a": nn.Parameter(t(3)), "b": nn.Parameter(t(3))})
            self.register_buffer("buf", t(3))
            self.register_buffer("none", None)

        def forward(self, x):
            for k, p in self.ps.items():
                x = x * p + len(k)
            self.buf = self.buf + 1
            self.buf.mul_(2)
            if self.none is None:
                x = x + self.buf
            return x, "a" in self.ps, list(self.ps)

        def get_extra_state(self):
            return {"k": 1}

        def set_extra_state(self, state):
            self.k = state["k"]

    net = Net()

    def f(x):
        y = net(x)
        net.load_state_dict(net.state_dict())
        return y, net.k, net.buf

    def drop():
        net.ps.pop("a")

    return f, (t(3),), [
        lambda: net.ps.update({"c": nn.Parameter(t(3))}), lambda: setattr(net, "none", t(1)), drop,
    ]  # fmt: skip


@agrees()
def test_modules_called_in_odd_ways():
    model = model_of_layers().eval()

    def f(x):
        a = nn.Linear.forward(model[0], x)
        b = nn.Module.__call__(model[0], input=x)
        c = model[0].forward(x)
        d = type(model[0]).__call__(model[0], x)
        e = model.__call__(x)
        g = list(map(model[1], [a, b]))
        h = F.linear(x, *model[0].parameters())
        i = getattr(model, "0")(x)
        k = model._modules["0"](x)
        u, v = model[0:2](x), model[-1](model[:3](x))
        return a, b, c, d, e, g, h, i, k, u, v, [m for m in model][1](x), copy.copy(model)(x)

    return f, (t(2, 3),)


@agrees(graphs=1, breaks=0)
def test_functional_calls_in_one_graph():
    model = model_of_layers()
    extra = nn.Parameter(torch.ones(4, 3))

    def f(x):
        params = {"0.weight": extra, "0.bias": torch.zeros(4)}
        a = functional_call(model, params, (x,))
        b = functional_call(model, {k: v * 2 for k, v in model.named_parameters()}, x)
        return a, b, model(x)

    return f, (t(2, 3),)


@agrees(backward=True)
def test_functional_calls_that_break_or_fail():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(t(3))
            self.register_buffer("n", torch.zeros(()))
            self.tied = self.w

        def forward(self, x, fail=False):
            print("inside")
            if fail:
                raise ValueError("fail")
            return x * self.w + self.n + self.tied

    net = Net()

    def f(x, fail):
        try:
            a = functional_call(net, {"w": x * 2, "n": torch.ones(())}, (x,), {"fail": fail})
        except ValueError:
            a = x
        try:
            functional_call(net, {"nothing": x}, (x,), strict=True)
        except RuntimeError as error:
            a = a + len(str(error)) * 0
        return a, net(x), net.w is net.tied

    return f, (t(3), False), [lambda: (t(3), True), lambda: (t(3), False)]


@agrees(breaks=0, backward=True)
def test_module_to_its_own_dtype():
    def f(x, layers):
        return layers.to(torch.float32)(x), layers.float()(x)

    return f, (t(4, 3), nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))


@agrees(breaks=0, backward=True)
def test_module_to_its_own_device_and_dtype():
    def f(x, layer):
        return layer.to("cpu", torch.float32)(x)

    return f, (t(4, 3), nn.Linear(3, 2))


@agrees(breaks=0)
def test_module_to_the_dtype_of_an_input():
    def f(x, layer):
        return layer.to(x)(x)

    return f, (t(4, 3), nn.Linear(3, 2))


@agrees()
def test_module_to_another_dtype():
    def f(x, layer):
        return layer.to(x.dtype)(x)

    return f, (t(4, 3).double(), nn.Linear(3, 2))


@agrees()
def test_data_of_a_parameter_set_to_another_tensor():
    def f(x, layer):
        layer.weight.data = x * 2
        return layer(x)

    return f, (t(3, 3), nn.Linear(3, 3))
