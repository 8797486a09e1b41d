"""Gathers inside of kernels against eager: dtypes, strides, negative and bad indices, effects before an exception."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graftjit
from graftjit.runtime.process.session import SESSION

from ..harness import check, make
from ..symbolic import check_open
from .indices import fails_alike, index, outcome, table

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("of_index", (torch.int64, torch.int32))
def test_embedding_in_a_kernel(dtype, of_index):
    twice = lambda i, w: torch.where(F.embedding(i, w) > 1, F.embedding(i, w), 0)  # noqa: E731
    check(twice, index(30, 5, 7, dtype=of_index), table(30, 19, dtype=dtype), kernels=1)


def embedded(tokens, positions, words, places, weight, bias):
    x = F.embedding(tokens, words) + F.embedding(positions, places)
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def test_embeddings_and_layer_norm_are_one_kernel():
    inputs = (index(50, 4, 16), index(16, 4, 16), table(50, 40), table(16, 40))
    check(embedded, *inputs, table(40), table(40), kernels=1)


def test_known_positions_are_not_checked():
    fn = lambda t, w, p: F.embedding(t, w) * F.embedding(torch.arange(16), p)  # noqa: E731
    made = check(fn, index(50, 16), table(50, 24), table(16, 24), kernels=1)
    assert made.source.count("= checked(") == 1


def test_strided_tables_and_indices():
    words, tokens = table(24, 60).t(), index(60, 9, 8).t()
    check(lambda i, w: F.embedding(i, w).exp(), tokens, words[:, ::2], kernels=1)
    check(lambda i, w: torch.gather(w, 0, i) + 1, tokens, table(60, 20)[:, 1::2], kernels=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", (0, 1, 2))
def test_gather(dtype, dim):
    x = table(6, 5, 33, dtype=dtype)
    where = index(5, 5, 4, 21)
    check(lambda x, i: torch.gather(x, dim, i), x, where, kernels=1)
    check(lambda x, i: torch.index_select(x, dim, i) == 1, x, index(5, 11), kernels=1)


def test_take_along_dim_and_rows_of_softmax():
    x = table(12, 40)
    check(lambda x, i: torch.take_along_dim(x, i, 1) * 2, x, index(40, 12, 3), kernels=1)
    pick = lambda x, i: F.log_softmax(x, -1).gather(1, i[:, None]).squeeze(1)  # noqa: E731
    check(pick, x, index(40, 12), kernels=1)
    pick2 = lambda x, i: torch.gather(F.softmax(x, -1), 1, i)  # noqa: E731
    check(pick2, x, index(40, 12, 40), library=None)


INDEXINGS = {
    "one": (lambda x, i: x[i], (7,)),
    "inner": (lambda x, i: x[:, i], (4,)),
    "last": (lambda x, i: x[..., i], (4, 3)),
    "two": (lambda x, i: x[i, i], (6,)),
    "apart": (lambda x, i: x[i, :, i], (6,)),
    "broadcast": (lambda x, i: x[i[:, None], :, i[None]], (5,)),
    "all": (lambda x, i: x[i, i, i], (2, 9)),
    "added": (lambda x, i: x[i + 1, :, -i - 1], (9,)),
}


@pytest.mark.parametrize("name", INDEXINGS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.int16, torch.bool))
def test_advanced_indexing(name, dtype):
    fn, shape = INDEXINGS[name]
    x, where = table(8, 6, 7, dtype=dtype), index(5, *shape, low=-5)
    check(lambda x, i: fn(x, i) != 0, x, where, library=None)
    check(lambda x, i: fn(x, i), x, where, library=None)
    check(lambda x, i: fn(x, i), x.permute(2, 0, 1)[1:], where, library=None)


def test_what_is_read_by_index_is_in_memory():
    check(lambda x, i: x.exp()[i] + 1, table(9, 5), index(9, 4), kernels=2)
    check(lambda i: torch.arange(9)[i] * 2, index(9, 4))
    check(lambda x, i: torch.zeros_like(x.exp())[i] + x.sum(), table(9, 5), index(9, 4))
    check(lambda x: x[x.argmax(0)[0] * 0 + torch.arange(3)] + 1, table(9, 5), library=None)


def test_bad_indices_raise_what_eager_raises():
    words = table(20, 33)
    for bad in (20, -1, 2**40):
        tokens, wrong = index(20, 6, 4), index(20, 6, 4)
        wrong[3, 2] = bad
        fails_alike(lambda i, w: F.embedding(i, w) + 1, (tokens, words), (wrong, words))
        fails_alike(
            lambda i, w: w.index_select(0, i[0]) * 2, (tokens, words), (wrong.flip(0)[2:], words)
        )
        along, wrong_along = index(20, 6, 33), index(20, 6, 33)
        wrong_along[5, 32] = bad
        fails_alike(lambda i, w: w.gather(0, i) * 2, (along, words), (wrong_along, words))
    wrong[3, 2] = -21
    fails_alike(lambda i, w: w[i] * 2, (tokens, words), (wrong, words))
    wrong[3, 2] = -20
    check(lambda i, w: w[i] * 2, wrong, words)


def test_an_index_is_checked_though_its_elements_are_not_used():
    words, tokens, wrong = table(20, 3), index(20, 6), index(20, 6)
    wrong[5] = 20
    fails_alike(lambda i, w: F.embedding(i, w).exp()[:2] + 1, (tokens, words), (wrong, words), None)
    fails_alike(lambda i, w: torch.zeros_like(w[i]) + 1, (tokens, words), (wrong, words), None)
    fails_alike(lambda i, w: (w[i], w + 1)[1], (tokens, words), (wrong, words), None)


def test_the_first_of_several_exceptions_and_effects_before_it():
    def fn(i, j, w, log):
        log += 1
        a = w[i] * 2
        log.mul_(2)
        b = F.embedding(j, w)
        log.sub_(3)
        return a + b

    words, good = table(20, 3), index(20, 6)
    compiled = graftjit.jit(fn)
    compiled(good, good, words, torch.zeros(2))
    for bad_i, bad_j in ((0, 0), (25, 0), (0, 25), (25, 25), (-3, 21)):
        i, j = good.clone(), good.clone()
        i[2], j[4] = bad_i, bad_j
        ours, theirs = torch.ones(2), torch.ones(2)
        found, expected = outcome(compiled, i, j, words, ours), outcome(fn, i, j, words, theirs)
        assert ours.tolist() == theirs.tolist()
        assert repr(found) == repr(expected)


def test_an_index_that_kernels_compute():
    words, tokens = table(20, 16), index(19, 40)
    fn = lambda i, w: F.embedding((i * 2 - i).clamp(max=30) + 1, w) * 3  # noqa: E731
    fails_alike(fn, (tokens, words), (tokens + 1, words), None)
    sums = lambda i, w: F.embedding(i.view(10, 4).sum(1) - i[0] * 4, w) * 3  # noqa: E731
    check(sums, torch.full((40,), 2), words)


PLACES_OF_FOLDS = {
    "best": lambda x, w: w.gather(1, x.argmax(1, keepdim=True)) + 1,
    "best of columns": lambda x, w: w.gather(0, x.argmax(0, keepdim=True)) * 2,
    "with its value": lambda x, w: (x * 2).gather(-1, (x * 2 - w).max(-1, keepdim=True)[1]),
    "of a softmax": lambda x, w: torch.softmax(x, -1).gather(-1, (x - w).argmax(-1, keepdim=True)),
    "a count": lambda x, w: F.embedding((x > 0).sum(-1).clamp(max=2), w) - 1,
}


@pytest.mark.parametrize("name", PLACES_OF_FOLDS)
@pytest.mark.parametrize("shape", ((64, 4), (16, 4), (8, 16), (5, 3), (40, 40)), ids=str)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_a_place_that_a_fold_gives(name, shape, dtype):
    """Each row has its own, also where rows are lanes."""
    fn, (x, w) = PLACES_OF_FOLDS[name], torch.randn(2, *shape, dtype=torch.float64).to(dtype)
    check(fn, x, w)
    columns = [part.t().contiguous().t() for part in (x, w)]
    check(fn, *columns)


def test_a_place_that_a_fold_gives_is_checked_in_each_row():
    good, words = index(5, 64, 4), table(64, 20)
    bad = good.clone()
    bad[37] = 6
    fails_alike(lambda i, w: w.gather(1, i.sum(1, keepdim=True)), (good, words), (bad, words), None)


def test_open_sizes():
    def inputs(n):
        return index(50, n, 6), table(50, 20), table(n, 6, 20)

    check_open(
        lambda i, w, x: F.embedding(i, w) + x, inputs, ((0,), (), (0,)), (5, 9, 2), kernels=1
    )
    picked = lambda x, i: torch.gather(x, 1, i) * 2  # noqa: E731
    check_open(picked, lambda n: (table(n, 9), index(9, n, 4)), ((0,), (0,)), (5, 9, 3), kernels=1)
    made = check_open(lambda x, i: x[i].exp(), lambda n: (table(n), index(n, 7)), ((0,), ()), (5, 9, 3),
                      library=None)  # fmt: skip
    bad = (table(4), torch.tensor([0, 1, 2, 3, 4, 0, 0]))
    assert outcome(made.run, *bad) == outcome(lambda x, i: x[i].exp(), *bad)


def test_empty_indices_and_tables():
    check(lambda i, w: w[i] + 1, index(5, 0), table(5, 3), library=None)
    made = make(lambda i, w: F.embedding(i, w) + 1, index(5, 2), table(5, 3))
    assert made.library == []
    check(lambda i, w: F.embedding(i, w) + 1, index(5, 0, 2), table(0, 3), library=None)


@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.parametrize("ignored", (-100, 5))
@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropy(reduction, ignored, dtype):
    x, target, weight = table(33, 90).to(dtype) / 9, index(90, 33), table(90, dtype=dtype).abs()
    target[4], target[7] = ignored, 5
    loss = lambda x, t, w=None: F.cross_entropy(x, t, w, ignore_index=ignored, reduction=reduction)  # noqa: E731
    check(loss, x, target, library=0)
    fused = dtype in (torch.float32, torch.float64)
    check(loss, x, target, weight, library=0 if fused else None)
    check(loss, x.t()[:33, :33].contiguous().t(), target.clamp(max=32), library=None)
    check(loss, x, torch.full_like(target, ignored), library=None)  # nan of a mean of nothing


@pytest.mark.parametrize("reduction", ("mean", "sum"))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_narrow_cross_entropy_is_as_near_as_that_of_eager(reduction, dtype):
    x, target = (table(300, 90) / 9).to(dtype), index(90, 300)
    loss = lambda x, t: F.cross_entropy(x, t, reduction=reduction)  # noqa: E731
    (found,) = make(loss, x, target).run(x, target)
    exact, theirs = loss(x.double(), target), loss(x, target)
    last = torch.finfo(dtype).eps * exact.abs()  # a result lies between two such steps
    assert (found - exact).abs() <= max((theirs - exact).abs(), last)


def test_cross_entropy_is_one_kernel_and_two_sums():
    loss = lambda x, t: F.cross_entropy(x * 2, t)  # noqa: E731
    made = check(loss, table(33, 90), index(90, 33), kernels=2)
    assert [len(kernel.stores) for kernel in made.kernels] == [1, 1]
    inputs = lambda n: (table(n, 50), index(50, n))  # noqa: E731
    check_open(F.cross_entropy, inputs, ((0,), (0,)), (7, 12, 3), kernels=2)
    sums = torch.ops.aten.nll_loss_forward
    check(lambda x, t: sums(F.log_softmax(x, -1), t, None, 1, -100), table(8, 9), index(9, 8))


def test_bad_targets_raise_what_eager_raises():
    x, target = table(33, 90), index(90, 33)
    for bad in (90, -1):
        wrong = target.clone()
        wrong[20] = bad
        fails_alike(lambda x, t: F.cross_entropy(x, t), (x, target), (x, wrong), 2)
        weigh = lambda x, t, w: F.cross_entropy(x, t, w) * 2  # noqa: E731
        fails_alike(weigh, (x, target, x[0].exp()), (x, wrong, x[0].exp()), None)


_SAME = {
    "expanded": lambda x, i: x[:1].expand(3)[i] * 2,
    "a sum of expanded": lambda x, i: x[:1].expand(3)[i].sum(),
    "computed from one": lambda x, i: (x[:1] + torch.zeros(3))[i] + 1,
    "constant": lambda x, i: torch.full((3,), 2.0)[i] + x[0],
    "selected": lambda x, i: x[:1].expand(3).index_select(0, i).exp(),
    "gathered": lambda x, i: x[:2, None].expand(2, 3).gather(1, i[None] % 9).sum(),
    "embedded": lambda x, i: F.embedding(i % 9, x[:1].expand(3, 2)) + 1,
    "a loss": lambda x, i: F.nll_loss(x[:, None].expand(3, 3)[:2], i % 9),
    "one of two": lambda x, i: x[:2, None].expand(2, 3)[[0, 1], i] + 1,
    "twice": lambda x, i: x[:1].expand(3)[torch.arange(9)[i]] + 1,
}


@pytest.mark.parametrize("name", _SAME)
@pytest.mark.parametrize("bad", (7, 12, -11))
def test_a_bad_position_raises_where_all_elements_are_the_same(name, bad):
    fn, x = _SAME[name], torch.tensor([1.0, 2.0, 3.0])
    # A check runs eager beside the kernels, which raises by itself.
    with SESSION.override(check=False):
        fast = graftjit.jit(fn)
        for at in ((1, 0), (bad, 0), (1, bad), (2, 1)):
            given = x, torch.tensor(at)
            assert str(outcome(fast, *given)) == str(outcome(fn, *given))


@pytest.mark.parametrize(
    ("name", "fn", "inputs"),
    (
        ("rows", lambda x, i: x[i] + 1, (table(50, 33), index(50, 300, low=-50))),
        ("bags", lambda x, i: x[i].sum(1), (table(50, 33), index(50, 40, 7, low=-50))),
        ("int32", lambda i, x: F.embedding(i, x) + 1, (index(50, 300, dtype=torch.int32), table(50, 40))),
        ("two", lambda x, i, j: x[i, j] * 2, (table(9, 8, 40), index(9, 70), index(8, 70, low=-8))),
        ("computed", lambda x, i: x[torch.where(i > 3, i - 3, i * 2 + 1)] + 1, (table(50, 33), index(9, 70))),
    ),
)  # fmt: skip
def test_a_place_that_is_the_same_in_all_lanes_is_a_number(name, fn, inputs):
    """Sixteen equal places, of which one is used, cost twenty times what copying the row does."""
    made = check(fn, *inputs)
    text = made.source[made.source.index('extern "C" void') :]
    assert "const i64_t" in text and "const i64 " not in text, name
