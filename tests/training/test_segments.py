"""Results of one part that are differentiated apart, or one by another: each as in eager."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import graftjit

T = torch.Tensor


def inner(x: T, w: T) -> Any:
    y = torch.sin(x) * w
    return y, (y * y).sum()


def inner_written(x: T, w: T) -> Any:
    y = x * 1
    y.mul_(w)
    return y, (y * y).sum(), y.exp()


def inner_by_relu(x: T, w: T) -> Any:
    y = nn.functional.relu(x @ w, inplace=True)
    z = nn.functional.dropout(y, 0.5)
    return z, y, (z * w).sum()


def chain(x: T, w: T) -> Any:
    h = torch.tanh(x @ w)
    a = h.exp()
    b = a * h
    return a, b.sum(), h


def independent(x: T, w: T) -> Any:
    return torch.tanh(x).sum(), torch.sigmoid(w).mean()


def sums(x: T, w: T) -> Any:
    """What the two share saves nothing."""
    h = x + w
    return (h * 2).sum(), h * 3


def through_two(x: T, w: T) -> Any:
    a = x.sin()
    b = (a + x).cos()
    c = b * a + w
    return a, b, c.sum()


def chunks(x: T, w: T) -> Any:
    a, b = x.chunk(2)
    return a * 2, b.exp(), (a * b).sum()


def shared(x: T, w: T) -> Any:
    y = x * w
    return y.sum(), y.mean(), y.std()


def detached(x: T, w: T) -> Any:
    y = x.exp()
    return y.detach() * w, y * 3, (y * y.detach()).sum()


def losses(x: T, w: T) -> Any:
    y = torch.softmax(x @ w, -1)
    loss, weight = -(y.log()).mean(), (w * w).sum()
    return loss + weight, y, loss, weight


def copies(x: T, w: T) -> Any:
    """A result's gradient that passes through a copy of it."""
    a = torch.lerp(x, w, 0.3)
    b = a.clone()
    return b, a, b * b


def same(x: T, w: T) -> Any:
    """`contiguous` gives the tensor itself."""
    a = (x * w).square()
    b = a.flip(0)
    return b, a, torch.tanh(a.contiguous())


def same_by_to(x: T, w: T) -> Any:
    """`to` gives the tensor itself, also with `non_blocking`."""
    a = (x * w).square()
    b = a.exp()
    return b, a, torch.tanh(a.to(torch.float64, True))


def view(x: T, w: T) -> Any:
    z = (x * 2)[0]
    return z, (z * z).sum()


def view_of_input(x: T, w: T) -> Any:
    z = x[0]
    return (z * w).exp(), z


def views_of_views(x: T, w: T) -> Any:
    """The first view is an inner result and the second's base; the piece is none itself."""
    y = (x * w).sin()
    a = y.transpose(0, 1)
    b = a[1:]
    return (a * w).sum(), b, (b * b).mean(), a


def views_and_their_memory(x: T, w: T) -> Any:
    y = torch.tanh(x)
    a, b = y.chunk(2)
    return b, (a * b).sum(), (y * w).sum(), a, y


def written_view(x: T, w: T) -> Any:
    y = x * 2
    y[0].mul_(w[0])
    z = y.view(-1)
    return z, (z * z).sum(), y.exp()


def written_part(x: T, w: T) -> Any:
    y = torch.lerp(x, w, 0.3)
    y[..., 0] *= w[0]
    z = y.exp()
    return y, z.logsumexp(0), z


def attention(x: T, w: T) -> Any:
    """The weights are a result, and share the normed input with the values."""
    h = nn.functional.layer_norm(x, (4,))
    weights = ((h @ w) @ h.T).softmax(-1)
    out = x + weights @ h.tanh()
    h = nn.functional.layer_norm(out, (4,))
    more = ((h @ w) @ h.T).softmax(-1)
    return out + more @ h.tanh(), weights, more


def trunk(x: T, w: T) -> Any:
    """One of the heads depends on the other."""
    h = torch.tanh(x @ w)
    a = h.exp()
    return a, (a * h).sum(), h.sum()


def hidden_parts(x: T, w: T) -> Any:
    """What the results share is one of several results of a call."""
    var, mean = torch.var_mean(x * w, 0)
    a = mean.exp()
    return a, (a * mean * var).sum(), var.sin()


def difference(x: T, w: T) -> Any:
    """The second result depends on an argument by itself and through the first one."""
    y = x + x
    return y, y - x


def met_and_written(x: T, w: T) -> Any:
    """The gradients of the results meet at a value that is written later."""
    met = x * w
    y = x - met
    z = y @ y.t()
    met.sin_()
    return z, y, met


def layouts(x: T, w: T) -> Any:
    """A term of the result's gradient is expanded, with strides of zero; another one is dense."""
    y = torch.sigmoid(x) @ w
    total = y.sum()
    return y, total * y, total * 2


PROGRAMS: list[Callable[[T, T], Any]] = [
    inner,
    inner_written,
    inner_by_relu,
    chain,
    independent,
    sums,
    through_two,
    chunks,
    shared,
    detached,
    losses,
    copies,
    same,
    same_by_to,
    view,
    view_of_input,
    views_of_views,
    views_and_their_memory,
    written_view,
    written_part,
    attention,
    trunk,
    hidden_parts,
    layouts,
    difference,
    met_and_written,
]


