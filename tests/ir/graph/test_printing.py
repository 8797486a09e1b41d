"""Printed graphs, and graphs as torch.fx."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from graftjit.ir.graph import printing
from graftjit.ir.graph.interpreter import run_nodes
from graftjit.ir.graph.printing import dtype_name, to_fx
from graftjit.ir.location import Location
from graftjit.ir.trace.tracer import Tracer


def graph():
    tracer = Tracer("net")
    x, w = tracer.input(torch.zeros(2, 3)), tracer.input(torch.zeros(4, 3))
    where = Location("/home/user/net.py", 14)
    with torch.no_grad():
        h = tracer.run(F.linear, (x, w), where=where)
        h = tracer.run(torch.add, (h, 1.5), where=where)
        c = tracer.run(torch.tensor, ([1.0, 2.0, 3.0, 4.0],))
        tracer.run(torch.Tensor.add_, (x, 1))
        return tracer.finish([tracer.run(torch.mul, (h, c))])


def test_nodes() -> None:
    text = graph().text()
    assert text.startswith("def net(  # writes inputs [0]\n    x0,  # f32[2, 3]\n")
    assert "t1 = aten.t(x1)" in text and "# f32[3, 4] strides [1, 3]  shares x1  net.py:14" in text
    assert "t3 = aten.add.Tensor(t2, 1.5)" in text and "c0 = constant(f32[4])" in text
    assert text.endswith("    return (t7,)")


def test_calls() -> None:
    text = graph().calls_text()
    assert text.startswith("def net(\n    v0,  # f32[2, 3]\n")
    assert "v2 = torch.nn.functional.linear(v0, v1)" in text and "# f32[2, 4]  net.py:14" in text
    assert "v3 = torch.add(v2, 1.5)" in text and "v0 = Tensor.add_(v0, 1)" in text


def test_steps_stand_under_the_line_that_they_come_from() -> None:
    for text in (printing.calls_text, printing.graph_text):
        lines = [line.rstrip() for line in text(graph(), lambda where: "h = f(x)").splitlines()]
        assert lines.count("    # net.py:14  h = f(x)") == 1
        assert sum("net.py" in line for line in lines) == 1


def test_fx() -> None:
    made = graph()
    module = to_fx(made)
    inputs = [torch.randn(2, 3), torch.randn(4, 3)]
    (expected,) = run_nodes(made, [t.clone() for t in inputs])
    (found,) = module(*inputs)
    torch.testing.assert_close(found, expected)
    assert "torch.ops.aten.mm.default" in module.code


def test_dtype_names() -> None:
    assert dtype_name(torch.bfloat16) == "bf16" and dtype_name(torch.bool) == "b8"
