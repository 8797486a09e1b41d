"""Long loops: the body is a frame of its own; what a frame only hands on is no reason to compile again."""

from __future__ import annotations

import pytest
import torch

from graftjit import jit

from ..harness import agrees, t


def steps(x, w, n):
    for _ in range(n):
        x = torch.tanh(x * w + 1)
    return x


@pytest.mark.parametrize("n", [40, 400, 4000])
def test_entries_do_not_grow_with_the_trip_count(n):
    run = jit(steps)
    for _ in range(2):
        torch.testing.assert_close(run(t(4), t(4), n), steps(t(4), t(4), n))
    report = run.report()
    assert sum(frame.entries for frame in report.frames) <= 6, str(report)
    assert not report.recompiles
    assert {stop.code for stop in report.breaks} == ({"GB116", "GB120"} if n > 64 else set())


@agrees()
def test_a_long_loop_between_other_things():
    def f(x, n):
        log = []
        for _ in range(n):
            x = torch.sin(x) + 1
            log.append(len(log))
        else:
            log.append("else")
        return x * 2, log

    return f, (t(3), 200), [lambda: (t(3), 100), lambda: (t(3), 3)]


@agrees()
def test_a_long_loop_in_a_callee_with_a_way_out():
    def inner(x, n):
        total = 0
        for _ in range(n):
            x = torch.sin(x) + 1
            total += 1
            if total == 90:
                break
        return x, total

    def f(x, n):
        y, total = inner(x + 1, n)
        return y * total

    return f, (t(3), 200), [lambda: (t(3), 80)]


def test_what_is_handed_on_is_not_guarded():
    def f(x, tag, keep):
        y = x + 1
        print("", end="")
        return y * 2, tag, keep

    run = jit(f)
    for tag in range(20):
        keep = [tag]
        found = run(t(3), tag, keep)
        torch.testing.assert_close(found[0], (t(3) + 1) * 2)
        assert found[1] == tag
        assert found[2] is keep
    entries = [frame.entries for frame in run.report().frames]
    assert sum(entries) == 2, str(run.report())  # the function, and what follows the break


@agrees(calls=2, breaks=2)
def test_a_long_loop_without_tensors_between_two_that_compute():
    def f(x):
        y = torch.tanh(x + 1)
        total, seen = 0, []
        for i in range(40_000):
            total += i & 3
            if i % 5000 == 0:
                seen.append(total)
        return torch.sin(y) * 2 + total, seen

    return f, (t(3),)


@agrees(calls=2, graphs=2)
def test_a_long_loop_without_tensors_in_a_callee():
    def counted(n):
        total = 0
        for i in range(n):
            total += i & 3
        return total

    def f(x):
        y = x + 1
        return y * counted(40_000)

    return f, (t(3),)


@agrees(calls=2, graphs=1, codes=())
def test_many_short_loops_are_no_long_one():
    def f(x):
        total = 0
        for _ in range(60):
            y = x + 1
            for i in range(100):
                total += i & 3
                if i == 90:
                    break
        return y + total

    return f, (t(3),)
