"""Programs that read autograd's graph: nodes, their edges and what they have saved."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.graph import get_gradient_edge

import graftjit

T = torch.Tensor


def _walked(x: T) -> list[str]:
    node: Any = (x * x).sin().sum().grad_fn
    names = []
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return names


def _saved(x: T) -> tuple[Any, ...]:
    y = (x * 2).exp()
    node = y.grad_fn
    return node._saved_result is y, node._saved_result, y.mean().grad_fn._saved_self_sym_sizes


def _saved_by_hooks(x: T) -> T:
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t * 2, lambda t: t / 4)
    y.sum().backward()
    return x.grad


def _changed(x: T) -> T:
    y = (x * 3).exp()
    y.grad_fn.register_hook(lambda given, _: (given[0] + 1,))
    (y * 2).sum().backward()
    return x.grad


def _edges(x: T) -> tuple[Any, ...]:
    y = (x * 2).sin()
    edge = get_gradient_edge(y.exp())
    return edge.node.name(), edge.node.next_functions[0][0] is y.grad_fn, edge.output_nr


def _in_a_callee(x: T) -> list[str]:
    def names(y: T) -> list[str]:
        return [one.name() for one, _ in y.grad_fn.next_functions]

    return names(x.sin() * x.cos())


def _by_name(x: T) -> tuple[str, ...]:
    node = getattr((x * 2).sin(), "grad_fn")
    return str(type(node)), type(node.next_functions[0][0]).__name__


def _behind_a_break(x: T) -> tuple[Any, ...]:
    y = (x * 2).sin().exp()
    gc.get_threshold()
    z = y.cos() * 2
    gc.get_threshold()
    edge = get_gradient_edge(z)
    return y.grad_fn.next_functions[0][0].name(), edge.node.next_functions[0][0].name()


PROGRAMS = (
    _behind_a_break,
    _walked,
    _saved,
    _saved_by_hooks,
    _changed,
    _edges,
    _in_a_callee,
    _by_name,
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_nodes_are_those_of_eager_mode(program: Callable[[T], Any]) -> None:
    jitted = graftjit.jit(program)
    for _ in range(2):
        ours, theirs = (run(torch.ones(3, requires_grad=True)) for run in (jitted, program))
        assert str(ours) == str(theirs)
    assert "FB301" in str(jitted.report())


def test_a_question_for_a_history_costs_no_kernels() -> None:
    def f(x: T) -> T:
        y = (x * 2).sin()
        if y.grad_fn is None:
            return y
        kept = y.grad_fn is not None
        return y * 2 if kept and y.grad_fn else x

    jitted = graftjit.jit(f)
    assert torch.equal(jitted(x := torch.ones(3, requires_grad=True)), f(x))
    assert "FB301" not in str(jitted.report())
