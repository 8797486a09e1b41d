"""Who watches autograd, or differentiates it again: hooks, anomaly mode, double backward, functional transforms."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import graftjit
from graftjit.runtime.autograd import joint_program


def t(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_()


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).tanh().sum(1) * 2


def test_double_backward() -> None:
    jitted = graftjit.jit(f)
    found = []
    for function in (f, jitted, jitted):
        x, w = t(3, 4), t(4, 2)
        (gx,) = torch.autograd.grad(function(x, w).sum(), x, create_graph=True)
        (gx.square().sum() + function(x, w).sum()).backward()
        found.append((gx, x.grad, w.grad))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])
    assert "FB317" not in str(jitted.report())


def test_gradcheck() -> None:
    jitted = graftjit.jit(f)
    torch.autograd.gradcheck(jitted, (t(3, 4), t(4, 2)))
    torch.autograd.gradgradcheck(jitted, (t(3, 4), t(4, 2)))


def test_double_backward_draws_the_same_numbers() -> None:
    jitted = graftjit.jit(lambda x: nn.functional.dropout(x * x * x, 0.5))
    x = t(50)
    y = jitted(x)
    mask = (y != 0).double() * 2
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    torch.testing.assert_close(g, 3 * x * x * mask)
    state = torch.get_rng_state()
    (h,) = torch.autograd.grad(g.sum(), x)
    torch.testing.assert_close(h, 6 * x * mask)
    assert torch.equal(state, torch.get_rng_state())


def written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x.mul_(w)
    return x.sin()


def written_twice(x: torch.Tensor, w: torch.Tensor) -> Any:
    x.mul_(w)
    y = x.exp().sum()
    x.add_(w)
    return y, x.cos()


def view_written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x[0].mul_(2)
    return (x * x * w).sum()


def handed_on(x: torch.Tensor, w: torch.Tensor) -> Any:
    x.mul_(w)
    return x, x * w


def loose(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    t = x + w
    return (t * t * t).sum()


def one_loose(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.sin() + w


def noisy(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x.mul_(nn.functional.dropout(w, 0.5))
    return x.sin()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    "function", [written, written_twice, view_written, handed_on, loose, one_loose, noisy]
)
def test_double_backward_over_inputs_that_are_gone(function: Any, wide: bool) -> None:
    """The part writes them, or nothing but the part held them."""

    def both_orders(fn: Any) -> Any:
        torch.manual_seed(0)
        x, w = t(4, 3), t(4, 3) if wide else t(3)
        outs = fn(x * 2, w * 1)
        gc.collect()
        total = sum(out.sum() for out in (outs if isinstance(outs, tuple) else (outs,)))
        first = torch.autograd.grad(total, (x, w), create_graph=True)
        second = torch.autograd.grad(
            sum((g * g).sum() for g in first), (x, w), create_graph=True, allow_unused=True
        )
        third = torch.autograd.grad(
            sum(g.cos().sum() for g in second if g is not None), (x, w), allow_unused=True
        )
        return first, second, third

    jitted = graftjit.jit(function)
    for _ in range(2):
        for ours, theirs in zip(both_orders(jitted), both_orders(function), strict=True):
            assert [g is None for g in ours] == [g is None for g in theirs]
            for a, b in zip(ours, theirs, strict=True):
                if a is not None:
                    torch.testing.assert_close(a, b)


def test_double_backward_over_a_buffer_that_the_part_writes() -> None:
    def before(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        buffer.add_(1)
        return (x * x * x * buffer).sum()

    def after(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        y = x * x * x * buffer.sum()
        buffer.add_(1)
        return y.sum()

    for function in (before, after):
        jitted = graftjit.jit(function)
        for fn in (function, jitted, jitted):
            x, buffer = t(3), torch.ones(3, dtype=torch.float64)
            (g,) = torch.autograd.grad(fn(x, buffer), x, create_graph=True)
            (h,) = torch.autograd.grad(g.sum(), x)
            k = 2 if function is before else 3
            torch.testing.assert_close(g, 3 * k * x * x)
            torch.testing.assert_close(h, 6 * k * x)


def test_what_is_kept_for_a_double_backward_makes_no_circle_and_goes() -> None:
    jitted = graftjit.jit(loose)

    def alive(after: Any) -> bool:
        x = t(3) * 1
        seen = weakref.ref(x)
        held = after(x)
        del x
        gc.collect()
        return seen() is not None and held is not None

    assert not alive(lambda x: (out := jitted(x, t(3)), out.backward())[0])
    assert not alive(lambda x: (x.add_(jitted(x, t(3))), 1)[1])


def test_statistics_of_a_norm_are_not_copied() -> None:
    net = nn.BatchNorm1d(3)
    assert _kept_before(lambda x: net(x).sum()) == ()
    assert _kept_before(lambda x: x.mul_(2).sum()) == (0,)


def _kept_before(function: Any) -> tuple[int, ...]:
    plans = []
    real = joint_program.JointProgram.__init__

    def noted(self: Any, plan: Any, *args: Any, **kwargs: Any) -> None:
        plans.append(plan)
        real(self, plan, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_program.JointProgram, "__init__", noted)
        graftjit.jit(function)(t(4, 3, dtype=torch.float32) * 1)
    (before,) = {plan.before for plan in plans}
    return before


def test_saved_tensor_hooks_see_what_eager_saves() -> None:
    jitted = graftjit.jit(f)
    jitted(t(3, 4), t(4, 2)).sum().backward()
    seen = []
    for function in (f, jitted):
        packed = []

        def pack(tensor, packed=packed):
            packed.append(tuple(tensor.shape))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            x = t(3, 4)
            function(x, t(4, 2)).sum().backward()
        seen.append((packed, x.grad))
    assert seen[0][0] == seen[1][0]
    torch.testing.assert_close(seen[0][1], seen[1][1])


def test_anomaly_mode_names_the_operator() -> None:
    jitted = graftjit.jit(lambda x: (x * 0).sqrt() * 0)
    jitted(t(3)).sum().backward()
    with (
        torch.autograd.detect_anomaly(check_nan=True),
        pytest.raises(RuntimeError, match="SqrtBackward0"),
        pytest.warns(UserWarning),
    ):
        jitted(t(3)).sum().backward()


def test_hooks_on_tensors_and_parameters_outside() -> None:
    calls = []
    model = nn.Linear(4, 2).double()
    jitted = graftjit.compile(model)
    model.weight.register_hook(lambda g: calls.append("weight") or g * 2)
    model.weight.register_post_accumulate_grad_hook(lambda p: calls.append("after"))
    x = t(3, 4)
    x.register_hook(lambda g: calls.append("x"))
    y = jitted(x)
    y.register_hook(lambda g: calls.append("y"))
    y.sum().backward()
    assert calls[0] == "y" and sorted(calls[1:]) == ["after", "weight", "x"]
    torch.testing.assert_close(model.weight.grad, 2 * x.detach().sum(0).expand(2, 4))


def test_module_hooks() -> None:
    seen = []
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).double()
    model[0].register_full_backward_hook(lambda m, gi, go: seen.append(go[0].clone()))
    jitted = graftjit.compile(model)
    for module in (model, jitted):
        module(t(3, 4)).sum().backward()
    assert len(seen) == 2
    torch.testing.assert_close(seen[0], seen[1])


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        return g * 5 * ctx.saved_tensors[0]  # wrong on purpose: it must be this one


def test_a_function_of_the_user() -> None:
    jitted = graftjit.jit(lambda x: Cube.apply(x * 2).sin())
    for _ in range(2):
        a, b = t(4), t(4)
        jitted(a).sum().backward()
        Cube.apply(b * 2).sin().sum().backward()
        torch.testing.assert_close(a.grad, b.grad)


def test_checkpoint() -> None:
    from torch.utils.checkpoint import checkpoint

    def g(x):
        return checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False) * 2

    jitted = graftjit.jit(g)
    inner = graftjit.jit(lambda x: x.sin().exp())
    for _ in range(2):
        a, b, c = t(4), t(4), t(4)
        g(a).sum().backward()
        jitted(b).sum().backward()
        (checkpoint(inner, c, use_reentrant=False) * 2).sum().backward()
        torch.testing.assert_close(a.grad, b.grad)
        torch.testing.assert_close(a.grad, c.grad)


def test_functional_transforms_over_a_jitted_function() -> None:
    jitted = graftjit.jit(lambda x: x.sin().sum())
    x = t(4).detach()
    torch.testing.assert_close(torch.func.grad(jitted)(x), x.cos())
    _, pullback = torch.func.vjp(jitted, x)
    torch.testing.assert_close(pullback(torch.ones((), dtype=x.dtype))[0], x.cos())
    _, tangent = torch.func.jvp(jitted, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, x.cos().sum())
    rows = t(3, 4).detach()
    torch.testing.assert_close(torch.func.vmap(jitted)(rows), rows.sin().sum(1))
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(jitted))(rows), rows.cos())


def test_threads() -> None:
    import threading

    jitted = graftjit.jit(f)
    failures = []

    def work(seed):
        for _ in range(10):
            x, w = t(3, 4), t(4, 2)
            ours = torch.autograd.grad(jitted(x, w).sum(), [x, w])
            theirs = torch.autograd.grad(f(x, w).sum(), [x, w])
            try:
                torch.testing.assert_close(ours, theirs)
            except AssertionError as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def _hooked(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sin()


class Counting(Cube):
    calls = 0

    @staticmethod
    def backward(ctx, g):
        Counting.calls += 1
        return Cube.backward(ctx, g)


WATCHED = {
    "a function of the user": (lambda x: Counting.apply(x * 2).sin(), "GB134"),
    "a hook in the graph": (_hooked, "GB114"),
    "retain_grad": (lambda x: ((y := x * 2).retain_grad(), y.sin())[1], "GB114"),
}  # fmt: skip


@pytest.mark.parametrize("name", WATCHED)
def test_what_watches_autograd_in_a_graph_is_told(name: str) -> None:
    function, code = WATCHED[name]
    jitted = graftjit.jit(function)
    for _ in range(2):
        a, b = t(4), t(4)
        jitted(a).sum().backward()
        function(b).sum().backward()
        torch.testing.assert_close(a.grad, b.grad)
    assert any(one.code.startswith(code) for one in jitted.report().breaks), jitted.report()


def _matmuls(x: Any, w: Any) -> Any:
    y = torch.nn.functional.layer_norm((x @ w).relu() @ w, (8,))
    return y.pow(3), torch.softmax(x @ w, -1)


AUTOCAST: dict[str, Any] = {
    "products": (lambda x, w: (x @ w).tanh(), {}),
    "pointwise": (lambda x, w: (x * w).sin().exp(), {}),
    "two nodes": (_matmuls, {}),
    "part of the results": (lambda x, w: (_matmuls(x, w)[0], x @ w), {}),
    "random numbers": (lambda x, w: torch.dropout(x @ w, 0.5, True) @ w, {}),
    "segments by leaves": (
        lambda x, w: (x @ w @ w).tanh(),
        {"config": graftjit.JitConfig(segments=2)},
    ),
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_a_backward_under_autocast(name: str) -> None:
    """Its operators see autocast, as in eager mode, whether the forward's saw it or not."""
    function, options = AUTOCAST[name]
    jitted, found = graftjit.jit(function, **options), []
    for run in (function, jitted, jitted):
        torch.manual_seed(0)
        x, w = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
        y = run(x, w)
        y = y[0] if name == "part of the results" else y
        with torch.autocast("cpu", torch.bfloat16):
            sum(one.square().sum() for one in (y if type(y) is tuple else (y,))).backward()
        found.append((x.grad, w.grad))
        # and then without
        run(x, w)[0].sum().backward()
        found[-1] += (x.grad, w.grad)
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])
    assert not any(code in str(jitted.report()) for code in ("FB317", "WN6"))


