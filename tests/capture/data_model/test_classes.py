"""Programs over classes: super() after breaks, descriptors, slots, hooks of attributes, objects on their way out."""

from __future__ import annotations

import torch

import graftjit

from ..harness import agrees, t


@agrees()
def test_super_after_a_break_with_nothing_in_hand():
    class Loud:
        def __set__(self, owner, value):
            print("set", value)

        def __get__(self, owner, cls=None):
            return 5

        def __delete__(self, owner):
            print("deleted")

    class Base:
        loud = Loud()

        def v(self):
            return torch.ones(2) * self.n

    class Own(Base):
        def __init__(self):
            self.n = 3

        def f(self):
            def get():
                return self

            self.loud = 1
            del get().loud
            return super().v() * 3 + get().n

    return Own().f, ()


@agrees(graphs=3, breaks=1)
def test_super_whose_self_lives_in_a_cell():
    class Base:
        def v(self):
            return torch.ones(2) * self.n

    class Again(Base):
        def f(self):
            type(self).count = (lambda: self)().count + 1
            return super().v() * self.count

    again = Again()
    again.n, Again.count = 2, 0
    return again.f, ()


@agrees()
def test_properties_and_descriptors_written_and_deleted():
    class Field:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, owner, cls=None):
            return self if owner is None else getattr(owner, self.name)

        def __set__(self, owner, value):
            setattr(owner, self.name, value * 2)

        def __delete__(self, owner):
            delattr(owner, self.name)

    class A:
        a = Field()

        def __init__(self):
            self._b, self.log = 1, []

        @property
        def b(self):
            return self._b

        @b.setter
        def b(self, value):
            self.log.append(value)
            self._b = value

        @b.deleter
        def b(self):
            self.log.append("gone")
            self._b = None

    o = A()

    def f(x):
        o.a = x
        o.b = 5
        y = o.a + o.b
        del o.a
        print(hasattr(o, "a"), hasattr(o, "_a"))
        del o.b
        o.b = 7
        return y, o.b, A.a is type(o).__dict__["a"]

    return f, (t(2),), [lambda: setattr(Field, "__set__", lambda s, o, v: o.__dict__.update(_a=v))]


@agrees()
def test_slots():
    class A:
        __slots__ = ("n", "x", "__weakref__")

        def __init__(self, n):
            self.n = n

    class B(A):
        __slots__ = ("more",)

    o, p = A(2), B(3)

    def f(x):
        o.x = x * o.n
        p.more = [o.x]
        q = B(4)
        q.x = o.x + 1
        had = hasattr(q, "more"), hasattr(p, "more")
        del p.more
        print(had)
        q.more = q.x
        p.n += 1
        return q, o.x, p.n, hasattr(p, "more")

    return f, (t(2),)


@agrees()
def test_getattr_and_setattr_hooks():
    class Recorder:
        def __init__(self):
            object.__setattr__(self, "log", [])
            object.__setattr__(self, "store", {"base": 2})

        def __getattr__(self, name):
            if name.startswith("no_"):
                raise AttributeError(f"nothing called {name}")
            self.log.append(("get", name))
            return self.store.get(name, 1)

        def __setattr__(self, name, value):
            self.log.append(("set", name))
            self.store[name] = value

        def __delattr__(self, name):
            self.log.append(("del", name))
            del self.store[name]

    o = Recorder()

    def f(x):
        o.value = x * o.base
        y = o.value + o.other
        print(len(o.log))
        del o.value
        try:
            o.no_such
        except AttributeError as error:
            print("caught", error)
        return y, hasattr(o, "no_thing"), getattr(o, "no_thing", None), o.log

    return f, (t(2),), [lambda: o.store.update(base=5), lambda: o.__dict__.update(base=9)]


@agrees()
def test_getattribute():
    class A:
        def __init__(self):
            self.n = 1

        def __getattribute__(self, name):
            if name == "double":
                return object.__getattribute__(self, "n") * 2
            return super().__getattribute__(name)

    o = A()

    def f(x):
        o.n += 1
        print(o.double)
        return x * o.double, o.n

    return f, (t(2),)


