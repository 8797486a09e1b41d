"""Functions of `functools.lru_cache` and `functools.cache`, called in a frame."""

from __future__ import annotations

import functools
import gc
import logging
import weakref

import torch
from torch import nn

from graftjit import compile, jit, report

from ..harness import agrees, t


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_first_result_and_a_kept_one():
    @functools.lru_cache
    def twice(n, k=1):
        return n * 2 + k

    def f(x):
        return x * twice(3) + twice(3, k=2) + twice(3)

    return f, (t(3),), [lambda: print(twice.cache_info())] * 3


@agrees(graphs=2, breaks=0, recompiles=1)
def test_a_text_is_the_kept_one():
    @functools.lru_cache
    def name(n):
        return f"size of {n}"

    def f(x):
        return x + 1, name(3)

    return f, (t(3),), [lambda: print(name.cache_info())] * 3


@agrees(breaks=1, recompiles=1)
def test_an_object_that_the_cache_holds_is_an_input():
    @functools.cache
    def grid(n):
        return torch.arange(n) / 2

    def f(x):
        y = x.relu()
        return y + grid(4)

    def other():
        grid(4)[0] = 7
        print(grid.cache_info())

    return f, (t(4),), [None, other, None]


@agrees()
def test_a_cleared_cache():
    @functools.lru_cache
    def size(n):
        return n + 1

    def f(x):
        return x * size(2)

    return f, (t(3),), [None, None, lambda: size.cache_clear(), lambda: print(size.cache_info())]


def test_a_buffer_as_an_argument():
    """One graph where the cache holds the result for this buffer."""

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rate", torch.arange(3.0))

        def forward(self, x):
            return x * table(self.rate, 2) + table(rate=self.rate, n=1)

    @functools.lru_cache(maxsize=4)
    def table(rate, n):
        return rate * n

    model = Positions()
    expected = model(t(3))
    compiled = compile(model)
    for _ in range(3):
        before = table.cache_info().hits
        torch.testing.assert_close(compiled(t(3)), expected)
        assert table.cache_info().hits == before + 2
    assert report(compiled).break_count == 0
    model.rate = torch.ones(3)
    for change in (table.cache_clear, lambda: None, lambda: None):
        change()
        torch.testing.assert_close(compiled(t(3)), model(t(3)))
    before = table.cache_info().hits
    compiled(t(3))
    assert table.cache_info().hits == before + 2


@agrees()
def test_a_cache_that_is_full():
    @functools.lru_cache(maxsize=2)
    def size(n):
        return [n]

    def f(x, n):
        return x * size(n)[0], size(n)

    def step(n):
        def change():
            print(size.cache_info())
            return t(2), n

        return change

    return f, (t(2), 1), [step(n) for n in (1, 2, 3, 1, 1, 2, 2, 3, 1)]


@agrees()
def test_more_first_results_than_there_is_room_for():
    @functools.lru_cache(maxsize=2)
    def size(n):
        return n + 1

    def f(x):
        return x * size(1) + size(2) + size(3) + size(1)

    return f, (t(2),), [lambda: print(size.cache_info())] * 4


@agrees()
def test_keys_by_type():
    @functools.lru_cache(typed=True)
    def kind(n):
        return type(n).__name__

    @functools.lru_cache
    def same(n, m):
        return f"{n}{m}"

    def f(x):
        names = kind(1), kind(1.0), kind(True), kind("a"), same(1, 2), same(1.0, 2), same(m=2, n=1)
        return x + 1, names, same(True, 2)

    return f, (t(2),), [lambda: print(kind.cache_info(), same.cache_info())] * 3


@agrees(breaks=0)
def test_a_method_by_its_object():
    class A:
        def __init__(self, w):
            self.w = w

        @functools.lru_cache  # noqa: B019
        def scaled(self, n, shape):
            return self.w * n + shape[0]

    first, second = A(2), A(3)

    def f(x, a):
        return x * a.scaled(4, tuple(x.shape))

    info = A.scaled.cache_info

    def to(a):
        def change():
            print(info())
            return t(3), a

        return change

    return f, (t(3), first), [to(second), to(first), to(second), to(second)]


@agrees()
def test_a_result_follows_what_the_cache_holds():
    class A:
        n = 2

    a = A()

    @functools.lru_cache
    def read():
        return a.n

    def f(x):
        return x * read()

    def changed():
        a.n = 5

    def cleared():
        a.n = 7
        read.cache_clear()

    return f, (t(3),), [changed, None, cleared, None]


@agrees()
def test_effects_inside_a_cached_function():
    seen = []

    @functools.lru_cache
    def noted(n):
        seen.append(n)
        return n

    def f(x, log):
        log.append("before")
        y = x * noted(2)
        log.append("after")
        return y * noted(2), list(seen)

    return f, (t(3), []), [None, None, lambda: noted.cache_clear()]


@agrees()
def test_arguments_that_are_not_constants():
    @functools.lru_cache
    def of(value):
        return type(value).__name__

    compared = []

    class Equal:
        def __eq__(self, other):
            compared.append("compared")
            return True

        def __hash__(self):
            return 1

    one, other = Equal(), Equal()

    def f(x):
        a = of(one), of(other), of(frozenset((1, 2))), of(float("nan"))
        return x + 1, a, of(x), len(compared)

    return f, (t(3),), [None, lambda: print(of.cache_info())]


@agrees()
def test_a_number_that_varies():
    @functools.lru_cache
    def twice(n):
        return n * 2

    def f(x, n):
        return x + twice(n) + n

    return f, (t(2), 3), [lambda n=n: (t(2), n) for n in (4, 5, 6, 7, 4)]


def _once(self, text):
    self.warning(text)


def test_a_log_once_of_many_calls():
    log = logging.getLogger("graftjit.tests.once")
    log.propagate = False
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    log.handlers[:] = [Keep()]
    once = functools.lru_cache(None)(_once)

    def f(x):
        once(log, "slow")
        return x.relu() * 2

    run = jit(f)
    for _ in range(4):
        run(t(4))
    assert lines == ["slow"] and once.cache_info()[:2] == (3, 1)
    assert run.report().recompile_count == 1, run.report()


def test_entries_keep_neither_arguments_nor_results():
    class Table(nn.Module):
        @functools.lru_cache  # noqa: B019
        def table(self, n):
            return torch.arange(n) + 1.0

        def forward(self, x):
            return x * self.table(3)

    model = Table()
    run = jit(lambda model, x: model(x))
    for _ in range(4):
        run(model, t(3))
    seen = weakref.ref(model), weakref.ref(model.table(3))
    Table.table.cache_clear()
    del model
    gc.collect()
    assert [one() for one in seen] == [None, None]
