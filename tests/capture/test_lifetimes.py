"""When objects end: finalizers and weak references see each object die where plain Python lets it die."""

from __future__ import annotations

import collections
import contextlib
import gc
import weakref

import pytest
import torch

import graftjit

from .harness import agrees, t


class Loud:
    def __init__(s, n):
        s.n = n

    def __del__(s):
        print("gone", s.n)


class Holder:
    def __init__(s):
        s.items = []
        s.a = None


@agrees()
def test_lists():
    def f(x, h):
        h.items = [Loud(1), Loud(2)]
        print("made")
        h.items.pop()
        print("popped")
        h.items = None
        print("cleared")
        return x + 1

    return f, (torch.ones(1), Holder()), [lambda: (torch.ones(1), Holder())] * 2


@agrees()
def test_attributes():
    def f(x, h):
        h.a = Loud(3)
        y = x * 2
        h.a = Loud(4)
        print("replaced")
        y = y + 1
        h.a = None
        print("none")
        return y

    return f, (torch.ones(1), Holder()), [lambda: (torch.ones(1), Holder())] * 2


@agrees()
def test_locals_and_loops():
    def f(x, h):
        a = Loud(5)
        b = [a]
        del a
        print("held")
        y = x + len(b)
        b = None
        print("dropped")
        for i in range(2):
            c = Loud(6 + i)
            y = y * 2
        print("loop")
        return y

    return f, (torch.ones(1), Holder()), [lambda: (torch.ones(1), Holder())] * 2


@agrees()
def test_callees_and_handlers():
    def f(x, h):
        def inner(z):
            t = Loud(10)
            return z + 1

        y = inner(x)
        print("inner done")
        try:
            u = Loud(11)
            raise ValueError("e")
        except ValueError as e:
            print("caught")
        u = 1
        print("end")
        return y

    return f, (torch.ones(1), Holder()), [lambda: (torch.ones(1), Holder())] * 2


@agrees()
def test_generators_and_stacks():
    def f(x, h):
        g = (Loud(20 + i).n for i in range(2))
        print(list(g))
        with contextlib.ExitStack() as s:
            s.callback(print, "cb")
            k = Loud(30)
            y = x + k.n
        k = None
        print("z")
        return y

    return f, (torch.ones(1), Holder()), [lambda: (torch.ones(1), Holder())] * 2


@agrees()
def test_weak_references():
    def f(x, h):
        h.items.append(Loud(40))
        h.w = weakref.ref(h.items[0])
        y = x + h.w().n
        h.items.clear()
        print(h.w() is None)
        return y

    return f, (torch.ones(1), Holder()), [lambda: (torch.ones(1), Holder())] * 2


@agrees()
def test_dicts():
    def f(x, h):
        d = {"a": Loud(50)}
        y = x + d["a"].n
        d["a"] = Loud(51)
        print("over")
        d.pop("a")
        print("pop")
        return y

    return f, (torch.ones(1), Holder()), [lambda: (torch.ones(1), Holder())] * 2


@agrees()
def test_ends_among_effects():
    """What a finalizer writes stands where the object ends, between what is written before and after."""
    log = []

    class Wrote:
        def __init__(s, n):
            s.n = n

        def __del__(s):
            log.append(s.n)

    def waiting():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    def use(w):
        log.append("using")
        return w.n

    def f(x, h):
        Wrote("read").n
        log.append("a")
        y = x + len(Wrote([1]).n)
        log.append("b")
        w = Wrote("first")
        w = Wrote("second")
        log.append("c")
        use(w)
        del w
        log.append("d")
        h.items = [Wrote("item")]
        v = h.items
        h.items = None
        log.append("e")
        v = 5
        log.append("f")
        g = waiting()
        next(g)
        print("between")
        g = None
        log.append("g")
        z = [Wrote(n) for n in range(2)]
        log.append("h")
        z = z[0]
        log.append("i")
        use(Wrote("handed in"))
        log.append("j")
        return y * v

    return f, (torch.ones(1), Holder()), [lambda: (torch.ones(1), Holder())] * 2


