"""What CPython's own tests (tests/cpython) found to differ, each cause as a small program."""

from __future__ import annotations

import abc
import collections
import collections.abc
import enum
import gc
import itertools
import re
import types

import graftjit
from graftjit.capture.values import containers

from ..harness import agrees, t


class Hashed:
    """A key whose hash and equality are the program's, and are noticed."""

    def __init__(self, number, noticed):
        self.number, self.noticed = number, noticed

    def __hash__(self):
        self.noticed.append("hash")
        return self.number

    def __eq__(self, other):
        self.noticed.append("eq")
        return self is other


# -- dicts -------------------------------------------------------------------------------------------------
@agrees(calls=2)
def test_ordered_dict_is_written_and_then_found_to_have_keys_of_a_class():
    noticed = []
    key = Hashed(1, noticed)
    held = collections.OrderedDict([(key, 1), (Hashed(1, noticed), 2)])

    def f(x):
        held["after"] = x + 1
        held.pop(key, None)
        return x * 2, list(held.values()), len(noticed)

    return f, (t(2),), [lambda: noticed.clear()]


@agrees()
def test_ordered_dict_that_gets_a_key_of_a_class_is_not_asked_by_guards():
    noticed = []
    held = collections.OrderedDict(a=1, b=2)

    def f(x):
        before = list(noticed)
        return x + 1, before, list(held.values())

    def another(key):
        del held["a" if "a" in held else next(iter(held))]
        held[key] = 3
        noticed.clear()

    steps = [lambda: another("c"), lambda: another("b") or another(Hashed(1, noticed))]
    return f, (t(2),), steps


@agrees(calls=2)
def test_ordered_dict_whose_key_has_another_hash_by_now():
    noticed = []
    key = Hashed(1, noticed)
    held = collections.OrderedDict([(key, 1)])

    def f(x):
        y = x + 1
        key.number = 5
        try:
            found = list(held.values())
        except KeyError:
            found = "gone"
        key.number = 1
        return y, found

    return f, (t(2),)


@agrees(calls=2)
def test_fromkeys_of_a_class_that_makes_its_instances_itself():
    noticed = []

    class Kept(dict):
        def __new__(cls):
            noticed.append("made")
            return held

    held = {}

    def f(x):
        nonlocal held
        held = {i: i for i in range(3)}
        made = Kept.fromkeys(["a"])
        return x + 1, made, made is held, list(noticed)

    return f, (t(2),), [lambda: noticed.clear()]


@agrees(codes=())
def test_what_builtin_types_make_of_constants():
    def f(x):
        table = str.maketrans("ab", "ba")
        return (
            x + 1,
            "abc".translate(table),
            bytes.fromhex("0a"),
            int.from_bytes(b"\x01\x00", "big"),
        )

    return f, (t(2),)


def test_a_deque_of_the_frame_is_not_read_at_each_step(monkeypatch):
    read = []
    whole = containers.sequence_item
    monkeypatch.setattr(containers, "sequence_item", lambda *args: read.append(1) or whole(*args))

    def f(x):
        held = collections.deque()
        for i in range(200):
            held.appendleft(i)
        return x + 1, sum(held)

    assert graftjit.jit(f)(t(2))[1] == f(t(2))[1]
    assert len(read) < 2000


@agrees(codes=())
def test_merged_with_an_ordered_dict():
    plain, ordered = {1: 2}, collections.OrderedDict(a=1)

    def f(x):
        other = ordered
        other |= {"b": x + 1}
        return plain | ordered, ordered | plain, other is ordered

    return f, (t(2),)


# -- classes -----------------------------------------------------------------------------------------------
@agrees(calls=2)
def test_abstract_class_with_a_hook_of_the_programs():
    noticed = []

    class Abstract(abc.ABC):
        @classmethod
        def __subclasshook__(cls, other):
            noticed.append(other.__name__)
            return hasattr(other, "mark") or NotImplemented

    class Derived(collections.abc.Sized):
        @classmethod
        def __subclasshook__(cls, other):
            noticed.append("derived")
            return NotImplemented

    class One:
        mark = 1

    class Two:
        pass

    one, two = One(), Two()

    def f(x):
        y = x + 1
        return (
            y,
            isinstance(one, Abstract),
            issubclass(Two, Abstract),
            isinstance(two, collections.abc.Sized),
            noticed,
            Derived.__name__,  # which keeps it alive
        )

    return f, (t(2),)  # fmt: skip


@agrees()
def test_unions_and_tuples_of_classes():
    deep = int
    for _ in range(20):
        deep = (deep,)

    def f(x):
        y, said = x + 1, [isinstance(1, int | str), isinstance(None, int | None)]
        for kind in (int | list[int], deep):
            try:
                said.append(isinstance(1, kind))
            except TypeError:
                said.append("no")
        return y, said

    return f, (t(2),)


