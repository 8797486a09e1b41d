"""Classes changed under their instances: methods, special methods, bases, metaclasses, `super`, checks of kinds."""

from __future__ import annotations

import abc
import collections.abc
import typing

import torch

from .kinds import SAME, kind, unsettled
from .objects import Box

X = torch.tensor([0.5, -1.0])


@kind
def method_patched_on_the_class():
    class A:
        def go(self, x):
            return x + 1

    a = A()

    def f(x):
        return a.go(x)

    first = A.go
    yield f, (X,)
    A.go = lambda self, x: x * 3
    yield
    A.go = torch.Tensor.sin
    A.go = lambda self, x: x.sin()
    yield
    A.go = first
    yield SAME


@kind
def method_patched_on_the_instance():
    class A:
        def go(self, x):
            return x + 1

    a = A()

    def f(x):
        return a.go(x)

    yield f, (X,)
    a.go = lambda x: x * 3
    yield
    del a.go
    yield SAME
    a.__dict__["go"] = torch.sin
    yield


@kind
def method_shadowed_in_a_subclass():
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        pass

    b = B()

    def f(x):
        return b.go(x)

    yield f, (X,)
    B.go = lambda self, x: x * 3
    yield
    del B.go
    yield SAME
    A.go = lambda self, x: x - 4
    yield


@kind
def class_attribute_shadowed_in_a_subclass():
    class A:
        n = 1

    class B(A):
        pass

    b = B()

    def f(x):
        return x + b.n

    yield f, (X,)
    B.n = 5
    yield
    del B.n
    yield SAME


@kind
def static_and_class_methods_replaced():
    class A:
        n = 1

        @staticmethod
        def fixed(x):
            return x + 1

        @classmethod
        def named(cls, x):
            return x * cls.n

    class B(A):
        pass

    b = B()

    def f(x):
        return b.fixed(x) + b.named(x)

    yield f, (X,)
    A.fixed = staticmethod(lambda x: x - 1)
    yield
    A.named = classmethod(lambda cls, x: x - cls.n)
    yield
    B.n = 7
    yield
    A.fixed = lambda self, x: x * 100
    yield


@kind
def method_kinds_exchanged():
    class A:
        def go(self, x=None):
            return 1

    a = A()

    def f(x):
        return x + a.go()

    yield f, (X,)
    A.go = staticmethod(lambda: 2)
    yield
    A.go = classmethod(lambda cls: len(cls.__name__))
    yield
    A.go = property(lambda self: lambda: 9)
    yield


@kind
def bases_changed():
    class A:
        n = 1

    class C:
        n = 5

    class B(A):
        pass

    class M(A):
        n = 3

    b = B()

    def f(x):
        return x + b.n

    yield f, (X,)
    B.__bases__ = (M,)
    yield
    B.__bases__ = (M, C)
    del M.n
    yield
    B.__bases__ = (A,)
    yield


@kind
def super_target_changed():
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            return super().go(x) * 2

    b = B()

    def f(x):
        return b.go(x)

    first = A.go
    yield f, (X,)
    A.go = lambda self, x: x - 5
    yield
    A.go = first
    yield SAME


@kind
def super_in_a_diamond():
    class A:
        def go(self, x):
            return x + 1

    class L(A):
        def go(self, x):
            return super().go(x) * 2

    class R(A):
        pass

    class D(L, R):
        pass

    d = D()

    def f(x):
        return d.go(x)

    yield f, (X,)
    R.go = lambda self, x: x - 5
    yield
    del R.go
    yield SAME
    D.__bases__ = (R, L)
    yield


@kind
def super_attribute_added_between():
    class A:
        n = 1

    class M(A):
        pass

    class B(M):
        def go(self, x):
            return x + super().n

    b = B()

    def f(x):
        return b.go(x)

    yield f, (X,)
    M.n = 5
    yield
    del M.n
    yield SAME


@kind
def metaclass_attributes():
    class Meta(type):
        n = 1

        @property
        def size(cls):
            return cls.n * 2

    class A(metaclass=Meta):
        pass

    def f(x):
        return x * A.n + A.size

    yield f, (X,)
    Meta.n = 4
    yield
    A.n = 9
    yield
    Meta.size = 3
    yield
    del A.n
    yield


