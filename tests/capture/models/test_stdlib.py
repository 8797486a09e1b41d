"""Programs over the standard library: tools, texts, numbers, containers, clocks and locks."""

import array
import bisect
import calendar
import codecs
import collections
import contextvars
import copy
import datetime
import decimal
import fractions
import functools
import hashlib
import heapq
import io
import itertools
import json
import logging
import math
import operator
import os
import random
import re
import statistics
import string
import struct
import textwrap
import threading
import types
import uuid
import warnings
import weakref

import numpy as np
import torch
from torch import nn

import graftjit

from ..harness import Ordered, agrees


@functools.singledispatch
def kind_of(value, x):
    return x, "object"


@kind_of.register
def _(value: int, x):
    return x + value, "int"


@kind_of.register(list)
def _(value, x):
    return x * len(value), "list"


class Lazy:
    def __init__(self, n):
        self.n = n
        self.asked = 0

    @functools.cached_property
    def value(self):
        self.asked += 1
        return self.n * 2

    def power(self, k, p):
        return (self.n + k) ** p

    square = functools.partialmethod(power, p=2)


@agrees()
def test_functools_of_many_kinds():
    def f(x, o):
        p = functools.partial(torch.add, alpha=2)
        x = p(x, torch.ones_like(x))
        pairs = [kind_of(v, x) for v in (3, [1, 2], "s", True)]
        ordered = sorted([Ordered(3), Ordered(1), Ordered(2)])
        total = functools.reduce(lambda a, b: a * 10 + b, [1, 2, 3], 4)
        cmp = sorted("bca", key=functools.cmp_to_key(lambda a, b: (a < b) - (a > b)))
        return (
            pairs,
            [v.n for v in ordered],
            Ordered(2) >= Ordered(1),
            o.value + o.value,
            o.asked,
            o.square(1),
            total,
            cmp,
        )

    return f, (torch.ones(2), Lazy(4))


@agrees()
def test_itertools_of_many_kinds():
    def f(x, xs):
        a = [
            (k, list(g))
            for k, g in itertools.groupby(sorted(xs, key=lambda v: v % 3), key=lambda v: v % 3)
        ]
        b = list(itertools.accumulate(xs, operator.mul, initial=1))
        c = list(itertools.chain.from_iterable([[1], (2, 3), "ab"]))
        d = list(itertools.zip_longest(xs, "ab", fillvalue=x.shape[0]))
        e = list(itertools.islice(itertools.count(5, 2), 1, 6, 2))
        one, two = itertools.tee(iter(xs))
        g = [next(one), list(two), list(one)]
        h = list(itertools.starmap(pow, [(2, 3), (3, 2)]))
        i = (
            list(itertools.pairwise(xs))
            + list(itertools.combinations(xs[:3], 2))
            + list(itertools.permutations("ab"))
        )
        j = list(itertools.takewhile(lambda v: v < 3, xs)) + list(
            itertools.dropwhile(lambda v: v < 3, xs)
        )
        k = list(itertools.compress("abc", [1, 0, 1])) + list(
            itertools.filterfalse(lambda v: v % 2, xs)
        )
        l = list(itertools.product([1, 2], "xy", repeat=1)) + list(itertools.repeat(7, 2))
        cyc = itertools.cycle([1, 2])
        m = [next(cyc) for _ in range(5)]
        return x * sum(m), a, b, c, d, e, g, h, i, j, k, l

    return f, (torch.ones(2), [1, 2, 3, 4, 5])


@agrees()
def test_operator_and_builtins():
    def f(x, rows):
        get = operator.itemgetter("a", "b")
        attr = operator.attrgetter("shape", "dtype")
        call = operator.methodcaller("mul", 3)
        found = [get(r) for r in rows]
        low, high = min(rows, key=lambda r: r["a"]), max((r["b"] for r in rows), default=None)
        z = list(zip(*found))
        e = {k: v for k, v in enumerate("ab", start=5)}
        return (
            call(x),
            attr(x),
            found,
            low,
            high,
            z,
            e,
            all(z),
            any([]),
            divmod(7, -2),
            round(2.675, 2),
            pow(3, -1, 7),
            sum([[1], [2]], []),
            abs(-2 + 0j),
            list(map(lambda a, b: a + b, [1, 2], [3, 4, 5])),
            list(reversed(rows))[0] is rows[-1],
            callable(f),
            hex(255),
            ord("a"),
            chr(98),
            bin(5),
            isinstance(True, int),
            issubclass(bool, (int, str)),
            slice(1, 2),
            repr("a'b"),
            ascii("é"),
            format(3.14159, ".2f"),
            hash((1, "a")) == hash((1, "a")),
        )

    return f, (torch.ones(2), [{"a": 2, "b": 3}, {"a": 1, "b": 9}])


