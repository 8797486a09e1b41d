"""Programs that other bytecode and source JITs get wrong, as their documentation and our measurements say."""

from __future__ import annotations

import abc
import random
import types

import torch

from graftjit import JitConfig, jit

from ..harness import agrees, t


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.value = 1
        self.scales = [1.0, 2.0]
        self.table = {"a": 1.0}
        self.kept = torch.ones(3)
        self.dense = torch.nn.Linear(3, 3)

    def forward(self, x):
        x = x * self.value + self.scales[0] * self.scales[-1] + self.table["a"] + self.kept
        return self.dense(x) if self.value != 3 else x


def net():
    torch.manual_seed(0)
    return Net()


@agrees(grad=False, calls=5)
def test_attributes():
    model = net()
    return model.forward, (t(3),), [
        lambda: setattr(model, "value", 5), lambda: setattr(model, "value", 0.5),
        lambda: setattr(model, "value", 3), lambda: setattr(model, "value", True),
    ]  # fmt: skip


@agrees(grad=False, calls=5)
def test_containers_in_attributes():
    model = net()
    return model.forward, (t(3),), [
        lambda: model.scales.append(7.0), lambda: model.scales.__setitem__(0, -1.0),
        lambda: model.table.update(a=4.0), lambda: setattr(model, "kept", torch.zeros(3)),
    ]  # fmt: skip


@agrees(grad=False, calls=5)
def test_parameters_and_submodules():
    model = net()
    state = {name: value * 2 for name, value in model.state_dict().items()}

    def swap_storage():
        model.dense.weight.data = model.dense.weight.data.clone() * 3

    def replace_parameter():
        model.dense.bias = torch.nn.Parameter(torch.ones(3))

    def replace_module():
        torch.manual_seed(1)
        model.dense = torch.nn.Linear(3, 3, bias=False)

    return model.forward, (t(3),), [
        lambda: model.load_state_dict(state) and None, swap_storage, replace_parameter, replace_module,
    ]  # fmt: skip


@agrees(calls=4)
def test_globals_and_closures_written():
    def f(x):
        global count, latest
        nonlocal calls
        count += 1
        calls += 1
        latest = x * count
        return x + count + calls

    calls = 0
    f.__globals__["count"] = 0
    f.__globals__["latest"] = None
    return f, (t(3),)


@agrees(calls=4)
def test_lists_of_the_caller():
    outer = []

    def f(x, items):
        items.append(x + 1)
        items.extend([len(items)])
        outer.append(len(outer))
        x.add_(1)
        return x * len(outer), items[-1]

    return f, (t(3), [])


@agrees(calls=4)
def test_data_decides():
    def f(x):
        if x.sum() > 0:
            y = x + 1
        else:
            y = x - 1
        while y.max() < 4:
            y = y + 1.5
        print("sum", float(y.sum()))
        return y

    return f, (t(3),), [lambda: (t(3) + 2,), lambda: (t(3) - 2,), lambda: (t(3) + 9,)]


@agrees(calls=3, backward=True)
def test_gradients():
    def f(x, w):
        return torch.tanh(x @ w).sum(0)

    return f, (t(6).reshape(2, 3).requires_grad_(), t(9).reshape(3, 3).requires_grad_())


@agrees(calls=6)
def test_shapes_dtypes_ranks():
    def f(x):
        return (x * 2).sum(-1) + x.shape[0]

    return f, (t(3),), [
        lambda: (t(5),), lambda: (t(6).reshape(2, 3),), lambda: (t(3).double(),),
        lambda: (t(8).reshape(2, 2, 2),), lambda: (torch.arange(3),),
    ]  # fmt: skip


@agrees(grad=False, calls=6)
def test_hooks_come_and_go():
    model = net()
    handles = []

    def hook(module, args, result):
        return result + 10

    def pre(module, args):
        return (args[0] * 3,)

    return model, (t(3),), [
        lambda: handles.append(model.dense.register_forward_hook(hook)),
        lambda: handles.append(model.register_forward_pre_hook(pre)),
        lambda: handles.append(torch.nn.modules.module.register_module_forward_hook(hook)),
        lambda: [handle.remove() for handle in handles] and None,
        lambda: None,
    ]  # fmt: skip


@agrees(calls=4)
def test_a_raise_then_a_good_call():
    def f(x):
        y = x * 2
        if y.min() < 0:
            raise ValueError(f"negative: {float(y.min())}")
        return y + 1

    return f, (t(3),), [lambda: (t(3) + 5,), lambda: (t(3),), lambda: (t(3) + 5,)]


@agrees(calls=2)
def test_returning_a_closure():
    def f(x):
        scale = x * 2

        def inner(y):
            return y * scale

        return inner, inner(x)

    return f, (t(3),)


@agrees(calls=4)
def test_random_numbers_of_python():
    def f(x):
        return x * random.random() + random.randint(0, 5)

    random.seed(3)
    return f, (t(3),)


def test_one_decorator_object_on_two_functions():
    both = jit(config=JitConfig(jit_level="O1"))
    one, two = both(lambda x: x + 1), both(lambda x: x * 3)
    for _ in range(2):
        torch.testing.assert_close(one(t(3)), t(3) + 1)
        torch.testing.assert_close(two(t(3)), t(3) * 3)


@agrees(grad=False, calls=5)
def test_classes_patched():
    class Base:
        bias = 1.0

        def method(self, x):
            return x + self.bias

    class Own(Base):
        pass

    o = Own()

    def f(x):
        return o.method(x)

    return f, (t(3),), [
        lambda: setattr(Base, "method", lambda self, x: x * 2), lambda: setattr(Own, "bias", 4.0),
        lambda: setattr(Own, "method", lambda self, x: x - self.bias),
        lambda: setattr(o, "method", types.MethodType(lambda self, x: x, o)),
    ]  # fmt: skip


@agrees(calls=3)
def test_registration_with_an_abc():
    class Shape(abc.ABC):
        pass

    class Square:
        pass

    o = Square()

    def f(x):
        return x + 1 if isinstance(o, Shape) else x - 1

    return f, (t(3),), [lambda: Shape.register(Square) and None]


@agrees(calls=4)
def test_signs_of_zero_and_kinds_of_one():
    box = types.SimpleNamespace(v=0.0)

    def f(x):
        return torch.copysign(x, torch.full((3,), box.v)), x * box.v, box.v

    return f, (t(3),), [
        lambda: setattr(box, "v", -0.0), lambda: setattr(box, "v", 1), lambda: setattr(box, "v", True),
    ]  # fmt: skip


@agrees(calls=3)
def test_builtins_shadowed_and_hooks_shadowed():
    class Box:
        def __getattr__(self, name):
            return 2

    box = Box()

    def f(x):
        return x * len([1, 2, 3]) + box.v

    return f, (t(3),), [
        lambda: f.__globals__.__setitem__("len", lambda v: 7), lambda: setattr(box, "v", 9),
    ]  # fmt: skip


@agrees(calls=2)
def test_breaks_inside_try_finally_and_with():
    class Context:
        def __init__(self, lines):
            self.lines = lines

        def __enter__(self):
            self.lines.append("in")

        def __exit__(self, *error):
            self.lines.append("out")

    def inner(x, lines):
        x = x + 1
        print("inner", len(lines))
        return x * 2

    def f(x):
        lines = []
        try:
            with Context(lines):
                x = inner(x, lines)
                print("with")
                x = x + 3
        finally:
            lines.append("finally")
            print("finally")
        return x * 2, lines

    return f, (t(3),)
