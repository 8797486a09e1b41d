"""Scatters inside of kernels against eager: dtypes, strides, places named twice, negative and bad ones, open sizes."""

from __future__ import annotations

import pytest
import torch

import graftjit
from graftjit.codegen.cpp import renderer as cpp
from graftjit.codegen.loops import loop_nest as loops
from graftjit.codegen.triton import renderer as triton
from graftjit.runtime.errors import BuildError

from ..harness import check, make
from ..symbolic import check_open
from .indices import fails_alike, index, table

ADDED = (torch.float32, torch.float64, torch.int64, torch.int8)
COPIED = (torch.float32, torch.bfloat16, torch.float16, torch.int16, torch.bool)
aten = torch.ops.aten


def messages(x, source, target, weight):
    """One layer of a graph network."""
    return torch.zeros_like(x).index_add(0, target, x[source] * weight)


def edges(nodes: int, count: int, width: int, dtype: torch.dtype = torch.float32):
    weight = table(count, 1, dtype=dtype)
    return (
        table(nodes, width, dtype=dtype),
        index(nodes, count),
        index(nodes, count).flip(0),
        weight,
    )


@pytest.mark.parametrize("width", (1, 3, 16, 40, 70))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.int64, torch.int32))
def test_messages_of_a_graph_are_never_in_memory(width, dtype):
    made = check(messages, *edges(11, 300, width, dtype), kernels=1)
    assert len(made.kernels[0].stores) == 1


def test_large_ones_are_shared_by_threads():
    check(messages, *edges(100, 3000, 64), kernels=1)
    check(messages, *edges(100, 9000, 20), kernels=1)
    many = table(64, 90), index(90, 64, 900), table(64, 900)
    check(lambda x, i, s: x.scatter_add(1, i, s * 2), *many)
    check(lambda x, i, s: x.index_add(1, i[0], s * 2), *many)
    check(lambda x, i: x.index_copy(0, i, x[i] * 2), table(5000, 40), index(5000, 3000))


def test_two_sums_over_one_iteration_are_one_kernel():
    def bins(i, x):
        zeros = torch.zeros(64)
        return zeros.scatter_add(0, i, torch.ones_like(x)), zeros.index_add(0, i, x)

    check(bins, index(64, 5000), table(5000), kernels=1)


