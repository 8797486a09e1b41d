"""Sets: operators between them and views of dicts, in place and not; what they hold, and the order they give it in."""

from __future__ import annotations

import random
from typing import Any

import torch

from ..harness import agrees


def t(*shape):
    return torch.ones(shape)


@agrees(breaks=0, graphs=1)
def test_operators_between_sets_made_inside():
    def f(x):
        a, b, c = {3, 1, 40, 9}, {1, 9, 17}, frozenset({9, 2})
        made = a & b, a | b, a - b, a ^ b, b & a, c | a, a & c, c ^ b
        kinds = [type(s).__name__ for s in made]
        return x * len(made[0]), [list(s) for s in made], kinds, made

    return f, (t(2),)


@agrees(breaks=0)
def test_in_place_on_sets_of_the_caller():
    def f(x, s, other):
        same = s
        s &= other | {2, 5}
        s |= {7, 33}
        s ^= {7, 8}
        s -= {33, 99}
        return x * len(s), sorted(s), same is s

    return (
        f,
        ({1, 2, 3, 5, 77} and t(2), {1, 2, 3, 5, 77}, {3, 1}),
        [
            lambda: (t(2), {1, 2}, {1, 5}),
            lambda: (t(2), {1, 2}, {1, 5}),
        ],
    )


@agrees(breaks=0)
def test_views_of_dicts():
    def f(x, d, e):
        keys = d.keys()
        made = keys & e.keys(), keys | e, keys - {"a"}, keys ^ e.keys(), ["a", "q"] & keys
        items = d.items() & {("a", 1), ("b", 5)}
        asked = keys == {"a", "b"}, keys <= {"a", "b", "z"}, keys.isdisjoint(e), keys < e.keys()
        return x * len(made[0]), [list(s) for s in made], list(items), asked, made

    return f, (t(2), {"a": 1, "b": 2}, {"b": 3, "c": 4})


@agrees(breaks=0)
def test_what_was_merged_may_change_later():
    def f(x):
        d, s = {"a": 1}, {1, 2}
        keys, both = d.keys() | {"z"}, s | {5}
        d["b"] = 2
        s.add(9)
        s.discard(1)
        u = {0}
        u.update(s)
        s.clear()
        return x * len(both), sorted(keys), list(both), list(u), keys, both, u

    return f, (t(2),)


@agrees(breaks=0)
def test_methods_and_comparisons():
    def f(x, outside):
        a = {1, 2, 3}
        made = (
            a.union([9, 1]),
            a.intersection((2, 3)),
            a.difference(outside),
            outside.symmetric_difference(a),
        )
        asked = a < {1, 2, 3, 4}, a >= outside, a == {3, 2, 1}, a != outside, a.isdisjoint([8])
        return x + len(made[0]), [list(s) for s in made], asked

    return f, (t(2), {2, 50}), [lambda: (t(2), {2, 51}), lambda: (t(2), {2, 50})]


@agrees(breaks=0)
def test_texts_and_tuples_of_sets_have_their_order():
    """The order depends on how a set came to be, not on what it holds: 8, 16 and 24 share a place in the table."""

    def f(x, given, frozen):
        y = x + 1
        made = {24, 16, 8}
        changed = {8}
        changed.add(16)
        changed.add(24)
        changed.discard(8)
        changed.add(8)
        texts = [
            str(given),
            repr(frozen),
            f"{given}",
            "%s" % given,
            "{}".format(frozen),
            str([given]),
        ]
        texts += [
            str({1: given}),
            str((made, changed)),
            str(made | changed),
            ascii(frozenset(made)),
        ]
        return y, texts, tuple(given), list(frozen), given == made

    given = {8, 16, 24, 1, 2}
    given.discard(8)
    given.add(8)
    again = {24, 8, 16}
    return f, (t(2), given, frozenset({16, 8, 24})), [lambda: (t(2), again, frozenset({24, 8}))]


@agrees(breaks=0)
def test_objects_in_sets():
    class Thing:
        pass

    def f(x):
        a, b, c = Thing(), Thing(), Thing()
        first, second = {a, b}, {b, c}
        first &= second
        return x * len(first | second), b in first, a in first, first <= second

    return f, (t(2),)


def _program(seed):
    """A world with a random run of set operations over numbers that collide in small tables."""
    rng = random.Random(seed)
    numbers = [0, 1, 8, 9, 16, 17, 32, 33, 64, 65, 7, 15]
    lines = ["def f(x, s, d):"]
    names = ["s"]
    for at in range(9):
        some = ", ".join(str(n) for n in rng.sample(numbers, rng.randint(1, 5)))
        other = rng.choice(
            [f"{{{some}}}", rng.choice(names), "d.keys()", "frozenset((" + some + ",))"]
        )
        kind = rng.randrange(4)
        if kind == 0 and at:
            lines.append(f"    v{at - 1} {rng.choice(['|=', '&=', '-=', '^='])} {{{some}}}")
            lines.append(f"    v{at} = set({other})")
        elif kind == 1:
            lines.append(f"    v{at} = {{{some}}} {rng.choice('&|-^')} {other}")
        else:
            lines.append(f"    v{at} = set({rng.choice(names)}) {rng.choice('&|-^')} {other}")
        names.append(f"v{at}")
    lines.append(f"    return x * len(v8), [list(v) for v in ({', '.join(names[1:])},)], v8")
    return "\n".join(lines)


def test_random_runs_agree():
    from graftjit import jit

    for seed in range(60):
        text, scope = _program(seed), {}
        exec(text, scope)  # noqa: S102 (a program made above)
        plain, run = scope["f"], jit(scope["f"])
        for held in ({1, 9, 8}, {64, 0}, {1, 9, 8}):
            given = {8: 1, 0: 2, 33: 3}
            wanted, got = plain(t(1), set(held), given), run(t(1), set(held), given)
            assert wanted[1] == got[1] and list(wanted[2]) == list(got[2]), text


class IteratesOtherwise(set):
    def __iter__(self) -> Any:
        return iter([5])


@agrees(level="O1")
def test_the_items_of_a_derived_set_are_those_of_its_table() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        kept = IteratesOtherwise([1, 2])
        grown, less = {0}, {1, 5}
        grown.update(kept)
        less.difference_update(kept)
        made = set(kept), frozenset(kept), {*kept}, grown, less
        return y * 2, [sorted(one) for one in made], sorted(kept)

    return fn, (torch.ones(2),)