@agrees()
def test_classmethods_staticmethods_and_class_state():
    class Base:
        count = 0
        registry = {}

        @classmethod
        def make(cls, n):
            made = cls()
            made.n = n
            return made

        @classmethod
        def name(cls):
            return cls.__name__

        @staticmethod
        def add(x, y):
            return x + y

        def scale(self, x):
            return x * self.n

    class Own(Base):
        @classmethod
        def make(cls, n):
            made = super().make(n + 1)
            made.extra = n
            return made

        def scale(self, x):
            return super().scale(x) + self.extra

    def f(x):
        o = Own.make(2)
        Own.registry["last"] = o
        print(o.name(), Own.name())
        return Own.add(o.scale(x), 1), o, Base.make(1).scale(x), Own.count

    def bump():
        Own.count = 3

    return (
        f,
        (t(2),),
        [bump, lambda: setattr(Base, "make", classmethod(lambda cls, n: Own())) or None],
    )


@agrees()
def test_multiple_inheritance_and_cooperative_calls():
    class A:
        def run(self, x):
            self.log.append("A")
            return x + 1

    class B(A):
        def run(self, x):
            self.log.append("B")
            return super().run(x) * 2

    class C(A):
        def run(self, x):
            self.log.append("C")
            return super().run(x) - 3

    class D(B, C):
        def __init__(self):
            self.log = []

        def run(self, x):
            y = super().run(x)
            print(self.log)
            return super(B, self).run(y)

    o = D()

    def f(x):
        return o.run(x), [k.__name__ for k in type(o).__mro__]

    return f, (t(2),), [lambda: o.log.clear()]


@agrees()
def test_objects_made_and_returned():
    class Node:
        def __init__(self, value, children=()):
            self.value = value
            self.children = list(children)
            self.parent = None
            for child in self.children:
                child.parent = self

        def total(self):
            return self.value + sum(child.total() for child in self.children)

    def f(x):
        leaves = [Node(x * i) for i in range(3)]
        root = Node(x, leaves)
        print(len(root.children))
        root.children.append(Node(root.total()))
        return root.total(), root, root.children[0].parent is root, leaves

    return f, (t(2),)


@agrees()
def test_callable_objects_and_operators():
    class Poly:
        def __init__(self, *terms):
            self.terms = terms

        def __call__(self, x):
            out = 0
            for power, term in enumerate(self.terms):
                out = out + term * x**power
            return out

        def __add__(self, other):
            if not isinstance(other, Poly):
                return NotImplemented
            return Poly(*(a + b for a, b in zip(self.terms, other.terms, strict=True)))

        def __eq__(self, other):
            return self.terms == other.terms

        def __hash__(self):
            return hash(self.terms)

        def __len__(self):
            return len(self.terms)

        def __getitem__(self, i):
            return self.terms[i]

        def __iter__(self):
            return iter(self.terms)

        def __contains__(self, item):
            return item in self.terms

        def __bool__(self):
            return any(self.terms)

        def __repr__(self):
            return f"Poly{self.terms}"

    p, q = Poly(1, 2), Poly(3, 4)

    def f(x):
        r = p + q
        print(r, f"{p!r:>12}", str(q))
        return (
            r(x), r == Poly(4, 6), r != p, len(r), r[1], list(r), 6 in r, bool(Poly(0, 0)),
            sum(r), [*r], max(r),
        )  # fmt: skip

    return f, (t(2),), [lambda: setattr(Poly, "__bool__", lambda self: True)]


@agrees()
def test_dataclasses_enums_named_tuples():
    import dataclasses
    import enum
    from typing import NamedTuple

    class Mode(enum.Enum):
        UP = 1
        DOWN = 2

        def flip(self):
            return Mode.DOWN if self is Mode.UP else Mode.UP

    class Point(NamedTuple):
        x: object
        y: object = 2

        def norm(self):
            return (self.x * self.x).sum() + self.y

    @dataclasses.dataclass
    class Config:
        width: int
        mode: Mode = Mode.UP
        tags: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.tags.append(self.width)

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        n: int

    def f(x, config):
        made = Config(3, tags=["a"])
        p = Point(x)
        q = p._replace(y=5)
        print(config.mode, config.mode.name, made)
        if config.mode is Mode.UP:
            x = x + Mode["UP"].value
        config.mode = config.mode.flip()
        other = dataclasses.replace(config, width=9)
        return (
            x, made, p, q.norm(), q._asdict(), Frozen(2) == Frozen(2), hash(Frozen(2)) == hash(Frozen(2)),
            config.mode, other, list(Mode), dataclasses.asdict(other), config == other,
        )  # fmt: skip

    return f, (t(2), Config(1))