class Kept:
    def __init__(self, n):
        self.n = n


@agrees()
def test_what_a_break_makes_weak_references_to_lives_as_long_as_its_frame():
    """The locals that hold it are read no more: Python keeps them all the same."""

    def f(x):
        alone, inner, held, fn = Kept(2), Kept(3), {"a": [Kept(4)]}, lambda: 5
        some, tensor = {1, 2}, x + 1
        refs = [weakref.ref(alone), weakref.ref(inner), weakref.ref(held["a"][0]), weakref.ref(fn)]
        refs += [weakref.ref(some), weakref.ref(tensor)]
        y = x * 2
        print("between")
        living = [ref() is not None for ref in refs]
        return y * refs[0]().n + refs[1]().n, living, refs[3]()(), len(refs[4]())

    return f, (torch.ones(2),)


WATCHED = {}


def watched():
    found = Kept(3)
    WATCHED["one"] = weakref.ref(found)
    return found


def first(found, _):
    return found.n


@agrees()
def test_what_waited_on_the_stack_during_a_break_ends_with_its_call():
    def f(x):
        y = x * first(watched(), gc.get_threshold())
        gone = WATCHED["one"]() is None
        z = x * (watched(), gc.get_threshold())[0].n
        return y + z, gone, WATCHED["one"]() is None

    return f, (torch.ones(2),)


@agrees()
def test_what_is_stored_outside_and_dropped_there():
    def drop(h):
        h.refs = [weakref.ref(h.item)]
        h.item = None

    def f(x, h):
        mine = Kept(2)
        h.item = mine
        print("before")
        drop(h)
        y = x * 2
        print("between")
        return y, h.refs[0]() is None

    return f, (torch.ones(2), Kept(0))


@agrees(breaks=0)
def test_references_to_what_the_frame_holds():
    layer = torch.nn.LSTM(3, 4)

    def f(x, box):
        kept = box["a"]
        box["a"] = None
        del kept
        return layer(x)[0]

    return f, (t(2, 5, 3), {"a": Holder()}), [lambda: (t(2, 5, 3), {"a": Holder()})] * 2


@agrees()
def test_references_to_what_the_frame_lets_go():
    class Box:
        pass

    def f(x, box):
        ref = box.refs[0]
        alive = ref() is not None
        box.held["a"] = None
        return x * 2, alive, ref() is None

    def made():
        box = Box()
        box.held = {"a": Box()}
        box.refs = [weakref.ref(box.held["a"])]
        return t(3), box

    return f, made(), [lambda: made(), lambda: made()]


@agrees(codes=("GB106", "GB104", "GB106", "PL204"))
def test_a_packed_sequence():
    layer = torch.nn.LSTM(3, 4, batch_first=True)

    def f(x, sizes):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, sizes, batch_first=True)
        out, (h, c) = layer(packed)
        return *torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True), h, c

    return f, (t(2, 5, 3), torch.tensor([5, 3]))


class Watch:
    """Holds no object, and says when one has ended."""

    def __init__(s):
        s.watched = {}

    def put(s, one):
        s.watched[1] = weakref.ref(one, lambda _: s.watched.pop(1, None))
        return one + 1

    def put_deep(s, one):
        return s.put(one) * 2


@agrees()
def test_a_local_that_an_inlined_function_hands_to_python():
    def f(x):
        watch = Watch()
        a, b = x * 2, x * 3
        c = watch.put(a)
        alive = [len(watch.watched)]
        d = watch.put_deep(b)
        alive.append(len(watch.watched))
        return alive, c + d

    return f, (t(3),), [lambda: (t(3),)] * 2