def test_a_write_to_what_autograd_does_not_keep() -> None:
    """Before the backward: eager does not mind, and its gradient is of what was there."""
    found = []
    for jit in (False, True):
        table = torch.ones(4, dtype=torch.float64)

        def look(x, table=table):
            return (x * torch.add(table, 1)).sin()

        x = t(4)
        out = (graftjit.jit(look) if jit else look)(x)
        table.mul_(5)
        out.sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)


def test_a_hook_on_the_node_of_a_leaf_is_seen_at_the_next_call() -> None:
    def step(net: Any, x: torch.Tensor) -> None:
        net(x).square().sum().backward()

    jitted = graftjit.jit(step)
    seen = []
    for fn in (step, jitted):
        torch.manual_seed(0)
        net, called = nn.Linear(3, 2), []
        fn(net, torch.ones(1, 3))
        nodes = [p.expand_as(p).grad_fn.next_functions[0][0] for p in net.parameters()]
        for node in nodes:  # which live as long as somebody holds them
            node.register_hook(lambda _made, given, called=called: called.append(given[0].clone()))
        fn(net, torch.ones(1, 3))
        fn(net, torch.ones(1, 3))
        assert len(called) == 4
        seen.append([p.grad for p in net.parameters()])
    torch.testing.assert_close(*seen)
    assert "hooks" in str(jitted.report())
