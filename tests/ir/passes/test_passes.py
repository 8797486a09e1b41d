"""Passes: what they remove, and above all what they leave alone."""

from __future__ import annotations

import pytest
import torch

from graftjit.ir.graph.nodes import Meta, Node
from graftjit.ir.passes.pipeline import PassRecord, optimize
from graftjit.ir.passes.rewriter import with_nodes
from graftjit.ir.passes.verifier import BrokenGraph, verify

from ..tracing import check, trace

T = torch.Tensor


def left(fn, *inputs):
    """Operators left after the passes; the results are those of eager."""
    with torch.no_grad():
        graph = check(fn, *inputs)
        return [
            str(node.target).removeprefix("aten.")
            for node in optimize(graph, check=True).nodes
            if node.op == "call"
        ]


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


SPECIAL = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0])
INTS = torch.tensor([0, 1, -5, 2**40])


@pytest.mark.parametrize(
    ("op", "number", "gone"),
    [
        (torch.mul, 1, True),
        (torch.mul, 1.0, True),
        (torch.div, 1, True),
        (torch.sub, 0, True),
        (torch.sub, 0.0, True),
        (torch.sub, -0.0, False),
        (torch.add, 0, False),
        (torch.add, 0.0, False),
        (torch.add, -0.0, True),
        (torch.mul, 0, False),
        (torch.pow, 1, True),
        (torch.mul, True, False),
    ],
)
def test_neutral_elements_of_floats(op, number, gone) -> None:
    def f(run, a):
        return run(torch.sin, run(op, a, number))

    assert (len(left(f, SPECIAL)) == 1) is gone


def test_neutral_elements_of_integers() -> None:
    def f(run, a):
        return run(torch.neg, run(torch.add, a, 0)), run(torch.abs, run(torch.mul, a, 1.0))

    assert left(f, INTS) == ["neg.default", "mul.Tensor", "abs.default"]


def test_signed_zero_survives() -> None:
    def f(run, a):
        return run(torch.reciprocal, run(torch.add, a, 0.0))

    found = check(f, SPECIAL)
    assert len(found.nodes) == 2


def test_results_stay_tensors_of_their_own() -> None:
    def f(run, a):
        return run(torch.mul, a, 1), run(T.clone, a), run(T.detach, a), a

    assert len(left(f, x(3))) == 3


def test_copy_before_a_write_stays() -> None:
    def f(run, a):
        before = run(T.clone, a)
        run(T.add_, a, 1)
        return run(torch.sub, a, before)

    assert "clone.default" in left(f, x(3))


def test_equal_computations() -> None:
    def f(run, a):
        return run(torch.add, run(torch.sin, a), run(torch.sin, a))

    assert left(f, x(3)) == ["sin.default", "add.Tensor"]


def test_equal_computations_around_a_write() -> None:
    def f(run, a):
        one = run(torch.sin, a)
        run(T.add_, a, 1)
        return run(torch.add, one, run(torch.sin, a))

    assert left(f, x(3)).count("sin.default") == 2


def test_equal_outputs_are_two_tensors() -> None:
    def f(run, a):
        return run(torch.sin, a), run(torch.sin, a), run(torch.zeros, 3), run(torch.zeros, 3)

    assert len(left(f, x(3))) == 4


def test_numbers_are_compared_by_type_and_sign() -> None:
    def f(run, a):
        return run(
            torch.add,
            run(torch.div, run(torch.mul, a, 0.0), a),
            run(torch.div, run(torch.mul, a, -0.0), a),
        )

    assert left(f, SPECIAL).count("mul.Tensor") == 2


def test_random_operators_stay() -> None:
    def f(run, a):
        run(torch.rand, 3)
        return run(torch.sin, a)

    with torch.no_grad():
        graph, _ = trace(f, x(3))
        assert [str(n.target) for n in optimize(graph, check=True).nodes] == [
            "aten.rand.default",
            "aten.sin.default",
        ]


def test_operators_that_may_raise_stay() -> None:
    def f(run, a, index, number):
        run(torch.gather, a, 0, index)
        run(torch.floor_divide, index, number)
        run(torch.cos, a)
        return run(torch.sin, a)

    kept = left(f, x(3), torch.tensor([0, 1]), torch.tensor([1, 2]))
    assert kept == ["gather.default", "floor_divide.default", "sin.default"]


