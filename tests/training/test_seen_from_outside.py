"""What sees the backward of a compiled part from outside: edges, hooks of every kind, batches of gradients, writes to results.

Each of the ways runs on a part with three results (one is a view, one depends on another), in plain Python and jitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import get_gradient_edge, register_multi_grad_hook

import graftjit
from graftjit.runtime.autograd.edge_order import arranged

from .custom import functions

T = torch.Tensor


def part(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.tanh(x @ w)
    return y, (y * y).sum(), y[0]


def leaves() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


def by_an_edge(f: Any) -> Any:
    x, w = leaves()
    y, z, _ = f(x, w)
    edge = get_gradient_edge(y)
    return (
        torch.autograd.grad(z, edge, retain_graph=True),
        torch.autograd.grad(edge, x, grad_outputs=torch.ones_like(y), retain_graph=True),
    )


def inputs_that_are_edges(f: Any) -> Any:
    x, w = leaves()
    f(x, w)[1].backward(inputs=[get_gradient_edge(x), w])
    return x.grad, w.grad


def hooks_on_several(f: Any, mode: str) -> Any:
    x, w = leaves()
    y, z, view = f(x, w)
    seen: list[Any] = []

    def see(gradients: Any) -> None:
        each = gradients if isinstance(gradients, (list, tuple)) else [gradients]
        seen.append([None if one is None else one.clone() for one in each])

    register_multi_grad_hook([y, view, z], see, mode=mode)  # type: ignore[arg-type]
    (z + view.sum()).backward()
    return seen, x.grad, w.grad


def hooks_on_leaves(f: Any) -> Any:
    x, w = leaves()
    seen: list[torch.Tensor] = []
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))  # type: ignore[union-attr]
    w.register_hook(lambda gradient: gradient * 2)
    f(x, w)[1].backward()
    return seen, x.grad, w.grad


def hooks_on_nodes(f: Any) -> Any:
    x, w = leaves()
    _, z, _ = f(x, w)
    seen: list[Any] = []
    z.grad_fn.register_prehook(lambda given: seen.append((len(given), given[0].clone())))
    z.grad_fn.register_hook(lambda _found, given: seen.append(len(given)))
    z.backward()
    return seen, x.grad


def batched(f: Any) -> Any:
    x, w = leaves()
    seeds = torch.eye(16).reshape(16, 4, 4)
    return torch.autograd.grad(f(x, w)[0], (x, w), seeds, is_grads_batched=True)


def written_afterwards(f: Any) -> Any:
    found: list[Any] = []
    for which in (0, 2):
        x, w = leaves()
        made = f(x, w)
        made[which].mul_(3)
        for result in made[:2]:
            try:
                found.append(torch.autograd.grad(result.sum(), x, retain_graph=True))
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error)
                found.append(None)
    return found


def under_anomaly_mode(f: Any) -> Any:
    x, w = leaves()
    z = f(x, w)[1]
    with torch.autograd.set_detect_anomaly(True):
        z.backward()
    return x.grad


def names_and_what_is_freed(f: Any) -> Any:
    x, w = leaves()
    y, z, view = f(x, w)
    names = [type(one.grad_fn).__name__ for one in (y, z, view)]
    assert names == ["TanhBackward0", "SumBackward0", "SelectBackward0"]
    z.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()
    return x.grad


WAYS: dict[str, Callable[[Any], Any]] = {
    "edge": by_an_edge,
    "inputs that are edges": inputs_that_are_edges,
    "all of several": lambda f: hooks_on_several(f, "all"),
    "any of several": lambda f: hooks_on_several(f, "any"),
    "leaves": hooks_on_leaves,
    "nodes": hooks_on_nodes,
    "batched": batched,
    "written": written_afterwards,
    "anomaly": under_anomaly_mode,
    "names": names_and_what_is_freed,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_seen_is_what_eager_shows(way: str) -> None:
    jitted = graftjit.jit(part)
    wanted = WAYS[way](part)
    for _ in range(2):
        torch.testing.assert_close(WAYS[way](jitted), wanted)
    assert not jitted.report().break_count


def dropped(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.sin(), 0.5) * 2


def by_autograd(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(y, x, torch.eye(8), is_grads_batched=True)[0]


def by_vmap(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(
        torch.eye(8)
    )


@pytest.mark.parametrize("way", [by_autograd, by_vmap])
def test_batches_of_gradients_of_random_numbers(way: Any) -> None:
    """`vmap` refuses random numbers; here the forward has drawn them, and only gradients are batched."""
    found = []
    for f in (dropped, graftjit.jit(dropped)):
        x = torch.linspace(-1, 1, 8).requires_grad_()
        torch.manual_seed(1)
        y = f(x)
        found.append((way(y, x), torch.rand(2)))
    torch.testing.assert_close(found[1], found[0])


def heads_over_a_trunk(x: torch.Tensor) -> Any:
    h = torch.tanh(x)
    return h.exp(), (h * h).sum()


def two_of_one_operator(x: torch.Tensor) -> Any:
    a, b = functions.Product.apply(x, x * 2)
    return a, b * b, b


def all_of_one_operator(x: torch.Tensor) -> Any:
    return torch.std_mean(x, 0)


def written_by_one_operator(y: torch.Tensor, z: torch.Tensor, x: torch.Tensor) -> None:
    a, b = functions.Product.apply(x, x * 2)
    y.mul_(a)
    z.mul_(b[:2])


def written(function: Any, x: torch.Tensor) -> Any:
    y, z = x * 1, x[:2] * 2
    function(y, z, x)
    return y, z, y.sum()


def seen_of(results: Any, x: torch.Tensor) -> list[Any]:
    """The nodes of results, and what their hooks and those of the nodes see in several backwards."""
    nodes = [one.grad_fn for one in results]
    seen: list[Any] = [(type(node).__name__, nodes.index(node)) for node in nodes]
    for at, one in enumerate(results):
        one.register_hook(lambda g, at=at: seen.extend((at, None if g is None else g.clone())))
    nodes[-1].register_prehook(lambda given: seen.append(len(given)))
    nodes[-1].register_hook(lambda found, given: seen.append(len(given)))
    for number, at in enumerate((-1, 0, -1)):
        try:
            results[at].sum().backward(retain_graph=number == 0)
        except RuntimeError as error:
            seen.append(str(error).split("(")[0])
        assert x.grad is not None
        seen.append(x.grad.clone())
    return seen


@pytest.mark.parametrize(
    ("part", "call"),
    [
        (heads_over_a_trunk, None),
        (two_of_one_operator, None),
        (all_of_one_operator, None),
        (written_by_one_operator, written),
    ],
)
def test_results_that_share_saved_values_have_the_nodes_of_eager(part: Any, call: Any) -> None:
    jitted = graftjit.jit(part)
    found = []
    for function in (part, jitted, jitted):
        x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()
        found.append(seen_of(call(function, x) if call else function(x), x))
    for ours in found[1:]:
        for a, b in zip(ours, found[0], strict=True):
            assert torch.allclose(a, b) if isinstance(b, torch.Tensor) else a == b, (ours, found[0])
    assert not jitted.report().break_count


def a_product(x: T, w: T, *_: T) -> T:
    return (torch.sin(x) * w).sum()


def layers(x: T, w: T, b: T, v: T, c: T, u: T, d: T) -> Any:
    h = F.linear(F.layer_norm(F.linear(x, w, b), (4,)), v, c).relu()
    return F.linear(h, u, d).sum(), (h * h).mean()


def one_sum(x: T, w: T, b: T, v: T, c: T, u: T, d: T) -> Any:
    return (x + w + b + v + c + u + d).exp()


def parts(x: T, w: T, b: T, v: T, c: T, u: T, d: T) -> Any:
    return torch.cat([x, w, v, u]).tanh().sum(), (b * c * d).exp(), (v * u).sin()


def several_nodes(x: T, w: T, b: T, v: T, c: T, u: T, d: T) -> Any:
    """The last operator is that of the one result that depends on no other."""
    w = w * 1
    w.mul_(b)
    h = F.linear(x, w, c)
    return h, (h * u).sum(), (h + d).exp(), v.sin()


@pytest.mark.parametrize("function", [a_product, layers, one_sum, parts, several_nodes])
def test_hooks_of_leaves_run_in_the_order_of_eager(function: Any) -> None:
    jitted = graftjit.jit(function)
    for with_history in (False, True):
        orders = []
        for one in (function, jitted, jitted):
            shapes = [(4, 4), (4, 4), (4,), (4, 4), (4,), (4, 4), (4,)]
            leaves = [torch.ones(shape, requires_grad=True) for shape in shapes]
            order: list[str] = []
            for at, leaf in enumerate(leaves):
                leaf.register_hook(lambda _, at=at, order=order: order.append(f"{at}"))
                leaf.register_post_accumulate_grad_hook(
                    lambda _, at=at, order=order: order.append(f"{at} added")
                )
            given = [leaves[0] * 1, *leaves[1:]] if with_history else leaves
            found = one(*given)
            results = found if isinstance(found, tuple) else (found,)
            torch.autograd.backward(results, [torch.ones_like(each) for each in results])
            orders.append(order)
        assert orders[0] == orders[1] == orders[2]
    assert not jitted.report().break_count


def chained(a: T, b: T, c: T, d: T) -> T:
    return ((a.sin() * b).exp() * c * d).sum()


def several_of_one(a: T, b: T, c: T, d: T) -> Any:
    h = (a * b).tanh()
    return h * c, (h.exp() + d).sum()


def one_after_another(a: T, b: T, c: T, d: T) -> Any:
    h = a.sin() * b
    return h, (h * c).exp() * d


@pytest.mark.parametrize("function", [chained, several_of_one, one_after_another])
@pytest.mark.parametrize("hooked", [(0, 1, 2, 3), (0, 2, 3), (1, 2, 3)])
def test_hooks_of_leaves_run_in_the_order_of_eager_where_other_nodes_wait(
    function: Any, hooked: Any
) -> None:
    """Autograd's engine keeps the nodes that can run in a heap: the order in which leaves that
    enter it together leave it depends on what else is in it."""
    jitted = graftjit.jit(function)
    orders = []
    for one in (function, jitted, jitted):
        given = [torch.full((4,), 0.5, requires_grad=True) for _ in range(12)]
        order: list[str] = []
        for at, leaf in enumerate(given):
            if at % 4 in hooked:
                leaf.register_hook(lambda _, at=at, order=order: order.append(f"{at}"))
                leaf.register_post_accumulate_grad_hook(
                    lambda p, at=at, order=order: order.append(f"{at} {p.grad.tolist()}")
                )
        found = [one(*given[k : k + 4]) for k in (0, 4, 8)]
        parts = [part for some in found for part in (some if isinstance(some, tuple) else (some,))]
        sum(part.sum() for part in parts).backward()
        orders.append(order)
    assert orders[0] == orders[1] == orders[2]
    assert not jitted.report().break_count


def test_leaves_with_hooks_in_backwards_of_some_results_and_inputs() -> None:
    """Leaves without a gradient run no hooks; gradients of chosen tensors and second derivatives
    are those of eager mode, and so is what they free."""
    jitted = graftjit.jit(several_of_one)
    found: list[list[Any]] = []
    for one in (several_of_one, jitted):
        given = [torch.full((4,), 0.5, dtype=torch.float64, requires_grad=True) for _ in range(4)]
        seen: list[Any] = []
        for at, leaf in enumerate(given):
            leaf.register_hook(lambda g, at=at, seen=seen: seen.extend([at, g.clone()]))
        first, second = one(*given)
        second.backward(retain_graph=True)
        for asked in ([given[2]], [given[0], given[3]], given):
            gradients = torch.autograd.grad(
                [first, second],
                asked,
                [torch.ones_like(first), torch.ones_like(second)],
                retain_graph=True,
            )
            seen += gradients
        (slope,) = torch.autograd.grad(second, given[0], create_graph=True)
        seen += torch.autograd.grad(slope.sum(), given[:2])
        first, second = one(*given)
        first.sum().backward(inputs=[given[2]])
        second.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            first.sum().backward()
        seen += [leaf.grad for leaf in given]
        found.append(seen)
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b) if isinstance(a, torch.Tensor) else a == b, (a, b)


@pytest.mark.parametrize("n", range(1, 18))
def test_the_order_in_which_leaves_leave_the_heap(n: int) -> None:
    """That of the engine that this torch has."""
    edges = arranged(range(n), range(n))
    seen: list[int] = []

    class Several(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: T) -> T:
            return given[0] * 1

        @staticmethod
        def backward(ctx: Any, g: T) -> Any:
            return (g,) * n

    leaves = [torch.ones(1, requires_grad=True) for _ in range(n)]
    for at, leaf in zip(edges, leaves, strict=True):
        leaf.register_hook(lambda _, at=at: seen.append(at))
    Several.apply(*leaves).backward()
    assert seen == list(range(n))


def heads(x: torch.Tensor, w: torch.Tensor) -> Any:
    h = x.tanh()
    return h.exp(), h * h * w, x.sin()


def unread(x: torch.Tensor, w: torch.Tensor) -> Any:
    return (x.sin() * w.detach(),)


@pytest.mark.parametrize("function", [heads, unread])
def test_hooks_of_leaves_that_get_no_gradient_do_not_run(function: Any) -> None:
    found = []
    for f in (function, graftjit.jit(function)):
        named = dict(zip("xw", leaves(), strict=True))
        seen: dict[str, list[Any]] = {"x": [], "w": [], "all": []}
        for name, leaf in named.items():
            if name == "x" or function is heads:
                leaf.register_hook(lambda g, own=seen[name]: own.append(g.sum()))
            leaf.register_post_accumulate_grad_hook(
                lambda p, own=seen[name]: own.append(p.grad.clone())
            )
        count = register_multi_grad_hook(
            [*named.values()], lambda gs, own=seen["all"]: own.append([g is None for g in gs])
        )
        before = [(one._backward_hooks, one._post_accumulate_grad_hooks) for one in named.values()]
        for result in f(*named.values()):
            result.sum().backward(retain_graph=True)
            for own in seen.values():
                own.append(-1)
        after = [(one._backward_hooks, one._post_accumulate_grad_hooks) for one in named.values()]
        assert all(a is b for old, new in zip(before, after) for a, b in zip(old, new))
        count.remove()
        found.append(seen)
    torch.testing.assert_close(found[1], found[0])


def test_a_node_has_no_edge_to_a_tensor_that_no_result_comes_from() -> None:
    """Else a reducer or a graph of autograd would count it as used."""
    used, read, detached = (torch.ones(3, requires_grad=True) for _ in range(3))

    def program(x: torch.Tensor) -> torch.Tensor:
        read.grad = None
        return (used * x * read.numel()).sum() + (detached.detach() * x).sum()

    def leaves(result: torch.Tensor) -> set[int]:
        pending, found = [result.grad_fn], set()
        while pending:
            node = pending.pop()
            if hasattr(node, "variable"):
                found.add(id(node.variable))
            pending += [one for one, _ in node.next_functions if one is not None]
        return found

    jitted = graftjit.jit(program)
    for _ in range(2):
        assert leaves(jitted(torch.ones(3))) == leaves(program(torch.ones(3))) == {id(used)}
    for one in (used, read, detached):
        one.grad = None
    jitted(torch.ones(3)).backward()
    assert torch.equal(used.grad, torch.full((3,), 3.0))
    assert read.grad is None and detached.grad is None
    assert jitted.report().break_count == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda a: (a.detach() * 2, a.sin()),
        lambda a: (a.detach() * 2, a.sin(), a.cos()),
        lambda a: functions.Largest.apply(a)[1::-1],
        lambda a: (a * 2, a.sin())[1],
    ],
)
def test_results_that_retain_a_gradient_are_written_to(function: Any) -> None:
    """Torch moves the hook of `retain_grad` to the new node, by the place among the results of the
    old one."""
    found = []
    for each in (function, graftjit.jit(function), graftjit.jit(function)):
        x = torch.arange(8.0).reshape(2, 4).requires_grad_()
        made = each(x)
        results = [
            one for one in (made if isinstance(made, tuple) else (made,)) if one.requires_grad
        ]
        for y in results:
            y.retain_grad()
            y.mul_(3)
            y.add_(1)
        sum(y.square().sum() for y in results).backward()
        found.append([x.grad, *(y.grad for y in results), [y.output_nr for y in results]])
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])
