"""Iterators: their ends, what changes under them, their types, and what is taken from them when."""

from __future__ import annotations

import collections
import collections.abc
import functools
import itertools
import operator

import torch

from ..harness import agrees, agrees_in_a_frame

G = {"a": 1, "b": 2}


class Again:
    def __init__(s):
        s.n = 0

    def __iter__(s):
        return s

    def __next__(s):
        s.n += 1
        if s.n % 3 == 0:
            raise StopIteration
        return s.n


@agrees_in_a_frame
def test_partial_extend_stays():
    def g():
        yield 1
        yield 2
        raise ValueError("x")

    a = [0]
    try:
        a.extend(g())
    except ValueError:
        pass
    return a


@agrees_in_a_frame
def test_partial_iadd():
    def g():
        yield 1
        raise ValueError("x")

    a = [0]
    s = set()
    d = {}
    try:
        a += g()
    except ValueError:
        pass
    try:
        s.update(g())
    except ValueError:
        pass

    def h():
        yield "a", 1
        raise ValueError

    try:
        d.update(h())
    except ValueError:
        pass
    q = collections.deque()
    try:
        q.extend(g())
    except ValueError:
        pass
    return a, s, d, list(q)


@agrees_in_a_frame
def test_in_stops_early():
    it = iter([1, 2, 3, 4])
    r = 2 in it
    jt = (x for x in [1, 2, 3])
    q = 1 in jt
    return r, list(it), q, list(jt)


@agrees_in_a_frame
def test_unpack_takes_one_more():
    it = iter([1, 2, 3, 4, 5])
    try:
        a, b = it
    except ValueError as e:
        r = str(e)
    return r, list(it)


@agrees_in_a_frame
def test_unpack_infinite():
    try:
        a, b = itertools.count()
    except ValueError:
        return "too many"


@agrees_in_a_frame
def test_sum_interleaved():
    log = []

    class N:
        def __init__(s, v):
            s.v = v

        def __radd__(s, o):
            log.append(("add", s.v))
            return o + s.v

        def __add__(s, o):
            log.append("x")
            return s

    def g():
        for i in range(3):
            log.append(("give", i))
            yield N(i)

    return sum(g()), log


@agrees_in_a_frame
def test_min_interleaved():
    log = []

    def g():
        for i in (3, 1, 2):
            log.append(("give", i))
            yield i

    def key(v):
        log.append(("key", v))
        return v

    return min(g(), key=key), max(g(), key=key), log


@agrees_in_a_frame
def test_reduce_interleaved():
    log = []

    def g():
        for i in (3, 1, 2):
            log.append(("give", i))
            yield i

    def f(a, b):
        log.append((a, b))
        return a + b

    return functools.reduce(f, g()), functools.reduce(f, g(), 10), log


@agrees_in_a_frame
def test_getitem_iterator_error_goes_on():
    class C:
        bad = True

        def __getitem__(s, i):
            if i == 1 and s.bad:
                s.bad = False
                raise KeyError("k")
            if i > 3:
                raise IndexError
            return i

    it = iter(C())
    out = [next(it)]
    try:
        next(it)
    except KeyError:
        out.append("err")
    return out + list(it)


@agrees_in_a_frame
def test_reversed_getitem_error_ends():
    class C:
        def __len__(s):
            return 3

        def __getitem__(s, i):
            if i == 1:
                raise KeyError("k")
            return i

    it = reversed(C())
    out = [next(it)]
    try:
        next(it)
    except KeyError:
        out.append("err")
    return out + list(it)


@agrees_in_a_frame
def test_iter_none_is_not_iterable():
    class C:
        __iter__ = None

        def __getitem__(s, i):
            return i

    class D:
        __reversed__ = None

        def __len__(s):
            return 1

        def __getitem__(s, i):
            return i

    out = []
    for f in (
        lambda: iter(C()),
        lambda: [x for x in C()],
        lambda: list(C()),
        lambda: reversed(D()),
    ):
        try:
            f()
        except TypeError as e:
            out.append(str(e))
    return out


