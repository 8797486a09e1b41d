"""Gradients of jitted functions: values, missing ones, strides, in and out of views, casts and writes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit

from .beside import same


def t(*shape: int, grad: bool = True, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_(grad)


FUNCTIONS = {
    "chain": lambda x: (x.sin() * 2 + x.cos()).tanh(),
    "sum": lambda x: (x * x).sum(),
    "mean": lambda x: (x.exp() / 3).mean(1),
    "softmax": lambda x: x.softmax(-1) * x,
    "log_softmax": lambda x: x.log_softmax(0),
    "layer_norm": lambda x: F.layer_norm(x, (16,)).relu(),
    "gelu": lambda x: F.gelu(x) + F.silu(x) + F.gelu(x, approximate="tanh"),
    "view": lambda x: (x * 2).view(4, 32)[1:],
    "transposed": lambda x: (x * 2).t() + 1,
    "cat": lambda x: torch.cat([x, x * 2, x.sin()], 1),
    "split": lambda x: x.exp().chunk(2, 1)[1] * 3,
    "two results": lambda x: (x.sin(), x.cos() * 2),
    "a result twice": lambda x: (y := x.sin(), y * 2, y),
    "result and argument": lambda x: (x, x.sin()),
    "no gradient for one": lambda x: (x.sin(), x.detach() * 2, x > 0),
    "integers": lambda x: (x.sin(), x.argmax(1)),
    "cumsum": lambda x: x.cumsum(1) * x,
    "max": lambda x: x.max(1).values * 2,
    "norm": lambda x: F.normalize(x) + x.std() + x.var(1, keepdim=True),
    "where": lambda x: torch.where(x > 0, x * 2, x.exp()),
    "masked": lambda x: x.masked_fill(x > 0, 0.5).tril(),
    "index": lambda x: x[:, [0, 2, 1]] * 2,
    "double": lambda x: x.double().sin().sum(),
    "half and back": lambda x: (x.bfloat16() * 2).float(),
    "in place": lambda x: (x * 2).add_(1).mul_(3),
    "in place on a part": lambda x: _part(x),
    "a view before a write": lambda x: _seen_before(x),
    "a view whose base is written to": lambda x: _base_written(x),
    "no_grad inside": lambda x: x * _held(x),
    "detached inside": lambda x: x * x.exp().detach(),
    "sqrt of zero": lambda x: (x * 0).abs().sqrt(),
    "expanded": lambda x: x[:1].expand(8, 16) * 2,
    "constant": lambda x: x * torch.arange(16.0),
    "broadcast": lambda x: x + x.sum(0) + x[:, :1],
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
}  # fmt: skip


def _base_written(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y[0]
    y.mul_(x.detach() + 3)
    return z


def _part(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, 1] = x[:, 0].exp()
    y[0] += 1
    return y


def _seen_before(x: torch.Tensor) -> torch.Tensor:
    y = F.silu(x)
    z = y.t()
    y.sin_()
    return z * z


def _held(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x.exp() + 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of(name: str) -> None:
    same(FUNCTIONS[name], t(8, 16), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["chain", "softmax", "layer_norm", "cat", "in place on a part"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(name: str, dtype: torch.dtype) -> None:
    tolerance = {"rtol": 3e-2, "atol": 3e-2} if dtype is torch.bfloat16 else {}
    same(FUNCTIONS[name], t(8, 16, dtype=dtype), **tolerance)


@pytest.mark.parametrize("name", ["chain", "sum", "softmax", "mean"])
def test_other_layouts(name: str) -> None:
    function = FUNCTIONS[name]
    same(lambda x: function(x.t()), t(16, 8), rtol=1e-4, atol=1e-5)
    same(function, t(16, 8).detach().t().requires_grad_(), rtol=1e-4, atol=1e-5)


def test_several_arguments_of_which_some_need_none() -> None:
    def f(x, w, b, mask):
        return F.gelu(x @ w + b) * mask

    same(f, t(8, 16), t(16, 4), t(4), t(8, 4, grad=False), rtol=1e-4, atol=1e-5)
    same(f, t(8, 16, grad=False), t(16, 4), t(4), t(8, 4), rtol=1e-4, atol=1e-5)
    same(lambda x, y: x.sin(), t(3), t(3))  # y has none


def test_the_same_function_with_and_without_gradients() -> None:
    @graftjit.jit
    def f(x, y):
        return x.sin() * y

    for flags in ((True, False), (False, False), (False, True), (True, True), (True, False)):
        x, y = t(4, grad=flags[0]), t(4, 1, grad=flags[1]).expand(4, 4)
        out = f(x, y)
        assert out.requires_grad == any(flags)
        torch.testing.assert_close(out, x.sin() * y)
    with torch.no_grad():
        assert not f(t(4), t(4)).requires_grad


def test_gradients_accumulate_in_parameters() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
    jitted = graftjit.compile(model)
    x = t(5, 6, grad=False)
    for module in (model, jitted):
        module(x).square().mean().backward()
        module(x).square().mean().backward()
    total = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for _ in range(4):
        model(x).square().mean().backward()
    for p, before in zip(model.parameters(), total, strict=True):
        torch.testing.assert_close(p.grad, before)


def test_part_of_the_gradients() -> None:
    """`autograd.grad` on some inputs, results without a gradient, a result that is not used."""

    def f(x, y):
        return x.sin() * y, x * 3

    jitted = graftjit.jit(f)
    for function in (f, jitted):
        x, y = t(4), t(4).detach().requires_grad_()
        a, b = function(x, y)
        (gx,) = torch.autograd.grad(a.sum(), x, retain_graph=True)
        torch.testing.assert_close(gx, x.cos() * y)
        assert torch.autograd.grad(b.sum(), y, allow_unused=True, retain_graph=True) == (None,)
        (gy,) = torch.autograd.grad([a, b], y, [torch.ones(4), torch.ones(4)], allow_unused=True)
        torch.testing.assert_close(gy, x.sin())
        b = function(x, y)[1]
        b.sum().backward()
        torch.testing.assert_close(x.grad, torch.full((4,), 3.0))
        assert y.grad is None


def test_backward_twice() -> None:
    f = graftjit.jit(lambda x: x.sin() * x)
    x = t(4)
    y = f(x)
    y.sum().backward(retain_graph=True)
    first = x.grad.clone()
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_requires_grad_is_switched_between_calls() -> None:
    model = nn.Linear(4, 4)
    jitted = graftjit.compile(model)
    x = t(2, 4, grad=False)
    for wanted in (True, False, True):
        model.weight.requires_grad_(wanted)
        model.zero_grad()
        jitted(x).sum().backward()
        assert (model.weight.grad is not None) == wanted
        assert model.bias.grad is not None


WRITES = {
    "an argument that is saved": (lambda x, y: x * y, 1, True),
    "one that is not": (lambda x, y: x + y, 1, False),
    "a result that is saved": (lambda x, y: (x * 1).exp() + 0 * y.sum(), None, None),
    "an argument behind a change": (lambda x, y: x * (y * 2), 1, False),
    "a view of an argument": (lambda x, y: x @ y.t(), 1, True),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_between_forward_and_backward(name: str) -> None:
    """What eager saved must not be written to; what it did not may be."""
    function, at, raises = WRITES[name]
    results = []
    for f in (function, graftjit.jit(function)):
        x, y = t(4, 4), t(4, 4, grad=False) + 1
        out = f(x, y)
        with torch.no_grad():
            (y if at == 1 else out).mul_(2)
        try:
            out.sum().backward()
            results.append(x.grad)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            results.append(None)
    assert (results[0] is None) == (results[1] is None)
    assert raises is None or raises == (results[0] is None)
    if results[0] is not None:
        torch.testing.assert_close(results[0], results[1])


RESULT_WRITES = {
    "exp": (lambda x: x.exp(), True),
    "sin": (lambda x: x.sin(), False),
    "relu": (lambda x: x.relu(), True),
    "product": (lambda x: x * 3, False),
    "seen twice": (lambda x: (x * 3).sigmoid().view(2, 8), True),
    "view": (lambda x: (x * 3).view(2, 8), False),
}


@pytest.mark.parametrize("name", RESULT_WRITES)
def test_a_result_is_written_to(name: str) -> None:
    function, raises = RESULT_WRITES[name]
    results = []
    for f in (function, graftjit.jit(function)):
        x = t(4, 4)
        out = f(x)
        out.mul_(2)
        try:
            out.sum().backward()
            results.append(x.grad)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            results.append(None)
    assert [r is None for r in results] == [raises, raises]
    if not raises:
        torch.testing.assert_close(results[0], results[1])


def test_a_write_inside_that_eager_refuses() -> None:
    def f(x, y):
        z = x * y
        with torch.no_grad():
            y.mul_(2)
        return z

    jitted = graftjit.jit(f)
    for function in (f, jitted):
        x, y = t(4), t(4, 1, grad=False).expand(4, 4).contiguous()
        with pytest.raises(RuntimeError, match="inplace"):
            function(x, y).sum().backward()


def test_buffers_that_the_forward_writes() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    )
    twin = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    )
    twin.load_state_dict(model.state_dict())
    jitted = graftjit.compile(model)
    for _ in range(3):
        x = t(5, 3, 6, 6)
        jitted(x).square().mean().backward()
        twin(x.detach()).square().mean().backward()
    for (name, a), b in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, msg=name)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5)


def test_dropout_is_the_same_in_the_backward() -> None:
    same(lambda x: F.dropout(x, 0.4) * x, t(32, 32))
    x = t(64)
    y = graftjit.jit(lambda x: F.dropout(x, 0.5))(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y != 0) * 2.0)


def test_symbolic_sizes() -> None:
    def f(x, w):
        return (x @ w).softmax(-1).mean(0) * x.shape[0]

    jitted = graftjit.jit(f)
    w = t(6, 5)
    for n in (3, 7, 11, 2, 19):
        x = t(n, 6)
        ours = torch.autograd.grad(jitted(x, w).square().sum(), [x, w])
        theirs = torch.autograd.grad(f(x, w).square().sum(), [x, w])
        torch.testing.assert_close(ours, theirs)


def test_symbolic_sizes_of_batch_norm() -> None:
    def f(x, w, b):
        return F.batch_norm(x, None, None, w, b, True).relu() * x.transpose(0, 1).sum()

    jitted = graftjit.jit(f)
    w, b = t(4), t(4).detach().requires_grad_()
    for n, size in ((2, 3), (5, 3), (3, 6), (2, 4), (6, 5)):
        x = t(n, 4, size)
        ours = torch.autograd.grad(jitted(x, w, b).sum(), [x, w, b])
        theirs = torch.autograd.grad(f(x, w, b).sum(), [x, w, b])
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def _own_leaf(x):
    w = torch.ones(4).requires_grad_()
    return w, w * x


def test_a_leaf_that_the_function_makes_or_knows() -> None:
    known = t(4)

    def f(x):
        w = torch.ones(4).requires_grad_()
        return x * w * 2, (x * w).sum(), known * x

    jitted = graftjit.jit(f)
    for _ in range(2):
        x = t(4, grad=False)
        for a, b in zip(jitted(x), f(x), strict=True):
            torch.testing.assert_close(a, b)
            assert a.requires_grad == b.requires_grad
        w, y = graftjit.jit(_own_leaf)(x)
        y.sum().backward()
        torch.testing.assert_close(w.grad, x)
        known.grad = None
        jitted(x)[2].sum().backward()
        torch.testing.assert_close(known.grad, x)


def test_memory_is_freed_after_the_backward() -> None:
    import gc
    import weakref

    f = graftjit.jit(lambda x: (x.sin() * x).exp().sum())
    f(t(64)).backward()
    x = t(64) * 1
    y = f(x)
    seen = weakref.ref(x)
    del x
    y.backward()
    gc.collect()
    assert seen() is None
    assert y.grad_fn is not None


def test_an_operator_that_raises_shows_the_line_of_the_program() -> None:
    """Nothing of the graph is returned, so it has no node."""

    def f(y):
        y.index_select(0, torch.arange(2))

    jitted = graftjit.jit(f)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="should be positive") as raised:
            jitted(t(0, 1))
        assert [entry.name for entry in raised.traceback][-1] == "f"
