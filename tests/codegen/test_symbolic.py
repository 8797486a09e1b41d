"""Programs over open sizes and numbers: compiled once, run at many sizes, against eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from graftjit.runtime.executor.lower import PythonProgram
from graftjit.runtime.program.program import Alloc, Scratch

from .harness import Made
from .symbolic import arguments, check_open, trace_open

T = torch.Tensor
SIZES = (9, 2, 3, 17, 64, 100, 1000)


def r(*shape: int) -> T:
    return torch.randn(*shape)


W, B, G, C = r(8, 16), r(16), r(8), r(8)
Row = tuple[str, Callable[..., Any], Callable[[int], Any], list[list[int]], int, int]

# name, function, inputs of a size, open dimensions of each tensor, kernels, library calls
ROWS: tuple[Row, ...] = (
    ("pointwise", lambda x: torch.sin(x) + x * 2, lambda n: [r(n)], [[0]], 1, 0),
    ("batch", lambda x: torch.sin(x) + x * 2, lambda n: [r(n, 8)], [[0]], 1, 0),
    ("two sizes", lambda x, y: x.sin() + y, lambda n: [r(n, n + 3), r(n, n + 3)], [[0, 1]] * 2, 1, 0),
    ("broadcast", lambda x, y: x + y, lambda n: [r(n, 5), r(5)], [[0], []], 1, 0),
    ("broadcast rows", lambda x, y: x * y, lambda n: [r(n, n + 1), r(n, 1)], [[0, 1], [0]], 1, 0),
    ("transposed", lambda x, y: x.t() + y, lambda n: [r(n, 7), r(7, n)], [[0], [1]], 1, 0),
    ("float", lambda x, a: x * a + 1, lambda n: [r(n), n * 0.3], [[0]], 1, 0),
    ("float expression", lambda x, a: x / (a * 2 + 1) - a, lambda n: [r(n), n * 0.3], [[0]], 1, 0),
    ("int", lambda x, a: x * a + a, lambda n: [r(n), n], [[0]], 1, 0),
    ("int64", lambda x, a: x.long() * a - a, lambda n: [r(n) * 9, n], [[0]], 1, 0),
    ("compared", lambda x, a: torch.where(x > a, x, 0), lambda n: [r(n), 0.01 * n], [[0]], 1, 0),
    ("bfloat16", lambda x, a: x * a + 1, lambda n: [r(n, 3).bfloat16(), n * 0.37], [[0]], 1, 0),
    ("float64", lambda x, a: x * a + a, lambda n: [r(n, 3).double(), n * 0.37], [[0]], 1, 0),
    ("size as a number", lambda x: x / x.shape[0] + x.numel(), lambda n: [r(n, 2)], [[0]], 1, 0),
    ("sum of all", lambda x: x.sum(), lambda n: [r(n, 8)], [[0]], 1, 0),
    ("sum of rows", lambda x: x.sum(-1), lambda n: [r(7, n)], [[1]], 1, 0),
    ("sum of columns", lambda x: x.sum(0), lambda n: [r(n, 70)], [[0]], 1, 0),
    ("mean", lambda x: x.mean(0), lambda n: [r(n, 8)], [[0]], 1, 0),
    ("middle", lambda x: x.mean(1), lambda n: [r(3, n, 5)], [[1]], 1, 0),
    ("variance", lambda x: x.var(0) + x.std(0, correction=0), lambda n: [r(n, 8)], [[0]], 1, 0),
    ("argmax", lambda x: (x.argmax(0), x.argmax()), lambda n: [r(n, n)], [[0, 1]], 2, 0),
    ("max", lambda x: x.max(1), lambda n: [r(5, n)], [[1]], 1, 0),
    ("softmax batch", lambda x: F.softmax(x, -1), lambda n: [r(n, 8)], [[0]], 1, 0),
    ("softmax", lambda x: F.softmax(x, -1), lambda n: [r(4, n)], [[1]], 1, 0),
    ("log softmax", lambda x: F.log_softmax(x, 0), lambda n: [r(n, 5)], [[0]], 1, 0),
    ("few classes", lambda x: F.log_softmax(x, -1) * 2, lambda n: [r(n, 37)], [[0]], 1, 0),
    ("best class", lambda x: x.argmax(-1), lambda n: [r(3, n, 16).double()], [[1]], 1, 0),
    ("logsumexp", lambda x: x.logsumexp(1), lambda n: [r(3, n)], [[1]], 1, 0),
    ("layer norm", lambda x: F.layer_norm(x, (8,), G, C), lambda n: [r(n, 8)], [[0]], 1, 0),
    ("layer norm over", lambda x: F.layer_norm(x, x.shape[1:]), lambda n: [r(4, n)], [[1]], 1, 0),
    ("gelu dropout", lambda x: F.gelu(x) * 0.5, lambda n: [r(n, 2, 3)], [[0]], 1, 0),
    ("matmul", lambda x: torch.matmul(x, W) + B, lambda n: [r(n, 3, 8)], [[0]], 1, 1),
    ("cat", lambda x, y: torch.cat([x, y]) * 2, lambda n: [r(n, 8), r(n + 1, 8)], [[0], [0]], 2, 0),
    ("slices", lambda x: x[1:] * x[:-1], lambda n: [r(n, 8)], [[0]], 1, 0),
    ("steps", lambda x: x[::2] + 1, lambda n: [r(n, 8)], [[0]], 1, 0),
    ("select", lambda x: x[-1] + x[0], lambda n: [r(n, 8)], [[0]], 1, 0),
    ("view", lambda x: (x + 1).view(-1, 2) * 3, lambda n: [r(n, 8)], [[0]], 2, 0),
    ("heads", lambda x: (x + 1).view(2, -1, 2, 4).transpose(1, 2) * 2, lambda n: [r(2, n, 8)], [[1]], 1, 0),
    ("flat", lambda x: (x + 1).flatten().sum(), lambda n: [r(2, n, 8)], [[1]], 2, 0),
    ("arange", lambda x: torch.arange(x.shape[0]) * x, lambda n: [r(n)], [[0]], 1, 0),
    ("mask", lambda x: x.masked_fill(torch.ones(x.shape[0], x.shape[0]).triu(1) > 0, -9.0),
     lambda n: [r(n, n)], [[0, 1]], 1, 0),
    ("tril", lambda x: x.tril(), lambda n: [r(n, n)], [[0, 1]], 1, 0),
    ("created", lambda x: torch.zeros(x.shape) + x, lambda n: [r(n, 2)], [[0]], 1, 0),
    ("attention", lambda q, k, v: F.softmax(q @ k.transpose(-1, -2) / math.sqrt(8), -1) @ v,
     lambda n: [r(2, n, 8), r(2, n, 8), r(2, n, 8)], [[1]] * 3, 1, 2),
    ("flash", lambda q, k, v: F.scaled_dot_product_attention(q, k, v) + 1,
     lambda n: [r(1, 2, n, 8), r(1, 2, n, 8), r(1, 2, n, 8)], [[2]] * 3, 1, 1),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_open_sizes_agree_with_eager(row: Row) -> None:
    _name, fn, make, dims, kernels, library = row
    made = check_open(fn, make, dims, SIZES, kernels, library)
    assert not isinstance(made.run, PythonProgram)


def test_large_sizes_are_shared_by_threads() -> None:
    """Chunks, parts of a row that is split, and the choice at run time."""
    sizes = (300_001, 2, 8191, 70_000)
    check_open(lambda x: torch.exp(x) + x.sum() / 1e3, lambda n: [r(n)], [[0]], sizes, 1)
    check_open(lambda x: x.argmax(), lambda n: [r(n)], [[0]], sizes, 1)
    check_open(lambda x: F.softmax(x, -1), lambda n: [r(3, n)], [[1]], sizes, 1)


def test_one_text_for_all_sizes() -> None:
    """What was met first does not show in the kernels, so the disk store finds them."""
    texts = {
        Made(trace_open(lambda x: F.softmax(x * 2, -1), [r(n, 8)], [[0, 1]])[0]).source
        for n in (3, 1000)
    }
    assert len(texts) == 1


def test_the_mirror_runs_the_same_program() -> None:
    fn = lambda x, a: torch.cat([x * a, x]).view(-1, 4)[1:] + a  # noqa: E731
    graph, facts = trace_open(fn, [r(6, 4), 0.5], [[0]])
    spec = Made(graph).spec
    for n in (2, 5, 40):
        x = r(n, 4)
        found = PythonProgram(spec)(*arguments(graph, facts, [x, 1.5]))
        torch.testing.assert_close(found[0], fn(x, 1.5))


def test_numbers_that_have_no_native_form_run_in_python() -> None:
    """A power of floats is Python's own."""
    fn = lambda x, a: x * a**a  # noqa: E731
    graph, facts = trace_open(fn, [r(6), 0.5], [[0]])
    program = Made(graph).run
    for n in (2, 7):
        x = r(n)
        torch.testing.assert_close(program(*arguments(graph, facts, [x, 1.25]))[0], fn(x, 1.25))


