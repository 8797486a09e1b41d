"""Values with protocols of their own beside builtins: operators, records, contexts, and iterators of itertools."""

from __future__ import annotations

import collections
import enum
import inspect
import itertools
import math
import types
import typing

import torch
from torch import nn

from ..harness import agrees, t


class S:
    def __str__(self):
        return "S!"

    def __index__(self):
        return 2

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([1, 2])

    def __radd__(self, o):
        return ("radd", o)

    def __contains__(self, o):
        return o == 1

    def __getitem__(self, i):
        return i


class NT(typing.NamedTuple):
    a: int

    def __enter__(self):
        return self.a

    def __exit__(self, *e):
        return True

    def __call__(self, x):
        return x * self.a

    def __add__(self, o):
        return ("nt", o)

    def __len__(self):
        return 7

    def __iter__(self):
        return iter([5])

    def __bool__(self):
        return False

    def __getitem__(self, i):
        return "item"

    def __contains__(self, i):
        return True

    def __eq__(self, o):
        return True

    def __getattr__(self, n):
        return n

    __hash__ = None


class E(enum.IntEnum):
    A = 1


def attempt(fn):
    try:
        return fn()
    except (TypeError, AttributeError, IndexError, KeyError, ValueError) as e:
        return type(e).__name__


@agrees()
def test_operators_of_odd_values():
    def f(x, s, nt):
        out = [
            attempt(lambda: "%s" % s),
            attempt(lambda: "%d" % s),
            attempt(lambda: [1] * s),
            attempt(lambda: s * [1]),
            attempt(lambda: (1,) * s),
            attempt(lambda: "ab" * s),
            attempt(lambda: [1, 2, 3][s]),
            attempt(lambda: "abc"[s]),
            attempt(lambda: range(s)),
            attempt(lambda: [0] + s),
            attempt(lambda: 1 + s),
            attempt(lambda: len(s)),
            attempt(lambda: 1 in s),
            attempt(lambda: [*s]),
            attempt(lambda: [1, 2, 3, 4][s:]),
            attempt(lambda: "%s" % x.shape),
            attempt(lambda: "%s %s" % (1, s)),
            attempt(lambda: (1, 2) + nt),
            attempt(lambda: list(range(5))[E.A]),
            attempt(lambda: [1] * E.A),
            attempt(lambda: "x" * E.A),
            attempt(lambda: 5 + E.A),
            attempt(lambda: {1: 2} | collections.OrderedDict(a=1)),
            attempt(lambda: {1: 2} | types.MappingProxyType({3: 4})),
            attempt(lambda: b"%d" % 3),
            attempt(lambda: [1] + (2,)),
            attempt(lambda: math.sqrt(s)),
            attempt(lambda: max(s, 1)),
        ]
        return x + 1, out

    return f, (t(3), S(), NT(2))


@agrees()
def test_named_tuples_with_protocols():
    def f(x, nt):
        out = []
        try:
            with nt as v:
                out.append(v)
                raise ValueError
        except TypeError:
            out.append("TypeError")
        out += [
            attempt(lambda: nt(x)),
            attempt(lambda: nt + 1),
            attempt(lambda: len(nt)),
            attempt(lambda: list(nt)),
            attempt(lambda: bool(nt)),
            attempt(lambda: nt[0]),
            attempt(lambda: 9 in nt),
            attempt(lambda: nt == 3),
            attempt(lambda: nt.zzz),
            attempt(lambda: {nt: 1}),
        ]
        if nt:
            x = x * 2
        return x + 1, out

    return f, (t(3), NT(2))


@agrees()
def test_contexts_of_constants():
    def f(x):
        out = []
        try:
            with torch.device("cpu"):
                out.append("in")
                y = torch.ones(2)
        except TypeError:
            out.append("TypeError")
            y = x
        d = x.device
        try:
            with d:
                z = torch.zeros(2)
        except (TypeError, AttributeError):
            z = x
        return y, z, out

    return f, (t(3),)