@agrees()
def test_a_watched_tensor_that_a_local_drops():
    def f(x):
        watch, other = Watch(), Watch()
        a, b = x * 2, x * 3
        c = watch.put(a) + other.put(b)
        alive = [len(watch.watched), len(other.watched)]
        a = c
        alive += [len(watch.watched), len(other.watched)]
        del b
        alive += [len(watch.watched), len(other.watched)]
        return alive, a

    return f, (t(3),), [lambda: (t(3),)] * 2


def handed_on(x, thing):
    return thing


def caught_on_the_way(x, thing):
    try:
        raise ValueError(thing)
    except ValueError:
        return thing


@pytest.mark.parametrize("fn", [handed_on, caught_on_the_way])
def test_a_capture_keeps_no_argument(fn):
    run = graftjit.jit(fn)
    gc.disable()
    try:
        for _ in range(3):
            thing = Kept(1)
            found = weakref.ref(thing)
            run(torch.ones(2), thing)
            del thing
            assert found() is None
    finally:
        gc.enable()


class Counted:
    ends = 0

    def __del__(self):
        Counted.ends += 1


class CountedStorage(torch.UntypedStorage):
    def __del__(self):
        Counted.ends += 1


def with_an_attribute():
    x = t(3)
    x.held = Counted()
    return x


def with_a_storage():
    return torch.tensor(CountedStorage(12))


def with_an_attribute_of_its_storage():
    x = t(3)
    x.untyped_storage().held = Counted()
    return x


def in_a_list():
    return [with_an_attribute(), t(2)]


def drops(make):
    one = make()
    gc.get_threshold()
    parts = len(one)
    del one
    return Counted.ends, parts


@pytest.mark.parametrize(
    "make",
    [with_an_attribute, with_a_storage, with_an_attribute_of_its_storage, in_a_list],
)
def test_what_ends_with_a_tensor(make):
    run = graftjit.jit(drops)
    found = []
    for fn in (drops, run):
        Counted.ends = 0
        found.append([fn(make) for _ in range(3)])
    assert found[0][0][0] == 1
    assert found[0] == found[1]


# -- objects that guards know by identity ------------------------------------------------------------------
class Key:
    pass


KNOWN_BY_IDENTITY = {
    "the steps over a dict": lambda d, k, x: sum(d[each] * x for each in d),
    "the items of a dict": lambda d, k, x: (x + 1, list(d.items())),
    "values of a dict": lambda d, k, x: x + sum(d.values()),
    "a key of a dict": lambda d, k, x: x + d[k],
    "a key that a dict has": lambda d, k, x: x + (k in d),
    "a key that a dict lacks": lambda d, k, x: x + d.get(7, 2) + ("key" in d),
    "a dict that is written": lambda d, k, x: d.update(new=1) or x + d[k],
    "a copy of a dict": lambda d, k, x: (x + 1, dict(d)),
    "an element of a set": lambda d, k, x: x + (k in set(d)),
}


@pytest.mark.parametrize("program", KNOWN_BY_IDENTITY.values(), ids=KNOWN_BY_IDENTITY)
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_an_entry_keeps_no_key_of_a_dict_alive(program, kind):
    run = graftjit.jit(program)
    for make in (Key, lambda: t(2), torch.nn.ReLU, lambda: type("K", (), {})):
        key = make()
        end, held = weakref.ref(key), kind([(key, 2)])
        wanted = program(kind(held), key, torch.ones(2))
        for _ in range(2):
            found = run(held, key, torch.ones(2))
            assert str(found) == str(wanted)
        del key, held, found, wanted
        gc.collect()
        assert end() is None


def test_a_key_of_a_dict_that_is_a_weak_reference_of_the_programs():
    class Named(weakref.ref):
        __slots__ = ("__weakref__",)

    of = Key()
    for kind in (weakref.ref, weakref.KeyedRef, Named):
        key = kind(of, None, "name") if kind is weakref.KeyedRef else kind(of)
        held = {key: 2}
        run = graftjit.jit(lambda x, held: (x + len(list(held)), list(held)))
        for _ in range(2):
            assert run(torch.ones(2), held)[1][0] is key
        assert run.report().recompile_count == 0
