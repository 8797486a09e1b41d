"""What reports are told of each step: the same of a new plan, of one that was kept, and whatever runs in its place."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import graftjit
from graftjit.codegen import backend
from graftjit.codegen import pipeline as planned
from graftjit.codegen.backend import compile_graph
from graftjit.ir.graph.printing import type_text
from graftjit.runtime.process.session import SESSION


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> Iterator[Path]:
    """A store of its own, and no comparisons beside."""
    with SESSION.override(cache_dir=tmp_path, check=False):
        yield tmp_path


def net(x: Any, w: Any, b: Any) -> Any:
    y = F.linear(x, w, b)
    y = F.layer_norm(y, (64,))
    return F.gelu(y) @ y.T


INPUTS = (128, 256), (64, 256), (64,)


def compiled(f: Any, *inputs: Any, config: Any = None) -> Any:
    """What the backend gives for the graph of a function."""
    found = []

    def keep(*args: Any) -> Any:
        found.append(compile_graph(*args))
        return found[-1]

    fresh = type(f)(f.__code__, f.__globals__)  # it takes over no entry
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(backend, "compile_graph", keep)
        unit = graftjit.jit(fresh, config=config)
        unit._unit.shared = None
        unit(*inputs)
    (made,) = found
    return made


def _net(config: Any = None) -> Any:
    return compiled(net, *[torch.randn(shape) for shape in INPUTS], config=config)


def test_each_step_is_told_with_what_it_moves_and_computes() -> None:
    made = _net()
    product, norm, last = made.steps
    assert (product.kind, product.name, product.shape) == ("call", "c0_addmm", "f32[128, 64]")
    assert product.flops == 2 * 128 * 256 * 64
    assert product.writes == 128 * 64 * 4
    assert product.reads >= 128 * 256 * 4 + 64 * 256 * 4
    assert norm.kind == "kernel" and norm.device == "cpu" and norm.dtype == "f32"
    assert {"aten.native_layer_norm.default", "aten.gelu.default"} <= set(norm.operators)
    assert norm.reads == 128 * 64 * 4 and norm.writes == 2 * 128 * 64 * 4
    assert norm.flops > 128 * 64
    assert last.operators == ("aten.mm.default",) and last.flops == 2 * 128 * 64 * 128
    assert norm.symbols and f" {norm.symbols[0]}(" in made.source


def test_lines_are_those_of_the_program_the_heaviest_operator_first() -> None:
    made = _net()
    first = net.__code__.co_firstlineno
    seen = [[where.line - first for where in step.lines] for step in made.steps]
    assert seen[0] == [1] and seen[1][0] == 2 and set(seen[1]) == {2, 3} and seen[2] == [3]


def test_a_warm_start_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cold = _net()

    def never(*_: Any) -> Any:
        raise AssertionError("planned anew")

    monkeypatch.setattr(planned, "programmed", never)
    warm = _net()
    same = [dataclasses.replace(step, cached=False) for step in warm.steps]
    assert same == [dataclasses.replace(step, cached=False) for step in cold.steps]
    assert warm.sketch.nodes == cold.sketch.nodes and warm.sketch.text == cold.sketch.text
    assert warm.source.strip() == cold.source.strip()
    assert warm.spec.names == cold.spec.names == ("c0_addmm", *[s.name for s in cold.steps[1:]])


def test_the_sketch_has_no_tensor_and_every_node_its_step() -> None:
    def f(x: Any) -> Any:
        return (x * torch.tensor([2.0, 3.0])).relu()

    made = compiled(f, torch.randn(4, 2))
    graph = made.graph
    nodes = {node.name: node for node in made.sketch.nodes}
    assert all(node.target is None for node in made.sketch._graph.nodes if node.op == "constant")
    assert nodes["output"].inputs == (graph.outputs[0].name,)
    for node in graph.nodes:
        seen = nodes[node.name]
        assert seen.type == type_text(node.meta) and seen.where == node.where
    computed = [node for node in made.sketch.nodes if node.op.startswith(("aten.mul", "aten.relu"))]
    assert [node.step for node in computed] == ["k0_relu"] * 2
    assert made.sketch.text == graph.text()


def test_a_gather_reads_what_it_takes_and_not_the_table() -> None:
    def f(table: Any, at: Any) -> Any:
        return (table[at] + 1).relu()

    (step,) = compiled(f, torch.randn(10000, 8), torch.arange(16)).steps
    assert step.reads == 16 * 8 * 4 + 16 * 8 and step.writes == 16 * 8 * 4


def test_operators_by_aten_and_calls_that_are_replayed() -> None:
    by_aten = planned.by_aten(_net().graph)
    assert [step.kind for step in by_aten.steps] == ["call"] * len(by_aten.steps)
    assert len(by_aten.steps) >= 4 and all(step.lines for step in by_aten.steps)
    replayed = _net(graftjit.JitConfig(jit_level="O0"))
    assert [step.operators[0] for step in replayed.steps][:2] == [
        "torch.nn.functional.linear", "torch.nn.functional.layer_norm",
    ]  # fmt: skip
    assert all(step.lines and step.kind == "call" for step in replayed.steps)


def test_run_times_reach_the_report_for_forward_and_backward() -> None:
    @graftjit.jit
    def loss(x: Any, w: Any) -> Any:
        return (F.layer_norm(x @ w, (32,)).relu() ** 2).sum()

    x, w = torch.randn(64, 128), torch.randn(128, 32, requires_grad=True)
    for _ in range(30):
        loss(x, w).backward()
    seen = graftjit.report(loss)
    assert {graph.part for graph in seen.graphs} == {"forward", "backward"}
    for graph in {kernel.graph for kernel in seen.kernels}:
        mine = [kernel for kernel in seen.kernels if kernel.graph == graph]
        assert any(kernel.samples >= 4 and kernel.seconds > 0 for kernel in mine), str(mine)
    assert all(kernel.source for kernel in seen.kernels if kernel.kind == "kernel")
    (frame,) = seen.frames
    assert frame.samples >= 4 and frame.seconds_a_call > 0 and 0 < frame.compiled_share <= 1
    assert any(entry.guard_seconds > 0 for entry in seen.entries)


def test_run_times_are_sampled_under_check_as_well() -> None:
    with SESSION.override(check=True):

        @graftjit.jit
        def f(x: Any) -> Any:
            return (torch.softmax(x, -1) @ x).relu()

        x = torch.randn(32, 32)
        with torch.no_grad():
            for _ in range(20):
                f(x)
    assert any(kernel.seconds > 0 for kernel in graftjit.report(f).kernels)


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 16)
        self.rest = torch.nn.Sequential(torch.nn.LayerNorm(16), _Own())

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        return self.rest(y)


class _Own(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.sin() * 2


def test_lines_are_of_the_program_and_not_of_the_modules_of_torch_that_it_calls() -> None:
    net = _Net()
    net_lines, own_lines = (one.forward.__code__.co_firstlineno for one in (_Net, _Own))
    fast = graftjit.compile(net)
    fast(torch.randn(4, 16)).sum().backward()
    seen = graftjit.report(fast)
    ops = {
        (node.op, graph.part): node.line
        for graph in seen.graphs
        for node in graph.nodes
        if node.op.startswith("aten.")
    }
    assert {record.file for kernel in seen.kernels for record in kernel.lines} == {__file__}
    assert ops["aten.addmm.default", "forward"] == net_lines + 1
    assert ops["aten.native_layer_norm.default", "forward"] == net_lines + 2
    assert ops["aten.sin.default", "forward"] == own_lines + 1
    # What autograd computes is told at the line whose gradient it is.
    back = {node.line for graph in seen.graphs if graph.part == "backward" for node in graph.nodes}
    assert {net_lines + 1, net_lines + 2, own_lines + 1} <= back
    assert ops["aten.mm.default", "backward"] == net_lines + 1
