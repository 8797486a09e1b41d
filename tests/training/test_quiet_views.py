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