def total(result: T) -> T:
    weights = torch.arange(1, result.numel() + 1, dtype=result.dtype)
    return (result * weights.reshape(result.shape)).sum()


def ways(n: int) -> Iterator[tuple[Any, ...]]:
    """How `n` results are differentiated: (name of the way, positions)."""
    for order in itertools.permutations(range(n), min(n, 2)):
        yield "each", *order
        yield "each_retained", *order
        yield "by", *order
        yield "hook", *order
        yield "twice", *order
    for at in range(n):
        yield "by", at, at
        yield "all_by", at
        yield "retain", at


def _each(results: Any, _leaves: Any, *order: int, retain: bool = False) -> list[Any]:
    for at in order:
        total(results[at]).backward(retain_graph=retain)
    return []


def _by(results: Any, leaves: Any, at: int, by: int) -> list[Any]:
    wanted = [results[by], *leaves]
    return list(torch.autograd.grad(total(results[at]), wanted, allow_unused=True))


def _all_by(results: Any, leaves: Any, by: int) -> list[Any]:
    wanted = [results[by], *leaves]
    return list(torch.autograd.grad(sum(map(total, results)), wanted, allow_unused=True))  # type: ignore[arg-type]


def _hook(results: Any, _leaves: Any, at: int, by: int) -> list[Any]:
    seen: list[Any] = []

    def hook(gradient: T) -> T:
        if gradient is not None:
            seen.append(gradient.clone())
            return gradient * 2
        return gradient

    results[by].register_hook(hook)
    total(results[at]).backward()
    return seen


def _retain(results: Any, _leaves: Any, at: int) -> list[Any]:
    results[at].retain_grad()
    sum(map(total, results)).backward()  # type: ignore[union-attr]
    return [results[at].grad]


def _twice(results: Any, leaves: Any, at: int, by: int) -> list[Any]:
    wanted = [results[by], *leaves]
    first = torch.autograd.grad(total(results[at]), wanted, create_graph=True, allow_unused=True)
    found = list(first)
    for one in first:
        if one is not None and one.requires_grad:
            found += torch.autograd.grad(
                (one * one).sum(), leaves, retain_graph=True, allow_unused=True
            )
    return found


WAYS = {
    "each": _each,
    "each_retained": partial(_each, retain=True),
    "by": _by,
    "all_by": _all_by,
    "hook": _hook,
    "retain": _retain,
    "twice": _twice,
}


def outcome(function: Any, way: tuple[Any, ...]) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    leaves = [
        torch.randn(4, 4, generator=generator, dtype=torch.float64).requires_grad_()
        for _ in range(2)
    ]
    torch.manual_seed(5)
    results, raised = function(*leaves), ""
    seen: list[Any] = []
    try:
        seen = WAYS[way[0]](results, leaves, *way[1:])
    except RuntimeError as error:
        raised = str(error).split(" (")[0]
        return [raised]
    return [*(leaf.grad for leaf in leaves), *seen]


@pytest.mark.parametrize("function", PROGRAMS)
def test_every_way_to_differentiate(function: Any) -> None:
    n = len(function(torch.ones(4, 4), torch.ones(4, 4)))
    jitted = graftjit.jit(function)
    for way in ways(n):
        ours, theirs = outcome(jitted, way), outcome(function, way)
        assert len(ours) == len(theirs), way
        for a, b in zip(ours, theirs, strict=True):
            assert type(a) is type(b), (way, a, b)
            if isinstance(b, T):
                torch.testing.assert_close(a, b, msg=str(way))
            else:
                assert a == b, way


@pytest.mark.parametrize(
    "function", [inner, independent, through_two, chain, losses, trunk, attention, view]
)
def test_results_have_the_nodes_that_eager_has(function: Any) -> None:
    names = []
    for one in (function, graftjit.jit(function)):
        x, w = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
        names.append([type(result.grad_fn).__name__ for result in one(x, w)])
    assert names[0] == names[1]


def test_a_part_is_still_one_graph_with_one_forward() -> None:
    jitted = graftjit.jit(inner)
    x, w = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
    jitted(x, w)
    report = jitted.report()
    assert report.break_count == 0 and len(report.graphs) == 1


def written_argument(a: T, w: T) -> Any:
    a.mul_(w)
    b = a.sin()
    return b, (b * a).sum()


def relu_of_argument(a: T, w: T) -> Any:
    """The old value of the argument has a path of its own."""
    old = a.exp()
    nn.functional.relu(a, inplace=True)
    return (a * w).sum(), old.sum() + a.sum()


@pytest.mark.parametrize("function", [written_argument, relu_of_argument])
@pytest.mark.parametrize("way", [way for way in ways(3) if 2 in way or way[0] == "each"])
def test_arguments_that_are_written_are_results(function: Any, way: Any) -> None:
    def whole(x: T, w: T, called: Any) -> Any:
        a = x * 3
        return (*called(a, w), a)

    ours = outcome(partial(whole, called=graftjit.jit(function)), way)
    theirs = outcome(partial(whole, called=function), way)
    for a, b in zip(ours, theirs, strict=True):
        assert type(a) is type(b)
        if isinstance(a, T):
            torch.testing.assert_close(a, b)
        else:
            assert a == b


