"""What the tests of open sizes share: trace a function with some sizes and numbers open, compile it, run it at others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from graftjit.codegen.programs.shadow import differs, tolerance
from graftjit.ir.errors import TraceError
from graftjit.ir.graph.layout import contiguous_strides
from graftjit.ir.graph.nodes import Graph, Meta, meta_of
from graftjit.ir.symbolic.expr import evaluate
from graftjit.ir.symbolic.operators import OUTCOMES
from graftjit.ir.symbolic.shape_env import Facts
from graftjit.ir.trace.tracer import Tracer

from .harness import Made

# What torch 2.11 says in the C++ of matmul.
OLDER_TORCH = ("numel() on tensor with symbolic sizes", "operator aten::size does not exist")


def open_meta(facts: Facts, position: int, tensor: torch.Tensor, dims: Sequence[int]) -> Meta:
    """The Meta of a contiguous tensor with some sizes open."""
    meta = meta_of(tensor)
    shape = tuple(
        facts.symbol("int", size, ("size", position, dim), 2) if dim in dims else size
        for dim, size in enumerate(meta.shape)
    )
    assert tensor.is_contiguous()
    return Meta(shape, contiguous_strides(shape), meta.dtype, meta.device, meta.offset)


def trace_open(
    fn: Callable[..., Any], inputs: Sequence[Any], dims: Sequence[Sequence[int]]
) -> tuple[Graph, Facts]:
    """The graph of fn with the given dimensions of each tensor open, and the numbers among the inputs."""
    facts = Facts()
    tracer = Tracer("test", facts)
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    n_numbers = 0
    given: list[Any] = []
    with facts.active():
        for value in inputs:
            if isinstance(value, torch.Tensor):
                position = sum(isinstance(one, torch.Tensor) for one in given)
                meta = open_meta(facts, position, value, dims[position])
                given.append(tracer.input(value, position, meta))
            else:
                kind = "float" if isinstance(value, float) else "int"
                given.append(facts.symbol(kind, value, ("number", len(tensors) + n_numbers)))
                n_numbers += 1
        with torch.no_grad():
            result = tracer.run(fn, given)
    graph = tracer.finish(list(result) if isinstance(result, (tuple, list)) else [result])
    return graph, facts


def holds(facts: Facts, inputs: Sequence[Any]) -> bool:
    """Do these inputs (tensors, then numbers) meet what the trace relied on?"""
    values = {}
    for symbol, source in facts.symbols.items():
        given = inputs[source[1]]
        values[symbol.name] = given.shape[source[2]] if source[0] == "size" else given
        low, high = symbol.bounds()
        if symbol.kind == "int" and not low <= values[symbol.name] <= high:
            return False
    return all(relation_holds(relation, values) for relation in facts.relations)


def relation_holds(relation: Any, values: dict[str, Any]) -> bool:
    left, right = evaluate((relation.left, relation.right), values)
    if relation.op == "is":
        return repr(left) == repr(right)
    return OUTCOMES[relation.op](left, right) == relation.holds


def in_order(inputs: Sequence[Any]) -> list[Any]:
    """Tensors, then numbers."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    return [*tensors, *(value for value in inputs if not isinstance(value, torch.Tensor))]


def arguments(graph: Graph, facts: Facts, inputs: Sequence[Any]) -> list[Any]:
    """What the program takes: tensors, then the numbers that it uses."""
    given = in_order(inputs)
    return [*given[: len(graph.inputs)], *(given[facts.symbols[n][1]] for n in graph.numbers)]


def check_open(
    fn: Callable[..., Any],
    make: Callable[..., Sequence[Any]],
    dims: Sequence[Sequence[int]],
    sizes: Sequence[Any],
    kernels: int | None = None,
    library: int | None = 0,
    compiled: Callable[[Graph], Made] = Made,
) -> Made:
    """Compile fn for make(sizes[0]) with these dimensions open, run it at all sizes, compare with eager."""
    try:
        graph, facts = trace_open(fn, make(sizes[0]), dims)
    except TraceError as error:
        if any(text in str(error) for text in OLDER_TORCH):
            pytest.skip("this torch takes no symbolic sizes there: capture compiles for plain ones")
        raise
    made, allowed = compiled(graph), tolerance(graph)
    runs = 0
    for size in sizes:
        inputs = make(size)
        if not holds(facts, in_order(inputs)):
            continue
        runs += 1
        with torch.no_grad():
            expected = fn(*inputs)
        found = made.run(*arguments(graph, facts, inputs))
        expected = expected if isinstance(expected, (tuple, list)) else (expected,)
        for ours, theirs in zip(found, expected, strict=True):
            problem = differs(ours, theirs, allowed)
            assert not problem, (
                f"at {size}: {problem}\nours {ours}\neager {theirs}\n{made.source[-5000:]}"
            )
    assert runs >= (2 * len(sizes)) // 3, [str(relation) for relation in facts.relations]
    if kernels is not None:
        assert len(made.kernels) == kernels, [k.nest.covers for k in made.kernels]
    if library is not None:
        assert len(made.library) == library, made.library
    return made


__all__ = ["arguments", "check_open", "holds", "in_order", "trace_open"]
