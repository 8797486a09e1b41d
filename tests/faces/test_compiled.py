"""The contract of `compile(model)`: it is the model, its state is the model's state, hooks and copies work."""

from __future__ import annotations

import abc
import copy
import gc
import pickle
import weakref

import pytest
import torch

import graftjit
from graftjit.runtime.errors import UserError


class Net(torch.nn.Module):
    """A module at the top of a module, so that it can be pickled."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
        self.last = torch.nn.Linear(4, 2)
        self.register_buffer("shift", torch.ones(2))
        self.scale = 2.0

    def forward(self, x, extra=0.0):
        return self.last(self.inner(x)) * self.scale + self.shift + extra


@pytest.fixture
def net():
    return Net()


X = torch.linspace(-1, 1, 12).reshape(4, 3)


def assert_agree(compiled, model, *args, **kwargs):
    torch.testing.assert_close(compiled(*args, **kwargs), model(*args, **kwargs))


@pytest.mark.parametrize("gradients", [True, False])
def test_results(net, gradients):
    compiled = graftjit.compile(net)
    with torch.set_grad_enabled(gradients):
        for rows in (4, 4, 1, 3):
            assert_agree(compiled, net, X[:rows])
        assert_agree(compiled, net, X, extra=1.5)


def test_it_is_a_module_of_the_models_class(net):
    compiled = graftjit.compile(net)
    assert isinstance(compiled, Net) and issubclass(type(compiled), Net)
    assert type(compiled).__name__ == "Net" and type(compiled).__module__ == Net.__module__
    assert repr(compiled) == repr(net)
    assert compiled is not net and graftjit.compile(net) is not compiled


def test_the_same_names(net):
    compiled = graftjit.compile(net)
    assert list(compiled.state_dict()) == list(net.state_dict())
    for one, other in zip(compiled.named_parameters(), net.named_parameters(), strict=True):
        assert one[0] == other[0] and one[1] is other[1]
    assert [n for n, _ in compiled.named_modules()] == [n for n, _ in net.named_modules()]


def test_what_is_set_on_either_is_seen_by_both(net):
    compiled = graftjit.compile(net)
    compiled(X)
    net.scale = 5.0
    assert compiled.scale == 5.0
    assert_agree(compiled, net, X)
    compiled.scale = -1.0
    assert net.scale == -1.0
    assert_agree(compiled, net, X)
    compiled.last = torch.nn.Linear(4, 2, bias=False)
    assert net.last is compiled.last
    assert_agree(compiled, net, X)
    net.extra_layer = torch.nn.ReLU()
    assert "extra_layer" in dict(compiled.named_children())
    del compiled.extra_layer
    assert not hasattr(net, "extra_layer")
    net.load_state_dict({k: torch.zeros_like(v) for k, v in net.state_dict().items()})
    assert_agree(compiled, net, X)
    assert not compiled(X).any()


def test_train_eval_and_to(net):
    compiled = graftjit.compile(net)
    compiled(X)
    assert compiled.eval() is compiled and not net.training and not net.inner.training
    assert compiled.train() is compiled and net.training
    assert compiled.to(torch.float64) is compiled and net.last.weight.dtype == torch.float64
    assert_agree(compiled, net, X.double())
    assert compiled.requires_grad_(False) is compiled and not net.last.weight.requires_grad


def test_hooks_of_all_kinds_and_times(net):
    compiled = graftjit.compile(net)
    compiled(X)
    seen = []
    handles = [
        compiled.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
        net.register_forward_hook(lambda module, args, result: result + 1),
        net.last.register_forward_hook(lambda module, args, result: seen.append(type(module))),
        net.inner[0].register_forward_pre_hook(lambda module, args: (args[0] - 1,)),
    ]
    assert_agree(compiled, net, X)
    assert seen == [torch.nn.Linear] * 2
    for handle in handles:
        handle.remove()
        assert_agree(compiled, net, X)


def test_training_gives_the_same_weights(net):
    other = copy.deepcopy(net)
    compiled = graftjit.compile(net)
    for model in (compiled, other):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (model(X) ** 2).mean().backward()
            optimizer.step()
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "copy"])
def test_copies_are_compiled_copies(net, how):
    compiled = graftjit.compile(net, dynamic=False)
    compiled(X)
    made = {
        "pickle": lambda c: pickle.loads(pickle.dumps(c)),
        "deepcopy": copy.deepcopy,
        "copy": copy.copy,
    }[how](compiled)
    assert isinstance(made, Net) and hasattr(made, "report") and made.scale == 2.0
    assert_agree(made, net, X)
    made.scale = 7.0
    assert net.scale == compiled.scale == 2.0
    assert (made.last is net.last) is (how == "copy")
    assert_agree(compiled, net, X)


def test_saved_and_loaded_by_torch(net, tmp_path):
    torch.save(graftjit.compile(net), tmp_path / "net.pt")
    assert_agree(torch.load(tmp_path / "net.pt", weights_only=False), net, X)


def test_compiled_in_compiled_and_as_a_part(net):
    compiled = graftjit.compile(net)
    again = graftjit.compile(compiled)
    assert again.__dict__ is net.__dict__
    assert_agree(again, net, X)
    whole = torch.nn.Sequential(compiled, torch.nn.ReLU())
    assert list(whole.state_dict())[0] == "0.shift"
    assert torch.allclose(whole(X), net(X).relu())
    assert torch.allclose(graftjit.compile(whole)(X), net(X).relu())


def test_methods_run_on_the_compiled_model():
    class Generator(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * 2

        def generate(self, x, steps):
            for _ in range(steps):
                x = self(x)
            return x

    model = Generator()
    compiled = graftjit.compile(model)
    assert torch.equal(compiled.generate(X, 3), X * 8)
    assert model.calls == compiled.calls == 3


def test_self_is_the_model(net):
    seen = []

    class Curious(torch.nn.Module):
        def forward(self, x):
            seen.append((self, type(self).__name__))
            return x + 1

    model = Curious()
    graftjit.compile(model)(X)
    assert seen[0][0] is model and seen[0][1] == "Curious"


def test_class_patching_is_seen(monkeypatch):
    class Patched(torch.nn.Module):
        def forward(self, x):
            return x + 1

    model = Patched()
    compiled = graftjit.compile(model)
    assert torch.equal(compiled(X), X + 1)
    monkeypatch.setattr(Patched, "forward", lambda self, x: x + 2)
    assert torch.equal(compiled(X), X + 2)
    model.forward = lambda x: x + 3
    assert torch.equal(compiled(X), X + 3)


def test_classes_that_watch_their_subclasses_find_none():
    class Watching(torch.nn.Module):
        found = []

        def __init_subclass__(cls, *, required):
            Watching.found.append(cls)

        def forward(self, x):
            return x + 1

    class Registry(type):
        found = []

        def __init__(cls, *args):
            super().__init__(*args)
            Registry.found.append(cls)

    class Registered(torch.nn.Module, metaclass=Registry):
        def forward(self, x):
            return x + 2

    class Abstract(torch.nn.Module, abc.ABC):
        @abc.abstractmethod
        def forward(self, x): ...

    class Concrete(Abstract):
        def forward(self, x):
            return x + 3

    for cls, added in ((Watching, 1), (Registered, 2), (Concrete, 3)):
        model = cls()
        compiled = graftjit.compile(model)
        assert isinstance(compiled, cls) and torch.equal(compiled(X), X + added)
    assert Watching.found == [] and Registry.found == [Registered]
    assert isinstance(graftjit.compile(Concrete()), Abstract)


def test_slots_are_forwarded():
    class Slotted(torch.nn.Module):
        __slots__ = ("factor",)

        def __init__(self):
            super().__init__()
            self.other = 1
            object.__setattr__(self, "factor", 3)

        def forward(self, x):
            return x * self.factor

    model = Slotted()
    compiled = graftjit.compile(model)
    assert compiled.factor == 3 and torch.equal(compiled(X), X * 3)
    compiled.factor = 4
    assert model.factor == 4 and torch.equal(compiled(X), X * 4)


def test_a_models_own_report_and_reset_stay():
    class Stateful(torch.nn.Module):
        def forward(self, x):
            return x

        def reset(self):
            return "mine"

    compiled = graftjit.compile(Stateful())
    assert compiled.reset() == "mine" and callable(compiled.report)


def test_report_and_reset(net):
    compiled = graftjit.compile(net)
    with torch.no_grad():
        compiled(X)
        compiled(X)
    report = compiled.report()
    assert report.graph_count == 1 and report.break_count == 0, str(report)
    assert graftjit.report(compiled).graph_count == 1
    compiled.reset()
    assert compiled.report().graph_count == 0
    assert_agree(compiled, net, X)


def test_nothing_stays_alive(net):
    compiled = graftjit.compile(net)
    compiled(X)
    gone = [weakref.ref(net), weakref.ref(net.last), weakref.ref(type(compiled))]
    model = compiled = net = None
    del model, compiled, net
    gc.collect()
    # The fixture's cache holds the model until the test ends: only the wrapper's class can be gone.
    assert gone[2]() is None


def test_the_model_outlives_the_wrapper_and_the_other_way_round():
    model = Net()
    compiled = graftjit.compile(model)
    expected = model(X)
    del compiled
    gc.collect()
    assert torch.equal(model(X), expected)
    compiled = graftjit.compile(model)
    del model
    gc.collect()
    torch.testing.assert_close(compiled(X), expected)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Net, "class Net"),
        (lambda x: x, "graftjit.jit"),
        (3, "not a torch.nn.Module"),
        (None, "not a torch.nn.Module"),
    ],
)
def test_what_is_no_module_is_refused(wrong, words):
    with pytest.raises(UserError, match=words):
        graftjit.compile(wrong)


def test_functional_call_uses_the_given_parameters(net):
    compiled = graftjit.compile(net)
    zeros = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    found = torch.func.functional_call(compiled, zeros, (X,))
    torch.testing.assert_close(found, torch.ones(4, 2))
    assert_agree(compiled, net, X)
