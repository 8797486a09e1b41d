"""Iterators that exist before the frame: loops go on over them, and they are left where Python leaves them."""

from __future__ import annotations

import torch

from graftjit import graft_break, jit

from ..harness import agrees, t


@agrees(breaks=0, calls=1)
def test_a_loop_over_an_iterator_from_outside():
    def f(x, it):
        for scale in it:
            x = x * scale
            if scale == 3:
                break
        return x, list(it)

    return f, (t(3), iter([1, 2, 3, 4, 5]))


@agrees()
def test_iterators_of_many_kinds_half_way():
    d = {"a": 1.0, "b": 2.0, "c": 3.0}
    made = [iter([1, 2, 3]), iter((4, 5, 6)), iter(d), iter(d.values()), iter(d.items())]
    made += [enumerate([7, 8, 9], 5), zip([1, 2, 3], (4, 5, 6), d), iter(range(3)), iter("abc")]
    for one in made:
        next(one)

    def f(x, made):
        seen = []
        for one in made:
            for item in one:
                x = x + len(seen)
                seen.append(item)
                break
        return x, seen

    return f, (t(3), made)


@agrees()
def test_the_container_changes_during_the_break():
    def change(items, number):
        graft_break("changed here")
        if number == 1:
            items.append(9)
        if number == 9:
            del items[0]

    def f(x, items):
        for number in items:
            x = x * number
            change(items, number)
        return x

    return f, (t(3), [1, 2, 3])


def _change_dict(d, key, how):
    graft_break("changed here")
    if key == "b" and how == "grow":
        d["z"] = 1
    if key == "b" and how == "replace":
        del d["a"]
        d["y"] = 5


def _over(how):
    def f(x, d):
        seen = []
        try:
            for key, value in d.items():
                x = x * value
                seen.append(key)
                _change_dict(d, key, how)
        except RuntimeError as error:
            seen.append(str(error))
        return x, seen

    return f, (t(3), {"a": 1, "b": 2, "c": 3})


@agrees()
def test_a_dict_that_grows_during_the_break():
    return _over("grow")


@agrees()
def test_a_dict_whose_keys_are_replaced_during_the_break():
    return _over("replace")


@agrees(breaks=1)
def test_a_break_at_one_step_of_a_loop_leaves_the_others_in_graphs():
    def f(x, scales):
        for number, (scale, shift) in enumerate(zip(scales, scales[1:])):
            x = x * scale + shift
            if number == 2:
                graft_break("at one step")
        return x

    return f, (t(3), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


@agrees(breaks=1)
def test_nested_loops():
    def f(x):
        for a in [1, 2]:
            for b in (3, 4):
                x = x * b
                graft_break("inside of both")
            x = x + a
        return x

    return f, (t(3),)


def test_a_long_loop_that_breaks_at_each_step_is_compiled_once() -> None:
    def f(x, items):
        for item in items:
            x = x + item
            graft_break("each step")
        return x

    run, items = jit(f), [float(n % 7) for n in range(60)]
    for _ in range(3):
        assert torch.allclose(run(torch.ones(3), items), f(torch.ones(3), items))
    report = run.report()
    assert report.graph_count < 30
    assert {row.code for row in report.breaks} == {"GB140", "GB120"}


def test_an_iterator_at_another_place_is_another_entry() -> None:
    def f(x, it):
        for item in it:
            x = x + item
        return x

    run = jit(f)
    for skipped in (0, 1, 2, 1, 0, 3):
        it, other = iter([1, 2, 3]), iter([1, 2, 3])
        for _ in range(skipped):
            next(it), next(other)
        assert run(torch.zeros(1), it).item() == f(torch.zeros(1), other).item()
        assert next(it, "over") == next(other, "over") == "over"
