"""The faces for gradients beside torch.autograd in plain Python: over plain and jitted functions and cells, and inside of
a compiled part, where function and gradients are one graph."""

from __future__ import annotations

import threading

import pytest
import torch

import graftjit
from graftjit import Tensor, nn, ops

torch.manual_seed(0)
W = torch.randn(4, 3, requires_grad=True)
B = torch.randn(3, requires_grad=True)
X, Y = torch.randn(5, 4), torch.randn(5, 3)


def loss(x, y):
    return ((torch.tanh(x @ W + B) - y) ** 2).mean()


class Layer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(W.detach().clone())
        self.norm = torch.nn.BatchNorm1d(3)
        self.calls = 0

    def construct(self, x, y):
        self.calls += 1
        return ((self.norm(x @ self.w) - y) ** 2).mean()


def reference(function, leaves, *args):
    """(value, gradients) by torch.autograd: the arguments that are leaves are tensors of their own."""
    args = [a.detach().clone().requires_grad_() if at in leaves else a for at, a in enumerate(args)]
    value = function(*args)
    return value, args


def close(found, expected):
    torch.testing.assert_close(found, expected, equal_nan=True)


def whole(jitted):
    """It is one graph, fused, without a break."""
    report = graftjit.report(jitted)
    assert report.break_count == 0 and report.graph_count >= 1, report.text()
    assert "FB" not in str(report), report.text()


