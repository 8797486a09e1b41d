"""Random numbers and clocks of Python in a frame: drawn as in plain Python, without a break."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graftjit import jit

from ..harness import t

OWN = random.Random(7)
CALLS = 4


def outcomes(fn: Any, *args: Any) -> list[Any]:
    """Results and exceptions of calls from fixed states, and the states after."""
    random.seed(1)
    np.random.seed(1)
    OWN.seed(7)
    found: list[Any] = []
    for _ in range(CALLS):
        try:
            found.append(fn(*args))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    # Hashes, so that a difference is short.
    found.append([hash(one.getstate()) for one in (random, OWN)])
    found.append(hash(np.random.get_state()[1].tobytes()))
    return found


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    return type(left) is type(right) and left == right


def same(fn: Any, *args: Any, breaks: int = 0, entries: int = 1) -> Any:
    run = jit(fn)
    wanted, got = outcomes(fn, *args), outcomes(run, *args)
    report = run.report()
    assert equal(wanted, got), (wanted, got, report)
    assert report.break_count == breaks, report
    assert report.recompile_count == entries - 1, report
    return report


def scaled(x):
    return x * random.random() + random.uniform(1, 2)


def moments(x):
    return x + random.gauss(0.0, 1.0) * random.normalvariate(mu=1.0, sigma=0.1)


def fixed_arguments(x):
    return x * random.betavariate(0.4, 0.4) + random.expovariate(2.0) + random.triangular(0, 1, 0.5)


def own_generator(x):
    return x * OWN.random() + OWN.gauss(0, 1)


def chosen(x):
    return x * random.choice([0.5, 1.0, 2.0]) + random.choice((1, 2, 4))


def cropped(x):
    i, j = random.randint(0, 1), random.randrange(2)
    return x[i : i + 2, j : j + 1] * 2


def stepped(x):
    return x * random.randrange(0, 10, 3) + random.getrandbits(5)


def seeded(x):
    random.seed(5)
    y = x * random.random()
    OWN.seed("text")
    return y + OWN.random()


def of_one_another(x):
    low = random.random()
    high = random.uniform(low, low + 1)
    return x * low, x * high, math.sqrt(high) * 2


def returned(x):
    return x + 1, random.random(), random.randint(3, 9)


def mixed_up(x):
    lam = np.random.beta(0.4, 0.4)
    return lam * x + (1 - lam) * x.flip(0)


def of_numpy(x):
    i = np.random.randint(0, 2)
    return x[i : i + 1] * np.random.rand() + np.random.uniform(0.1, 2.0) * np.random.randn()


def seeded_numpy(x):
    np.random.seed(3)
    return x * np.random.random()


def rows_of_a_sample(x):
    picked = random.sample(range(3), 2)
    return x[picked] * 2, x[:, random.sample([0, 1, 3], k=2)], picked


def chosen_numbers(x):
    scales = random.choices([0.5, 1.5], k=3)
    weighted = OWN.choices(population=(1, 2, 4), weights=[1, 2, 3], k=2)
    return x * scales[0] + scales[2], sum(weighted), OWN.random()


def shuffled(x):
    order = [0, 1, 2]
    again = order
    random.shuffle(order)
    random.shuffle([])
    random.shuffle([1.5])
    return x[order], again, x * order[0], random.random()


@pytest.mark.parametrize(
    "fn",
    [
        *(
            rows_of_a_sample,
            chosen_numbers,
            shuffled,
            scaled,
            moments,
            fixed_arguments,
            own_generator,
            chosen,
            cropped,
            stepped,
            seeded,
        ),
        *(of_one_another, returned, mixed_up, of_numpy, seeded_numpy),
    ],
)
def test_random_numbers_are_drawn_before_the_one_graph(fn):
    same(fn, t(3, 4))


def test_a_random_number_has_a_gradient_around_it():
    def f(x):
        return (x * random.random()).pow(2).sum()

    run, x = jit(f), t(3, 4).requires_grad_()
    for seed in range(3):
        random.seed(seed)
        (wanted,) = torch.autograd.grad(f(x), x)
        random.seed(seed)
        (got,) = torch.autograd.grad(run(x), x)
        torch.testing.assert_close(got, wanted)
    assert run.report().break_count == 0


def of_texts(x):
    names = ["a", "b", "c"]
    random.shuffle(names)
    return x, names, random.sample("abc", 2)


def of_both_types(x):
    scales = [1, 2.0]
    random.shuffle(scales)
    return x * scales[0], scales


def too_many(x):
    try:
        random.sample(range(3), 9)
    except ValueError as error:
        return x + 1, str(error)


def no_numbers(x):
    return x + len(random.sample(range(3), 0))


@pytest.mark.parametrize("fn", [of_texts, of_both_types, too_many, no_numbers])
def test_draws_of_what_is_not_numbers_of_one_type(fn):
    assert equal(outcomes(fn, t(3)), outcomes(jit(fn), t(3)))


def test_a_shuffled_list_from_outside():
    def run(fn):
        order = [3, 1, 2]
        random.seed(4)
        return [(fn(t(4), order).tolist(), list(order)) for _ in range(4)], random.random()

    def f(x, order):
        random.shuffle(order)
        return x * order[0]

    assert run(f) == run(jit(f))


def test_a_branch_on_a_random_number_has_two_ways_and_no_more():
    def f(x, p):
        y = x + 1
        if random.random() < p:
            y = y[1:].flip(0)
        return y * 2

    run, x = jit(f), t(3, 4)
    for seed in range(12):
        random.seed(seed)
        wanted = f(x, 0.5)
        random.seed(seed)
        assert torch.equal(run(x, 0.5), wanted)
    report = run.report()
    assert [one.code for one in report.breaks] == ["GB119"]
    assert len(report.graphs) == 3


def test_a_program_that_raises_leaves_the_states_of_plain_python():
    def f(at, table):
        return F.embedding(at, table) * random.random() * OWN.random() * np.random.rand()

    table = t(3, 2)
    same(f, torch.tensor([0, 1]), table)
    run = jit(f)
    outcomes(run, torch.tensor([0, 1]), table)
    wrong = torch.tensor([0, 7])
    assert equal(outcomes(f, wrong, table), outcomes(run, wrong, table))


def test_a_handler_of_the_frame_sees_the_exception_after_the_draws():
    def f(at, table):
        try:
            return F.embedding(at, table) * random.random()
        except IndexError:
            return table * random.random()

    table = t(3, 2)
    run = jit(f)
    for at in ([0, 1], [0, 7], [2, 1]):
        wanted = outcomes(f, torch.tensor(at), table)
        assert equal(wanted, outcomes(run, torch.tensor(at), table))


def test_a_draw_that_raises_raises_in_plain_python():
    def f(x):
        return x * random.uniform(0, 1) + random.randint(4, 1)

    same(f, t(3), breaks=1)


def test_bounds_from_sizes_that_vary():
    def f(x, size):
        i = random.randint(0, x.shape[0] - size)
        return x[i : i + size].sum()

    run = jit(f)
    for rows in (5, 6, 7, 9, 4, 3):
        x = t(rows, 2)
        random.seed(rows)
        wanted = f(x, 3)
        random.seed(rows)
        torch.testing.assert_close(run(x, 3), wanted)


def test_a_replaced_function_is_called():
    def f(x):
        return x * random.random()

    run, x, before = jit(f), t(3), random.random
    run(x)
    random.random = lambda: 0.25
    try:
        assert torch.equal(run(x), x * 0.25)
    finally:
        random.random = before


def test_a_generator_of_the_programs_own_class_runs_as_written():
    class Own(random.Random):
        def random(self):
            return 0.5

    own = Own()

    def f(x):
        return x * own.uniform(0, 1)

    assert torch.equal(jit(f)(t(3)), f(t(3)))


# -- clocks ----------------------------------------------------------------------------------------
def test_clocks_are_read_before_and_after_the_graph():
    def f(x):
        before = time.perf_counter()
        y = torch.sin(x) @ x
        after = time.perf_counter()
        return y, before, after, after - before, time.time_ns()

    run, x = jit(f), t(3, 3)
    run(x)
    for _ in range(3):
        first = time.perf_counter()
        y, before, after, taken, wall = run(x)
        assert torch.equal(y, torch.sin(x) @ x)
        assert first < before < after < time.perf_counter()
        assert taken == after - before
        assert type(wall) is int and abs(time.time_ns() - wall) < 10**9
    assert run.report().break_count == 0


def test_a_clock_between_operators_is_one_break():
    def f(x):
        first = time.perf_counter()
        y = torch.sin(x)
        second = time.perf_counter()
        y = y @ x
        third = time.perf_counter()
        return y, first, second, third

    run, x = jit(f), t(3, 3)
    for _ in range(3):
        y, first, second, third = run(x)
        assert torch.equal(y, torch.sin(x) @ x)
        assert first < second < third
    assert [one.code for one in run.report().breaks] == ["GB103"]


def test_a_time_that_is_kept_in_a_list_after_other_items():
    kept: list[Any] = []

    def f(x):
        kept.append("begin")
        begin = time.monotonic()
        y = x + 1
        kept.append(time.monotonic() - begin)
        return y

    run = jit(f)
    for _ in range(3):
        run(t(3))
    assert kept[::2] == ["begin"] * 3
    assert all(type(one) is float and one > 0 for one in kept[1::2])
    assert run.report().break_count == 0


def test_a_time_that_a_tensor_is_computed_with():
    def f(x):
        begin = time.time()
        y = x + 2
        return y * (time.time() - begin)

    run = jit(f)
    for _ in range(3):
        assert (run(t(3)) > 0).all()


def test_a_number_that_passes_a_break_costs_no_recompile():
    def f(x):
        y = x + 1
        p = random.random()
        size = (y * y).sum().item()
        if p < 0.5:
            y = y[:1] * p
        return y / size

    run, x = jit(f), t(3)
    for seed in range(12):
        random.seed(seed)
        wanted = f(x)
        random.seed(seed)
        torch.testing.assert_close(run(x), wanted)
    report = run.report()
    # The two ways of the branch may be entries of one resume function.
    assert report.break_count == 1 and report.recompile_count <= 1, report