def test_integers_that_eager_may_refuse_stay_with_eager() -> None:
    """A number that may not fit in an int8 is the operator's to judge."""
    graph, facts = trace_open(lambda x, a: x + a, [torch.ones(5, dtype=torch.int8), 3], [[0]])
    made = Made(graph)
    assert not made.kernels
    x = torch.ones(4, dtype=torch.int8)
    assert made.run(*arguments(graph, facts, [x, 7]))[0].tolist() == [8] * 4


def test_memory_between_kernels_needs_no_allocation() -> None:
    """It lies in the arena, whose size is computed at each run, or over what is dead."""
    fn = lambda x: F.softmax((x * 2).sum(1, keepdim=True) + x, 0).t().sum(0)  # noqa: E731
    made = check_open(fn, lambda n: [r(n, 8)], [[0]], SIZES)
    allocated = sum(isinstance(step, Alloc) for step in made.spec.steps)
    scratch = sum(isinstance(step, Scratch) for step in made.spec.steps)
    assert allocated == 1 and scratch + len(made.plan.over) == len(made.kernels) - 1 > 0


def test_an_expression_that_can_only_be_one_broadcasts() -> None:
    """x.shape[0] // 2 is guarded to be 1: the kernel must not walk along it."""
    make = lambda n: [r(n, 4), r(5, 4)]  # noqa: E731
    check_open(lambda x, y: x[: x.shape[0] // 2] * 1.5 + y, make, [[0], []], (3, 2))
    check_open(lambda x, y: (x[: x.shape[0] // 2] + y).t(), make, [[0], []], (3, 2))
    check_open(lambda x, y: (x[: x.shape[0] // 2] * 2).expand(5, 4) * y, make, [[0], []], (3, 2))
