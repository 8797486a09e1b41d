"""Triton kernels for sizes and numbers that are not known: one text, run at many sizes in the interpreter, against eager."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from graftjit.codegen.loops.loop_nest import Buffer, Index, LoopNest, Store, Value
from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.triton import renderer as triton
from graftjit.codegen.triton.arguments import kind_of
from graftjit.ir.passes.pipeline import optimize
from graftjit.ir.symbolic.expr import Symbol

from ..open_programs import ROWS, Row, r
from ..symbolic import check_open, trace_open
from .made import TritonMade
from .worker import Worker

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
SIZES = (9, 2, 3, 17, 130)
DECLINED = ("mask", "tril")  # elements that are loaded where a condition holds


@needs_triton
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_open_sizes_agree_with_eager(worker: Worker, row: Row) -> None:
    name, fn, make, dims, kernels, library = row
    made = check_open(fn, make, dims, SIZES, kernels, library, lambda g: TritonMade(g, worker))
    assert not made.declined or name in DECLINED


@needs_triton
def test_sizes_around_a_tile(worker: Worker) -> None:
    sizes = (5, 1023, 1024, 1025, 3000)
    for fn, make, dims in (
        (lambda x: x * 2 + 1, lambda n: [r(n)], [[0]]),
        (lambda x: x.sum(-1), lambda n: [r(2, n)], [[1]]),
        (lambda x: F.softmax(x, -1), lambda n: [r(2, n)], [[1]]),
        (lambda x: x.argmax(0), lambda n: [r(n, 2)], [[0]]),
        (lambda x: x.t() + 1, lambda n: [r(n, 3)], [[0]]),
    ):
        made = check_open(fn, make, dims, sizes, 1, 0, lambda g: TritonMade(g, worker))
        assert not made.declined


@needs_triton
def test_more_axes_than_a_tile_has(worker: Worker) -> None:
    """Sizes that are not known divide no index of an element: what does not fit a tile counts programs."""
    fn = lambda x, y: x.permute(3, 0, 2, 1) * y  # noqa: E731
    make = lambda n: [r(n, 3, n + 1, 4), r(n + 1, 3)]  # noqa: E731
    made = check_open(fn, make, [[0, 2], [0]], (4, 2, 9, 33), 1, 0, lambda g: TritonMade(g, worker))
    lines = [line for line in made.source.splitlines() if "//" in line or "%" in line]
    assert lines and all("_pid" in line or "pid =" in line or " z " in line for line in lines)
    fn = lambda x: x.transpose(0, 1).sum(2)  # noqa: E731
    make = lambda n: [r(n, 3, n + 1, 4)]  # noqa: E731
    check_open(fn, make, [[0, 2]], (4, 2, 9, 33), 1, 0, lambda g: TritonMade(g, worker))


@needs_triton
def test_folds_over_axes_that_lie_apart(worker: Worker) -> None:
    """No index of an element is divided there either: one loop goes around the other."""
    make = lambda n: [r(n, 3, n + 1)]  # noqa: E731
    for fn in (
        lambda x: (x.sum((0, 2)), x.amax((0, 2)), (x > 2).any(2).any(0)),
        lambda x: F.batch_norm(x, None, None, training=True),
    ):
        sizes = (5, 2, 9, 33, 40)
        made = check_open(fn, make, [[0, 2]], sizes, None, 0, lambda g: TritonMade(g, worker))
        assert "for outside in range" in made.source and "//" not in made.source


@needs_triton
def test_positions_in_axes_that_lie_apart(worker: Worker) -> None:
    a, b = symbol("s0"), symbol("s1")
    strides = (b, 3 * b, 1)
    buffers = (
        Buffer("x", torch.int32, (a, 3, b), (3 * b, b, 1)),
        Buffer("out", torch.int64, (3,), (1,), True),
    )
    values = (
        Value("load", (), torch.int32, (0, Index(strides))),
        Value("reduce", (0,), torch.int64, "argmax"),
    )
    stores = (Store(1, Index((1, 0, 0)), 1),)
    kernel = triton.render(LoopNest("places", (3,), (a, b), buffers, values, stores))
    for sizes in ((1, 1), (4, 9), (2, 130), (30, 2)):
        x = torch.randint(0, 9, (sizes[0], 3, sizes[1]), dtype=torch.int32)
        symbols = {"s0": sizes[0], "s1": sizes[1]}
        _x, found = worker.run(kernel, [x, torch.zeros(3, dtype=torch.int64)], symbols)
        assert torch.equal(found, x.transpose(0, 1).reshape(3, -1).argmax(1))


def nest_of(fn: Callable[..., Any], inputs: Sequence[Any], dims: Sequence[Sequence[int]]) -> Any:
    graph, _facts = trace_open(fn, inputs, dims)
    (kernel,) = schedule.plan(optimize(graph, check=True)).kernels
    return kernel.nest


def symbol(name: str, low: int = 0, high: int | None = None, kind: str = "int") -> Symbol:
    return Symbol(name, kind, 5 if kind == "int" else 5.5, low, high)


def empty_rows(columns: Any, rows: Any) -> LoopNest:
    """Sums and the largest of rows."""
    buffers = (
        Buffer("x", torch.float32, (rows, columns), (columns, 1)),
        Buffer("total", torch.float32, (rows,), (1,), True),
        Buffer("most", torch.float32, (rows,), (1,), True),
    )
    values = (
        Value("load", (), torch.float32, (0, Index((columns, 1)))),
        Value("reduce", (0,), torch.float32, "sum"),
        Value("reduce", (0,), torch.float32, "max"),
    )
    stores = (Store(1, Index((1, 0)), 1), Store(2, Index((1, 0)), 2))
    return LoopNest("empty", (rows,), (columns,), buffers, values, stores)


@needs_triton
@pytest.mark.parametrize("high", [None, 100])
def test_nothing_in_a_row_and_no_rows(worker: Worker, high: int | None) -> None:
    kernel = triton.render(empty_rows(symbol("s0", 0, high), symbol("s1")))
    assert ("for start" in kernel.source) == (high is None)  # a bound that is known: whole rows
    for rows, columns in ((3, 0), (0, 7), (0, 0), (300, 1), (1, 100)):
        tensors = [torch.randn(rows, columns), torch.full((rows,), 7.0), torch.full((rows,), 7.0)]
        _x, total, most = worker.run(kernel, tensors, {"s0": columns, "s1": rows})
        torch.testing.assert_close(total, tensors[0].sum(-1))
        wanted = tensors[0].amax(-1) if columns else torch.full((rows,), float("-inf"))
        assert torch.equal(most, wanted)


@needs_triton
def test_strides_that_are_not_known(worker: Worker) -> None:
    """Rows that lie anywhere, one after the other or not."""
    rows, columns, step = symbol("s0"), symbol("s1"), symbol("t2")
    buffers = (
        Buffer("x", torch.float32, (rows, columns), (step, 1)),
        Buffer("out", torch.float32, (rows, columns), (columns, 1), True),
    )
    values = (
        Value("load", (), torch.float32, (0, Index((step, 1)))),
        Value("number", (), torch.float32, symbol("f3", kind="float")),
        Value("mul", (0, 1), torch.float32),
    )
    nest = LoopNest(
        "strided", (), (rows, columns), buffers, values, (Store(1, Index((columns, 1)), 2),)
    )
    kernel = triton.render(nest)
    kinds = [kind_of(number) for number in kernel.numbers]
    assert sorted(kinds) == ["fp64", "i64", "i64", "i64"]
    for shape, wide in (((5, 9), 9), ((5, 9), 30), ((1, 2000), 2001), ((40, 1), 1), ((33, 64), 64)):
        x, out = torch.randn(shape[0], wide), torch.zeros(shape)
        symbols = {"s0": shape[0], "s1": shape[1], "t2": wide, "f3": 0.3}
        _x, found = worker.run(kernel, [x, out], symbols)
        torch.testing.assert_close(found, x[:, : shape[1]] * 0.3, rtol=0, atol=0)


def test_numbers_are_told_to_be_multiples_where_they_are() -> None:
    """Rows of 768 start at addresses for wide loads, however many there are."""
    make = lambda n: [r(n, 48), r(n, 1)]  # noqa: E731
    kernel = triton.render(nest_of(lambda x, y: x * 2 + y, make(5), [[0], [0]]))
    assert not kernel.aligned and kernel.numbers
    assert not [line for line in kernel.source.splitlines() if " x " in line and "//" in line]
    kernel = triton.render(nest_of(lambda x: x * 2, [r(5, 48)], [[0]]), aligned=(0, 1))
    assert kernel.aligned == (0, 1, 2) and kernel.arguments[2] == ("n0", "i64")


def test_indices_are_narrow_where_the_ranges_say_so() -> None:
    def kernel(high: int | None) -> str:
        size = symbol("s0", 0, high)
        buffers = (
            Buffer("x", torch.float32, (size, 8), (8, 1)),
            Buffer("y", torch.float32, (size, 8), (8, 1), True),
        )
        load = Value("load", (), torch.float32, (0, Index((8, 1))))
        nest = LoopNest("bound", (), (size, 8), buffers, (load,), (Store(1, Index((8, 1)), 0),))
        return triton.render(nest).source

    assert "int64" in kernel(None) and "int64" not in kernel(1 << 20)


def test_one_text_for_all_sizes() -> None:
    texts = {
        triton.render(nest_of(lambda x: F.softmax(x * 2, -1), [r(n, 8)], [[0, 1]])).source
        for n in (3, 100)
    }
    assert len(texts) == 1


@needs_triton
def test_open_sizes_compile_for_sm_90() -> None:
    picked = ("broadcast rows", "float expression", "heads", "argmax", "softmax", "bfloat16")
    for name, fn, make, dims, _kernels, _library in ROWS:
        if name in picked:
            graph, _facts = trace_open(fn, make(9), dims)
            for kernel in schedule.plan(optimize(graph, check=True)).kernels:
                made = triton.compile_kernel(triton.render(kernel.nest), 90)
                assert made.cubin[:4] == b"\x7fELF" and made.hidden >= 0