WAYS = {
    "plain": lambda make, function: make(function),
    "over a jitted function": lambda make, function: make(graftjit.jit(function)),
    "jitted": lambda make, function: graftjit.jit(make(function)),
    "inside": lambda make, function: graftjit.jit(lambda *args: make(function)(*args)),
}
FORMS = {
    "first": (lambda f: ops.grad(f), lambda gx, gy, gw, gb, v: gx),
    "second": (lambda f: ops.grad(f, 1), lambda gx, gy, gw, gb, v: gy),
    "both": (lambda f: ops.grad(f, (0, 1)), lambda gx, gy, gw, gb, v: (gx, gy)),
    "turned": (lambda f: ops.grad(f, (1, 0)), lambda gx, gy, gw, gb, v: (gy, gx)),
    "weights": (lambda f: ops.grad(f, None, [W, B]), lambda gx, gy, gw, gb, v: (gw, gb)),
    "a weight": (lambda f: ops.grad(f, None, W), lambda gx, gy, gw, gb, v: gw),
    "all": (
        lambda f: ops.value_and_grad(f, 0, (B, W)),
        lambda gx, gy, gw, gb, v: (v, (gx, (gb, gw))),
    ),
    "value": (lambda f: graftjit.value_and_grad(f), lambda gx, gy, gw, gb, v: (v, gx)),
    "get_all": (lambda f: ops.GradOperation(get_all=True)(f), lambda gx, gy, gw, gb, v: (gx, gy)),
    "GradOperation": (lambda f: ops.GradOperation()(f), lambda gx, gy, gw, gb, v: gx),
    "get_by_list": (
        lambda f: ops.GradOperation(get_by_list=True)(f, [B]),
        lambda gx, gy, gw, gb, v: (gb,),
    ),
    "get_all get_by_list": (
        lambda f: ops.GradOperation(get_all=True, get_by_list=True)(f, (W, B)),
        lambda gx, gy, gw, gb, v: ((gx, gy), (gw, gb)),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_forms(form, way):
    make, expected = FORMS[form]
    asked = WAYS[way](make, loss)
    for seed in range(3):
        torch.manual_seed(seed)
        x, y = torch.randn(5, 4), torch.randn(5, 3)
        value, (a, b) = reference(loss, (0, 1), x, y)
        found = asked(x, y)
        close(found, expected(*torch.autograd.grad(value, [a, b, W, B]), value.detach()))
        assert all(
            not t.requires_grad for t in graftjit.runtime.autograd.differentiate.leaves(found)
        )
    assert W.grad is None and B.grad is None and not x.requires_grad
    if way in ("jitted", "inside"):
        whole(asked)


@pytest.mark.parametrize("way", WAYS)
def test_inputs_and_weights_in_turn(way):
    cell = Layer().set_train()
    of_inputs = WAYS[way](lambda f: ops.GradOperation(get_all=True)(f), cell)
    of_weights = WAYS[way](lambda f: ops.GradOperation(get_by_list=True)(f, [cell.w]), cell)
    mean = cell.norm.running_mean.clone()
    for turn in range(6):
        value, (a, b) = reference(lambda x, y: cell(x, y), (0, 1), X + turn, Y)
        mean = cell.norm.running_mean.clone()
        gx, gy, gw = torch.autograd.grad(value, [a, b, cell.w])
        calls = cell.calls
        if turn % 3 == 0:
            close(of_inputs(X + turn, Y), (gx, gy))
        else:
            close(of_weights(X + turn, Y), (gw,))
        assert cell.calls == calls + 1
        assert not torch.equal(cell.norm.running_mean, mean)
        with torch.no_grad():
            cell.w -= 0.1 * gw


def test_a_step_inside_is_one_graph_with_its_effects():
    torch.manual_seed(3)
    cell, twin = Layer().set_train(), Layer().set_train()

    def step(cell, x, y):
        value, (gw,) = ops.value_and_grad(cell, None, [cell.w])(x, y)
        with torch.no_grad():
            cell.w -= 0.1 * gw
        return value

    jitted = graftjit.jit(step)
    for _ in range(5):
        close(jitted(cell, X, Y), step(twin, X, Y))
        close(cell.state_dict(), twin.state_dict())
    assert cell.calls == twin.calls == 5
    whole(jitted)
    assert jitted.report().recompile_count <= 1, jitted.report()


def test_sens_aux_and_ids():
    def two(x, y):
        return torch.sin(x) * y, x + y

    sens = torch.randn(3), torch.randn(3)
    x, y = torch.randn(3), torch.randn(3)
    outputs, (a, b) = reference(two, (0, 1), x, y)
    expected = torch.autograd.grad(outputs, [a, b], sens)
    operation = ops.GradOperation(get_all=True, sens_param=True)
    for function in (operation(two), graftjit.jit(lambda x, y, s: operation(two)(x, y, s))):
        close(function(x, y, sens), expected)
        close(function(x, y, tuple(2 * s for s in sens)), tuple(2 * g for g in expected))
    close(operation(two)(x, y, sens=sens), expected)

    of_first = torch.autograd.grad(two(a, b)[0].sum(), [a, b])
    aux = graftjit.jit(lambda x, y: ops.value_and_grad(two, (0, 1), has_aux=True)(x, y))
    for _ in range(2):
        (value, rest), found = aux(x, y)
        close((value, rest), (torch.sin(x) * y, x + y))
        close(found, of_first)
    whole(aux)
    found, (rest,) = ops.grad(two, 1, has_aux=True)(x, y)
    close(found, of_first[1])
    assert not rest.requires_grad

    named = ops.grad(loss, (0, 1), [W, B], return_ids=True)(X, Y)
    assert [at for at, _ in named[0]] == [0, 1] and named[1][1][0] is B
    plain = ops.grad(loss, (0, 1), [W, B])(X, Y)
    close(ops.get_grad(named, 1), plain[0][1])
    close(graftjit.get_grad(named, B), plain[1][1])
    close(ops.get_grad(ops.grad(loss, return_ids=True)(X, Y), 0), plain[0][0])
    with pytest.raises(ValueError, match="no gradient of that"):
        ops.get_grad(named, 2)
    with pytest.raises(TypeError, match="position or a weight"):
        ops.get_grad(named, "w")


def test_gradients_nest_inside():
    def cube(x):
        return (x**3 * W.sum()).sum()

    asked = {
        "inner": lambda x: ops.grad(ops.grad(cube))(x),
        "weights": lambda x: ops.grad(lambda z: (ops.grad(cube)(z) ** 2).sum(), None, W)(x),
    }
    x = torch.randn(4)
    a = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(cube(a), a, create_graph=True)
    expected = {
        "inner": torch.autograd.grad(first.sum(), a, retain_graph=True)[0],
        "weights": torch.autograd.grad((first**2).sum(), W)[0],
    }
    for name, function in asked.items():
        jitted = graftjit.jit(function)
        for _ in range(2):
            close(jitted(x), expected[name])
            close(function(x), expected[name])
        whole(jitted)


def test_a_jitted_gradient_knows_whether_it_is_differentiated_itself():
    inner = graftjit.jit(lambda x: (ops.grad(loss)(x, Y) ** 2).sum())
    a = X.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(a, Y), a, create_graph=True)
    (expected,) = torch.autograd.grad((first**2).sum(), W)
    for _ in range(3):
        assert not inner(X).requires_grad  # nobody asks for more
        (found,) = ops.GradOperation(get_by_list=True)(inner, [W])(X)
        close(found, expected)
    seen = []

    def beside():
        seen.append(inner(X).requires_grad)

    def around(x):
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        return inner(x)

    ops.grad(around, None, W)(X)
    assert seen == [False]


def test_results_have_a_history_where_the_caller_needs_it():
    def penalty(x):
        return (ops.grad(loss)(x, Y) ** 2).sum()

    a = X.clone().requires_grad_()
    b = X.clone().requires_grad_()
    torch.autograd.backward(graftjit.jit(penalty)(a))
    torch.autograd.backward(penalty(b))
    close(a.grad, b.grad)
    W.grad = B.grad = None


def test_stop_gradient():
    def half(x):
        return (x * ops.stop_gradient(x)).sum()

    for function in (ops.grad(half), graftjit.jit(ops.grad(half))):
        for _ in range(2):
            close(function(X), X)
    stopped = ops.stop_gradient((W, [B, 3], "text"))
    assert [t.requires_grad for t in (stopped[0], stopped[1][0])] == [False, False]
    assert stopped[1][1:] == [3] and stopped[2] == "text"


def test_effects_breaks_and_random_numbers_inside(capsys):
    seen = []

    def noisy(x):
        seen.append(x.shape)
        print("once")
        return (torch.nn.functional.dropout(x, 0.5) ** 2).sum()

    jitted = graftjit.jit(lambda x: ops.value_and_grad(noisy)(x))
    for seed in range(3):
        torch.manual_seed(seed)
        expected = ops.value_and_grad(noisy)(X)
        torch.manual_seed(seed)
        close(jitted(X), expected)
    assert len(seen) == 6 and capsys.readouterr().out == "once\n" * 6


def test_an_exception_leaves_nothing_behind():
    def bad(x):
        raise KeyError("no")

    for function in (ops.grad(bad), graftjit.jit(lambda x: ops.grad(bad)(x))):
        for _ in range(2):
            with pytest.raises(KeyError, match="no"):
                function(X)
    assert not graftjit.runtime.autograd.differentiate.nested()
    assert not ops.grad(loss)(X, Y).requires_grad


def test_hooks_of_weights_are_called():
    w = torch.randn(4, requires_grad=True)
    jitted = graftjit.jit(lambda x: ops.grad(lambda x: (x * w).sum(), None, w)(x))
    x = torch.randn(4)
    close(jitted(x), x)
    close(jitted(x), x)
    handle = w.register_hook(lambda gradient: gradient * 10)
    close(jitted(x), x * 10)
    handle.remove()
    close(jitted(x), x)


def test_a_history_from_before_the_graph():
    w = torch.randn(4, requires_grad=True)
    made = {"y": w * 1}
    jitted = graftjit.jit(lambda x: ops.grad(lambda x: (x * made["y"] * w).sum(), None, w)(x))
    x = torch.randn(4)
    made["y"] = w.detach().clone().requires_grad_()
    close(jitted(x), x * made["y"].detach())
    made["y"] = w * 3
    close(jitted(x), 6 * x * w.detach())
    made["y"] = w.detach()
    close(jitted(x), x * w.detach())


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(4, 8)
        self.second = nn.Dense(8, 3)

    def construct(self, x):
        return self.second(torch.tanh(self.first(x)))


def _nets():
    torch.manual_seed(5)
    net = Net()
    twin = Net()
    twin.load_state_dict(net.state_dict())
    return net, twin


@pytest.mark.parametrize("mode", [graftjit.PYNATIVE_MODE, graftjit.GRAPH_MODE])
@pytest.mark.parametrize("sens", [None, 0.5])
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=0.01),
    ],
)
def test_train_one_step(mode, sens, optimizer):
    net, twin = _nets()
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, torch.nn.MSELoss()), optimizer(net.trainable_params()), sens, True
    )
    other = optimizer(list(twin.parameters()))
    graftjit.set_context(mode=mode)
    try:
        for turn in range(6):
            expected = torch.nn.functional.mse_loss(
                twin.second(torch.tanh(twin.first(X + turn))), Y
            )
            other.zero_grad()
            (expected * (sens or 1.0)).backward()
            gradients = [p.grad.clone() for p in twin.parameters()]
            other.step()
            found, listed = step(X + turn, Y)
            close(found, expected.detach())
            close(list(listed), gradients)
            close(net.state_dict(), twin.state_dict())
            assert all(p.grad is None for p in net.parameters())
    finally:
        graftjit.set_context(mode=graftjit.PYNATIVE_MODE)


