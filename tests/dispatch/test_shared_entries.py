"""A second model of a class, or a function made again, compiles nothing new: and nothing is answered wrongly for it."""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import pytest
import torch
from torch import nn

import graftjit
from graftjit import JitConfig, compile, jit
from graftjit.compiled import compiled_state
from graftjit.runtime.events.events import Adopted, Captured, Compiled, KernelBuilt
from graftjit.runtime.process.session import SESSION

X = torch.tensor([0.5, -1.0])
M = torch.arange(6.0).reshape(3, 2) / 4 - 0.5
O0 = JitConfig(jit_level="O0", dynamic=False)


def own_events(run):
    """The events of its own frames. Those that the hook met belong to their code, whatever calls it."""
    unit = (compiled_state(run).call if isinstance(run, nn.Module) else run)._unit
    return SESSION.log.of(unit.states)


def count(run, *kinds):
    return sum(type(event) in kinds for event in own_events(run))


def compiled_something(run):
    """How much was captured, compiled or built for it."""
    return count(run, Captured, Compiled, KernelBuilt)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


# -- models ------------------------------------------------------------------------------------------------
class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a, self.b = nn.Linear(2, width), nn.Linear(width, 2)
        self.norm, self.act = nn.LayerNorm(2), nn.GELU()
        self.register_buffer("shift", torch.ones(2))
        self.scale = 2

    def forward(self, x):
        x = self.norm(self.b(torch.relu(self.a(x))) * self.scale)
        return self.act(x) + self.shift


class Broken(Net):
    def forward(self, x):
        y = super().forward(x)
        print("between")
        return torch.relu(y - 0.1) * self.scale


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(2, 1, 4, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        return self.layers(x[None])[0]


@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize(
    "kind, training", [(Net, False), (Net, True), (Broken, False), (Broken, True), (Encoder, False)]
)
def test_a_second_model_of_a_class(kind, training, level):
    config = JitConfig(jit_level=level)
    models = [kind().train(training) for _ in range(3)]
    models.append(copy.deepcopy(models[0]))
    runs = [compile(model, config=config) for model in models]
    for _ in range(2):
        for run, model in zip(runs, models, strict=True):
            torch.testing.assert_close(run(M), model(M))
    assert compiled_something(runs[0])
    reports = [run.report() for run in runs]
    assert len({(report.graph_count, report.break_count) for report in reports}) == 1
    for run, report in zip(runs[1:], reports[1:], strict=True):
        assert not compiled_something(run)
        assert report.adopted_count == count(run, Adopted) == count(runs[0], Captured)
        assert "reused" in str(report)


def test_what_was_taken_over_outlives_its_maker():
    first, model = compile(Net(), config=O0), Net()
    first(M)
    second = compile(model, config=O0)
    second(M)
    first.reset()
    assert torch.equal(first(M), compiled_state(first).model(M))
    assert count(first, Captured) == 1  # anew: what is forgotten is not taken over again
    del first
    gc.collect()
    assert torch.equal(second(M), model(M))
    assert not compiled_something(second)


def everything_of(model):
    """Weak references to all that a model is made of."""
    parts = [*model.modules(), *model.parameters(), *model.buffers()]
    return [weakref.ref(part) for part in parts]


@pytest.mark.parametrize("kind", [Net, Broken, Encoder])
@pytest.mark.parametrize("level", ["O0", "O1"])
def test_the_first_model_goes(kind, level):
    config = JitConfig(jit_level=level)
    model = kind().eval()
    first, second = compile(model, config=config), compile(kind().eval(), config=config)
    first(M)
    second(M)
    held = everything_of(model)
    del model, first
    gc.collect()
    assert not [reference() for reference in held if reference() is not None]
    torch.testing.assert_close(second(M), compiled_state(second).model(M))
    assert not compiled_something(second)


@pytest.mark.parametrize("kind", [Net, Broken])
def test_models_made_in_a_loop(kind):
    counts, held = [], []
    for _ in range(4):
        model = kind()
        run = compile(model, config=O0)
        torch.testing.assert_close(run(M), model(M))
        counts.append(compiled_something(run) > 0)
        held += everything_of(model)
        del model, run
        gc.collect()
        assert not [reference() for reference in held if reference() is not None]
    assert counts == [True, False, False, False]


def test_what_is_compiled_goes_with_its_class():
    def once():
        class Local(Net):
            pass

        for _ in range(2):
            run = compile(Local(), config=O0)
            run(M)
        kept = run, weakref.ref(compiled_state(run).call._unit.shared), weakref.ref(Local)
        assert not compiled_something(run)
        return kept[1:]

    held = once()
    gc.collect()
    assert [reference() for reference in held] == [None, None]


def test_a_reset_of_all_forgets_what_models_share():
    compile(Net(), config=O0)(M)
    graftjit.reset()
    run = compile(Net(), config=O0)
    run(M)
    assert count(run, Captured) == 1


def test_configurations_are_apart():
    compile(Net(), config=O0)(M)
    run = compile(Net(), config=JitConfig(jit_level="O0", dynamic=True))
    run(M)
    assert count(run, Captured) == 1


def test_explain_takes_nothing_over():
    model = Net()
    compile(model)(M)
    report = graftjit.explain(model, M)
    assert report.adopted_count == 0 and report.graph_count == 1


def test_models_called_first_from_many_threads():
    models = [Net() for _ in range(8)]
    runs, found = [compile(model, config=O0) for model in models], {}
    start = threading.Barrier(len(runs))

    def call(number):
        with torch.no_grad():
            start.wait()
            found[number] = runs[number](M)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[number], model(M)) for number, model in enumerate(models))
    assert sum(count(run, Captured) for run in runs) == 1