@kind
def metaclass_call():
    class Meta(type):
        pass

    class A(metaclass=Meta):
        n = 1

    def f(x):
        return x + A().n

    yield f, (X,)
    Meta.__call__ = lambda cls: Box(n=7)
    yield
    del Meta.__call__
    yield SAME


@kind
def metaclass_getattr():
    class Meta(type):
        pass

    class A(metaclass=Meta):
        pass

    def f(x):
        return x + getattr(A, "n", 1)

    yield f, (X,)
    Meta.__getattr__ = lambda cls, name: 8
    yield
    A.n = 3
    yield
    del Meta.__getattr__, A.n
    yield


@kind
def metaclass_of_iteration():
    class Meta(type):
        def __iter__(cls):
            return iter([1, 2])

        def __len__(cls):
            return 2

    class A(metaclass=Meta):
        pass

    def f(x):
        for n in A:
            x = x * 2 + n
        return x + len(A)

    yield f, (X,)
    Meta.__iter__ = lambda cls: iter([5])
    yield
    Meta.__len__ = lambda cls: 7
    yield


@kind
def constructor_patched():
    class A:
        def __init__(self, n):
            self.n = n

    def f(x):
        return x + A(2).n

    first = A.__init__
    yield f, (X,)
    A.__init__ = lambda self, n: setattr(self, "n", n * 10)
    yield
    A.__init__ = first
    yield SAME
    A.__new__ = staticmethod(lambda cls, n: Box(n=7))
    yield
    del A.__new__  # leaves a mark on the class: object.__new__ takes no arguments from here on
    A.n = 3
    yield


@unsettled
def init_subclass_patched():
    class A:
        pass

    def f(x):
        class B(A):
            pass

        return x + getattr(B, "n", 1)

    yield f, (X,)
    A.__init_subclass__ = classmethod(lambda cls: setattr(cls, "n", 5))
    yield


@kind
def equality_patched():
    class A:
        def __init__(self, n):
            self.n = n

    a, b = A(1), A(1)

    def f(x):
        return x + 1 if a == b else x - 1, a != b, a in [b]

    yield f, (X,)
    A.__eq__ = lambda self, other: self.n == other.n
    yield
    b.n = 3
    yield
    A.__ne__ = lambda self, other: "patched"
    yield
    del A.__ne__, A.__eq__
    yield


@kind
def ordering_patched():
    class A:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

    a, b = A(1), A(2)

    def f(x):
        return x + sorted([b, a])[0].n, max([a, b], key=lambda o: o.n).n, a < b, a > b

    yield f, (X,)
    A.__lt__ = lambda self, other: self.n > other.n
    yield
    a.n = 9
    yield
    A.__gt__ = lambda self, other: "patched"
    yield


@kind
def truth_patched():
    class A:
        pass

    a = A()

    def f(x):
        return x + 1 if a else x - 1, not a

    yield f, (X,)
    A.__bool__ = lambda self: False
    yield
    del A.__bool__
    yield SAME
    A.__len__ = lambda self: 0
    yield
    A.__bool__ = lambda self: True
    yield


@kind
def length_and_items_patched():
    class A:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return index * 10

        def __contains__(self, value):
            return value == 3

    a = A()

    def f(x):
        return x * len(a) + a[1], 3 in a

    yield f, (X,)
    A.__len__ = lambda self: 5
    yield
    A.__getitem__ = lambda self, index: -index
    yield
    A.__contains__ = lambda self, value: False
    yield
    del A.__contains__
    A.__getitem__ = lambda self, index: [1, 2, 3][index]
    yield


@kind
def iteration_patched():
    class A:
        def __iter__(self):
            return iter([1, 2])

    a = A()

    def f(x):
        for n in a:
            x = x * 2 + n
        return x

    yield f, (X,)
    A.__iter__ = lambda self: iter((5, 6))
    yield
    del A.__iter__
    A.__getitem__ = lambda self, index: [9][index]
    yield


@kind
def next_patched():
    class A:
        n = 0

        def __iter__(self):
            self.n = 0
            return self

        def __next__(self):
            self.n += 1
            if self.n > 3:
                raise StopIteration
            return self.n

    a = A()

    def f(x):
        for n in a:
            x = x * 2 + n
        return x

    yield f, (X,)

    def once(self):
        self.n += 1
        if self.n > 1:
            raise StopIteration
        return 9

    A.__next__ = once
    yield


