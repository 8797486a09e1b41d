"""Helpers of the tests of this folder: trace a function made of torch calls, run both levels, compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from graftjit.ir.graph.interpreter import replay, run_nodes
from graftjit.ir.graph.nodes import Graph
from graftjit.ir.passes.pipeline import optimize
from graftjit.ir.passes.verifier import verify
from graftjit.ir.trace.ghost import Ghost
from graftjit.ir.trace.tracer import Tracer


def trace(fn: Callable[..., Any], *inputs: torch.Tensor) -> tuple[Graph, Any]:
    """The graph of fn, and fn's result over ghosts. `fn(run, *ghosts)` calls torch by `run(f, *args, **kw)`."""
    tracer = Tracer(fn.__name__.strip("<>"))
    ghosts = [tracer.input(tensor) for tensor in inputs]

    def run(target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return tracer.run(target, args, kwargs)

    result = fn(run, *ghosts)
    outputs = result if isinstance(result, (tuple, list)) else [result]
    graph = tracer.finish([out for out in outputs if isinstance(out, Ghost)])
    verify(graph)
    return graph, result


def plainly(target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`run` for eager execution."""
    return target(*args, **kwargs)


def copies(inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Deep copies that keep strides, sharing and requires_grad."""
    memo: dict[Any, Any] = {}
    made = []
    for tensor in inputs:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in memo:
            memo[key] = storage.clone()
        fresh = torch.empty(0, dtype=tensor.dtype)
        fresh.set_(memo[key], tensor.storage_offset(), tensor.shape, tensor.stride())
        made.append(fresh.requires_grad_(tensor.requires_grad))
    return made


def same_tensor(one: torch.Tensor, other: torch.Tensor) -> None:
    assert one.shape == other.shape
    assert one.stride() == other.stride()
    assert one.dtype == other.dtype
    assert one.storage_offset() == other.storage_offset()
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    if one.is_floating_point():
        assert torch.equal(torch.signbit(one[one == 0]), torch.signbit(other[other == 0]))


def sharing(tensors: list[torch.Tensor]) -> list[list[bool]]:
    """Who shares memory with whom."""
    keys = [tensor.untyped_storage()._cdata for tensor in tensors]
    return [[a == b for b in keys] for a in keys]


def check(fn: Callable[..., Any], *inputs: torch.Tensor, grad: bool = False) -> Graph:
    """Trace fn under no_grad and require: replay, the ATen level and the optimised ATen level give what
    eager gives: values, strides, offsets, writes to inputs, and sharing among inputs and outputs."""
    with torch.set_grad_enabled(grad):
        graph, _ = trace(fn, *inputs)
        real = copies(inputs)
        expected = fn(plainly, *real)
        expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
        expected = [value for value in expected if isinstance(value, torch.Tensor)]
        versions = [("torch level", replay, graph)]
        if not graph.needs_grad:
            versions.append(("ATen level", run_nodes, graph))
            versions.append(("optimised", run_nodes, optimize(graph, check=True)))
        for name, runner, version in versions:
            given = copies(inputs)
            found = runner(version, given)
            try:
                for one, other in zip(expected + real, list(found) + given, strict=True):
                    same_tensor(one, other)
                assert sharing(expected + real) == sharing(list(found) + given)
            except AssertionError as error:
                text = version.calls_text() if runner is replay else version.text()
                raise AssertionError(f"{name}:\n{text}\n{error}") from error
    return graph