# -- differences -------------------------------------------------------------------------------------------
def plus_one(module, args, out):
    return out + 1


def _retyped(model):
    model.__class__ = Retyped


class Retyped(Net):
    def forward(self, x):
        return super().forward(x) * 3


class Doubling(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


def _wrapped_forward(model):
    forward = model.forward
    model.forward = lambda x: forward(x) + 5


DIFFERENCES = {
    "nothing": lambda m: None,
    "other weights": lambda m: [p.copy_(torch.randn_like(p)) for p in m.parameters()],
    "an attribute": lambda m: setattr(m, "scale", 5),
    "an attribute of another type": lambda m: setattr(m, "scale", 2.0),
    "an attribute that is a tensor": lambda m: setattr(m, "scale", torch.tensor(3.0)),
    "training": lambda m: m.eval(),
    "an eps": lambda m: setattr(m.norm, "eps", 0.5),
    "a width": lambda m: (setattr(m, "a", nn.Linear(2, 8)), setattr(m, "b", nn.Linear(8, 2))),
    "a buffer's shape": lambda m: setattr(m, "shift", torch.ones(3, 2) * 2),
    "a buffer's dtype": lambda m: m.double() and None,
    "a submodule": lambda m: setattr(m, "act", nn.ReLU()),
    "a submodule of a class of its own": lambda m: setattr(m, "a", Doubling(2, 4)),
    "no bias": lambda m: setattr(m, "a", nn.Linear(2, 4, bias=False)),
    "tied parameters": lambda m: setattr(m.b, "bias", m.norm.bias),
    "tied modules": lambda m: (setattr(m, "a", nn.Linear(2, 2)), setattr(m, "b", m.a)),
    "a forward hook": lambda m: m.a.register_forward_hook(plus_one),
    "a pre-hook": lambda m: m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,)),
    "a patched method": lambda m: setattr(m.a, "forward", lambda x: x @ torch.ones(2, 4)),
    "a wrapped forward": _wrapped_forward,
    "a class": _retyped,
    "a parameter that is a buffer": lambda m: (
        delattr(m.norm, "weight"),
        m.norm.register_buffer("weight", torch.full((2,), 3.0)),
    ),
    "a parameter without a gradient": lambda m: m.a.weight.requires_grad_(False),
    "transposed weights": lambda m: setattr(m.b, "weight", nn.Parameter(torch.randn(4, 2).t())),
    "a view of another parameter": lambda m: setattr(m.norm, "weight", nn.Parameter(m.a.bias[:2])),
    "a parametrization": lambda m: nn.utils.parametrizations.weight_norm(m.a) and None,
    "a removed attribute": lambda m: delattr(m, "scale"),
}