@kind
def arithmetic_patched():
    class Vec:
        def __init__(self, n):
            self.n = n

        def __add__(self, other):
            return self.n + (other.n if isinstance(other, Vec) else other)

        def __radd__(self, other):
            return other + self.n * 2

    v = Vec(1)

    def f(x):
        y = x + v
        return y * (v + v)

    yield f, (X,)
    Vec.__add__ = lambda self, other: 50
    yield
    Vec.__radd__ = lambda self, other: other - self.n
    yield
    v.n = 4
    yield


@kind
def reflected_operator_of_a_subclass():
    class A:
        def __sub__(self, other):
            return 1

    class B(A):
        pass

    a, b = A(), B()

    def f(x):
        return x + (a - b)

    yield f, (X,)
    B.__rsub__ = lambda self, other: 5
    yield
    A.__rsub__ = lambda self, other: 7
    yield
    del B.__rsub__
    yield


@kind
def inplace_operator_added():
    class A:
        def __init__(self):
            self.n = 1

        def __add__(self, other):
            made = A()
            made.n = self.n + other
            return made

    a = A()

    def f(x):
        b = a
        b += 2
        return x + b.n, b is a

    yield f, (X,)
    A.__iadd__ = lambda self, other: self
    yield
    del A.__iadd__
    yield SAME


@kind
def conversions_patched():
    class A:
        def __index__(self):
            return 1

        def __float__(self):
            return 2.5

        def __int__(self):
            return 3

    a, items = A(), [4, 5, 6]

    def f(x):
        return x * float(a) + int(a) + items[a]

    yield f, (X,)
    A.__index__ = lambda self: 2
    yield
    A.__float__ = lambda self: -1.0
    yield
    A.__int__ = lambda self: 9
    yield


@kind
def text_patched():
    class A:
        def __str__(self):
            return "a"

    a = A()

    def f(x):
        return x + len(str(a)), f"{a}", f"{a!r:.3}"

    yield f, (X,)
    A.__str__ = lambda self: "longer"
    yield
    A.__format__ = lambda self, spec: "formatted"
    yield


@kind
def hash_patched():
    class A:
        def __hash__(self):
            return 1

    a = A()

    def f(x):
        return x + hash(a)

    yield f, (X,)
    A.__hash__ = lambda self: 5
    yield


@kind
def context_manager_methods():
    class C:
        def __enter__(self):
            return 1

        def __exit__(self, *info):
            return None

    c = C()

    def f(x):
        with c as n:
            return x + n

    yield f, (X,)
    C.__enter__ = lambda self: 8
    yield
    C.__exit__ = lambda self, *info: print("left")
    yield


@kind
def missing_added():
    class Table(dict):
        pass

    table = Table(a=1)

    def f(x):
        try:
            return x + table["b"]
        except KeyError:
            return x - 1

    yield f, (X,)
    Table.__missing__ = lambda self, key: 6
    yield
    del Table.__missing__
    yield SAME


@kind
def class_getitem_patched():
    class A:
        def __class_getitem__(cls, item):
            return item + 1

    def f(x):
        return x + A[2]

    yield f, (X,)
    A.__class_getitem__ = classmethod(lambda cls, item: item * 10)
    yield


@kind
def abc_register():
    class Shape(abc.ABC):  # noqa: B024
        pass

    class Thing:
        pass

    o = Thing()

    def f(x):
        return x + 1 if isinstance(o, Shape) else x - 1

    yield f, (X,)
    Shape.register(Thing)
    yield


@kind
def abc_of_the_library_register():
    class Thing:
        pass

    o = Thing()

    def f(x):
        a = isinstance(o, collections.abc.Sequence)
        return x + 1 if a or issubclass(Thing, collections.abc.Mapping) else x - 1

    yield f, (X,)
    collections.abc.Mapping.register(Thing)
    yield
    collections.abc.Sequence.register(Thing)
    yield


@kind
def abc_by_structure():
    class Thing:
        pass

    o = Thing()

    def f(x):
        return x + 1 if isinstance(o, collections.abc.Sized) else x - 1

    yield f, (X,)

    class Sized(Thing):
        def __len__(self):
            return 1

    o.__class__ = Sized
    yield
    o.__class__ = Thing
    yield