@agrees_in_a_frame
def test_types_of_iterators():
    d = {1: 2}
    o = collections.OrderedDict(d)
    return [
        type(x).__name__
        for x in (
            iter([]),
            iter(()),
            iter(""),
            iter("é"),
            iter(b""),
            iter(range(3)),
            iter(range(1 << 70)),
            iter(d),
            iter(d.values()),
            iter(d.items()),
            iter(o),
            iter(o.items()),
            iter(set()),
            iter(frozenset([1])),
            reversed([]),
            reversed(()),
            reversed("ab"),
            reversed(range(4)),
            reversed(d),
            reversed(d.items()),
            reversed(o),
            reversed(o.values()),
            enumerate([]),
            zip(),
            map(str, []),
            filter(None, []),
        )
    ]


@agrees_in_a_frame
def test_types_that_leave():
    d = {1: 2, 3: 4}
    o = collections.OrderedDict(d)
    out = []
    for x in (
        iter([1, 2]),
        iter((1, 2)),
        iter("ab"),
        iter("éa"),
        iter(b"ab"),
        iter(range(3)),
        iter(d),
        iter(d.values()),
        iter(d.items()),
        iter(o),
        iter(o.items()),
        iter({1, 2}),
        reversed([1, 2]),
        reversed((1, 2)),
        reversed("ab"),
        reversed(range(4)),
        reversed(d),
        reversed(d.items()),
        reversed(o),
        reversed(o.values()),
        enumerate([5, 6]),
    ):
        next(x)
        out.append(x)
    print(end="")
    return [(type(x).__name__, list(x), list(x)) for x in out]


@agrees_in_a_frame
def test_spent_that_leave():
    d = {1: 2, 3: 4}
    o = collections.OrderedDict(d)
    out = []
    a = [1, 2]
    for x in (
        iter(a),
        iter((1, 2)),
        iter("ab"),
        iter("éa"),
        iter(b"ab"),
        iter(range(3)),
        iter(d),
        iter(d.values()),
        iter(d.items()),
        iter(o),
        iter(o.items()),
        iter({1, 2}),
        reversed(a),
        reversed((1, 2)),
        reversed("ab"),
        reversed(range(4)),
        reversed(d),
        reversed(d.items()),
        reversed(o),
        reversed(o.values()),
        enumerate(a),
    ):
        list(x)
        out.append(x)
    print(end="")
    a.append(4)
    d[9] = 9
    o[9] = 9
    return [(type(x).__name__, list(x), list(x)) for x in out]


@agrees_in_a_frame
def test_delete_while_global():
    d = dict(G)
    seen = []
    try:
        for k in d:
            seen.append(k)
            del d[k]
    except RuntimeError as e:
        seen.append(str(e))
    return seen, d


@agrees_in_a_frame
def test_size_error_sticks():
    d = {1: 1}
    it = iter(d)
    d[2] = 2
    out = []
    for _ in range(3):
        try:
            next(it)
        except RuntimeError as e:
            out.append(str(e))
        d.pop(2, None)
    return out


@agrees_in_a_frame
def test_set_size_error_sticks():
    d = {1}
    it = iter(d)
    d.add(2)
    out = []
    for _ in range(3):
        try:
            next(it)
        except RuntimeError as e:
            out.append(str(e))
        d.discard(2)
    return out


@agrees_in_a_frame
def test_ordered_changes():
    o = collections.OrderedDict([(1, 1), (2, 2), (3, 3)])
    out = []
    try:
        for k in o:
            out.append(k)
            if k == 1:
                o.move_to_end(2)
    except RuntimeError as e:
        out.append(str(e))
    o = collections.OrderedDict([(1, 1)])
    for k in o:
        o[k + 1] = 1
        out.append(k)
    return out, o


@agrees_in_a_frame
def test_overwriting_is_fine():
    d = {1: 1, 2: 2}
    s = {1, 2}
    for k in d:
        d[k] = k * 10
    for i in s:
        s.add(i)
    return d, s