@agrees()
def test_frozen_dataclass_refuses():
    import dataclasses

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        n: int

    o = Frozen(2)

    def f(x):
        try:
            o.n = 3
        except dataclasses.FrozenInstanceError as error:
            print("refused", error)
        return x * o.n

    return f, (t(2),)


@agrees()
def test_capture_asks_nothing_of_the_programs_objects():
    """No code of a class runs that plain Python would not run."""
    seen = []

    class Meta(type):
        def __eq__(cls, other):
            seen.append("meta eq")
            return cls is other

        def __hash__(cls):
            seen.append("meta hash")
            return 1

    class Proxy(metaclass=Meta):
        def __init__(self, n):
            self.n = n

        @property
        def __class__(self):
            seen.append("class")
            return dict

        def __getattr__(self, name):
            seen.append(name)
            raise AttributeError(name)

        def __eq__(self, other):
            seen.append("eq")
            return True

        def __hash__(self):
            seen.append("hash")
            return 7

        def __call__(self, x):
            return x * self.n

        def __bool__(self):
            seen.append("bool")
            return False

    class Nosy:
        def __init__(self):
            self.n = 2

        def __getattribute__(self, name):
            seen.append(name)
            return object.__getattribute__(self, name)

    p, q = Proxy(2), Nosy()

    def f(x, p, q):
        y = p(x) + q.n
        print(seen)
        items = [p, q]
        z = items[0](y)
        return z, p is q, Proxy(3)(x), q, p

    return f, (t(2), p, q), [lambda: seen.clear(), lambda: (t(2), Proxy(4), Nosy())]


@agrees()
def test_properties_of_other_kinds():
    class lazy(property):
        def __get__(self, owner, cls=None):
            return self if owner is None else self.fget(owner) * 10

    class bound(classmethod):
        def __get__(self, owner, cls=None):
            return lambda x: x + 100

    class A:
        @lazy
        def n(self):
            return 2

        @property
        def m(self):
            return 3

        @bound
        def run(cls, x):
            return x

    o = A()

    def f(x):
        return x * o.n + o.m, A.run(x), o.run(x), isinstance(A.n, property)

    return f, (t(2),), [lambda: setattr(lazy, "__get__", lambda s, o, c=None: 1)]


@agrees()
def test_fields_of_functions_and_classes():
    class A:
        x: int = 1

        def m(self, v: "int") -> "str":
            """What m does."""

    def g(a: int, *, b: "float" = 2) -> None: ...

    g.note = 3

    def f(x):
        return (
            x + 1, dict(getattr(g, "__annotations__", None)), g.__defaults__, g.__kwdefaults__, g.note,
            A.m.__doc__, A.m.__annotations__, A.__annotations__, hasattr(g, "__name__"), hasattr(g, "mro"),
            hasattr([], "__name__"), hasattr([], "mro"), hasattr({}, "__dict__"), hasattr(1, "__name__"),
            getattr((), "__qualname__", "none"), g.__code__.co_varnames, vars(g), A.m.__qualname__,
        )  # fmt: skip

    return f, (t(2),), [
        lambda: g.__annotations__.update(c=1), lambda: setattr(g, "note", 4),
        lambda: setattr(A, "__annotations__", {}),
    ]  # fmt: skip


class Levelled(type):
    """A metaclass with a property, as `torch.distributed.group` has one for `WORLD`."""

    @property
    def level(cls):
        return cls.half * 2

    @level.setter
    def level(cls, value):
        cls.half = value / 2


def test_a_property_of_a_metaclass():
    class First(metaclass=Levelled):
        half = 3

    class Last(First):
        pass

    def program(x):
        return x * First.level + Last.level, First.level

    made, x = graftjit.jit(program), torch.ones(2)
    for cls, name, value in ((First, "half", 3), (First, "level", 5), (Last, "half", 1)):
        setattr(cls, name, value)
        (one, level), (other, wanted) = made(x), program(x)
        assert torch.equal(one, other) and level == wanted
    assert not made.report().breaks