def test_an_optimizer_of_the_programs_own():
    net, twin = _nets()

    class Descent:
        parameters = net.trainable_params()

        def __call__(self, gradients):
            with torch.no_grad():
                for parameter, gradient in zip(self.parameters, gradients, strict=True):
                    parameter -= 0.1 * gradient

    step = graftjit.jit(nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), Descent()))
    other = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(4):
        other.zero_grad()
        expected = torch.nn.functional.mse_loss(twin(X), Y)
        expected.backward()
        other.step()
        close(step(X, Y), expected.detach())
        close(net.state_dict(), twin.state_dict())
    whole(step)


def test_the_cells_around_a_network():
    net, twin = _nets()
    with_loss = nn.WithLossCell(net, torch.nn.MSELoss())
    assert with_loss.backbone_network is net
    value, (a, b) = reference(lambda x, y: torch.nn.functional.mse_loss(twin(x), y), (0, 1), X, Y)
    parameters = torch.autograd.grad(value, list(twin.parameters()), retain_graph=True)
    gx, gy = torch.autograd.grad(value, [a, b])
    close(nn.ForwardValueAndGrad(with_loss)(X, Y), (value.detach(), gx))
    both = nn.ForwardValueAndGrad(with_loss, get_all=True, get_by_list=True)
    for cell in (both, graftjit.compile(both)):
        close(cell(X, Y), (value.detach(), ((gx, gy), parameters)))
    of_one = nn.ForwardValueAndGrad(with_loss, net.first.weight, get_by_list=True)
    close(of_one(X, Y)[1], parameters[:1])
    scaled = nn.ForwardValueAndGrad(with_loss, get_by_list=True, sens_param=True)
    close(scaled(X, Y, Tensor(2.0))[1], tuple(2 * g for g in parameters))
    close(nn.WithGradCell(net, torch.nn.MSELoss())(X, Y), parameters)
    close(nn.WithGradCell(with_loss, sens=Tensor(3.0))(X, Y), tuple(3 * g for g in parameters))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ops.grad(loss, "x"), TypeError, "'x' is a str"),
        (lambda: ops.grad(loss, True), TypeError, "True is a bool"),
        (lambda: ops.grad(loss, (0, 1.0)), TypeError, "1.0 is a float"),
        (lambda: ops.grad(loss, -1), ValueError, "counts from 0"),
        (lambda: ops.grad(loss, ()), ValueError, "empty"),
        (lambda: ops.grad(loss, 2)(X, Y), IndexError, "2 is out of range: 2 positional"),
        (lambda: ops.grad(loss, has_aux=1), TypeError, "has_aux is True or False"),
        (lambda: ops.grad(loss, None, [X])(X, Y), TypeError, "number 0, of shape .5, 4."),
        (lambda: ops.grad(loss, None, [W, 3])(X, Y), TypeError, "number 1 is a int"),
        (lambda: ops.grad(loss, has_aux=True)(X, Y), TypeError, "returned a Tensor"),
        (lambda: ops.grad(lambda x: 3)(X), TypeError, "the result has no tensor, it is a int"),
        (lambda: ops.GradOperation()(loss)(), TypeError, "no positional argument"),
        (lambda: ops.GradOperation(get_by_list=True)(loss)(X, Y), TypeError, "this is a function"),
        (lambda: ops.GradOperation(sens_param=True)(loss)(), TypeError, "last argument"),
        (lambda: ops.GradOperation(sens_param=True)(loss)(X, Y, X), ValueError, "shape .5, 4. where"),
        (lambda: nn.WithLossCell(loss, loss), TypeError, "cell or a module, not a function"),
        (lambda: nn.WithLossCell(Net(), 3), TypeError, "loss_fn must be a cell"),
        (lambda: nn.TrainOneStepCell(Net(), 3), TypeError, "this is a int"),
        (
            lambda: nn.TrainOneStepCell(Net(), torch.optim.SGD([W]), sens=X),
            TypeError, "sens must be a number",
        ),
    ],
)  # fmt: skip
def test_misuse_is_told(make, error, text):
    for attempt in (make, graftjit.jit(make)):
        with pytest.raises(error, match=text):
            attempt()