def outcome(run):
    try:
        return run(M.double() if run.norm.weight.dtype is torch.float64 else M)
    except Exception as error:
        return type(error), str(error)


def same(one, other):
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return one == other
    # Frames that the hook meets are fused, whatever the level of the model around them.
    return one.dtype == other.dtype and torch.allclose(one, other, 1e-5, 1e-6)


@pytest.mark.parametrize("kind", [Net, Broken])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_models_differ_in_is_seen(name, kind, grad):
    """A model compiled, its copy changed and compiled, in both orders."""
    torch.set_grad_enabled(grad)
    base, changed = kind(), kind()
    with torch.no_grad():
        DIFFERENCES[name](changed)
    for models in [(base, changed), (changed, base)]:
        models = [copy.deepcopy(model) for model in models]
        runs = [compile(model, config=O0) for model in models]
        for _ in range(2):
            for run, model in zip(runs, models, strict=True):
                found, wanted = outcome(run), outcome(model)
                assert same(found, wanted), f"{found}, not {wanted}\n{run.report()}"


@pytest.mark.parametrize("name", DIFFERENCES)
def test_models_that_become_different_part(name):
    """Two models that share, then one is changed under both."""
    models = [Net(), Net(), Net()]
    runs = [compile(model, config=O0) for model in models]
    for run in runs:
        run(M)
    DIFFERENCES[name](models[1])
    for _ in range(2):
        for run, model in zip(runs, models, strict=True):
            assert same(outcome(run), outcome(model)), run.report()
    assert not compiled_something(runs[2])
    again = copy.deepcopy(models[1])
    assert same(outcome(compile(again, config=O0)), outcome(again))


class Asking(nn.Module):
    """Asks who its parts are."""

    special = None

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.one, self.other, self.items = [1], [1], {}

    def forward(self, x):
        if self is Asking.special:
            x = x + 100
        if self.a is self.b:
            x = x + 10
        if self.one is self.other:
            x = x + 20
        if self.a.weight is self.b.weight:
            x = x + 40
        self.one.append(len(self.other))
        return self.a(x) + len(self.one) + len(self.other)


def _share_lists(model):
    model.other = model.one


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "a", m.b),
        _share_lists,
        lambda m: setattr(m.a, "weight", m.b.weight),
        lambda m: setattr(Asking, "special", m),
        lambda m: None,
    ],
)
def test_questions_of_identity(change):
    try:
        wanted, found = [], []
        for into, wrap in ((wanted, lambda m: m), (found, lambda m: compile(m, config=O0))):
            torch.manual_seed(0)
            Asking.special = None
            models = [Asking() for _ in range(3)]
            for number, model in enumerate(models):
                if number != 1:
                    change(model)
            runs = [wrap(model) for model in models]
            for _ in range(3):
                into += [run(M) for run in runs]
        assert all(map(torch.equal, wanted, found))
    finally:
        Asking.special = None


# -- functions ---------------------------------------------------------------------------------------------
def test_functions_jitted_in_a_loop():
    counts = []
    for scale in (2, 2, 2, 5, 5, 2):

        @jit(config=O0)
        def scaled(x):
            return x * scale  # noqa: B023

        assert torch.equal(scaled(X), X * scale)
        counts.append(compiled_something(scaled) > 0)
    assert counts == [True, False, False, True, False, False]


def test_numbers_that_vary_between_functions_made_again():
    captured = 0
    for scale in range(2, 12):
        run = jit(lambda x, scale=scale: x * scale, config=JitConfig(jit_level="O0"))
        assert torch.equal(run(X), X * scale)
        captured += count(run, Captured)
    assert captured <= 3


def test_functions_with_breaks_jitted_again(capsys):
    def make():
        @jit(config=O0)
        def said(x):
            y = x * 2
            for part in (1, 2):
                print("between", part)
                y = y + part
            return y + 1

        return said

    first, second = make(), make()
    for run in (first, second, first, second):
        assert torch.equal(run(X), X * 2 + 4)
    assert compiled_something(first) and not compiled_something(second)
    assert second.report().break_count == first.report().break_count == 1
    assert capsys.readouterr().out == "between 1\nbetween 2\n" * 4
    del first
    gc.collect()
    assert torch.equal(second(X), X * 2 + 4)  # over resume functions of its own
    assert not compiled_something(second)