SUMS = {
    "scatter_add": lambda x, i, s: x.scatter_add(0, i, s + s),
    "scatter_add last": lambda x, i, s: x.scatter_add(-1, i[:9] % 20, s + s),
    "scatter reduce": lambda x, i, s: x.scatter(0, i, s + s, reduce="add"),
    "scatter_reduce": lambda x, i, s: x.scatter_reduce(0, i, s + s, "sum"),
    "largest": lambda x, i, s: x.scatter_reduce(0, i, s + s, "amax"),
    "least": lambda x, i, s: x.scatter_reduce(1, i[:9] % 20, s + s, "amin"),
    "index_add": lambda x, i, s: x.index_add(0, i[:, 0], s + s),
    "index_add last": lambda x, i, s: x.index_add(1, i[0] % x.shape[1], x[:, : i.shape[1]] * 2),
    "index_put": lambda x, i, s: x.index_put((i[:, 0],), s + s, accumulate=True),
    "index_put two": lambda x, i, s: x.index_put((i, i % x.shape[1]), s * 2, accumulate=True),
    "index_put behind": lambda x, i, s: x.index_put((i[:, 0] - x.shape[0],), s[0] * 2, accumulate=True),
    "index_put column": lambda x, i, s: x.t().index_put((i[0], i[1]), s[0] * 2, accumulate=True),
    "gradient": lambda x, i, s: aten.embedding_dense_backward(s + s, i[:, 0], 9, 3, False),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", ADDED)
def test_sums(name, dtype):
    if name == "gradient" and not dtype.is_floating_point:
        return
    x, i, s = table(9, 20, dtype=dtype), index(9, 33, 17), table(33, 17, dtype=dtype)
    if name in ("index_add", "index_put", "index_put behind"):
        s = table(33, 20, dtype=dtype)
    library = None if name.endswith("last") or name == "index_put column" else 0
    check(SUMS[name], x, i, s, library=library)
    if dtype is not torch.float32:
        return
    check(SUMS[name], x, i.int(), s, library=None)
    turned = table(s.shape[1], s.shape[0], dtype=dtype).t()
    check(SUMS[name], x, i, turned, library=None)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_products_and_nans(dtype):
    s = table(33, 17, dtype=dtype)
    s[3, 4], s[5, 2] = float("nan"), float("inf")
    x = table(9, 20, dtype=dtype)
    x[2, 2] = float("nan")
    for kind in ("sum", "prod", "amax", "amin"):
        check(lambda x, i, s, k=kind: x.scatter_reduce(0, i, s / 9, k), x, index(9, 33, 17), s)


COPIES = {
    "scatter": lambda x, i, s: x.scatter(0, i, torch.where(s == 0, s, s)),
    "scatter number": lambda x, i, s: x.scatter(0, i, 1),
    "index_copy": lambda x, i, s: x.index_copy(0, i[:, 0], torch.where(s == 0, s, s)[:, :1].expand(-1, 20)),
    "index_fill": lambda x, i, s: x.index_fill(0, i[:, 0] - 9, True),
    "index_fill tensor": lambda x, i, s: x.index_fill(0, i[:, 0], s[0, 0]),
    "index_put": lambda x, i, s: x.index_put((i[:, 0],), torch.where(s == 0, s, s)[:, :1]),
    "one hot": lambda x, i, s: torch.zeros_like(x).scatter(1, i[:9, :4], 1),
    "over ones": lambda x, i, s: torch.full_like(x, 7).index_copy(1, i[0], x[:, :17]),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("dtype", COPIED)
def test_copies_of_which_the_last_one_stays(name, dtype):
    inputs = table(9, 20, dtype=dtype), index(9, 33, 17), table(33, 17, dtype=dtype)
    check(COPIES[name], *inputs, library=None)


def test_what_lies_below():
    i, s = index(9, 33), table(33, 20)
    check(lambda x, i, s: (x * 2).index_add(0, i, s * 2), table(9, 20), i, s)
    check(lambda x, i, s: (x * 2, (x * 2).index_add(0, i, s * 2)), table(9, 20), i, s)
    check(lambda x, i, s: x[1:].index_add(0, i, s * 2), table(10, 20), i, s, library=None)
    check(lambda x, i, s: x.index_add(0, i, s * 2), table(20, 9).t(), i, s, library=None)
    check(lambda x, i, s: x.index_add(0, i, s * 2), table(1, 20).expand(9, 20), i, s, library=None)
    check(lambda x, i, s: x.index_add(0, i, x[i] * 2), table(9, 20), i, s, library=None)
    check(lambda x, i, s: torch.full((9, 20), -0.0).index_add(0, i, s * 0), table(9), i, s)
    check(lambda x, i, s: torch.relu(x.index_add(0, i, s * 2)) + x, table(9, 20), i, s)
    check(lambda x, i, s: x.index_add(0, i, s * 2).index_add(0, i, s * 2), table(9, 20), i, s)


def test_what_reads_the_result_comes_behind():
    def norm(x, source, target, weight):
        total = torch.zeros(x.shape[0]).index_add(0, target, weight[:, 0])
        return messages(x, source, target, weight / total[target][:, None])

    check(norm, *edges(11, 300, 20), library=None)
    check(
        lambda x, i: torch.softmax(torch.zeros_like(x).index_add(0, i, x[i].exp()), -1),
        table(9, 20) / 20,
        index(9, 33),
    )


def test_reductions_of_what_is_scattered():
    def both(x, i, s):
        message = s * x[i]
        return x.index_add(0, i, message), message.sum(-1), message.amax(0), message

    check(both, table(9, 20), index(9, 33), table(33, 20), library=None)


def test_bad_places_raise_what_eager_raises():
    good, bad, s = index(9, 33), index(9, 33), table(33, 20)
    for place in (9, -1, -10, 1 << 40):
        bad[7] = place
        fails_alike(
            lambda x, i, s: x.index_add(0, i, s * 2),
            (table(9, 20), good, s),
            (table(9, 20), bad, s),
        )
        if place != -1:
            put = lambda x, i, s: x.index_put((i,), s * 2, accumulate=True)  # noqa: E731
            fails_alike(put, (table(9, 20), good, s), (table(9, 20), bad, s))
        wide = lambda i: i[:, None].expand(-1, 20).contiguous()  # noqa: E731
        add = lambda x, i, s: x.scatter_add(0, i, s * 2)  # noqa: E731
        fails_alike(add, (table(9, 20), wide(good), s), (table(9, 20), wide(bad), s))
    lost = index(9, 33)
    lost[3], lost[4] = 100, -5  # nobody's rows: the gradient of an embedding leaves them out
    check(lambda i, s: aten.embedding_dense_backward(s * 2, i, 9, -1, False), lost, s)


def test_no_elements():
    check(
        lambda x, i, s: x.index_add(0, i, s * 2),
        table(9, 20),
        index(9, 0),
        table(0, 20),
        library=None,
    )
    check(
        lambda x, i, s: x.scatter_add(0, i, s * 2),
        table(9, 20),
        index(9, 0, 5),
        table(3, 20),
        library=None,
    )
    check(
        lambda x, i, s: x.index_add(0, i, s * 2),
        table(9, 0),
        index(9, 4),
        table(4, 0),
        library=None,
    )


@pytest.mark.parametrize("name", ("scatter_add", "index_add", "index_put"))
def test_open_sizes(name):
    def fn(x, i, s):
        given = {
            "scatter_add": lambda: x.scatter_add(0, i[:, None].expand(-1, s.shape[1]), s * 2),
            "index_add": lambda: torch.zeros_like(x).index_add(0, i, s * 2),
            "index_put": lambda: x.index_put((i,), s * 2, accumulate=True),
        }
        return given[name]()

    def inputs(sizes):
        rows, count, width = sizes
        return table(rows, width), index(rows, count), table(count, width)

    sizes = ((9, 30, 20), (5, 40, 33), (90, 3000, 64), (3, 2, 7))
    check_open(fn, inputs, ((0, 1), (0,), (0, 1)), sizes, library=None)


def test_gradients_of_gathers():
    def step(w, i, x):
        return (torch.nn.functional.embedding(i, w) * x).sum() + (w[i] * x).cos().sum()

    compiled = graftjit.jit(step)
    for _ in range(2):
        w = table(30, 20).requires_grad_()
        other = w.detach().clone().requires_grad_()
        i, x = index(30, 200), table(200, 20)
        step(w, i, x).backward()
        compiled(other, i, x).backward()
        torch.testing.assert_close(other.grad, w.grad, rtol=1e-5, atol=1e-4)


def test_the_loop_ir_knows_its_laws():
    nest = make(messages, *edges(11, 30, 5)).kernels[0].nest
    assert nest.scatters
    assert " sum = v" in loops.text(nest)
    loops.check(nest)
    with pytest.raises(BuildError):
        triton.render(nest)
    assert "merge<added>" in cpp.render([nest], 32)