@agrees()
def test_collections_of_many_kinds():
    def f(x, words, cfg):
        c = collections.Counter(words)
        c.update("aab")
        c["z"] -= 1
        groups = collections.defaultdict(list)
        for w in words:
            groups[len(w)].append(w)
        chain = collections.ChainMap({"a": 1}, cfg)
        o = collections.OrderedDict(b=1, a=2)
        o.move_to_end("b")
        o["c"] = o.popitem(last=False)
        d = collections.deque([1, 2, 3], maxlen=3)
        d.append(4)
        d.rotate(1)
        d.extendleft([9, 8])
        return (
            x * c["a"],
            c.most_common(2),
            dict(groups),
            chain["a"],
            chain["q"],
            list(chain),
            list(o.items()),
            d,
            +c,
            c - collections.Counter("a"),
            sorted(c.elements()),
        )

    return f, (torch.ones(2), ["a", "bb", "a", "cc"], {"q": 5, "a": 7})


@agrees()
def test_text_of_many_kinds():
    def f(x, name, n):
        a = f"{name!r:>8}|{n:05d}|{n / 7:.3e}|{x.shape}|{n:,}|{'nested' + str(n):^{n + 8}}|{n=}"
        b = "%s-%03d" % (name, n)
        c = "{0}{1!s}{k}".format(1, "two", k=[3])
        d = name.translate(str.maketrans("ab", "xy")).center(12, "*").partition("*")
        e = (
            " a,b , c ".strip().split(",", 1)
            + "a\nb\r\nc".splitlines()
            + [name.zfill(6), name.title(), name.swapcase()]
        )
        g = b"ab" + bytes([99]) + name.encode() + bytearray(b"z")
        h = (
            textwrap.dedent("  a\n  b"),
            string.ascii_lowercase[:3],
            string.Template("$a!").substitute(a=n),
        )
        i = (
            "".join(reversed(name)),
            name * 2,
            name < "b",
            "a" in name,
            name.find("q"),
            name.count("a"),
            name[::-1],
            name.isdigit(),
        )
        return (
            x + n,
            a,
            b,
            c,
            d,
            e,
            g,
            h,
            i,
            g.hex(),
            g.decode().upper(),
            name.removeprefix("a"),
            "é".encode("utf-8"),
            "x".join(map(str, range(3))),
        )

    return f, (torch.ones(2), "abcab", 3)


@agrees()
def test_json_re_and_hashes():
    def f(x, text):
        d = json.loads(json.dumps({"a": [1, 2.5, None, True], "b": text}, sort_keys=True))
        m = re.match(r"(?P<w>\w+)-(\d+)", text)
        w, n = m["w"], int(m.group(2))
        h = hashlib.sha1(text.encode()).hexdigest()[:6]
        s = re.sub(r"\d", lambda k: str(int(k[0]) + 1), text)
        return (
            x * n,
            d,
            w,
            h,
            s,
            re.findall("[a-z]", text),
            struct.pack("<if", n, 2.0),
            struct.unpack("<i", b"\1\0\0\0"),
        )

    return f, (torch.ones(2), "ab-12")


@agrees()
def test_copies():
    class Node:
        def __init__(self, v, n=None):
            self.v, self.n = v, n

        def __copy__(self):
            return Node(self.v, "copied")

    def f(x, lst, node):
        a, b = copy.copy(lst), copy.deepcopy(lst)
        b[1].append(5)
        c, d = copy.copy(node), copy.deepcopy(node)
        d.v[0] = 9
        layer = nn.Linear(2, 2)
        twin = copy.deepcopy(layer)
        return (
            x + len(a[1]),
            a,
            b,
            c.n,
            d.v,
            node.v,
            torch.equal(layer.weight, twin.weight),
            twin.weight is layer.weight,
        )

    return f, (torch.ones(2), [1, [2, 3]], Node([1]))