def test_constants_fold() -> None:
    def f(run, a):
        c = run(torch.tensor, [1.0, 2.0, 3.0])
        return run(torch.mul, a, run(torch.sqrt, run(torch.add, c, 1)))

    assert left(f, x(3)) == ["mul.Tensor"]


def test_returned_constants_are_fresh() -> None:
    def f(run, a):
        c = run(torch.tensor, [1.0, 2.0, 3.0])
        return c, run(torch.add, a, c), run(T.view, run(torch.sqrt, c), 3, 1)

    assert left(f, x(3)) == ["clone.default", "add.Tensor", "sqrt.default", "view.default"]


def test_views_of_views() -> None:
    def f(run, a):
        y = run(T.permute, run(T.permute, a, 2, 0, 1), 1, 2, 0)
        y = run(T.view, run(T.view, y, -1), 4, 6)
        return run(torch.sin, run(T.t, run(T.t, run(T.__getitem__, y, slice(None)))))

    assert left(f, x(2, 3, 4)) == ["view.default", "sin.default"]


def test_casts_there_and_back() -> None:
    def f(run, a):
        up = run(T.to, run(T.to, a, torch.float64), torch.float32)
        down = run(T.to, run(T.to, a, torch.bfloat16), torch.float32)
        return run(torch.add, up, down)

    assert left(f, x(3)) == ["_to_copy.default", "_to_copy.default", "add.Tensor"]


def test_decompositions_are_exact() -> None:
    def f(run, a, b):
        nn = torch.nn.functional
        return (
            run(nn.mse_loss, a, b),
            run(nn.mse_loss, a, b, reduction="none"),
            run(torch.stack, [a, b], 1),
            run(T.repeat, a, 2, 1, 3),
            run(nn.glu, a, 1),
            run(torch.arange, 2, 7),
        )

    assert "repeat.default" not in left(f, x(3, 4), x(3, 4) * 2)


def test_parts_are_views() -> None:
    """Split, chunk and unbind give slices: no operator runs, negative dimensions and a short last part included."""

    def f(run, a):
        one, two, three = run(torch.split, a, 3, -1)
        four, five = run(torch.split, one, [1, 1], 0)
        six, seven = run(torch.unbind, two, 1)[:2]
        return one, three, four, run(torch.add, five, two), run(torch.sub, six, seven)

    assert set(left(f, x(2, 8))) == {"slice.Tensor", "select.int", "add.Tensor", "sub.Tensor"}


def test_records_and_text() -> None:
    def f(run, a):
        return run(torch.mul, run(torch.sin, a), 1.0)

    graph, _ = trace(f, x(3))
    records: list[PassRecord] = []
    shown: list[str] = []
    optimize(graph, records=records, show=shown.append)
    assert records[0].name == "drop_dead" and all(record.seconds >= 0 for record in records)
    assert len(shown) == len(records) and "aten.sin" in shown[-1]


def broken(graph, node):
    return with_nodes(graph, [*graph.nodes, node], graph.outputs)


def test_the_verifier_sees_what_is_wrong() -> None:
    def f(run, a):
        run(T.add_, a, 1)
        return run(torch.sin, a)

    with torch.no_grad():
        graph, _ = trace(f, x(3))
    meta = graph.inputs[0].meta
    wide = Meta((3,), (1,), torch.float64, meta.device)
    sin = torch.ops.aten.sin.default
    ghost = Node("call", sin, (graph.inputs[0],), {}, meta, "nowhere")
    write = next(node for node in graph.nodes if "copy_" in str(node.target))
    cases = {
        "before it is made": Node("call", sin, (ghost,), {}, meta, "a"),
        "its rule says": Node("call", sin, (graph.inputs[0],), {}, wide, "a"),
        "names two": Node("call", sin, (graph.inputs[0],), {}, meta, graph.nodes[0].name),
        "should share": Node(
            "call", torch.ops.aten.detach.default, (graph.inputs[0],), {}, meta, "a"
        ),
        "to be used instead": Node("call", sin, (write,), {}, meta, "a"),
        "of unknown kind": Node("thing", sin, (), {}, meta, "a"),
    }
    for text, node in cases.items():
        with pytest.raises(BrokenGraph, match=text):
            verify(broken(graph, node))
    with pytest.raises(BrokenGraph, match="does not say so"):
        silent = with_nodes(graph, graph.nodes, graph.outputs)
        silent.mutates = False
        verify(silent)
