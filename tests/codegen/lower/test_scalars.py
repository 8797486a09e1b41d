"""Values of lowering rules: their operators add to the builder what the rule's expression says, in its order."""

from __future__ import annotations

import pytest
import torch

from graftjit.codegen.loops.affine import axis_form
from graftjit.codegen.loops.loop_nest import Value
from graftjit.codegen.lower.builder import At, Builder, Scalar, rule_for
from graftjit.codegen.pipeline import programmed  # noqa: F401  (fills the rules)
from graftjit.ir.graph.nodes import Node, meta_of

aten = torch.ops.aten


def given(dtype: torch.dtype = torch.float32) -> tuple[Builder, Scalar]:
    builder = Builder((8,), 0, lambda node, where: load(builder, node), lambda *_: 0)
    return builder, Scalar(builder, builder.add(Value("load", (), dtype, 0)))


def load(builder: Builder, node: Node) -> int:
    return builder.add(Value("load", (), node.meta.dtype, node.target))


def operand(position: int, dtype: torch.dtype, *shape: int) -> Node:
    return Node("input", position, meta=meta_of(torch.empty(shape, dtype=dtype)))


def operators(builder: Builder) -> list[str]:
    return [value.op for value in builder.values]


def test_operands_are_added_from_left_to_right() -> None:
    builder, x = given()
    found = x.exp() * (1.0 - x)
    assert operators(builder) == ["load", "exp", "const", "sub", "mul"]
    assert builder.values[found.number].args == (1, 3)
    assert builder.values[3].args == (2, 0)


def test_a_number_has_the_dtype_of_the_value_beside_it() -> None:
    builder, x = given(torch.int64)
    assert (x < 3).dtype == torch.bool
    assert builder.values[1] == Value("const", (), torch.int64, 3)
    assert (x == 3).where(x, 0).dtype == torch.int64
    assert builder.values[4] == Value("const", (), torch.int64, 0)


def test_equal_values_are_one_value() -> None:
    builder, x = given()
    assert (x + 1.0).number == (x + 1.0).number
    assert operators(builder) == ["load", "const", "add"]


def test_constants_are_cast_at_once() -> None:
    builder, x = given()
    assert builder.values[x.const(0.1).to(torch.bfloat16).number].attr == 0.10009765625


def test_a_value_has_no_truth_no_hash_and_no_unknown_operators() -> None:
    _builder, x = given()
    with pytest.raises(TypeError, match="known only when the kernel runs"):
        bool(x < 1.0)
    with pytest.raises(TypeError):
        hash(x)
    with pytest.raises(AttributeError):
        x.exponential()


def test_results_have_the_dtype_of_their_node() -> None:
    builder, _x = given()
    x = operand(0, torch.bfloat16, 8)
    node = Node("call", aten.sigmoid.default, (x,), meta=x.meta)
    rule = rule_for(node)
    assert rule is not None
    (number,) = rule.results(At(builder, node, (axis_form(0, 1),)))
    assert operators(builder)[1:] == ["load", "cast", "sigmoid", "cast"]
    assert builder.dtype(number) == torch.bfloat16


def test_a_fused_rms_norm_with_a_number_for_eps_has_a_rule() -> None:
    x, weight, spread = (
        operand(i, torch.float32, *s) for i, s in enumerate(((3, 8), (8,), (3, 1)))
    )
    args = (x, [8], weight, 1e-5)
    node = Node("call", aten._fused_rms_norm.default, args, meta=(x.meta, spread.meta))
    assert rule_for(node) is not None