@agrees()
def test_parts_of_a_slice_are_themselves():
    parts = [1], {2: 3}

    def f(x, at):
        return x + 1, at.start is parts[0], at.stop is parts[1], at.start

    return f, (t(2), slice(*parts))


@agrees(codes=())
def test_abstract_classes_of_the_library():
    def f(x, held):
        asked = (collections.abc.Iterable, collections.abc.Mapping, collections.abc.Hashable)
        return x + 1, [isinstance(held, one) for one in asked]

    return f, (t(2), {}), [lambda: (t(2), [1]), lambda: (t(2), (1,))]


@agrees()
def test_super_without_a_first_argument():
    class Base:
        def m(self):
            return 1

    class Derived(Base):
        def n(*args):
            y = args[1] + 1
            try:
                return super().m()
            except RuntimeError as error:
                return str(error), y

        def gone(self, x):
            y = x * 2
            del self
            try:
                return super().m()
            except RuntimeError as error:
                return str(error), y

    one = Derived()

    def f(x):
        return x + 1, one.n(x), one.gone(x)

    return f, (t(2),)


@agrees()
def test_super_finds_a_static_method_of_a_metaclass():
    made = []

    class Meta(type):
        def __new__(mcls, name, bases, ns):
            made.append("Meta")
            return super().__new__(mcls, name, bases, ns)

        @staticmethod
        def noticed(x):
            return x * 2

    class Derived(Meta):
        def __new__(mcls, name, bases, ns):
            made.append("Derived")
            return super().__new__(mcls, name, bases, ns)

        def noticed(cls, x):
            y = super().noticed
            print(y.__name__)
            return y(x)

    def f(x):
        made.clear()
        cls = types.new_class("B", (), {"metaclass": Derived})
        return x + 1, list(made), type(cls).__name__, cls.noticed(x)

    return f, (t(2),)


@agrees(calls=2)
def test_names_beside_keys_with_an_equality():
    class Key:
        def __hash__(self):
            return hash("attr")

        def __eq__(self, other):
            noticed.append(other)
            return False

    class Base:
        attr = 5

    noticed = []

    def f(x):
        derived, held = type("Derived", (Base,), {Key(): 1}), Base()
        held.__dict__[Key()] = 2
        found = x + 1, derived.attr, held.attr
        held.attr = 3
        return found, held.attr, len(noticed) > 0

    return f, (t(2),)


@agrees(calls=2)
def test_what_a_frame_made_goes():
    def f(x):
        gone = []
        module = types.ModuleType("foo")
        module.gone = gone
        y = x + 1
        source = "class A:\n    def __del__(self):\n        gone.append(1)\na = A()"
        exec(source, module.__dict__)
        del module
        gc.collect()
        return y, gone

    return f, (t(2),)


@agrees()
def test_members_whose_values_have_a_class():
    class Hex(int):
        def __repr__(self):
            return hex(self)

    class E(Hex, enum.Enum):
        A = 7

    def f(x):
        return x + 1, E(7) is E.A

    return f, (t(2),)


@agrees()
def test_a_record_with_a_new_of_its_own():
    class Pair(tuple):
        _fields = ("a", "b")

        def __new__(cls, a, b):
            return tuple.__new__(cls, (b, a))

    Pair.__new__.__module__ = "namedtuples"

    def f(x):
        return x + 1, list(Pair(1, 2))

    return f, (t(2),)


@agrees(calls=2)
def test_an_init_that_gives_something():
    class Gives:
        def __init__(self, what):
            self.what = what
            return what  # noqa: PLE0101

    class Failed(ValueError):
        def __init__(self):
            return 3  # noqa: PLE0101

    def f(x, what):
        try:
            return x + 1, Gives(what).what
        except TypeError as error:
            text = str(error)
        try:
            raise Failed
        except TypeError as error:
            return x * 2, text, str(error)

    return f, (t(2), None), [lambda: (t(2), 3)]


@agrees()
def test_attributes_of_classes_are_not_set_by_object():
    class Own:
        pass

    def f(x):
        y, text = x + 1, []
        for cls in (str, Own):
            try:
                object.__setattr__(cls, "mine", 42)
            except TypeError as error:
                text.append(str(error))
        return y, text, hasattr(Own, "mine")

    return f, (t(2),)


@agrees()
def test_keywords_that_builtins_do_not_take():
    def f(x):
        y, said = x + 1, []
        for call in (lambda: int(x=1), lambda: bool(x=2), lambda: set(x=3), lambda: next(iter=4)):
            try:
                call()
            except TypeError:
                said.append("no")
        return y, said, int("11", base=2), min([], default=3), str(object=5)

    return f, (t(2),)


# -- truth, iterators, sorting -----------------------------------------------------------------------------
@agrees()
def test_truth_of_not_implemented():
    def f(x):
        return x + 1, 1 if NotImplemented else 2

    return f, (t(2),)