def test_methods_of_several_instances():
    first, second = jit(Net().forward, config=O0), jit(Net().forward, config=O0)
    first(M)
    assert torch.equal(second(M), second.__self__.forward(M))
    assert not compiled_something(second.__func__)


def test_callable_objects_and_partials():
    import functools

    class Scale:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return x * self.n

    def scaled(n, x):
        return x * n

    for make in (Scale, lambda n: functools.partial(scaled, n)):
        first, second, third = (jit(make(n), config=O0) for n in (2, 2, 3))
        assert torch.equal(first(X), X * 2)
        assert torch.equal(second(X), X * 2)
        assert torch.equal(third(X), X * 3)
        assert not compiled_something(second)


# -- layers ------------------------------------------------------------------------------------------------
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x):
        return x + torch.relu(self.norm(self.lin(x)) * 0.5 - 0.25)


class Deep(nn.Module):
    def __init__(self, depth, broken=False):
        super().__init__()
        self.layers, self.broken = nn.ModuleList([Layer() for _ in range(depth)]), broken

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if self.broken:
                print(number)
        return x


D = torch.arange(320.0).reshape(20, 16) / 160 - 1  # rows enough for products to be ATen's


def test_equal_layers_share_kernels():
    """24 equal layers: as many kernels in the library as one layer has, and none to build after that one."""
    for depth in (1, 24):
        graftjit.reset()
        model = Deep(depth)
        run = compile(model)
        for _ in range(2):
            torch.testing.assert_close(run(D), model(D))
        (frame,) = run.report().frames
        assert (frame.kernels, frame.distinct) == (depth, 1)
        assert depth == 1 or not run.report().libraries  # what the first one needed is there
    assert "24 kernels (1 distinct)" in str(run.report())


def test_kernels_of_layers_that_differ_are_apart():
    model = Deep(4)
    model.layers[2].norm.eps = 0.5
    run = compile(model)
    torch.testing.assert_close(run(D), model(D))
    (frame,) = run.report().frames
    assert (frame.kernels, frame.distinct) == (4, 2)


def test_equal_layers_of_open_sizes_share_kernels():
    model = Deep(6)
    run = compile(model, dynamic=True)
    for rows in (3, 5, 2, 7):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(run(x), model(x))
    (frame,) = run.report().frames
    assert (frame.entries, frame.kernels, frame.distinct) == (1, 6, 1)


class Saying(Layer):
    def forward(self, x):
        x = self.lin(x)
        print("layer")
        return torch.relu(x)


def test_equal_layers_that_are_frames_share_programs(capsys):
    graftjit.reset()
    model = Deep(0)
    for depth in (2, 24):
        model.layers = nn.ModuleList([Saying() for _ in range(depth)])
        run = compile(model)
        for _ in range(2):
            torch.testing.assert_close(run(D), model(D))
        report = run.report()
        (frame,) = [f for f in report.frames if f.frame == "Saying.forward"]
        # at the break and after it, for all layers; what is before it is in the caller's graphs
        assert frame.entries == 2
        assert max(entry.hits for entry in report.entries) == 2 * depth - 1


@pytest.mark.parametrize("wrap", [compile, jit, lambda layer: _with_jitted_forward(layer)])
def test_equal_layers_that_are_jitted_singly_share_programs(wrap):
    model, plain = Deep(0), Deep(0)
    plain.layers = nn.ModuleList([Layer() for _ in range(24)])
    model.layers = nn.ModuleList([wrap(layer) for layer in copy.deepcopy(plain.layers)])
    for _ in range(2):
        torch.testing.assert_close(model(D), plain(D))
    runs = [vars(layer).get("forward", layer) for layer in model.layers]
    runs = [getattr(run, "__func__", run) for run in runs]
    assert compiled_something(runs[0]) and not any(map(compiled_something, runs[1:]))


def _with_jitted_forward(layer):
    layer.forward = jit(layer.forward)
    return layer