@agrees_in_a_frame
def test_set_swapped():
    s = {1, 2, 3}
    seen = []
    for i in s:
        seen.append(i)
        if len(seen) == 1:
            s.discard(2)
            s.add(40)
        if len(seen) > 9:
            break
    return seen, s


@agrees_in_a_frame
def test_deque_changes():
    out = []
    for change in (
        lambda q: q.append(1),
        lambda q: q.rotate(1),
        lambda q: q.popleft(),
        lambda q: q.reverse(),
        lambda q: q.__setitem__(0, 9),
        lambda q: q.clear(),
        lambda q: q.rotate(0),
    ):
        for ml in (None, 3):
            q = collections.deque([1, 2, 3], ml)
            seen = []
            try:
                for v in q:
                    seen.append(v)
                    if len(seen) == 1:
                        change(q)
                    if len(seen) > 6:
                        break
            except RuntimeError as e:
                seen.append(str(e))
            out.append((seen, list(q)))
    return out


@agrees_in_a_frame
def test_dict_views_iter_live():
    d = {1: 1}
    v = d.values()
    it = iter(v)
    d[1] = 5
    return list(it), list(v)


@agrees_in_a_frame
def test_list_iterator_beyond_end():
    a = [1, 2, 3]
    it = iter(a)
    next(it)
    next(it)
    next(it)
    a.clear()
    print(end="")
    a.extend([7, 8, 9, 10])
    return list(it)


@agrees_in_a_frame
def test_list_shrinks():
    a = [1, 2, 3, 4]
    out = []
    for v in a:
        out.append(v)
        a.remove(v)
    return out, a


@agrees_in_a_frame
def test_list_grows():
    a = [1]
    for v in a:
        if v < 5:
            a.append(v + 1)
    return a


@agrees_in_a_frame
def test_reversed_live():
    a = [1, 2, 3]
    it = reversed(a)
    out = [next(it)]
    a.append(4)
    a[0] = 9
    out += list(it)
    a.extend([1, 2, 3])
    return out, list(it)


@agrees_in_a_frame
def test_reversed_shrinks():
    a = [1, 2, 3, 4]
    it = reversed(a)
    next(it)
    del a[1:]
    return list(it)


@agrees_in_a_frame
def test_enumerate_zip_live():
    a = [1, 2]
    e = enumerate(a, 5)
    z = zip(a, a)
    next(e)
    next(z)
    a.append(3)
    return list(e), list(z)


@agrees_in_a_frame
def test_iterator_attrs():
    it = iter([1, 2])
    g = (x for x in [1])
    d = {1: 2}
    return (
        hasattr(it, "foo"),
        hasattr(it, "__next__"),
        hasattr(it, "__length_hint__"),
        operator.length_hint(it),
        bool(g.gi_running),
        hasattr(g, "foo"),
        hasattr(d.keys(), "append"),
        hasattr(d.keys(), "mapping"),
        d.keys().mapping == d,
    )


@agrees_in_a_frame
def test_takewhile_again():
    it = itertools.takewhile(lambda v: v < 2, [1, 2, 1])
    a = list(it)
    b = list(it)

    def g():
        yield 1

    jt = itertools.accumulate(g())
    c = list(jt)
    e = list(jt)
    return a, b, c, e


@agrees_in_a_frame
def test_resumes_after_stop():
    out = []
    for make in (
        lambda i: enumerate(i),
        lambda i: zip(i),
        lambda i: map(str, i),
        lambda i: filter(None, i),
        lambda i: itertools.accumulate(i),
        lambda i: itertools.chain(i),
        lambda i: itertools.islice(i, 10),
        lambda i: itertools.takewhile(bool, i),
        lambda i: itertools.pairwise(i),
        lambda i: itertools.cycle(i) if False else i,
        lambda i: itertools.zip_longest(i, i),
        lambda i: itertools.compress(i, [1] * 20),
        lambda i: itertools.dropwhile(lambda v: False, i),
        lambda i: itertools.filterfalse(lambda v: False, i),
    ):
        it = make(Again())
        out.append([list(it), list(it), list(it)])
    return out