@agrees()
def test_numbers_of_many_kinds():
    def f(x, n, q):
        big = 2**100 + n
        c = complex(n, 2) * 1j
        d = decimal.Decimal("1.10") + n
        fr = fractions.Fraction(n, 4) + q
        day = datetime.date(2024, 2, 28) + datetime.timedelta(days=n)
        return (
            x * (big % 7),
            big,
            c.conjugate(),
            d,
            fr,
            day,
            day.isoformat(),
            -7 // 2,
            -7 % 3,
            7.5 // 2,
            1e308 * 10,
            float("nan") != float("nan"),
            math.isclose(0.1 + 0.2, 0.3),
            (5).bit_length(),
            int("ff", 16),
            int.from_bytes(b"\1\2", "big"),
            (1.5).as_integer_ratio(),
            n.real,
            True + True,
            0.1 + 0.2,
            round(-0.5),
            math.copysign(1, -0.0),
            n**-1,
            statistics.mean([1, 2, n]),
            calendar.isleap(2024),
            ~n,
            n << 3,
            -n >> 1,
        )

    return f, (torch.ones(2), 3, fractions.Fraction(1, 3))


@agrees()
def test_class_methods_of_what_is_no_constant():
    class Number:
        def __bytes__(self):
            return b"\1\2"

    def f(x, number, letters):
        kinds = []
        for text in (letters, "zz", x):
            try:
                kinds.append(bytes.fromhex(text))
            except (TypeError, ValueError) as error:
                kinds.append(str(error))
        return x + int.from_bytes(number, byteorder="big"), kinds, str.maketrans({letters: number})

    return f, (torch.ones(2), Number(), "0aff")


@agrees()
def test_containers_of_the_library():
    def f(x, heap):
        heapq.heappush(heap, 2)
        small = heapq.heappop(heap)
        xs = [1, 3, 3, 7]
        bisect.insort(xs, 4)
        arr = array.array("i", [1, 2, 3])
        arr.append(4)
        mv = memoryview(b"abcd")[1:3]
        buf = io.StringIO()
        buf.write("hey")
        print("there", 3, sep="|", end="!", file=buf)
        return (
            x * small,
            heap,
            heapq.nlargest(2, xs),
            bisect.bisect_right(xs, 3),
            list(arr),
            bytes(mv),
            buf.getvalue(),
            types.SimpleNamespace(a=1, b=[2]).b,
            uuid.UUID(int=5).hex,
        )

    return f, (torch.ones(2), [3, 5, 9])


@agrees()
def test_weak_references_locks_and_context_variables():
    var = contextvars.ContextVar("var", default=1)
    lock = threading.Lock()

    class Thing:
        pass

    def f(x, o):
        token = var.set(var.get() + 1)
        with lock:
            y = x * var.get()
        var.reset(token)
        r = weakref.ref(o)
        d = weakref.WeakValueDictionary()
        t = Thing()
        d["t"] = t
        n = len(d)
        del t
        return y, r() is o, n, len(d), lock.locked(), var.get()

    return f, (torch.ones(2), Thing())


@agrees()
def test_warnings_logging_and_random():
    log = logging.getLogger("varied")
    log.propagate = False

    class Keep(logging.Handler):
        def __init__(self):
            super().__init__()
            self.lines = []

        def emit(self, record):
            self.lines.append(record.getMessage())

    def f(x, keep, rng):
        log.handlers[:] = [keep]
        log.warning("x is %s", x.shape)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("careful", UserWarning, stacklevel=1)
        r = rng.random()
        random.seed(3)
        s = random.randint(0, 9) + np.random.RandomState(0).randint(9)
        return x * r, s, keep.lines, [str(w.message) for w in caught], rng.choice("abc")

    return f, (torch.ones(2), Keep(), random.Random(5))