@agrees()
def test_dicts_of_instances():
    class A:
        def __init__(self, **kw):
            self.__dict__.update(kw)
            self.first = 1
            vars(self)["second"] = 2

        def names(self):
            return list(self.__dict__)

    def f(x):
        a = A(w=x, k=3)
        d = a.__dict__
        d["late"] = x * 2
        a.more = 5
        del a.first
        a.first = 6
        out = [
            list(d),
            "more" in d,
            d.get("none"),
            len(d),
            a.late.sum(),
            sorted(vars(a)),
            a.names(),
            d is a.__dict__,
            {**d}.keys(),
        ]
        setattr(a, "x y", 1)
        a.__dict__.pop("k")
        return out, a, d, hasattr(a, "k"), getattr(a, "x y")

    return f, (t(3),)


@agrees()
def test_itertools_inside():
    def gen(x, log):
        for i in range(5):
            log.append(i)
            yield x + i

    def f(x):
        log = []
        g = gen(x, log)
        a = [v.sum() for v in itertools.islice(g, 1, 4, 2)]
        b = (
            list(itertools.islice([1, 2, 3, 4], 2)),
            list(itertools.islice([1, 2, 3], 5, 2)),
            list(itertools.islice(range(10), 1, None, 3)),
        )
        it = iter([1, 2, 3, 4, 5, 6])
        c = list(itertools.islice(it, 5, 2)), next(it)
        d = (
            list(itertools.chain([x], (1, 2), "ab", {3: 4})),
            list(itertools.chain.from_iterable([[1], [2, 3]])),
        )
        e = (
            [(i, v) for i, v in zip(itertools.count(1), [x, x])],
            list(itertools.islice(itertools.count(0.5, 0.1), 3)),
            list(zip(itertools.repeat(7), "ab")),
        )
        h = (
            list(itertools.product("ab", [1, 2])),
            list(itertools.product([0, 1], repeat=2)),
            list(itertools.combinations([1, 2, 3], 2)),
            list(itertools.permutations("abc", 2)),
            list(itertools.permutations([1, 2])),
        )
        i = (
            list(itertools.zip_longest([1, 2, 3], "a", fillvalue=x)),
            list(itertools.pairwise([x, 1, 2])),
            list(itertools.starmap(lambda p, q: p * q, [(x, 2), (3, 4)])),
        )
        j = (
            list(itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
            list(itertools.dropwhile(lambda v: v < 3, [1, 2, 3, 1])),
            list(itertools.compress("abc", [1, 0, True])),
        )
        k = (
            [v for v in itertools.accumulate([x, x, x])],
            list(itertools.accumulate([1, 2, 3], lambda p, q: p * q, initial=10)),
            list(itertools.accumulate([1, 2, 3], func=max)),
        )
        try:
            list(itertools.islice([1], -1))
        except ValueError:
            log.append("value error")
        try:
            itertools.combinations([1, 2])
        except TypeError:
            log.append("type error")
        return a, b, c, d, e, h, i, j, k, log, list(g)

    return f, (t(3),)


@agrees()
def test_itertools_that_leave_or_break():
    def f(x):
        c = itertools.count(3)
        next(c)
        it = itertools.chain([1, 2], [3])
        next(it)

        def bad(v):
            if v == 2:
                raise ValueError("two")
            return v

        s = itertools.starmap(bad, [(1,), (2,), (3,)])
        out = []
        for _ in range(3):
            try:
                out.append(next(s))
            except ValueError as e:
                out.append(str(e))
        print("here", next(it))
        return x + 1, c, it, out, next(c)

    return f, (t(3),), [lambda last: next(last[1]) and None]


@agrees()
def test_records_that_write_themselves():
    log = []

    class Point(typing.NamedTuple):
        x: int
        y: int = 2

        def __repr__(self):
            log.append("repr")
            return f"<{self.x},{self.y}>"

    class Other(collections.namedtuple("Other", "a b")):
        def __str__(self):
            log.append("str")
            return "other"

        def total(self):
            return self.a + self.b

    Plain = collections.namedtuple("Plain", "u v")

    def f(x, p):
        q = Point(1)
        try:
            log.append(f"{q:>8}")
        except TypeError:
            log.append("no format")
        o = Other(3, 4)
        return (
            x + o.total(),
            str(p),
            f"{q}",
            repr(q),
            f"{o!s:>8}",
            repr(o),
            str([q]),
            str(Plain(1, 2)),
            f"{Plain(x.shape, 2)}",
            "%s" % (p,),
            list(log),
            p == q,
        )

    return f, (t(3), Point(5))


@agrees()
def test_reversed_and_kinds_of_iterators():
    class Seq:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            if i > 2:
                raise IndexError
            return i * 2

    layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])

    def f(x):
        for layer in reversed(layers):
            x = layer(x)
        g = (i for i in range(3))
        return (
            x,
            list(reversed(Seq())),
            isinstance(g, types.GeneratorType),
            isinstance(zip([1]), zip),
            isinstance(map(str, []), (list, map)),
            list(reversed(range(3))),
            list(reversed([1, 2])),
        )

    return f, (t(3),)


