"""`torch.utils.checkpoint` inside jitted functions, beside plain Python: values, gradients, errors,
what is saved, and that the backward computes the regions again."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

import graftjit
from graftjit.runtime.process.session import SESSION

from ..custom.functions import Clamped
from .checkpoints import Block, blocks_of, compare, leaf, operators_of_backward, saved_bytes

again = functools.partial(checkpoint, use_reentrant=False)
aten = torch.ops.aten


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_blocks(dropout: float) -> None:
    def program(wrap: Any) -> Any:
        blocks, x = blocks_of(4, dropout=dropout), leaf(3, 8)

        @wrap
        def loss(h: torch.Tensor) -> torch.Tensor:
            for block in blocks:
                h = again(block, h)
            return h.square().sum()

        for _ in range(2):
            loss(x).backward()
        return [
            x.grad,
            torch.rand(2, dtype=torch.float64),
            *(p.grad for p in blocks.parameters()),
        ], loss

    compare(program)


def test_only_the_arguments_of_the_regions_are_saved() -> None:
    blocks, x = blocks_of(4), leaf(5, 8)

    @graftjit.jit
    def loss(h: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            h = again(block, h)
        return h.sum()

    with SESSION.override(check=False):
        y = loss(x)
    # eager mode keeps what the four checkpoints got, of which x exists anyway
    assert saved_bytes(y, x, *blocks.parameters()) <= 3 * 5 * 8 * 8


def test_random_numbers_are_drawn_again() -> None:
    """Of a region that draws random numbers, the generator's state is saved, as in eager mode."""
    blocks, x = blocks_of(2, 64, dropout=0.5), leaf(400, 64)
    state = torch.get_rng_state().nbytes

    @graftjit.jit
    def loss(h: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            h = again(lambda a, block=block: nn.functional.dropout(block(a), 0.1), h)
        return h.sum()

    with SESSION.override(check=False):
        y = loss(x)
    assert saved_bytes(y, x, *blocks.parameters()) <= 400 * 64 * 8 + 2 * state


def test_the_backward_computes_the_products_again_region_after_region() -> None:
    x, w = leaf(4, 4), leaf(4, 4)

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        def region(a: torch.Tensor) -> torch.Tensor:
            return (a @ w).tanh() @ w

        return again(region, again(region, x)).sum()

    def bare(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((((x @ w).tanh() @ w) @ w).tanh() @ w).sum()

    ours, theirs = (operators_of_backward(one, x, w) for one in (loss, bare))
    kinds = [name for name in ours if "mm" in name or "tanh" in name]
    assert sum("mm" in one for one in ours) == sum("mm" in one for one in theirs) + 2
    tanhs = [at for at, one in enumerate(kinds) if one == "aten.tanh.default"]
    # the second region's tanh, products of its backward, then the first region's
    assert len(tanhs) == 2 and tanhs[1] - tanhs[0] >= 4


def test_only_backwards_that_read_a_random_number_draw_it_again() -> None:
    """The first result depends on the second, so the backward of the third, which frees what it
    reads, comes to the second's without a gradient."""

    def program(wrap: Any) -> Any:
        @wrap
        def three(x: torch.Tensor, c: torch.Tensor) -> Any:
            h = again(lambda s: torch.rand_like(s) * s * s, x)
            shifted = c + x
            return h / shifted, shifted, h * c

        x = leaf(3, 4)
        results = three(x, leaf(3, 4).detach() + 2)
        results[2].sum().backward()
        results[1].sum().backward()
        return (*results, x.grad, torch.rand(2)), three

    compare(program)


def test_nested_regions() -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(3, 4), leaf(4, 4)

        def inner(a: torch.Tensor, by: float) -> torch.Tensor:
            return ((a @ w).tanh() @ w).sigmoid() * by

        def outer(a: torch.Tensor) -> torch.Tensor:
            return again(inner, again(inner, a.sin(), 2.0) @ w, by=3.0).exp()

        loss = wrap(lambda a: again(outer, a).sum() + a.sum())
        for _ in range(2):
            loss(x).backward()
        return (x.grad, w.grad), loss

    compare(program)


def test_nested_regions_that_draw_random_numbers() -> None:
    """The inner region begins where the outer one does."""

    def program(wrap: Any) -> Any:
        blocks, x = blocks_of(4, dropout=0.5), leaf(3, 8)

        def outer(a: torch.Tensor, at: int) -> torch.Tensor:
            return again(blocks[at + 1], again(blocks[at], a))

        loss = wrap(lambda a: again(outer, again(outer, a, 0), 2).square().sum())
        for _ in range(2):
            loss(x).backward()
        return [x.grad, torch.rand(2), *(p.grad for p in blocks.parameters())], loss

    compare(program)


def test_several_arguments_results_and_closures() -> None:
    def program(wrap: Any) -> Any:
        x, w, b = leaf(3, 4), leaf(4, 4), leaf(4)

        def region(a: torch.Tensor, c: torch.Tensor, *, scale: torch.Tensor) -> Any:
            h = (a @ w + b).relu()
            return h * scale, {"second": (h.exp() @ c, None)}

        @wrap
        def loss(a: torch.Tensor) -> Any:
            c = a.t() @ a
            first, others = again(region, a, c, scale=c.sum() * 0.01)
            return first.sum(), others["second"][0].mean()

        one, other = loss(x)
        (one + 2 * other).backward()
        return (x.grad, w.grad, b.grad, one.detach(), other.detach()), loss

    compare(program)


def test_results_that_are_differentiated_apart() -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(3, 4), leaf(4, 4)

        @wrap
        def heads(a: torch.Tensor) -> Any:
            return again(lambda h: (h @ w).tanh().sum(), a), again(lambda h: (h * 2).exp().sum(), a)

        one, other = heads(x)
        one.backward()
        other.backward()
        return (x.grad, w.grad), heads

    compare(program)


def test_a_result_that_a_region_inside_another_one_reads() -> None:
    """Its gradient is cut from that of the region's result, which saves no value of its own: a
    write to the latter changes nothing."""

    def program(wrap: Any) -> Any:
        x, y = leaf(3, 4), leaf(3, 4)

        @wrap
        def two(x: torch.Tensor, y: torch.Tensor) -> Any:
            first = x * y
            return again(lambda s: again(lambda u: u * first, s.cos()).sigmoid(), first), first

        second, first = two(x, y)
        second.mul_(0.5)
        apart = torch.autograd.grad(second.sum(), first, retain_graph=True)
        second.sum().backward()
        return [*apart, x.grad, y.grad], two

    compare(program)


def test_a_custom_function_before_a_region_gets_the_whole_gradient() -> None:
    """Its backward is not linear: results whose gradients meet in it are one segment."""

    def program(wrap: Any) -> Any:
        x, w = leaf(3, 4), leaf(3, 4)

        @wrap
        def heads(a: torch.Tensor, b: torch.Tensor) -> Any:
            clamped = Clamped.apply(a)
            return again(lambda h: h.sin() * h, clamped) * b, clamped * b

        for _ in range(2):
            torch.autograd.backward([one.sum() for one in heads(x, w)])
        return (x.grad, w.grad), heads

    compare(program)


def test_weights_that_change_before_the_backward() -> None:
    """Eager mode reads the weights again, and compares no versions of them."""

    def program(wrap: Any) -> Any:
        x, w, b = leaf(3, 4), leaf(4, 4), leaf(4)
        loss = wrap(lambda a: again(lambda h: (h @ w + b).tanh().square(), a).sum())
        for _ in range(2):
            y = loss(x)
            with torch.no_grad():
                w.mul_(2)
                b.add_(1)
            y.backward()
        return (x.grad, w.grad, b.grad), loss

    compare(program)


def test_arguments_that_change_before_the_backward_are_an_error() -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(3, 4), leaf(4, 4)
        loss = wrap(lambda a: again(lambda h: (h + 1) @ w, a).sum())
        h = x * 2
        y = loss(h)
        with torch.no_grad():
            h.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
        return (), loss

    compare(program)


def test_a_whole_step() -> None:
    def program(wrap: Any) -> Any:
        blocks, x = blocks_of(3), leaf(3, 8)
        optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)

        @wrap
        def step(h: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            for block in blocks:
                h = again(block, h)
            loss = h.square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        losses = [step(x.detach()) for _ in range(3)]
        return (losses, [p.grad for p in blocks.parameters()], list(blocks.parameters())), step

    compare(program)


def test_without_gradients() -> None:
    def program(wrap: Any) -> Any:
        f = wrap(lambda a: again(lambda h: h.sin() * 2, a))
        with torch.no_grad():
            first = f(leaf(3))
        return (first, f(leaf(3).detach())), f

    compare(program)


def test_an_exception_inside() -> None:
    def program(wrap: Any) -> Any:
        x = leaf(3)

        def fails(a: torch.Tensor) -> torch.Tensor:
            raise KeyError("inside")

        @wrap
        def f(a: torch.Tensor) -> Any:
            try:
                return again(fails, a)
            except KeyError as error:
                return a.sin().sum(), str(error)

        y, text = f(x)
        y.backward()
        return (x.grad, text == "'inside'"), f

    compare(program)


def _appends(log: list[Any], a: torch.Tensor) -> torch.Tensor:
    log.append(1)
    return a.sin()


def test_effects_are_breaks() -> None:
    def program(wrap: Any, what: str) -> Any:
        x, log, box, count = leaf(3), [], Block(2), torch.zeros(())

        def region(a: torch.Tensor) -> torch.Tensor:
            if what == "list outside":
                log.append(1)
            elif what == "attribute":
                box.calls = getattr(box, "calls", 0) + 1
            elif what == "tensor":
                count.add_(1)
            return a.sin().sin()

        @wrap
        def f(a: torch.Tensor) -> Any:
            inner = [0]
            first = again(region, a)
            if what == "list inside":
                first = again(functools.partial(_appends, inner), first)
            return first.sum(), inner

        for _ in range(2):
            y, inner = f(x)
            y.backward()
        return (x.grad, count, len(log), getattr(box, "calls", 0), len(inner)), f

    for what in ("list outside", "attribute", "tensor", "list inside"):
        jitted = compare(lambda wrap, what=what: program(wrap, what), 1, "GB114")
        assert "with effects" in str(jitted.report())


def test_random_numbers_that_differ_the_second_time_are_a_break() -> None:
    def program(wrap: Any) -> Any:
        x = leaf(3)
        f = wrap(lambda a: again(lambda h: h * torch.rand(()), a, preserve_rng_state=False).sum())
        f(x).backward()
        return (x.grad,), f

    jitted = compare(program, 1, "GB114")
    assert "draws random numbers" in str(jitted.report())


@pytest.mark.parametrize(
    "options",
    [{}, {"early_stop": False}, {"determinism_check": "none"}],
    ids=str,
)
@pytest.mark.parametrize("around", [None, set_checkpoint_early_stop, set_checkpoint_debug_enabled])
def test_options_that_change_no_result(options: dict[str, Any], around: Any) -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(4, 4), leaf(4, 4)

        @wrap
        def f(a: torch.Tensor) -> torch.Tensor:
            with contextlib.nullcontext() if around is None else around(False):
                return again(lambda h: (h @ w).tanh() @ w, a.sin(), **options).sum()

        for _ in range(2):
            f(x).backward()
        return (x.grad, w.grad), f

    compare(program)


def test_debug_is_for_errors() -> None:
    """Plain Python runs without it: it records each operator of the function."""

    def program(wrap: Any) -> Any:
        x, w, options = leaf(4, 4), leaf(4, 4), {} if wrap is not graftjit.jit else {"debug": True}
        f = wrap(lambda a: again(lambda h: (h @ w).tanh() @ w, a.sin(), **options).sum())
        f(x).backward()
        return (x.grad, w.grad), f

    compare(program)


def _saves_products(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    if op in (aten.mm.default, aten.addmm.default):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("how", ["list", "function", "bool"])
def test_selective(how: str) -> None:
    x, w = leaf(4, 4), leaf(4, 4)
    policies = {
        "list": [aten.mm.default],
        "function": _saves_products,
        "bool": lambda ctx, op, *args, **kwargs: op is aten.mm.default,
    }
    contexts = functools.partial(create_selective_checkpoint_contexts, policies[how])

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        def region(a: torch.Tensor) -> torch.Tensor:
            return ((a @ w).tanh().exp() @ w).sin()

        return again(region, x, context_fn=contexts).sum()

    def program(wrap: Any) -> Any:
        x, w = leaf(4, 4), leaf(4, 4)
        f = wrap(loss)
        f(x, w).backward()
        return (x.grad, w.grad), f

    names = operators_of_backward(loss, x, w)
    compare(program)
    assert sum("mm" in one for one in names) == 4  # none of the forward's
    assert names.count("aten.tanh.default") == 1


@pytest.mark.parametrize("policy", [[2], [aten.sin], 2, (aten.sin.default,)], ids=str)
def test_a_policy_that_torch_refuses_is_refused(policy: Any) -> None:
    def makes(x: torch.Tensor) -> str:
        y = x * 2
        try:
            create_selective_checkpoint_contexts(policy)
        except (TypeError, ValueError) as error:
            return f"{type(error)} {error}"
        return str(y.shape)

    def uses(x: torch.Tensor) -> str:
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        try:
            return str(again(torch.sin, x, context_fn=contexts).shape)
        except (TypeError, ValueError) as error:
            return f"{type(error)} {error}"

    for program in (makes, uses):
        run = graftjit.jit(program)
        assert run(leaf(3)) == run(leaf(3)) == program(leaf(3))
        assert "Error" in run(leaf(3))


def test_a_policy_that_looks_at_operands_is_a_break() -> None:
    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
        return args[0].dim() == 2

    def program(wrap: Any) -> Any:
        x, w = leaf(3, 4), leaf(4, 4)
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        f = wrap(lambda a: again(lambda h: (h @ w).tanh(), a, context_fn=contexts).sum())
        f(x).backward()
        return (x.grad, w.grad), f

    compare(program, 1, "GB114")


def test_wrapped_modules() -> None:
    def program(wrap: Any) -> Any:
        model = nn.Sequential(*map(checkpoint_wrapper, blocks_of(2)))
        x = leaf(3, 8)
        f = wrap(model.forward)
        f(x).sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())], f

    compare(program)


def test_sequential() -> None:
    def program(wrap: Any) -> Any:
        blocks, x = nn.Sequential(*blocks_of(5)), leaf(3, 8)
        f = wrap(lambda h: checkpoint_sequential(blocks, 2, h, use_reentrant=False).sum())
        f(x).backward()
        return [x.grad, *(p.grad for p in blocks.parameters())], f

    compare(program)


def test_a_write_to_what_a_region_has_read_is_a_break() -> None:
    def program(wrap: Any) -> Any:
        x = leaf(3)

        @wrap
        def f(a: torch.Tensor) -> torch.Tensor:
            h = a * 2
            y = again(lambda b: b.sin() * h.detach(), a)
            with torch.no_grad():
                h.add_(1)
            return (y + h).sum()

        f(x).backward()
        return (x.grad,), f

    compare(program, 1, "GB114")


def test_double_backward() -> None:
    def program(wrap: Any) -> Any:
        x, w = leaf(3, 4), leaf(4, 4)
        f = wrap(lambda a: again(lambda h: (h @ w).tanh().square(), a).sum())
        (g,) = torch.autograd.grad(f(x), x, create_graph=True)
        g.square().sum().backward()
        return (x.grad, w.grad), f

    compare(program)


def test_autocast() -> None:
    def program(wrap: Any) -> Any:
        model, x = Block(8), leaf(3, 8).detach().float().requires_grad_()
        f = wrap(lambda h: again(model, again(model, h)).float().square().sum())
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = f(x)
            y.backward()
        return [x.grad, *(p.grad for p in model.parameters())], f

    torch.manual_seed(0)
    plain, _ = program(lambda fn: fn)
    torch.manual_seed(0)
    found, jitted = program(graftjit.jit)
    torch.testing.assert_close(found, plain, rtol=0.03, atol=0.03)
    assert jitted.report().break_count == 0


def test_a_variable_that_changes_before_the_backward() -> None:
    """Eager mode reads the closure again: the last step's variable."""

    def program(wrap: Any) -> Any:
        x, weights = leaf(4, 4), [leaf(4, 4), leaf(4, 4).detach().mul(2).requires_grad_()]

        @wrap
        def f(h: torch.Tensor) -> torch.Tensor:
            for w in weights:
                h = again(lambda a: (a @ w).tanh(), h)
            return h.sum()

        f(x).backward()
        return (x.grad, *(w.grad for w in weights)), f

    jitted = compare(program, 1, "GB114")
    assert "reads changes" in str(jitted.report())


def test_a_write_to_a_saved_value_inside() -> None:
    """Without the checkpoint autograd refuses this; eager mode's checkpoint does not."""

    def program(wrap: Any) -> Any:
        x = leaf(3, 4)
        f = wrap(lambda a: again(lambda h: h.sin().relu().mul_(1.5), a).sum())
        for _ in range(2):
            f(x).backward()
        return (x.grad,), f

    compare(program, 1, "GB114")


def test_functions_of_a_checkpoint_that_python_runs_save_as_much_again() -> None:
    """The recomputation runs outside of the jitted call: what is inside must run alike."""

    def program(wrap: Any) -> Any:
        x, w, log = leaf(3, 4), leaf(4, 4), []

        def layer(a: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.gelu((a @ w).exp().sin() * a.mean())

        def region(a: torch.Tensor) -> torch.Tensor:
            log.append(1)
            return layer(layer(a))

        f = wrap(lambda a: again(region, a.cos()).sum())
        for _ in range(3):
            f(x).backward()
        return (x.grad, w.grad, len(log)), f

    compare(program, 1, "GB114")


def test_a_value_beside_a_region_is_that_of_the_forward() -> None:
    """The region reads `w` as it is when the backward runs; `w.exp()` has its first content."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        inside = checkpoint(lambda v: (v * w).sin(), x, use_reentrant=False)
        return (x * w.exp()).sum() + inside.sum()

    found = []
    for run in (f, graftjit.jit(f)):
        torch.manual_seed(0)
        x, w = (torch.randn(4, requires_grad=True) for _ in range(2))
        loss = run(x, w)
        with torch.no_grad():
            w.mul_(3)
        loss.backward()
        found.append((x.grad, w.grad))
    torch.testing.assert_close(found[1], found[0])
