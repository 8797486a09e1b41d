"""Programs over open sizes and numbers: compiled once, run at many sizes, against eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graftjit.runtime.executor.lower import PythonProgram
from graftjit.runtime.program.program import Alloc, Scratch

from .harness import Made
from .open_programs import ROWS, Row, r
from .symbolic import arguments, check_open, trace_open

SIZES = (9, 2, 3, 17, 64, 100, 1000)


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