@pytest.mark.parametrize("gone", [False, True])
def test_hooks_on_a_view_see_the_whole_gradient(gone: bool) -> None:
    found = []
    for function in (view, graftjit.jit(view)):
        x, w = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
        z, loss = function(x, w)
        z.register_hook(found.append)
        whole = loss + z.sum()
        if gone:
            del z
        whole.backward()
    assert torch.equal(found[0], found[1]) and len(found) == 2


def test_each_node_frees_what_it_saved() -> None:
    """The first loss lets go of its part, while the second one's stays."""
    a, b = graftjit.jit(lambda x, w: ((x * x).exp().sum(), (w * w).exp().sum()))(
        *(torch.ones(64, requires_grad=True) for _ in range(2))
    )
    nodes = [weakref.ref(a.grad_fn), weakref.ref(b.grad_fn)]
    gc.disable()
    try:
        a.backward()
        del a
        assert nodes[0]() is None and nodes[1]() is not None
        with pytest.raises(RuntimeError, match="a second time"):
            b.backward()
            b.backward()
    finally:
        gc.enable()


@pytest.mark.parametrize("first", [1, 0])
def test_a_segment_without_a_gradient_frees_nothing_and_does_not_raise(first: int) -> None:
    """The two others share a node, which leads to that of the sine: the product does not depend on
    it, though the sum does."""

    def function(x: T, w: T) -> Any:
        chosen = torch.where(x > 0.1, x, w)
        sine = w.sin()
        return chosen * 2, sine, sine + chosen

    found = []
    for each in (function, graftjit.jit(function)):
        torch.manual_seed(0)
        x, w = (torch.randn(3, requires_grad=True) for _ in range(2))
        results = each(x, w)
        results[first].sum().backward()
        results[1 - first].sum().backward()
        found.append((x.grad, w.grad))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("between", [True, False])
def test_a_write_between_the_backwards_raises_where_eager_raises(between: bool) -> None:
    found = []
    for function in (inner, graftjit.jit(inner)):
        x, w = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
        y, loss = function(x, w)
        if between:
            y.detach().mul_(2)
        try:
            loss.backward()
            found.append(w.grad)
        except RuntimeError as error:
            found.append(str(error).split(":")[0])
    if between:
        assert found[0] == found[1]
    else:
        torch.testing.assert_close(found[0], found[1])


def test_results_without_saved_values_run_their_backward_again() -> None:
    for function in (lambda x: x + x, lambda x: x.clone(), lambda x: torch.lerp(x, x, 0.3)):
        x = torch.ones(3, requires_grad=True)
        y = graftjit.jit(function)(x)
        y.sum().backward()
        y.sum().backward()
        assert x.grad is not None and x.grad.tolist() == [function(torch.ones(3))[0] * 2] * 3


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
        self.d = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))

    def forward(self, z: T, real: T) -> tuple[T, T, T]:
        fake = self.g(z)
        cross = nn.functional.binary_cross_entropy_with_logits
        one, zero = torch.ones(len(z), 1), torch.zeros(len(z), 1)
        lost = cross(self.d(real), one) + cross(self.d(fake.detach()), zero)
        return fake, lost, (fake - real).square().mean()


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, z: T, real: T) -> tuple[T, T]:
        return self.a(z).tanh().sum(), self.b(real).tanh().mean()


@pytest.mark.parametrize("kind", [Gan, Heads])
def test_losses_that_are_stepped_one_after_the_other(kind: Any) -> None:
    torch.manual_seed(0)
    plain = kind()
    torch.manual_seed(0)
    model = kind()
    compiled = graftjit.compile(model)
    for ours, owner in ((plain, plain), (compiled, model)):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(owner.parameters(), 0.1)
        for _ in range(20):
            optimizer.zero_grad()
            *_, first, second = ours(torch.randn(5, 4), torch.randn(5, 4))
            first.backward()
            second.backward()
            optimizer.step()
    for a, b in zip(plain.state_dict().values(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)
    assert compiled.report().break_count == 0


def test_class_activation_map() -> None:
    """Grad-CAM: the gradient of a score with respect to the features, which weighs them."""
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3))
    head = nn.Linear(6, 5)

    def scores(x: T) -> tuple[T, T]:
        maps = features(x).relu()
        return head(maps.mean((2, 3))), maps

    found = []
    for function in (scores, graftjit.jit(scores)):
        out, maps = function(torch.ones(2, 3, 12, 12))
        (weights,) = torch.autograd.grad(out[:, 1].sum(), maps, retain_graph=True)
        found.append((weights.mean((2, 3), keepdim=True) * maps).sum(1).relu())
        out.sum().backward()
        found.append(features[0].weight.grad.clone())
        features.zero_grad()
    torch.testing.assert_close(found[2:], found[:2])