@agrees_in_a_frame
def test_iter_sentinel():
    n = [0]

    def f():
        n[0] += 1
        return n[0]

    it = iter(f, 3)
    a = list(it)
    b = list(it)
    return a, b, n, type(it).__name__


@agrees_in_a_frame
def test_next_default_then():
    a = [1]
    it = iter(a)
    r = [next(it, 0), next(it, 0)]
    a.append(5)
    return r, next(it, 0)


@agrees_in_a_frame
def test_star_args_iter():
    def f(*a):
        return a

    a = [1]
    it = iter(a)
    r = f(*it)
    a.append(2)
    return r, f(*it)


@agrees_in_a_frame
def test_generator_extends_itself_seen():
    a = []
    a.extend(len(a) for _ in range(3))
    b = []
    b += (len(b) for _ in range(3))
    c = [len(a) for _ in range(2)]
    return a, b, c


@agrees_in_a_frame
def test_list_of_gen_slice_assign():
    a = [1, 2, 3]
    a[1:2] = (x for x in a)
    return a


@agrees_in_a_frame
def test_zip_uneven_consumption():
    a = iter([1, 2, 3])
    b = iter([4])
    r = list(zip(a, b))
    return r, list(a)


@agrees_in_a_frame
def test_dict_iter_across_break():
    d = {1: 1, 2: 2, 3: 3}
    seen = []
    for k in d:
        print(end="")
        seen.append(k)
        if k == 1:
            del d[2]
            d[2] = 5
    return seen


@agrees_in_a_frame
def test_popitem_moves():
    d = {1: 1, 2: 2, 3: 3}
    seen = []
    for k in d:
        seen.append(k)
        if k == 1:
            d.popitem()
            d[9] = 9
        if len(seen) > 9:
            break
    return seen


@agrees_in_a_frame
def test_vars_iterated_and_changed():
    class O:
        pass

    o = O()
    o.a = 1
    o.b = 2
    seen = []
    try:
        for k in vars(o):
            seen.append(k)
            if k == "a":
                del o.b
                o.c = 5
    except RuntimeError as e:
        seen.append(str(e))
    try:
        for k in vars(o):
            setattr(o, k + "x", 1)
    except RuntimeError as e:
        seen.append(str(e))
    return seen


@agrees_in_a_frame
def test_chain_and_live():
    a = [1]
    b = [2]
    c = itertools.chain(a, b)
    next(c)
    a.append(5)
    b.append(6)
    r = list(c)
    b.append(7)
    return r, list(c)


@agrees_in_a_frame
def test_islice_live():
    a = [1, 2, 3]
    it = iter(a)
    s = itertools.islice(it, 2)
    r = list(s)
    a.append(4)
    return r, list(it), list(s)


@agrees_in_a_frame
def test_tee_and_cycle():
    a, b = itertools.tee([1, 2, 3])
    next(a)
    c = itertools.cycle([1, 2])
    return list(a), list(b), [next(c) for _ in range(5)]


@agrees_in_a_frame
def test_zip_longest_live():
    a = [1]
    z = itertools.zip_longest(a, [1, 2, 3])
    r = [next(z), next(z)]
    a.append(9)
    return r, list(z), list(z)


