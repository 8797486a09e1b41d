"""Attributes of objects: set, deleted, shadowed, computed; slots, descriptors, properties, records, enums."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import weakref
from typing import NamedTuple

import torch

from .kinds import SAME, kind, unsettled

X = torch.tensor([0.5, -1.0])


class Box:
    def __init__(self, **fields):
        self.__dict__.update(fields)


@kind
def setattr_of_an_int():
    o = Box(n=1)

    def f(x):
        return x + o.n

    yield f, (X,)
    o.n = 2
    yield
    o.n = 1
    yield SAME


@kind
def setattr_of_a_float():
    o = Box(n=1.5)

    def f(x):
        return x * o.n

    yield f, (X,)
    o.n = 2.5
    yield
    o.n = 1.5
    yield SAME


@kind
def setattr_of_a_bool_that_steers():
    o = Box(up=True)

    def f(x):
        return x + 1 if o.up else x - 1

    yield f, (X,)
    o.up = False
    yield
    o.up = True
    yield SAME


@kind
def object_setattr():
    class Frozen:
        n = 1

        def __setattr__(self, name, value):
            raise AttributeError(name)

    o = Frozen()
    object.__setattr__(o, "n", 2)

    def f(x):
        return x + o.n

    yield f, (X,)
    object.__setattr__(o, "n", 3)
    yield
    object.__delattr__(o, "n")
    yield


@kind
def instance_dict_written():
    o = Box(n=1)

    def f(x):
        return x + o.n

    yield f, (X,)
    o.__dict__["n"] = 2
    yield
    vars(o)["n"] = 3
    yield
    vars(o).update(n=1)
    yield SAME


@kind
def instance_dict_replaced():
    o = Box(n=1, inner=Box(k=2))

    def f(x):
        return x * o.inner.k + o.n

    first = o.__dict__
    yield f, (X,)
    o.__dict__ = {"n": 5, "inner": Box(k=3)}
    yield
    o.__dict__["n"] = 6
    yield
    o.__dict__ = first
    yield SAME
    first["n"] = 7
    yield


@kind
def instance_dict_shared_by_two_objects():
    a, b = Box(n=1), Box(n=2)

    def f(x):
        a.n = a.n
        return x + a.n * 10 + b.n

    yield f, (X,)
    b.__dict__ = a.__dict__
    yield
    a.n = 4
    yield


@kind
def attribute_deleted_shows_the_class():
    class A:
        n = 1

    o = A()
    o.n = 5

    def f(x):
        return x + o.n

    yield f, (X,)
    del o.n
    yield
    o.n = 5
    yield SAME


@kind
def class_attribute_shadowed_by_the_instance():
    class A:
        n = 1

    o = A()

    def f(x):
        return x + o.n

    yield f, (X,)
    o.n = 4
    yield
    del o.n
    yield SAME
    A.n = 3
    yield


@kind
def attribute_added_for_hasattr():
    o = Box()

    def f(x):
        return x + 1 if hasattr(o, "extra") else x - getattr(o, "other", 3)

    yield f, (X,)
    o.other = 9
    yield
    o.extra = 1
    yield
    del o.extra, o.other
    yield SAME


@kind
def unread_attributes_do_not_count():
    o = Box(n=1, other=2, words="a")

    def f(x):
        return x + o.n

    yield f, (X,)
    o.other, o.words, o.more = 3, "b", [1]
    yield SAME
    del o.other
    yield SAME


@kind
def a_class_attribute_nobody_reads():
    class A:
        n = 1

        def go(self, x):
            return x + self.n

    o = A()

    def f(x):
        return o.go(x)

    yield f, (X,)
    A.unread = 3
    yield SAME
    A.unread = 4
    yield SAME
    A.n = 5
    yield


@kind
def nested_objects():
    o = Box(a=Box(b=Box(c=Box(n=1))))

    def f(x):
        return x + o.a.b.c.n

    yield f, (X,)
    o.a.b.c.n = 2
    yield
    o.a.b.c = Box(n=3)
    yield
    o.a = Box(b=Box(c=Box(n=1)))
    yield


@kind
def simple_namespace():
    o = types.SimpleNamespace(n=1, deep=types.SimpleNamespace(k=2))

    def f(x):
        return x * o.n + o.deep.k

    yield f, (X,)
    o.deep.k = 5
    yield
    o.__dict__.clear()
    o.__dict__.update(n=3, deep=types.SimpleNamespace(k=1))
    yield


@kind
def slots():
    class A:
        __slots__ = ("k", "n")

    o = A()
    o.n, o.k = 1, 2.5

    def f(x):
        return x * o.k + o.n

    yield f, (X,)
    o.n = 2
    yield
    A.k.__set__(o, 4.5)
    yield
    o.n, o.k = 1, 2.5
    yield SAME
    del o.n
    yield


@kind
def slot_shadowed_by_a_property():
    class A:
        __slots__ = ("n",)

    class B(A):
        __slots__ = ()

    o = B()
    o.n = 1

    def f(x):
        return x + o.n

    yield f, (X,)
    B.n = property(lambda self: 9)
    yield
    del B.n
    yield SAME


@kind
def slots_of_two_names_swapped():
    class A:
        __slots__ = ("k", "n")

    o = A()
    o.n, o.k = 1, 2

    def f(x):
        return x * o.k + o.n

    first = A.n, A.k
    yield f, (X,)
    A.n, A.k = A.k, A.n
    yield
    A.n, A.k = first
    yield


@kind
def data_descriptor_over_an_instance_attribute():
    class Constant:
        def __get__(self, instance, owner):
            return 10

        def __set__(self, instance, value):
            raise AttributeError

    class A:
        pass

    o = A()
    o.n = 1

    def f(x):
        return x + o.n

    yield f, (X,)
    A.n = Constant()
    yield
    del A.n
    yield


@kind
def non_data_descriptor_becomes_data():
    class Plain:
        def __get__(self, instance, owner):
            return 10

    class A:
        n = Plain()

    o = A()
    o.__dict__["n"] = 1

    def f(x):
        return x + o.n

    yield f, (X,)
    Plain.__set__ = lambda self, instance, value: None
    yield
    del Plain.__set__
    yield SAME


@kind
def descriptors_swapped():
    class Gives:
        def __init__(self, n):
            self.n = n

        def __get__(self, instance, owner):
            return self.n

    class A:
        a, b = Gives(1), Gives(2)

    o = A()

    def f(x):
        return x * o.a + o.b

    yield f, (X,)
    A.a, A.b = A.__dict__["b"], A.__dict__["a"]
    yield
    A.__dict__["a"].n = 7
    yield
    Gives.__get__ = lambda self, instance, owner: 3
    yield
    del Gives.__get__
    yield


@kind
def descriptor_that_comes_after():
    class Later:
        n = 3

    class A:
        value = Later()

    o = A()

    def f(x):
        return x + o.value.n if hasattr(o.value, "n") else x - o.value

    yield f, (X,)
    Later.__get__ = lambda self, instance, owner: 5
    yield
    del Later.__get__
    yield


@kind
def property_replaced():
    class A:
        n = 2

        @property
        def double(self):
            return self.n * 2

    class B(A):
        pass

    o = B()

    def f(x):
        return x + o.double

    yield f, (X,)
    before = A.__dict__["double"]
    A.double = property(lambda self: self.n * 3)
    yield
    B.double = 7
    yield
    del B.double
    A.double = before
    yield SAME
    o.n = 5
    yield


@kind
def property_with_another_getter():
    class A:
        @property
        def n(self):
            return 1

    o = A()

    def f(x):
        return x + o.n

    yield f, (X,)
    A.__dict__["n"].__init__(lambda self: 5)
    yield
    A.__dict__["n"].fget.__code__ = (lambda self: 8).__code__
    yield


@unsettled
def cached_property():
    class A:
        n = 2

        @functools.cached_property
        def twice(self):
            return self.n * 2

    o = A()

    def f(x):
        return x + o.twice

    yield f, (X,)
    o.__dict__["twice"] = 9
    yield
    del o.__dict__["twice"]
    o.n = 7
    yield
    A.twice = 3
    yield


@kind
def getattr_added_later():
    class A:
        pass

    o = A()

    def f(x):
        return x + getattr(o, "n", 1)

    yield f, (X,)
    A.__getattr__ = lambda self, name: 5
    yield
    A.__getattr__ = lambda self, name: len(name)
    yield
    o.n = 4
    yield
    del A.__getattr__, o.n
    yield SAME


@kind
def getattribute_added_later():
    class A:
        n = 1

    o = A()

    def f(x):
        return x + o.n

    yield f, (X,)
    A.__getattribute__ = lambda self, name: 5
    yield
    del A.__getattribute__
    yield SAME


@kind
def attribute_behind_getattr():
    class Proxy:
        def __init__(self, inner):
            self.__dict__["inner"] = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

    o = Proxy(Box(n=1))

    def f(x):
        return x + o.n

    yield f, (X,)
    o.inner.n = 2
    yield
    o.__dict__["n"] = 7
    yield
    del o.__dict__["n"]
    o.__dict__["inner"] = Box(n=1)
    yield


@kind
def class_assigned():
    class A:
        def go(self, x):
            return x + 1

    class B:
        def go(self, x):
            return x * 5

    o = A()

    def f(x):
        return o.go(x), type(o).__name__

    yield f, (X,)
    o.__class__ = B
    yield
    o.__class__ = A
    yield SAME


@kind
def dataclass_fields():
    @dataclasses.dataclass
    class Point:
        a: int
        b: float = 2.0

    p = Point(1)

    def f(x):
        return x * p.b + p.a, p == Point(1)

    yield f, (X,)
    p.a = 3
    yield
    p.b = 4.0
    yield
    p.a, p.b = 1, 2.0
    yield
    Point.__eq__ = lambda self, other: "patched"
    yield


@kind
def frozen_dataclass_forced():
    @dataclasses.dataclass(frozen=True)
    class Point:
        a: int

    p = Point(1)

    def f(x):
        return x + p.a

    yield f, (X,)
    object.__setattr__(p, "a", 5)
    yield
    object.__setattr__(p, "a", 1)
    yield SAME


@kind
def dataclass_default_of_the_class():
    @dataclasses.dataclass
    class Point:
        a: int = 1

    def f(x):
        return x + Point().a

    yield f, (X,)
    Point.__init__.__defaults__ = (5,)
    yield
    Point.a = 7
    yield
    Point.__init__ = lambda self: None
    yield


@kind
def dataclass_field_table():
    @dataclasses.dataclass
    class Point:
        a: int = 1
        b: int = 2

    p = Point()

    def f(x):
        for field in dataclasses.fields(p):
            x = x * 2 + getattr(p, field.name)
        return x

    yield f, (X,)
    del Point.__dataclass_fields__["b"]
    yield


@kind
def named_tuple_class_patched():
    class Pair(NamedTuple):
        a: int
        b: int

        def both(self):
            return self.a + self.b

    p = Pair(1, 2)

    def f(x):
        return x * p.a + p.b + p.both()

    first = Pair.__dict__["a"]
    yield f, (X,)
    Pair.both = lambda self: 9
    yield
    Pair.a = property(lambda self: 50)
    yield
    Pair.a = first
    yield SAME


@kind
def named_tuple_replaced():
    class Pair(NamedTuple):
        a: int
        b: object

    o = Box(p=Pair(1, [2]))

    def f(x):
        return x * o.p.a + o.p.b[0]

    yield f, (X,)
    o.p = o.p._replace(a=4)
    yield
    o.p.b[0] = 5
    yield
    o.p = (4, [5])
    yield


@kind
def enum_members():
    class Mode(enum.Enum):
        UP = 1
        DOWN = 2

    o = Box(mode=Mode.UP)

    def f(x):
        return x + 1 if o.mode is Mode.UP else x - o.mode.value

    yield f, (X,)
    o.mode = Mode.DOWN
    yield
    Mode.DOWN._value_ = 9
    yield
    o.mode = Mode.UP
    yield SAME


@kind
def enum_value_patched():
    class Mode(enum.IntEnum):
        A = 1

    def f(x):
        return x + Mode.A.value

    yield f, (X,)
    Mode.A._value_ = 5
    yield
    Mode.A.extra = 3
    yield SAME


@kind
def enum_by_value_and_name():
    class Mode(enum.Enum):
        A = 1
        B = 2

    def f(x):
        return x + Mode(1).value * 10 + Mode["B"].value + len(Mode)

    yield f, (X,)
    Mode._value2member_map_[1] = Mode.B
    yield
    Mode._member_map_["B"] = Mode.A
    yield
    Mode._member_names_.append("A")
    yield


@kind
def flag_values():
    class Flag(enum.Flag):
        A = 1
        B = 2

    o = Box(flag=Flag.A)

    def f(x):
        if Flag.A in o.flag:
            x = x + 1
        return x * 2 if Flag.B in o.flag else x

    yield f, (X,)
    o.flag = Flag.A | Flag.B
    yield
    o.flag = Flag(0)
    yield
    o.flag = Flag.A
    yield SAME


@kind
def weakly_held():
    class A:
        n = 1

    first, second = A(), A()
    second.n = 5
    o = Box(ref=weakref.ref(first))

    def f(x):
        target = o.ref()
        return x - 1 if target is None else x + target.n

    yield f, (X,)
    first.n = 3
    yield
    o.ref = weakref.ref(second)
    yield
    del second
    yield


@kind
def weak_value_dictionary():
    class A:
        n = 2

    a = A()
    table = weakref.WeakValueDictionary(k=a)

    def f(x):
        found = table.get("k")
        return x if found is None else x + found.n

    yield f, (X,)
    a.n = 4
    yield
    del a
    yield


@kind
def attribute_table_walked():
    o = Box(a=1, b=2)

    def f(x):
        for name, value in vars(o).items():
            x = x * 2 + value + len(name)
        return x

    yield f, (X,)
    o.b = 5
    yield
    o.long = 1
    yield
    del o.a
    o.a = 1
    yield


@unsettled
def counter_attribute_of_the_program():
    o = Box(calls=0)

    def f(x):
        o.calls += 1
        return x + o.calls

    yield f, (X,)
    o.calls = 100
    yield
    o.calls = True
    yield
    o.calls = 1.5
    yield


@kind
def attribute_object_becomes_a_number():
    o = Box(part=Box(n=1))

    def f(x):
        return x + o.part.n if isinstance(o.part, Box) else x * o.part

    yield f, (X,)
    o.part = 3
    yield
    o.part = Box(n=1)
    yield


@kind
def same_object_at_two_places():
    one, other = Box(n=1), Box(n=1)
    o = Box(a=one, b=other)

    def f(x):
        return x + 1 if o.a is o.b else x - o.a.n

    yield f, (X,)
    o.b = one
    yield
    o.b = other
    yield SAME


@kind
def setattr_patched():
    class A:
        pass

    o = A()

    def f(x):
        o.n = 3
        return x + o.__dict__.get("n", 10)

    yield f, (X,)
    A.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value * 2)
    yield
    del A.__setattr__
    yield


@kind
def delattr_patched():
    class A:
        n = 1

    o = A()

    def f(x):
        o.n = 3
        del o.n
        return x + o.n

    yield f, (X,)
    A.__delattr__ = lambda self, name: None
    yield
    del A.__delattr__
    yield


@kind
def dir_and_slots_of_a_subclass():
    class A:
        __slots__ = ("n",)

    class B(A):
        pass

    o = B()
    o.n, o.free = 1, 2

    def f(x):
        return x * o.n + o.free

    yield f, (X,)
    o.free = 5
    yield
    o.n = 4
    yield


@unsettled
def generator_of_the_caller():
    state = Box(n=0)

    def f(x, it):
        return x + next(it)

    def numbers():
        while True:
            state.n += 1
            yield state.n

    it = numbers()
    yield f, (X, it)
    state.n = 10
    yield
    yield X, iter([1, 2, 3])
    yield X, iter((7, 8))
