"""Parts of a graph that are equal but for names are one program."""

from __future__ import annotations

import pytest
import torch

import graftjit
from graftjit.codegen import read_parts
from graftjit.codegen.equal_parts import text_of


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """For each graph with parts: how many there are, and how many were compiled."""
    found = []

    def counted(parts, compile_part):
        made, new = read_parts_once(parts, compile_part)
        found.append((len(made), len(new)))
        return made, new

    read_parts_once = read_parts._compiled_once
    monkeypatch.setattr(read_parts, "_compiled_once", counted)
    return found


def looped(body):
    def f(x, weights):
        out = torch.zeros(3)
        for i in range(4):
            (at,) = torch.where(x > i * 0.5)
            if at.shape[0] == 0:
                continue
            body(out, x[at], weights[i], i)
        return out

    return torch.no_grad()(f)


def run(f):
    compiled = graftjit.jit(f)
    weights = [torch.full((3,), float(i)) for i in range(4)]
    for x in (torch.tensor([1.1, 0.3, 0.8]), torch.zeros(5) - 1, torch.ones(2) * 3):
        torch.testing.assert_close(compiled(x, weights), f(x, weights))


def test_bodies_that_differ_in_their_inputs_are_compiled_once(seen) -> None:
    run(looped(lambda out, rows, weight, i: out.add_(rows.sum() * weight.sin())))
    whole, new = seen[0]
    assert whole >= 8
    assert new <= whole - 3


def test_bodies_that_differ_in_a_number_are_not(seen) -> None:
    run(looped(lambda out, rows, weight, i: out.add_(rows.sum() * weight.sin() + i)))
    run(looped(lambda out, rows, weight, i: out.add_(rows.sum() * weight.sin() + 1)))
    (first, different), (second, equal) = seen[0], seen[-1]
    assert first == second
    assert equal <= different - 3


def test_a_value_without_a_text() -> None:
    from graftjit.ir.graph.nodes import Graph, Node

    graph = Graph("g", nodes=[Node("call", torch.ops.aten.relu.default, (object(),))])
    assert text_of(graph) is None


def test_bodies_with_a_view_at_a_place_that_data_decide_are_compiled_once(seen) -> None:
    def f(x, weights):
        out = torch.zeros(3)
        for i in range(4):
            # the columns of one tensor: the second one begins behind as many elements as there are
            row, column = torch.where(x[:, None] > weights[i])
            if row.shape[0] == 0:
                continue
            out.add_(x[row].sum() * weights[i][column].sum())
        return out

    run(torch.no_grad()(f))
    whole, new = seen[0]
    assert new <= whole - 6