@agrees()
def test_what_a_bound_method_does_itself():
    class A:
        def method(self):
            "doc"
            return self

    class B:
        pass

    a, b = A(), B()

    def f(x):
        found = a.method.__get__(b, B)() is a, a.method.__eq__(a.method), a.method.__call__() is a
        return x + 1, found, a.method.__doc__, a.method.__name__, hash(a.method) == hash(a.method)

    return f, (torch.ones(2),)


class Word(enum.StrEnum):
    A = "a"
    B = enum.auto()


class Part(float, enum.ReprEnum):
    HALF = 0.5


class Named(str, enum.Enum):
    Z = "z"


@agrees()
def test_texts_of_members_that_are_texts_or_numbers():
    def f(x, one):
        texts = str(one), repr(one), f"{one}", f"{one!r}", "%s" % one, "{}".format(one), format(one)
        return (
            x + 1,
            texts,
            str(Word.B),
            str(Part.HALF),
            str(Named.Z),
            str(enum.IntEnum("N", "P").P),
        )

    return (
        f,
        (torch.ones(2), Word.A),
        [lambda: (torch.ones(2), Part.HALF), lambda: (torch.ones(2), Named.Z)],
    )


@agrees()
def test_signatures_that_change():
    def h(a, b: int = 1, *c, d=2, **e):
        pass

    def f(x):
        return x + 1, str(inspect.signature(h)), list(inspect.signature(h).parameters)

    return (
        f,
        (torch.ones(2),),
        [
            lambda: setattr(h, "__signature__", inspect.signature(lambda z: z)),
            lambda: delattr(h, "__signature__"),
            lambda: setattr(h, "__defaults__", (7,)),
            lambda: h.__annotations__.__setitem__("a", float),
            lambda: setattr(h, "__annotations__", {"a": "text"}),
            lambda: h.__annotations__.__setitem__("a", "another"),
            lambda: h.__kwdefaults__.__setitem__("d", 5),
            lambda: setattr(h, "__wrapped__", lambda w: w),
        ],
    )


@agrees(breaks=0)
def test_the_truth_of_members_that_are_numbers_or_texts():
    class Flag(enum.IntFlag):
        A = 1
        B = 2

    class Number(enum.IntEnum):
        ZERO = 0
        ONE = 1

    class Text(str, enum.Enum):
        EMPTY = ""
        FULL = "full"

    class Always(enum.IntEnum):
        ZERO = 0

        def __bool__(self):
            return True

    def f(x, flag, number, text):
        y = x + 1 if flag & Flag.A else x * 3
        if not number:
            y = y * 2
        if text:
            y = y - 3
        return y, bool(number), bool(Always.ZERO), 1 if Always.ZERO else 0

    return f, (t(3), Flag.A, Number.ZERO, Text.FULL), [
        lambda _: (t(3), Flag.B, Number.ONE, Text.EMPTY),
        lambda _: (t(3), Flag.A | Flag.B, Number.ONE, Text.FULL),
    ]  # fmt: skip
