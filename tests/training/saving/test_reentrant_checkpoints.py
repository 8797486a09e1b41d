"""`torch.utils.checkpoint` with `use_reentrant=True` inside jitted functions, beside plain Python."""

from __future__ import annotations

import contextvars
import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import graftjit
from graftjit.runtime.process.session import SESSION

from .checkpoints import Block, blocks_of, compare, leaf, operators_of_backward, saved_bytes

again = functools.partial(checkpoint, use_reentrant=True)


def compare_at(level: int, program: Callable[..., Any]) -> None:
    """`compare` at another level."""
    config = graftjit.JitConfig(jit_level=f"O{level}")
    jit = functools.partial(graftjit.jit, config=config)
    compare(lambda wrap: program(jit if wrap is graftjit.jit else wrap))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("level", [0, 1])
def test_blocks(dropout: float, level: int) -> None:
    def program(wrap: Any) -> Any:
        blocks, x = blocks_of(3, dropout=dropout), leaf(3, 8)

        def loss(h: torch.Tensor) -> torch.Tensor:
            for block in blocks:
                h = again(block, h)
            return h.square().sum()

        loss = wrap(loss)
        for _ in range(2):
            loss(x).backward()
        drawn = torch.rand(2, dtype=torch.float64)
        return [x.grad, drawn, *(p.grad for p in blocks.parameters())], loss

    compare_at(level, program)


@pytest.mark.parametrize("level", [0, 1])
def test_the_name_of_the_node(level: int) -> None:
    block, x = blocks_of(1)[0], leaf(3, 8)

    def ran(h: torch.Tensor) -> torch.Tensor:
        return again(block, h)

    jitted = graftjit.jit(ran, config=graftjit.JitConfig(jit_level=f"O{level}"))
    for _ in range(2):
        assert jitted(x).grad_fn.name() == ran(x).grad_fn.name()