@agrees()
def test_iterators_that_leave_without_a_form():
    held = collections.deque([1, 2])

    class Seq:
        def __len__(self):
            return 2

        def __getitem__(self, at):
            return at

    def f(x):
        made = collections.deque([1, 2])
        both = iter(made), reversed(Seq())
        y = x + 1
        print(len(held))
        return [(type(one).__name__, list(one)) for one in both], y

    return f, (t(2),)


@agrees()
def test_tee_of_tee_and_of_what_copies_itself():
    class Copied:
        def __init__(self, at=0):
            self.at = at

        def __iter__(self):
            return self

        def __next__(self):
            self.at += 1
            if self.at > 3:
                raise StopIteration
            return self.at

        def __copy__(self):
            return Copied(self.at)

    def f(x):
        a, b = itertools.tee([1, 2, 3])
        c, d = itertools.tee(a)
        first = Copied()
        e, g = itertools.tee(first)
        got = next(c), next(e), list(a), list(b), list(d), list(g), list(e), first.at
        try:
            itertools.tee([], -1)
        except ValueError as error:
            return x + 1, got, str(error)

    return f, (t(2),)


@agrees(codes=())
def test_lengths_that_lists_ask_for():
    noticed = []

    class Sized:
        def __init__(self, fails):
            self.fails = fails

        def __iter__(self):
            noticed.append("iter")
            return iter((1, 2))

        def __len__(self):
            noticed.append("len")
            if self.fails:
                raise TypeError
            return 2

        def __length_hint__(self):
            noticed.append("hint")
            return NotImplemented

    def f(x, of):
        noticed.clear()
        made = [*of], list(of), tuple(of), sorted(of), (*of,), max(of), sum(of)
        first, *rest = of
        made[0].extend(of)
        made[0].extend(iter(of))
        return x + 1, made, rest, noticed

    return f, (t(2), Sized(False)), [lambda: (t(2), Sized(True))]


@agrees()
def test_list_changed_while_it_is_sorted():
    def f(x, at):
        held, added = [3, 1, 2], [3, 1, 2]

        def key(item):
            if at:
                added.append(item)
                added.pop()
            return -item

        try:
            held.sort(key=lambda item: held.append(7) or item)
        except ValueError as error:
            text = str(error)
        try:
            added.sort(key=key)
        except ValueError as error:
            text += str(error)
        return x + 1, held, added, text

    return f, (t(2), 0), [lambda: (t(2), 1)]


# -- functions and their globals ---------------------------------------------------------------------------
@agrees()
def test_globals_that_are_changed_as_a_dict():
    def f(x):
        names = {"__builtins__": __builtins__}
        made = types.FunctionType((lambda: later).__code__, names)  # noqa: F821
        names["later"] = x + 1
        names.pop("__builtins__")
        return made(), x * 2

    return f, (t(2),)


@agrees()
def test_namespace_of_made_code():
    source = "later = 2\ndef foo():\n    outer = 1\n    return lambda: outer"

    def f(x):
        names = {}
        exec(source, names)
        foo = names.pop("foo")
        assert foo().__closure__ is not None
        return foo()(), names["later"], x + 1

    return f, (t(2),)


@agrees()
def test_cells_that_are_emptied_and_compared():
    def made(*values):
        a = 1
        if not values:
            del a
        else:
            a = values[0]
        return (lambda: a).__closure__[0]

    def f(x):
        a = 12
        c = (lambda: a).__closure__
        y = x + 1
        del c[0].cell_contents
        print(1)
        try:
            print(a)
        except NameError as error:
            text = type(error).__name__, str(error)
        return y, text, made() == made(), made() < made(2), made(2) == made(2), made(2) > made(3)

    return f, (t(2),)


@agrees()
def test_a_c_method_with_a_defining_class_is_alive_at_a_break():
    def f(x):
        match, y = re.compile("a").match, x + 1
        print(1)
        return y, match("ab").span()

    return f, (t(2),)


@agrees()
def test_generic_aliases_of_other_classes():
    def f(x, cls):
        return x + 1, type(cls[int]).__name__, list[int]

    return f, (t(2), re.Pattern), [lambda: (t(2), collections.deque), lambda: (t(2), dict)]


class Bound:
    def __init__(self, inner):
        self.inner = inner

    def __call__(self):
        return self.inner()


class Binds:
    def __init__(self, inner):
        self.inner = inner

    def __get__(self, instance, cls):
        return Bound(self.inner.__get__(instance, cls))


class WithBound:
    @classmethod
    @Binds
    def name(cls):
        return cls.__name__


@agrees(calls=2)
def test_class_method_around_what_binds_by_itself():
    def f(x):
        return x + 1, WithBound.name(), WithBound().name()

    return f, (t(2),)
