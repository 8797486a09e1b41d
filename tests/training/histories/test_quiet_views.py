"""Results that are views: written to later, and views of leaves made without grad mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graftjit

T = torch.Tensor


def a_view(b: T) -> T:
    return (b.detach() * 2)[:]


def a_row(b: T) -> T:
    return (b.detach() * 2)[1]


def a_view_and_its_base(b: T) -> tuple[T, T]:
    base = b.detach() * 2
    return base[:], base


def an_argument_detached(b: T) -> T:
    return b.detach()[1:]


def a_fresh_row(b: T) -> tuple[T, T]:
    new = torch.zeros(2, 4)
    return new[0], b.detach() + 1


@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize(
    "program", [a_view, a_row, a_view_and_its_base, an_argument_detached, a_fresh_row]
)
def test_a_view_of_a_graph_without_gradients_can_be_written_to(
    program: Callable[[T], Any], level: str
) -> None:
    """The graph runs without grad mode, since its input requires a gradient; its views must not
    count as views that are made without grad mode."""

    def found(run: Callable[[T], Any]) -> tuple[Any, ...]:
        b, w = torch.ones(2, 4).requires_grad_(), torch.tensor(3.0, requires_grad=True)
        results = run(b)
        view = results[0] if isinstance(results, tuple) else results
        view.mul_(w)
        view.sum().backward()
        return view.detach(), w.grad

    jitted = graftjit.jit(program, config=graftjit.JitConfig(jit_level=level))
    for _ in range(2):
        torch.testing.assert_close(found(jitted), found(program))


def test_a_view_is_written_to_behind_a_break() -> None:
    def f(b: T) -> T:
        rows = b.detach() * 2
        row = rows[0]
        print(bool(row.sum() > 0))
        row.copy_(b[1])
        return rows

    found = []
    for run in (f, graftjit.jit(f)):
        b = torch.ones(2, 4).requires_grad_()
        run(b).sum().backward()
        found.append(b.grad)
    torch.testing.assert_close(*found)


def a_row_of_a_leaf(b: T) -> T:
    return b.clone().requires_grad_()[0]


def a_part_of_a_leaf(b: T) -> T:
    return b.clone().requires_grad_().unbind(0)[1]


def a_detached_leaf(b: T) -> T:
    return b.clone().requires_grad_().detach()[0]


@pytest.mark.parametrize("program", [a_row_of_a_leaf, a_part_of_a_leaf, a_detached_leaf])
def test_a_view_without_grad_mode_of_a_leaf_made_in_the_frame(program: Callable[[T], T]) -> None:
    """Autograd says that it requires a gradient."""
    jitted = graftjit.jit(program)
    with torch.no_grad():
        for run in (program, jitted):
            assert run(torch.ones(2, 4)).requires_grad == (program is not a_detached_leaf)
    assert jitted.report().break_count == (program is not a_detached_leaf)


def _written_while_caught(view):
    def run(x):
        with torch.no_grad():
            seen = view(x)
        try:
            seen.mul_(2)
        except RuntimeError as error:
            return str(error)
        return None

    return run


def _written_at_the_end(view):
    def run(x):
        with torch.no_grad():
            seen = view(x)
        seen.mul_(2)

    return run


def _of_memory_that_is_gone(view):
    def run(x):
        made = x * 1
        with torch.no_grad():
            seen = view(made)
        del made
        seen.mul_(2)
        return seen.detach()

    return run


def _without_grad_mode(view):
    def run(x):
        with torch.no_grad():
            seen = view(x)
            seen.mul_(2)
        return seen

    return run


def _behind_detach(view):
    def run(x):
        with torch.no_grad():
            seen = view(x.detach())
        seen.mul_(2)
        return seen

    return run


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:1],
        lambda x: x.view(-1),
        lambda x: x.as_strided((1, 0), (2, 2)),
        lambda x: x.chunk(2)[1],
        lambda x: x.view(2, 1).t(),
    ],
)
@pytest.mark.parametrize(
    "program",
    [
        _written_while_caught,
        _written_at_the_end,
        _of_memory_that_is_gone,
        _without_grad_mode,
        _behind_detach,
    ],
)
def test_a_write_that_autograd_refuses(program, view):
    """Also where no result of the graph has a gradient."""

    def outcome(function, x):
        try:
            made = function(x)
        except RuntimeError as error:
            return str(error), x.tolist()
        return made.tolist() if isinstance(made, torch.Tensor) else made, x.tolist()

    plain = program(view)
    jitted = graftjit.jit(plain)
    for needs in (True, False, True):
        for make in (lambda x: x, lambda x: x * 1):
            ours, expected = (
                outcome(function, make(torch.ones(2, requires_grad=needs)))
                for function in (jitted, plain)
            )
            assert ours == expected


def _returned(x):
    made = x * 1
    with torch.no_grad():
        seen = made[:1]
    return seen


def test_a_view_of_memory_that_is_gone_requires_a_gradient_as_its_base_does():
    jitted = graftjit.jit(_returned)
    for needs in (True, False):
        ours, expected = (
            function(torch.ones(2, requires_grad=needs)) for function in (jitted, _returned)
        )
        assert ours.requires_grad == expected.requires_grad
        assert (ours._base is None) == (expected._base is None)


def _quiet(x: T) -> T:
    with torch.no_grad():
        return x.view(-1)


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def _written_below(x: T) -> T:
    made = x.clone()
    seen = _quiet(made)
    made.mul_(3)
    return seen * 2


def _own_leaf(x: T) -> tuple[T, ...]:
    seen = _quiet(x)
    (seen * 2).sum().backward()
    return (x * 3,) if seen.grad is None else (seen.grad,)


USES: dict[str, Callable[[T], Any]] = {
    "alone": lambda x: _quiet(x) * 2,
    "of a result": lambda x: _quiet(x.sin()) * 2,
    "beside its base": lambda x: _quiet(x) * 2 + x.view(-1),
    "view of it": lambda x: _quiet(x.sin())[1:],
    "no gradient": lambda x: (_quiet(x) > 0, _quiet(x).detach() * x.view(-1)),
    "custom function": lambda x: _Doubled.apply(_quiet(x)),
    "base is written": _written_below,
    "backward": _own_leaf,
    "gradient": lambda x: (
        torch.autograd.grad(
            (_quiet(x) * 2 + x.view(-1)).sum(), (x, seen := _quiet(x)), allow_unused=True
        )
        and seen.sin()
    ),
}


@pytest.mark.parametrize("name", USES)
def test_operators_on_a_view_made_without_grad_mode(name: str) -> None:
    """Their results have a history that leads nowhere."""
    found = []
    for run in (USES[name], graftjit.jit(USES[name])):
        x = torch.arange(4.0).reshape(2, 2).requires_grad_()
        try:
            results = run(x)
        except RuntimeError as error:
            found.append([str(error)])
            continue
        results = results if isinstance(results, tuple) else (results,)
        asking = [one for one in results if one.requires_grad]
        sum((one.sum() for one in asking), torch.zeros(())).backward() if asking else None
        kinds = [type(one.grad_fn).__name__ for one in results]
        found.append([x.grad, kinds, [one.detach() for one in results]])
    assert str(found[0]) == str(found[1])


FROM_OUTSIDE: dict[str, Callable[[T, T], Any]] = {
    "operator": lambda seen, y: seen * 2 + y,
    "backward": lambda seen, y: ((r := seen * 2 + y).sum().backward(), r.detach())[1],
    "gradients": lambda seen, y: torch.autograd.grad(
        (seen * y).sum(), (seen, y), allow_unused=True
    )[1],
    "required gradient": lambda seen, y: torch.autograd.grad((seen * y).sum(), seen)[0],
    "write": lambda seen, y: (_added_quietly(seen), seen * y)[1],
}


def _added_quietly(seen: T) -> None:
    with torch.no_grad():
        seen.add_(1)


@pytest.mark.parametrize("first", ["quiet", "own leaf", "plain"])
@pytest.mark.parametrize("name", FROM_OUTSIDE)
def test_a_view_made_without_grad_mode_comes_in(name: str, first: str) -> None:
    def made(kind: str) -> T:
        if kind == "plain":
            return torch.arange(4.0).requires_grad_()
        base = torch.arange(4.0).requires_grad_(kind == "quiet")
        return _quiet(base).requires_grad_()

    jitted = graftjit.jit(FROM_OUTSIDE[name])
    for kind in (first, "quiet", "own leaf"):
        found: list[Any] = []
        for run in (FROM_OUTSIDE[name], jitted):
            seen, y = made(kind), torch.ones(4, requires_grad=True)
            try:
                result = run(seen, y)
            except RuntimeError as error:
                found.append(str(error))
                continue
            if result.requires_grad:
                result.sum().backward()
            found.append((result.detach(), seen.grad, y.grad))
        assert str(found[0]) == str(found[1]), kind