def test_a_whole_step() -> None:
    def program(wrap: Any) -> Any:
        blocks, head, x = blocks_of(3, dropout=0.1), nn.Linear(8, 2).double(), leaf(3, 8)
        model = nn.ModuleList([*blocks, head])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @wrap
        def step(h: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            h = blocks[0](h)
            for block in blocks[1:]:
                h = again(block, h, preserve_rng_state=True)
            loss = head(h).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        losses = [step(x.detach()) for _ in range(3)]
        return (losses, [p.grad for p in model.parameters()], list(model.parameters())), step

    compare(program)


def test_only_the_arguments_are_saved_and_products_are_computed_again() -> None:
    blocks, x = blocks_of(4), leaf(5, 8)

    def loss(h: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            h = again(block, h)
        return h.sum()

    with SESSION.override(check=False):
        y = graftjit.jit(loss)(x)
    assert saved_bytes(y, x, *blocks.parameters()) <= 3 * 5 * 8 * 8
    w = leaf(4, 4)
    names = operators_of_backward(
        lambda a: again(lambda h: (h @ w).tanh() @ w, a).sum(), leaf(4, 4)
    )
    assert sum("mm" in one for one in names) == 5  # of which one is the forward's, again
    assert not any("nested" in one or "clone" in one for one in names)


def test_results_without_and_with_a_gradient() -> None:
    """A missing gradient is zeros, and a leaf behind it gets zeros, not None."""

    def program(wrap: Any, used: tuple[int, ...]) -> Any:
        x, w, v = leaf(3, 4), leaf(4, 4), leaf(4, 4)

        def region(a: torch.Tensor, scale: float, flag: None) -> Any:
            return a @ w * scale, (a @ v).exp(), a.detach().sum(), a.argmax(), flag

        @wrap
        def f(a: torch.Tensor) -> Any:
            made = again(region, a, 2.0, None)
            assert made[4] is None
            return made[:4]

        parts = f(x)
        sum(parts[at].sum() for at in used).backward()
        facts = [(one.requires_grad, one.is_leaf, one._is_view()) for one in parts]
        grads = [x.grad, w.grad, v.grad]
        return ([one is None for one in grads], facts, [one for one in grads if one is not None]), f

    for used in ((0, 1), (0,), (1,), (2,), (0, 2)):
        plain, _ = program(lambda fn: fn, used)
        found, jitted = program(graftjit.jit, used)
        assert found[:2] == plain[:2], (used, found[:2], plain[:2])
        torch.testing.assert_close(found[2], plain[2])
        assert jitted.report().break_count == 0


def test_inside_one_frame_a_missing_gradient_is_zeros() -> None:
    def program(wrap: Any) -> Any:
        x, w, v = leaf(3, 4), leaf(4, 4), leaf(4, 4)

        @wrap
        def f(a: torch.Tensor) -> None:
            one, _ = again(lambda h: (h @ w, h @ v), a)
            one.sum().backward()

        f(x)
        return (x.grad, w.grad, v.grad), f

    compare(program)


def raised(work: Callable[[], Any]) -> str:
    with pytest.raises(RuntimeError) as error:
        work()
    return str(error.value)


@pytest.mark.parametrize("level", [0, 1])
def test_gradients_of_chosen_tensors_are_refused(level: int) -> None:
    def program(wrap: Any) -> Any:
        x, w, head = leaf(3, 4), leaf(4, 4), leaf(4)
        f = wrap(lambda a: (again(lambda h: (h @ w).tanh(), a) * head).sum())
        texts = [
            raised(lambda: torch.autograd.grad(f(x), x)),
            raised(lambda: f(x).backward(inputs=[x])),
            raised(lambda: torch.autograd.grad(f(x), [x, head])),
        ]
        (behind,) = torch.autograd.grad(f(x), head)  # does not reach the checkpoint
        f(x).backward()
        return (x.grad, w.grad, behind, [len(one) for one in texts]), f

    compare_at(level, program)


def test_gradients_of_chosen_tensors_in_the_frame_are_refused() -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(3, 4), leaf(4, 4)
        f = wrap(lambda a: torch.autograd.grad(again(lambda h: (h @ w).tanh(), a).sum(), a))
        return (len(raised(lambda: f(x))), x.grad is None), f

    compare(program, 1, "GB114")


def test_no_result_with_a_history_is_an_error() -> None:
    def program(wrap: Any) -> Any:
        x = leaf(3)
        f = wrap(lambda a: again(lambda h: h.detach() * 2, a).sum())
        y = f(x)
        return (y.requires_grad, "none of output" in raised(y.backward)), f

    compare(program, 1, "GB114")


def test_weights_of_several_regions_add_up() -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(4, 4), leaf(4, 4)

        @wrap
        def f(a: torch.Tensor) -> torch.Tensor:
            h = again(lambda h: (h @ w).tanh(), a)
            return (again(lambda h, g: (h @ w).tanh() * g, h, h) @ w).sum()

        for _ in range(3):
            f(x).backward()
        return (x.grad, w.grad), f

    compare(program)


def test_an_unused_argument_gets_no_gradient() -> None:
    def program(wrap: Any) -> Any:
        x, z, w = leaf(3, 4), leaf(3, 4), leaf(3, 4)
        f = wrap(lambda a, b: again(lambda c, d: (c * w).sin(), a, b).sum())
        f(x.detach(), z).backward()  # x requires none, so the weight's comes by z
        return (x.grad is None, z.grad is None, w.grad), f

    compare(program)


def test_a_result_that_is_written_to() -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(3, 4), leaf(4, 4)

        @wrap
        def f(a: torch.Tensor) -> torch.Tensor:
            y = again(lambda h: (h @ w).exp(), a)
            y += a  # a residual in place
            return again(lambda h: h.exp(), y).sum()

        f(x).backward()
        return (x.grad, w.grad), f

    compare(program)


def _closure(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = a * 2
    return again(lambda b: b.sin() * h, a)


def _argument_in_closure(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = a * 2
    return again(lambda b: b.sin() * h, h)


def _asks(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return again(lambda b: b.sin() if torch.is_grad_enabled() else b.sin().detach(), a)


def _asks_of_a_value(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return again(lambda b: b.sin() * (2 if (b @ w).requires_grad else 1), a)


def _returns_its_argument(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return again(lambda b: (b, b @ w), a)[1]


def _returns_a_dict(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return again(lambda b: (b @ w, {"more": b.exp()}), a)[0]


def _nested(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return again(lambda b: again(lambda c: (c @ w).sin(), b.cos()) * 2, a)


def _no_argument_with_a_gradient(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return again(lambda b: b @ w, a.detach()) + a


def _without_the_option(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda b: (b @ w).sin(), a)


def _draws(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return again(lambda b: nn.functional.dropout(b @ w, 0.5), a, preserve_rng_state=False)


def _writes(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = a.detach().clone()
    return again(lambda b: h.add_(1) * b, a)


@pytest.mark.parametrize(
    "case",
    [_closure, _argument_in_closure, _asks, _asks_of_a_value, _returns_its_argument,
     _returns_a_dict, _nested, _no_argument_with_a_gradient, _without_the_option, _draws, _writes],
)  # fmt: skip
def test_what_python_runs(case: Any) -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(4, 4), leaf(4, 4)
        f = wrap(case)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            ran = []
            for _ in range(2):
                y = f(x, w)
                try:
                    y.sum().backward()
                    ran.append("")
                except RuntimeError as error:
                    ran.append(str(error)[:20])
        texts = sorted(str(one.message) for one in seen)
        grads = [one for one in (x.grad, w.grad) if one is not None]
        return (y.detach(), grads, ran, texts), f

    torch.manual_seed(0)
    plain, _ = program(lambda fn: fn)
    torch.manual_seed(0)
    found, jitted = program(graftjit.jit)
    torch.testing.assert_close(found[:2], plain[:2])
    assert found[2:] == plain[2:]
    assert jitted.report().break_count >= 1


def test_hooks_of_a_weight_are_a_break() -> None:
    """The backward of each checkpoint calls them."""

    def program(wrap: Any) -> Any:
        x, w, seen = leaf(4, 4), leaf(4, 4), []
        w.register_hook(lambda gradient: seen.append(gradient.clone()))
        f = wrap(lambda a: again(lambda h: h.sin() @ w, again(lambda h: h @ w, a)).sum())
        f(x).backward()
        return (x.grad, w.grad, seen), f

    compare(program, 1, "GB114")


def test_a_reentrant_one_within_another_kind_and_around_it() -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(4, 4), leaf(4, 4)
        plain = functools.partial(checkpoint, use_reentrant=False)

        @wrap
        def f(a: torch.Tensor) -> torch.Tensor:
            h = plain(lambda b: again(lambda c: (c @ w).tanh() @ w, b.sin()).exp(), a)
            return again(lambda b: plain(lambda c: (c @ w).tanh() @ w, b.sin()).exp(), h).sum()

        for _ in range(2):
            f(x).backward()
        return (x.grad, w.grad), f

    compare(program)


def test_sequential() -> None:
    def program(wrap: Any) -> Any:
        blocks, x = nn.Sequential(*blocks_of(5)), leaf(3, 8)
        f = wrap(lambda h: checkpoint_sequential(blocks, 2, h, use_reentrant=True).sum())
        f(x).backward()
        return [x.grad, *(p.grad for p in blocks.parameters())], f

    compare(program)


def test_autocast_and_a_kept_graph() -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(4, 4), leaf(4, 4)
        f = wrap(lambda a: again(lambda h: (h @ w).tanh(), a).sum())
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            y = f(x)
        y.backward(retain_graph=True)
        y.backward()
        return (x.grad, w.grad, "a second time" in raised(y.backward)), f

    compare(program)


def test_a_second_derivative_is_an_error() -> None:
    """Eager mode computes it without what the checkpoint adds, and says nothing."""
    x = leaf(3)
    y = graftjit.jit(lambda a: again(torch.sin, a).sum())(x)
    with pytest.raises(RuntimeError, match="no second derivative"):
        y.backward(create_graph=True)


def test_weights_that_change_before_the_backward() -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(3, 4), leaf(4, 4)
        loss = wrap(lambda a: again(lambda h: (h @ w).tanh().square(), a).sum())
        for _ in range(2):
            y = loss(x)
            with torch.no_grad():
                w.mul_(2)
            y.backward()
        return (x.grad, w.grad), loss

    compare(program)


def test_results_that_are_differentiated_apart() -> None:
    """Each result's node refuses what reaches its own checkpoint."""

    def program(wrap: Any) -> Any:
        x, w, v = leaf(3, 4), leaf(4, 4), leaf(4, 4)

        @wrap
        def heads(a: torch.Tensor) -> Any:
            h = (a @ v).sin()
            return again(lambda b: (b @ w).tanh(), h).sum(), (h * 2).exp().sum(), h

        one, other, _ = heads(x)
        grads = torch.autograd.grad(other, [x, v], retain_graph=True)
        texts = [
            raised(lambda: torch.autograd.grad(one, leaf, retain_graph=True)) for leaf in (x, v)
        ]
        one.backward(retain_graph=True)
        other.backward()
        return (grads, x.grad, w.grad, v.grad, ["use_reentrant" in one for one in texts]), heads

    compare(program)


_collector: contextvars.ContextVar[Any] = contextvars.ContextVar("collector", default=None)


class Layer(nn.Module):
    """A layer that checkpoints its own call, as those of model libraries do."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.block, self.checkpoint = (
            Block(8, 0.1),
            functools.partial(again, use_reentrant=reentrant),
        )
        self.checkpointing = True

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor, **options: Any) -> Any:
        return (self.block(x * mask), None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.checkpointing and self.training:
            return self.checkpoint(functools.partial(super().__call__, **kwargs), *args)
        return super().__call__(*args, **kwargs)


class Model(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(Layer(reentrant) for _ in range(3))
        self.head = nn.Linear(8, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        collected: dict[str, Any] = {}
        token = _collector.set(collected)
        try:
            h = self.words(tokens)
            mask = (tokens != 0)[..., None].to(h.dtype)
            for layer in self.layers:
                h, _ = layer(h, mask=mask, position=None)
        finally:
            _collector.reset(token)
        return nn.functional.cross_entropy(self.head(h).flatten(0, 1), tokens.flatten())


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_model_whose_layers_are_checkpoints(reentrant: bool, frozen: bool) -> None:
    """`frozen`: only the head and the layers learn, and a hook makes the embedding's result require
    a gradient."""

    def program(wrap: Any) -> Any:
        model = Model(reentrant).double()
        if frozen:
            model.words.requires_grad_(False)
        model.words.register_forward_hook(lambda module, args, output: output.requires_grad_(True))
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        tokens = torch.arange(12).reshape(2, 6) % 10

        @wrap
        def step(tokens: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(tokens)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return ([step(tokens) for _ in range(3)], list(model.parameters())), step

    compare(program)


def test_a_context_variable_that_a_region_reads_and_the_frame_sets_back() -> None:
    def program(wrap: Any) -> Any:
        x = leaf(3)

        @wrap
        def f(a: torch.Tensor) -> torch.Tensor:
            token = _collector.set(2.0)
            y = again(lambda h: h.sin() * (_collector.get() or 5.0), a)
            _collector.reset(token)
            return y.sum()

        f(x).backward()
        return (x.grad,), f

    jitted = compare(program, 1, "GB114")
    assert "reads changes" in str(jitted.report())


def _written_view(x: torch.Tensor) -> torch.Tensor:
    """A view whose history autograd makes anew, by operators."""
    y = torch.view_as_complex((x * 2).view(3, 2))
    v = torch.view_as_real(y)
    y.mul_(2)
    return v


@pytest.mark.parametrize(
    "function",
    [
        lambda x: again(_written_view, x),
        lambda x: again(lambda v: v.sin(), _written_view(x)),
        lambda x: again(lambda h: _written_view(h).sin(), x * 3),
    ],
)
def test_a_view_whose_base_was_written(function: Any) -> None:
    jitted, found = graftjit.jit(function), []
    for run in (function, jitted):
        x = leaf(6)
        y = run(x)
        y.sum().backward()
        found.append((y.detach(), x.grad, type(y.grad_fn).__name__))
    torch.testing.assert_close(found[0][:2], found[1][:2])
    assert found[0][2] == found[1][2]
    assert "WN607" not in str(jitted.report())