@agrees()
def test_error_handlers_and_encodings_of_the_programs():
    stands = ["a"]
    codecs.register_error("graftjit.test", lambda error: (stands[0], error.end))

    def look_up(name):
        if name != "graftjit_test":
            return None
        encode, decode = (
            lambda text, _: (stands[0].encode(), len(text)),
            lambda raw, _: (stands[0], len(raw)),
        )
        return codecs.CodecInfo(encode, decode, name=name)

    codecs.register(look_up)

    def f(x):
        own = (
            "\xff".encode("ascii", "graftjit.test"),
            b"\xff".decode("ascii", errors="graftjit.test"),
        )
        made = str(b"\xff", "ascii", "graftjit.test"), bytes("\xff", "ascii", "graftjit.test")
        named = (
            "x".encode("graftjit_test"),
            str(b"x", "graftjit-test"),
            str.encode("x", "graftjit_test"),
        )
        plain = "\xff".encode("ascii", "replace"), b"\xff".decode("latin-1"), str(b"x", "UTF8")
        return x + 1, own, made, named, plain

    return (
        f,
        (torch.ones(2),),
        [lambda: stands.__setitem__(0, "b"), lambda: stands.__setitem__(0, "c")],
    )


def test_the_environment(monkeypatch):
    """A variable is guarded, present or not."""

    def f(x):
        return (
            x * int(os.environ.get("GRAFTJIT_TEST_A", "1")),
            os.getenv("GRAFTJIT_TEST_B"),
            ("GRAFTJIT_TEST_B" in os.environ),
        )

    jitted = graftjit.jit(f)
    monkeypatch.delenv("GRAFTJIT_TEST_A", raising=False)
    monkeypatch.delenv("GRAFTJIT_TEST_B", raising=False)
    for name, value in (
        (None, ""),
        ("GRAFTJIT_TEST_A", "2"),
        ("GRAFTJIT_TEST_A", "3"),
        ("GRAFTJIT_TEST_B", "b"),
    ):
        if name is not None:
            monkeypatch.setenv(name, value)
        found, expected = jitted(torch.ones(2)), f(torch.ones(2))
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
    report = jitted.report()
    assert report.break_count == 0, str(report)


class Node:
    def __init__(self, n):
        self.n = n


@agrees(graphs=2, breaks=0, recompiles=1)
def test_items_of_a_weak_mapping():
    node, other = Node(1), Node(2)
    known = weakref.WeakKeyDictionary({node: 3})

    def f(x):
        return x * known[node] + known.get(node, 7), node in known, other in known

    def changed():
        known[node] = 4
        return (torch.ones(2),)

    return f, (torch.ones(2),), [lambda: (torch.ones(2),), changed, changed]


@agrees(breaks=1)
def test_a_key_that_a_weak_mapping_gets_later():
    node = Node(1)
    known = weakref.WeakKeyDictionary()

    def f(x):
        return x * known.get(node, 7), node in known

    def changed():
        known[node] = 4
        return (torch.ones(2),)

    return f, (torch.ones(2),), [lambda: (torch.ones(2),), changed, changed]


@agrees(codes=("GB122",))
def test_a_key_of_a_weak_mapping_that_is_equal_to_others():
    class Same(Node):
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    one, other = Same(1), Same(2)
    known = weakref.WeakKeyDictionary({one: 3})

    def f(x):
        return x * known[other] + one.n

    return f, (torch.ones(2),)


@agrees(calls=4)
def test_functions_by_class_of_their_argument():
    """A break at the first call of each class, which fills the cache of `singledispatch`."""

    @functools.singledispatch
    def scaled(value, x):
        return x

    scaled.register(int, lambda value, x: x * value)
    scaled.register(list, lambda value, x: sum(scaled(one, x) for one in value))

    def f(x):
        return scaled([2, 3], x) + 1

    return f, (torch.ones(2),)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_classes_of_values():
    def f(x):
        n, total = x.shape[0], x.sum().item()
        values = [n, total, total > 1, [x], (x,), {"x": x}, {1}, None, "s", x.shape]
        return [one.__class__ for one in values], x + 1

    return f, (torch.ones(2),)


def test_functions_by_class_of_their_argument_are_one_graph_later():
    scaled = functools.singledispatch(lambda value, x: x)
    scaled.register(int, lambda value, x: x * value)
    scaled.register(list, lambda value, x: sum(scaled(one, x) for one in value))
    x = torch.ones(2)
    scaled([2], x)
    run = graftjit.jit(lambda x: scaled([2, 3], x) + 1)
    assert [run(x).tolist() for _ in range(2)] == [[6.0, 6.0]] * 2
    assert (run.report().graph_count, run.report().break_count) == (1, 0)
