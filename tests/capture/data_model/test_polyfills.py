"""The library's C code inside a frame: itertools, deque, operator's getters, heapq, bisect, copy, enum."""

from __future__ import annotations

import bisect
import copy
import enum
import functools
import heapq
import itertools as it
import operator
import re
from collections import Counter, deque, namedtuple
from functools import cached_property

import torch

from ..harness import agrees


def t(n):
    return torch.arange(n, dtype=torch.float32) + 1


# -- itertools -------------------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0)
def test_endless_iterators():
    def fn(x):
        c = it.count(3)
        first = x * next(c)
        steps = [a for a, _ in zip(it.count(1, 2), range(3))]
        floats = [a for a, _ in zip(it.count(0.5), range(3))]
        rounds = [x * a for a, _ in zip(it.cycle([1, 2]), range(5))]
        return (
            first,
            next(c),
            steps,
            floats,
            rounds,
            list(it.repeat(7, 3)),
            list(it.repeat(object=1, times=0)),
        )

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_iterators_over_one():
    def fn(x):
        return (
            list(it.accumulate([x, x * 2, 3])), list(it.accumulate([1, 2, 3], operator.mul)),
            list(it.accumulate([1, 2], initial=10)), list(it.accumulate([])),
            list(it.takewhile(lambda v: v < 3, range(9))), list(it.dropwhile(lambda v: v < 3, [1, 3, 2])),
            list(it.filterfalse(lambda v: v % 2, range(5))), list(it.filterfalse(None, [0, 1, ""])),
            list(it.starmap(pow, [(2, 3), (3, 2)])), list(it.pairwise([1, 2, 3])), list(it.pairwise([])),
            [(k, list(g)) for k, g in it.groupby([1, 1, 2, 3, 3])],
            [(k, len(list(g))) for k, g in it.groupby("aAbB", key=str.lower)],
            [k for k, _ in it.groupby([1, 1, 2])],
        )  # fmt: skip

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_slices_of_iterators():
    def fn(x):
        found = []
        for bounds in (
            (3,),
            (2, 5),
            (0, 9, 4),
            (5, 2),
            (2, 2),
            (None, None, 3),
            (1, None),
            (0,),
            (None, 4, None),
        ):
            source = iter(range(10))
            found.append((list(it.islice(source, *bounds)), next(source, None)))
        return x + 1, found

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_iterators_over_several():
    def fn(x):
        a, b = it.tee([1, 2, 3])
        return (
            [x + i for i in it.chain([1], (2, 3))], list(it.chain.from_iterable([[1], [], [2]])),
            list(it.zip_longest([1, 2], [3], fillvalue=x)), list(it.zip_longest()), list(it.compress("abc", [1, 0, 1])),
            [x * p + q for p, q in it.combinations([1, 2, 3], 2)], list(it.permutations((1, 2))),
            list(it.permutations("abc", 2)), list(it.product([1, 2], "ab")), list(it.product([1, 2], repeat=2)),
            list(it.combinations_with_replacement([x, 2], 2)), sum(a), list(b), next(a, "over"),
        )  # fmt: skip

    return fn, (t(3),)


@agrees(breaks=0)
def test_groups_left_half_way():
    def fn(x):
        groups = it.groupby([1, 1, 1, 2, 2, 3])
        key, first = next(groups)
        emitted = [key, next(first)]
        key, second = next(groups)
        emitted += [key, list(first), next(second), [k for k, _ in groups], list(second)]
        return (
            x + 1,
            emitted,
            list(it.groupby([])),
            [list(g) for _, g in it.groupby([float("nan")] * 2)],
        )

    return fn, (t(3),)


@agrees()
def test_iterators_that_leave_are_the_real_ones():
    def fn(x):
        made = it.chain([1], [2])
        next(made)
        return x + 1, type(made).__name__, it.islice([1, 2, 3], 1, None), iter(it.count(4))

    return fn, (t(3),)


@agrees()
def test_wrong_arguments():
    def fn(x, how):
        if how == 0:
            return it.chain(5, x) and list(it.chain(5))
        if how == 1:
            return list(it.islice([1], -1))
        if how == 2:
            return it.accumulate(3)
        return it.count("a", 1) and next(it.repeat())

    x = t(2)
    return fn, (x, 0), [lambda: (x, 1), lambda: (x, 2), lambda: (x, 3)]


@agrees(graphs=1, breaks=0)
def test_effects_of_predicates_keep_their_order():
    def fn(x):
        seen = []

        def small(v):
            seen.append(v)
            return v < 2

        first = list(it.takewhile(small, [1, 2, 3]))
        second = list(it.dropwhile(small, [1, 2, 3]))
        return (
            x * len(seen),
            seen,
            first,
            second,
            list(iter(lambda: len(seen) or seen.append(0), 4))[:0],
        )

    return fn, (t(2),)


# -- deque -----------------------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0)
def test_deques():
    def fn(x):
        d = deque([1, 2, 3], maxlen=3)
        d.append(4)
        d.appendleft(0)
        d.rotate(1)
        e = deque()
        for i in range(4):
            e.append(x * i)
        e.extendleft([5, 6])
        emitted = (
            list(d),
            d.pop(),
            d.popleft(),
            len(d),
            d.maxlen,
            3 in d,
            d[0],
            bool(deque()),
            list(reversed(d)),
        )
        e[0] = x
        del e[1]
        return emitted, sum(e), e, d

    return fn, (t(3),)


