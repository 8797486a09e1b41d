"""Sorting objects: comparisons of the program's own run in Python's order, as often as there, and may raise."""

from __future__ import annotations

import torch

from ..harness import Ordered, agrees


def t(*shape):
    return torch.ones(shape)


class Told:
    def __init__(self, n):
        self.n = n

    def __lt__(self, other):
        LOG.append((self.n, other.n))
        if self.n == 13:
            raise ValueError("thirteen")
        return self.n < other.n


LOG: list = []


@agrees(breaks=0)
def test_objects_made_inside_and_outside():
    def f(x, given):
        LOG.clear()
        made = [Told(n) for n in (5, 2, 9, 2, 7, 1)]
        a, b = sorted(made), sorted(given, reverse=True)
        given.sort()
        least, most = min(made), max(given)
        return (
            x * least.n,
            [o.n for o in a],
            [o.n for o in b],
            [o.n for o in given],
            most.n,
            list(LOG),
        )

    return (
        f,
        (t(2), [Told(3), Told(1), Told(2)]),
        [lambda: (t(2), [Told(n) for n in range(41, 0, -3)])] * 2,
    )


@agrees(breaks=0)
def test_keys_that_are_objects_and_tuples_of_them():
    def f(x):
        LOG.clear()
        made = [(1, Told(5)), (0, Told(9)), (1, Told(2)), (1, Told(2), 3)]
        words = sorted(["bb", "a", "ccc"], key=lambda w: Told(-len(w)))
        made.sort(key=lambda pair: (pair[0], pair[1], len(pair)))
        return x * len(made), [(p[0], p[1].n) for p in made], words, list(LOG)

    return f, (t(2),)


@agrees()
def test_a_comparison_raises_midway():
    def f(x, given):
        LOG.clear()
        try:
            given.sort()
        except ValueError as error:
            return x * 2, str(error), [o.n for o in given], list(LOG)
        return x, [o.n for o in given]

    return (
        f,
        (t(2), [Told(n) for n in (9, 3, 13, 4, 1)]),
        [lambda: (t(2), [Told(n) for n in (3, 2)])],
    )


@agrees(breaks=0)
def test_the_list_is_empty_while_it_is_sorted():
    def f(x):
        items, seen = [3, 1, 2], []

        def key(n):
            seen.append(len(items))
            return Told(n)

        items.sort(key=key)
        return x * items[0], items, seen

    return f, (t(2),)


@agrees(breaks=0)
def test_total_ordering_and_lists_in_order():
    def f(x):
        made = [Ordered(n) for n in (3, 1, 2)]
        lists = [[Ordered(1), 2], [Ordered(1), 1], [Ordered(0)], [Ordered(1)]]
        asked = lists[0] > lists[1], lists[3] <= lists[0], made[0] >= made[1]
        ordered = [[len(one), one[0].n] for one in sorted(lists)]
        return x * max(made).n, [o.n for o in sorted(made, reverse=True)], ordered, asked

    return f, (t(2),)


@agrees()
def test_tensors_are_not_ordered_inside():
    def f(x):
        return sorted([x.sum(), x.mean(), x.max() * 3]), x + 1

    return f, (t(2, 3),)