@kind
def subclass_hook_patched():
    class Shape(abc.ABC):  # noqa: B024
        pass

    class Thing:
        pass

    class Other:
        pass

    o = Box(thing=Thing())

    def f(x):
        return x + 1 if isinstance(o.thing, Shape) else x - 1

    yield f, (X,)
    Shape.__subclasshook__ = classmethod(lambda cls, other: other is Other)
    o.thing = Other()
    yield
    o.thing = Thing()
    yield


@kind
def instance_check_of_a_metaclass():
    class Meta(type):
        def __instancecheck__(cls, instance):
            return instance.n > 1

    class Big(metaclass=Meta):
        pass

    o = Box(n=1)

    def f(x):
        return x + 1 if isinstance(o, Big) else x - 1

    yield f, (X,)
    o.n = 5
    yield
    Meta.__instancecheck__ = lambda cls, instance: False
    yield
    del Meta.__instancecheck__
    yield


@kind
def instance_check_added():
    class Meta(type):
        pass

    class A(metaclass=Meta):
        pass

    o = Box(n=1)

    def f(x):
        return x + 1 if isinstance(o, A) else x - 1

    yield f, (X,)
    Meta.__instancecheck__ = lambda cls, instance: True
    yield
    Meta.__subclasscheck__ = lambda cls, other: False
    del Meta.__instancecheck__
    yield


@kind
def class_property_lies():
    seen = Box(kind=int)

    class A:
        @property
        def __class__(self):
            return seen.kind

    o = A()

    def f(x):
        return x + 1 if isinstance(o, int) else x - 1, o.__class__

    yield f, (X,)
    seen.kind = str
    yield
    seen.kind = int
    yield


@kind
def protocol_at_run_time():
    @typing.runtime_checkable
    class Goes(typing.Protocol):
        def go(self): ...

    class Thing:
        pass

    o = Thing()

    def f(x):
        return x + 1 if isinstance(o, Goes) else x - 1

    yield f, (X,)
    o.go = lambda: None
    yield
    del o.go
    yield
    Thing.go = lambda self: None
    yield


@kind
def isinstance_of_a_changing_tuple():
    o = Box(thing=1, kinds=(int, str))

    def f(x):
        return x + 1 if isinstance(o.thing, o.kinds) else x - 1

    yield f, (X,)
    o.kinds = (str,)
    yield
    o.kinds = int | None
    yield
    o.thing = "a"
    yield


@kind
def issubclass_after_bases_change():
    class A:
        pass

    class M:
        pass

    class B(M):
        pass

    o = Box(kind=B)

    def f(x):
        return x + 1 if issubclass(o.kind, A) else x - 1

    yield f, (X,)
    B.__bases__ = (A,)
    yield
    B.__bases__ = (M,)
    yield


@kind
def callable_after_call_is_added():
    class A:
        pass

    a = A()

    def f(x):
        return x + 1 if callable(a) else x - 1

    yield f, (X,)
    A.__call__ = lambda self: None
    yield
    del A.__call__
    yield SAME


@kind
def class_replaced_by_its_name():
    class A:
        n = 1

    class B:
        n = 5

    def f(x):
        return x + A().n

    first = A
    yield f, (X,)
    A = B
    yield
    A = first
    yield SAME


@kind
def class_name_changed():
    class A:
        pass

    a = A()

    def f(x):
        return x + len(type(a).__name__) + len(A.__qualname__)

    yield f, (X,)
    A.__name__ = "Longer"
    yield
    A.__qualname__ = "B"
    yield


@kind
def method_resolution_with_mixins():
    class Base:
        def go(self, x):
            return x + 1

    class Mixin:
        pass

    class A(Mixin, Base):
        pass

    a = A()

    def f(x):
        return a.go(x)

    yield f, (X,)
    Mixin.go = lambda self, x: x * 7
    yield
    Base.go = lambda self, x: x * 9
    yield SAME
    del Mixin.go
    yield


@kind
def subclasses_listed():
    class A:
        pass

    kept = []

    def f(x):
        return x + len(A.__subclasses__())

    yield f, (X,)
    kept.append(type("B", (A,), {}))
    yield


@kind
def second_instance_of_the_class():
    class A:
        scale = 2

        def __init__(self, n):
            self.n = n

        def go(self, x):
            return x * self.scale + self.n

    def f(x, a):
        return a.go(x)

    yield f, (X, A(1))
    yield X, A(1)
    A.scale = 3
    yield
    yield X, A(2)