@agrees()
def test_deques_that_raise():
    def fn(x):
        d = deque([1, 2])
        found = []
        for step in (lambda: deque().pop(), lambda: d[7], lambda: [d.append(i) for i in d]):
            try:
                step()
            except (IndexError, RuntimeError) as error:
                found.append((type(error).__name__, str(error)))
        return x + 1, found, d

    return fn, (t(3),)


# -- getters, heaps, copies --------------------------------------------------------------------------------
outside = operator.itemgetter(1)
Point = namedtuple("Point", "a b c", defaults=(5,))


@agrees(graphs=1, breaks=0)
def test_getters():
    def fn(x):
        return (
            operator.itemgetter(1)([1, 2]), operator.itemgetter(0, 2)("abc"), operator.attrgetter("shape")(x),
            operator.attrgetter("real.shape", "dtype")(x), operator.methodcaller("sum", dim=0)(x), outside([1, x]),
            sorted([(2, "a"), (1, "b")], key=operator.itemgetter(0)), Point(x, 2)._replace(b=3).b, Point._make([1, 2, 3]),
        )  # fmt: skip

    return fn, (t(3),)


def test_a_getter_that_leaves_is_a_real_one():
    from graftjit import JitConfig, jit

    def fn(x):
        return x + 1, operator.itemgetter(1, 2), operator.methodcaller("add", 1, alpha=2)

    _, items, method = jit(fn, config=JitConfig(jit_level="O0"))(t(2))
    assert type(items) is operator.itemgetter and items([1, 2, 3]) == (2, 3)
    assert method(t(2)).tolist() == [3.0, 4.0]


@agrees(graphs=1, breaks=0)
def test_heaps_bisection_and_counters():
    def fn(x):
        h = [3, 1, 2]
        heapq.heapify(h)
        heapq.heappush(h, 0)
        c = Counter("abca")
        c.update("ab")
        c["z"] += 2
        emitted = heapq.heappop(h), h, bisect.bisect([1, 2, 3], 2), bisect.bisect_left([1, 2, 3], 2)
        return x * c["a"], emitted, dict(c), c.most_common(1)

    return fn, (t(3),)


@agrees(graphs=1, breaks=0)
def test_copies():
    def fn(x):
        a = [1, [2, x]]
        b, pair = copy.copy(a), (1, [2])
        deep = copy.deepcopy({"a": [1, pair, pair]})
        return (
            b is a,
            b[1] is a[1],
            deep,
            deep["a"][1] is deep["a"][2],
            deep["a"][1][1] is pair[1],
            x * 2,
        )

    return fn, (t(3),)


@agrees()
def test_copies_of_objects():
    box = [t(2)]

    def fn(x):
        return copy.deepcopy({"a": [x]})["a"][0] + 1, copy.copy(x) * 2, copy.deepcopy(box)[0]

    return fn, (t(2),)


# -- enums -------------------------------------------------------------------------------------------------
class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Flags(enum.Flag):
    A = 1
    B = 2


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Word(str, enum.Enum):
    X = "x"


class Odd(int, enum.Enum):
    THREE = 3

    def __mul__(self, other):
        return "mine"


@agrees(graphs=1, breaks=0)
def test_enums():
    def fn(x):
        both = Flags.A | Flags.B
        return (
            Color.RED is Color(1), Color(Color.RED) is Color.RED, Color["GREEN"].value, [c.name for c in Color], both,
            both & Flags.A == Flags.A, Flags.A in both, x * Number.TWO, Number.TWO + 1, Number.ONE < Number.TWO,
            Word.X == "x", Word.X + "y", Odd.THREE * 2, len(Color), {Color.RED: 1}[Color.RED], str(Color.RED),
        )  # fmt: skip

    return fn, (t(3),)


@agrees()
def test_a_value_that_no_member_has():
    def fn(x):
        try:
            return Color(7)
        except ValueError as error:
            return x + 1, str(error)

    return fn, (t(3),)


# -- others --------------------------------------------------------------------------------------------------
class Holder:
    def __init__(self, k):
        self.k = k

    @cached_property
    def doubled(self):
        return self.k * 2


@agrees()
def test_cached_properties():
    held = Holder(3)

    def fn(x):
        fresh = Holder(4)
        return x * held.doubled + fresh.doubled, fresh.__dict__, held.__dict__.get("doubled")

    return (
        fn,
        (t(3),),
        [lambda: held.__dict__.pop("doubled") and None, lambda: setattr(held, "doubled", 1)],
    )


@agrees(graphs=1, breaks=0)
def test_pure_functions_of_text():
    def fn(x):
        s = {1, 2, 3}
        s |= {9}
        s -= {1}
        p = functools.partial(torch.add, alpha=2)
        table = str.maketrans("lo", "01")
        return (
            x + 1,
            re.sub(r"\d", "#", "a1b2"),
            "hello".translate(table),
            sorted(s),
            p(x, x),
            p.keywords,
            object() is None,
        )

    return fn, (t(3),)