@agrees_in_a_frame
def test_groupby_effects():
    g = itertools.groupby([1, 1, 2, 2, 3], key=lambda v: v // 2)
    return [(k, list(v)) for k, v in g], list(g)


@agrees_in_a_frame
def test_product_takes_all():
    it = iter([1, 2])
    p = itertools.product(it, repeat=2)
    return list(it), list(p), list(p)


@agrees_in_a_frame
def test_map_filter_exceptions():
    def f(v):
        if v == 2:
            raise ValueError
        return v

    it = map(f, [1, 2, 3])
    out = [next(it)]
    try:
        next(it)
    except ValueError:
        out.append("e")
    return out + list(it)


@agrees_in_a_frame
def test_generator_after_error():
    def g():
        yield 1
        raise ValueError

    it = g()
    out = [next(it)]
    try:
        next(it)
    except ValueError:
        out.append("e")
    return out, list(it), next(it, "d")


@agrees_in_a_frame
def test_stop_iteration_values():
    def g():
        yield 1
        return 7

    def h():
        r = yield from g()
        yield r

    it = g()
    next(it)
    try:
        next(it)
    except StopIteration as e:
        v = e.value
    return v, list(h())


@agrees_in_a_frame
def test_yield_from_shared_list_iter():
    a = [1, 2]
    it = iter(a)

    def g():
        yield from it

    r = list(g())
    a.append(3)
    return r, list(g()), list(it)


@agrees_in_a_frame
def test_for_else_and_break():
    a = [1, 2, 3]
    it = iter(a)
    for v in it:
        if v == 2:
            break
    else:
        return "no"
    return list(it)


@agrees_in_a_frame
def test_comprehension_in_comprehension():
    it = iter(range(6))
    return [(a, b) for a in it for b in it if b % 2], list(it)


@agrees_in_a_frame
def test_min_of_iterator_shared():
    it = iter([3, 1, 2])
    zip_ = list(zip(it, it))
    return zip_, min(iter([3, 1])), max({1: 2, 5: 3}), sum({1: 2}.values())


@agrees_in_a_frame
def test_any_all_stop():
    it = iter([0, 1, 2])
    a = any(it)
    b = list(it)
    jt = iter([1, 0, 2])
    c = all(jt)
    return a, b, c, list(jt)


@agrees_in_a_frame
def test_star_unpack():
    it = iter([1, 2, 3, 4])
    a, *b = it
    c, *d, e = "xyz"
    try:
        f, g, *h = [1]
    except ValueError as x:
        m = str(x)
    try:
        i, j = {1}
    except ValueError as x:
        n = str(x)
    try:
        i, j = 5
    except TypeError as x:
        o = str(x)
    return a, b, c, d, e, m, n, o, list(it)


@agrees_in_a_frame
def test_nested_dict_iteration_changes():
    d = {"a": {"x": 1}}
    out = []
    for k, v in d.items():
        for j in v:
            out.append((k, j))
            v["x"] = 2
    try:
        for k in d:
            d.setdefault(k + "z", {})
    except RuntimeError as e:
        out.append(str(e))
    return out, d


@agrees_in_a_frame
def test_dict_pop_in_list_copy():
    d = {i: i for i in range(5)}
    for k in list(d):
        if k % 2:
            d.pop(k)
    while d:
        k = next(iter(d))
        d.pop(k)
    return d


@agrees_in_a_frame
def test_lru_like():
    d = {}
    for i in range(6):
        d[i] = i
        if len(d) > 3:
            d.pop(next(iter(d)))
    return d


@agrees_in_a_frame
def test_ordered_lru():
    d = collections.OrderedDict()
    for i in range(6):
        d[i % 4] = i
        d.move_to_end(i % 4)
        if len(d) > 3:
            d.popitem(last=False)
    return d, list(reversed(d))


@agrees()
def test_comprehensions_over_groups_whose_old_values_die():
    """Each step ends the group of the one before; at the end the comprehension's own names have no value again."""

    def made(items):
        yield from items

    def f(x, items):
        first = [key for key, group in itertools.groupby(made(items))]
        again = [(key, list(group)) for key, group in itertools.groupby(made(items), str)]
        return x + len(first), first, again

    return f, (torch.ones(2), "aab"), [lambda: (torch.ones(2), "abcc"), lambda: (torch.ones(2), "")]


@agrees()
def test_what_closing_a_generator_returns():
    def f(x):
        def made():
            try:
                yield x
            except GeneratorExit:
                return 5

        begun, fresh, done = made(), made(), made()
        next(begun)
        list(done)
        return x + 1, begun.close(), begun.close(), fresh.close(), done.close()

    return f, (torch.ones(2),)
