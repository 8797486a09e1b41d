"""Attributes: instances, classes, properties, slots, hooks into look-up, modules; and objects made inside."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
import typing

import torch
from torch import nn

from graftjit import jit

from ..harness import agrees, t


class Box:
    kind = "box"

    def __init__(self, n):
        self.n = n
        self.items = []


@agrees()
def test_attribute_by_value():
    def f(x, o):
        return x * o.n

    o = Box(2)
    return (
        f,
        (t(2), o),
        [lambda: setattr(o, "n", 3), lambda: setattr(o, "n", 3.0), lambda: setattr(o, "n", True)],
    )


@agrees()
def test_attributes_at_depth():
    class Node:
        def __init__(self, child, v):
            self.child, self.v = child, v

    def f(x, o):
        return x * o.child.child.v + o.child.v

    o = Node(Node(Node(None, 2), 3), 4)

    def replace():
        o.child.child = Node(None, 9)

    def change():
        o.child.child.v = 7

    return f, (t(2), o), [change, replace, lambda: setattr(o, "child", Node(Node(None, 1), 1))]


@agrees()
def test_tensor_attribute_rebound_and_changed():
    def f(x, o):
        return x + o.w

    class O:
        pass

    o = O()
    o.w = t(2)
    return f, (t(2), o), [
        lambda: setattr(o, "w", t(2) * 3), lambda: o.w.add_(1).numel(), lambda: setattr(o, "w", 5),
        lambda: setattr(o, "w", t(2).double()), lambda: setattr(o, "w", t(1)),
        lambda: setattr(o, "w", t(4)[::2]),
    ]  # fmt: skip


@agrees()
def test_attribute_added_deleted_shadowed():
    class A:
        v = 1

    class B(A):
        pass

    def f(x, o):
        return x * o.v, hasattr(o, "w"), getattr(o, "w", 0)

    o = B()
    return f, (t(2), o), [
        lambda: setattr(o, "v", 2), lambda: delattr(o, "v"), lambda: setattr(B, "v", 3),
        lambda: setattr(A, "v", 4), lambda: delattr(B, "v"), lambda: setattr(A, "w", 5),
        lambda: setattr(o, "w", 6), lambda: delattr(A, "w"), lambda: o.__dict__.clear(),
    ]  # fmt: skip


@agrees()
def test_method_patched():
    class A:
        def m(self, x):
            return x + 1

    class B(A):
        pass

    def f(x, o):
        return o.m(x)

    o = B()
    return f, (t(2), o), [
        lambda: setattr(A, "m", lambda self, x: x + 2), lambda: setattr(B, "m", lambda self, x: x + 3),
        lambda: setattr(o, "m", lambda x: x + 4), lambda: setattr(B, "m", staticmethod(lambda x: x + 5)),
        lambda: delattr(o, "m"), lambda: setattr(B, "m", property(lambda self: lambda x: x + 6)),
    ]  # fmt: skip


@agrees()
def test_code_and_defaults_rebound():
    def g(x, n=1, *, k=2):
        return x * n + k

    def h(x, n=1, *, k=2):
        return x - n - k

    def f(x):
        return g(x)

    def code():
        g.__code__ = h.__code__

    def defaults():
        g.__defaults__ = (5,)

    def named():
        g.__kwdefaults__ = {"k": 7}

    def named_in_place():
        g.__kwdefaults__["k"] = 8

    return f, (t(2),), [code, defaults, named, named_in_place]


@agrees()
def test_own_code_and_defaults_rebound():
    def f(x, n=1):
        return x * n

    def h(x, n=1):
        return x - n

    def code():
        f.__code__ = h.__code__

    def defaults():
        f.__defaults__ = (5,)

    return f, (t(2),), [defaults, code]


@agrees()
def test_properties():
    class A:
        def __init__(self):
            self._v = 2

        @property
        def v(self):
            return self._v * 2

        @v.setter
        def v(self, value):
            self._v = value + 1

        @v.deleter
        def v(self):
            self._v = 0

    def f(x, o):
        a = o.v
        o.v = a
        y = x * o.v
        del o.v
        o.v += 3
        return y, a, o.v

    o = A()
    return f, (t(2), o), [lambda: setattr(o, "v", 1)]


@agrees(calls=2)
def test_slots():
    class A:
        __slots__ = ("a", "b")

        def __init__(self, a):
            self.a = a

    def f(x, o):
        o.a = o.a + 1
        o.b = x * o.a
        made = A(3)
        made.b = 2
        return o.b, hasattr(made, "c"), made, made.a

    return f, (t(2), A(1))


@agrees(calls=2)
def test_slot_unset():
    class A:
        __slots__ = ("a", "b")

    def f(x, o):
        y = x + 1
        if not hasattr(o, "a"):
            o.a = 0
        o.a += 1
        return y * o.a

    return f, (t(2), A())


@agrees()
def test_getattr_hook():
    class A:
        def __init__(self):
            self.table = {"k": 2}

        def __getattr__(self, name):
            if name in self.table:
                return self.table[name]
            raise AttributeError(name)

    def f(x, o):
        return x * o.k, hasattr(o, "q"), getattr(o, "zz", 5)

    o = A()
    return (
        f,
        (t(2), o),
        [lambda: o.table.update(k=3), lambda: o.table.update(q=3), lambda: setattr(o, "k", 9)],
    )


@agrees(calls=2)
def test_getattribute_and_setattr_hooks():
    class A:
        def __getattribute__(self, name):
            if name == "magic":
                return 7
            return object.__getattribute__(self, name)

        def __setattr__(self, name, value):
            super().__setattr__(name, value * 2 if isinstance(value, int) else value)

        def __delattr__(self, name):
            object.__setattr__(self, "deleted", name)

    def f(x, o):
        o.v = 3
        o.y = x + o.magic
        del o.v
        made = A()
        made.w = 5
        return o.y * o.v, o.deleted, made, made.w

    return f, (t(2), A())


@agrees()
def test_descriptors():
    class Scaled:
        def __init__(self, by):
            self.by = by

        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, owner=None):
            return self if obj is None else getattr(obj, self.name) * self.by

        def __set__(self, obj, value):
            setattr(obj, self.name, value + 1)

    class A:
        v = Scaled(3)

        def __init__(self):
            self.v = 1

    def f(x, o):
        o.v = o.v + 1
        made = A()
        return x * o.v, made.v, A.v

    o = A()
    return f, (t(2), o), [lambda: setattr(A.__dict__["v"], "by", 5), lambda: setattr(o, "v", 0)]


@agrees()
def test_cached_property_and_lru_cache():
    class A:
        def __init__(self):
            self.n = 2

        @functools.cached_property
        def v(self):
            return self.n * 10

    @functools.lru_cache
    def slow(n):
        return n + 1

    def f(x, o):
        return x * o.v + slow(o.n), "v" in o.__dict__

    o = A()
    return f, (t(2), o), [lambda: setattr(o, "n", 3), lambda: o.__dict__.pop("v") and None]


@agrees()
def test_class_attributes_and_statics():
    class A:
        count = 0
        scale = 2

        @staticmethod
        def s(x, n=1):
            return x * n

        @classmethod
        def c(cls, x):
            return x * cls.scale

    class B(A):
        scale = 3

    def f(x, o):
        type(o).count += 1
        return (
            A.s(x, 2),
            o.s(x),
            B.c(x),
            o.c(x),
            A.c(x),
            type(o).__name__,
            o.__class__ is B,
            A.count,
        )

    o = B()
    return (
        f,
        (t(2), o),
        [
            lambda: setattr(A, "scale", 5),
            lambda: setattr(B, "scale", 6),
            lambda: delattr(B, "scale"),
        ],
    )


@agrees(calls=2)
def test_super_chains():
    class A:
        def __init__(self, n):
            self.n = n

        def m(self, x):
            return x + self.n

        @property
        def p(self):
            return 2

        @classmethod
        def c(cls):
            return cls.__name__

    class M:
        def m(self, x):
            return super().m(x) * 3

    class B(M, A):
        def __init__(self, n):
            super().__init__(n + 1)
            self.extra = super().p

        def m(self, x):
            return super().m(x) - 1

        @classmethod
        def c(cls):
            return "b" + super().c()

    def f(x, o):
        made = B(4)
        return o.m(x), made.m(x), made, made.extra, B.c(), o.c()

    return f, (t(2), B(1))


@agrees()
def test_super_base_patched():
    class A:
        def m(self, x):
            return x + 1

    class B(A):
        def m(self, x):
            return super().m(x) * 2

    class C:
        def m(self, x):
            return x + 50

    def f(x, o):
        return o.m(x)

    def bases():
        B.__bases__ = (C, A)

    return f, (t(2), B()), [lambda: setattr(A, "m", lambda self, x: x + 9), bases]


@agrees(calls=2)
def test_objects_made_inside():
    class Pair:
        made = 0

        def __init__(self, a, b=2, *rest, k=3):
            self.a, self.b, self.rest, self.k = a, b, rest, k

        def total(self):
            return self.a * self.b

        def __add__(self, other):
            return Pair(self.a + other.a, self.b)

        def __call__(self, x):
            return x * self.b

        def __getitem__(self, i):
            return (self.a, self.b)[i]

        def __len__(self):
            return 2

        def __eq__(self, other):
            return self.b == other.b

        def __iter__(self):
            return iter((self.a, self.b))

        def __contains__(self, v):
            return v == self.b

        def __bool__(self):
            return self.b > 2

        def __enter__(self):
            self.b += 1
            return self

        def __exit__(self, *a):
            self.b += 10

    def f(x):
        p, q = Pair(x), Pair(x + 1, 5, 6, k=7)
        s = p + q
        first, second = s
        with q as r:
            inside = r.b
        return (
            s.total(), p == q, p != q, s(x), s[0], s[1], len(s), 2 in s, bool(s), first, second,
            q, inside, p is not q, [p, p], "yes" if q else "no",
        )  # fmt: skip

    return f, (t(2),)


@agrees(calls=2)
def test_dataclasses():
    @dataclasses.dataclass
    class Config:
        n: int = 2
        items: list = dataclasses.field(default_factory=list)

        def scaled(self, x):
            return x * self.n

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        w: float
        k: int = 1

    def f(x, c):
        made = Config(3)
        made.items.append(x)
        frozen = Frozen(2.0)
        c.n += 1
        return (
            made.scaled(x),
            c.scaled(x),
            made,
            frozen,
            frozen.w,
            made == Config(3),
            c.items is made.items,
        )

    return f, (t(2), Config())


@agrees(calls=2)
def test_frozen_dataclass_refuses():
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        w: float

    def f(x, c):
        y = x * c.w
        c.w = 3.0
        return y

    return f, (t(2), Frozen(2.0))


class Point(typing.NamedTuple):
    a: torch.Tensor
    b: int = 2

    def total(self):
        return self.a * self.b


@agrees(calls=2)
def test_named_tuples():
    def f(x, p):
        q = Point(x + 1)
        r = q._replace(b=5)
        a, b = p
        return (
            q.total(),
            p.total(),
            r,
            q,
            p.a,
            q[1],
            q._fields,
            isinstance(q, tuple),
            r._asdict(),
            q == q,
        )

    return f, (t(2), Point(t(2), 3))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def twice(self):
        return self.value * 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


@agrees()
def test_enums():
    def f(x, c):
        if c is Colour.RED:
            y = x * 2
        elif c == Colour.BLUE:
            y = x * 3
        else:
            y = x
        return (
            y * c.value,
            c.name,
            c.twice,
            Level.HIGH > 2,
            Level.LOW + 1,
            {Colour.RED: 1}.get(c),
            c in (Colour.RED,),
        )

    x = t(2)
    return f, (x, Colour.RED), [lambda: (x, Colour.BLUE)]


@agrees(calls=2)
def test_user_operators():
    class V:
        def __init__(self, v):
            self.v = v

        def __mul__(self, o):
            return V(self.v * (o.v if isinstance(o, V) else o))

        def __rmul__(self, o):
            return V(o * self.v)

        def __iadd__(self, o):
            self.v += 1
            return self

        def __neg__(self):
            return V(-self.v)

        def __lt__(self, o):
            return NotImplemented if isinstance(o, str) else self.v < o.v

        def __matmul__(self, o):
            return "mat"

        def __radd__(self, o):
            return NotImplemented

    def f(x, a):
        b = V(3)
        a += 1
        c = 2 * (a * b)
        d = -c
        return x * c.v, d, a < b, b > a, a @ b, c

    return f, (t(2), V(2))


@agrees(calls=2)
def test_user_operator_fails():
    class V:
        def __add__(self, o):
            return NotImplemented

    def f(x, a):
        y = x * 2
        return y, a + 1

    return f, (t(2), V())


@agrees()
def test_dict_of_the_instance():
    def f(x, o):
        d = o.__dict__
        y = x * d["n"]
        vars(o)["m"] = 5
        o.k = 3
        return y, sorted(d), o.m

    o = Box(2)
    return f, (t(2), o), [lambda: o.__dict__.update(n=7)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.ones(3) * 2)
        self.register_buffer("mean", torch.ones(3))
        self.n = 2
        self.table = {"k": [1.0, 2.0]}
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.parts = nn.ModuleDict({"a": nn.Tanh()})
        self.drop = nn.Dropout(0.5)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = self.lin(x) * self.scale + self.mean
        for block in self.blocks:
            y = block(y)
        for i, block in enumerate(self.blocks[:1]):
            y = block(y) * i
        if self.training:
            y = y * 3
        return self.parts["a"](y) * self.n + self.table["k"][1] + len(self.blocks)


def _net():
    torch.manual_seed(1)
    net = Net()
    net.drop = nn.Identity()
    return net


@agrees(backward=True)
def test_module():
    class Mine(Net):
        def forward(self, x):
            return super().forward(x) + 1

    torch.manual_seed(1)
    torch.utils.hooks.RemovableHandle.next_id = 0
    net = Mine()

    def f(x):
        return net(x)

    def hook():
        net.lin.register_forward_hook(lambda m, a, out: out * 2)

    def prehook():
        net.lin.register_forward_pre_hook(lambda m, a: (a[0] + 1,))

    return f, (t(2, 3),), [
        lambda: net.eval() and None, lambda: setattr(net, "n", 5), lambda: net.table["k"].__setitem__(1, 9.0),
        lambda: setattr(net, "lin", nn.Identity()), lambda: net.blocks.append(nn.Sigmoid()) and None,
        lambda: setattr(net, "mean", torch.zeros(3)),
        lambda: setattr(net, "scale", nn.Parameter(torch.ones(3))), hook, prehook,
        lambda: setattr(Mine, "forward", lambda self, x: x * 2), lambda: setattr(net, "forward", lambda x: x - 1),
        lambda: setattr(net, "__call__", 3), lambda: net.train() and None,
    ]  # fmt: skip


@agrees()
def test_module_parameters_changed_in_place():
    net = _net().eval()

    def f(x):
        return net(x)

    def load():
        net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()})

    def data():
        net.scale.data = torch.ones(3) * 5

    def fill():
        with torch.no_grad():
            net.lin.weight.fill_(0.5)

    def freeze():
        net.scale.requires_grad_(False)

    return f, (t(2, 3),), [load, data, fill, freeze, lambda: net.double() and None]


@agrees(calls=3)
def test_module_changes_itself():
    net = _net()

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))
            self.net = net
            self.last = None
            self.history = []

        def forward(self, x):
            self.steps += 1
            self.mean = x.mean()
            self.last = self.net(x)
            self.history.append(self.last)
            return self.last + self.steps, self.history[-1] is self.last

    c = Counter()

    def f(x):
        return c(x)

    return f, (t(2, 3),)


@agrees(calls=2, backward=True)
def test_sequential_and_iteration():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 2))

    def f(x):
        a = net(x)
        for name, child in net.named_children():
            x = child(x)
        total = sum(p.numel() for p in net.parameters())
        return (
            a,
            x,
            net[0](t(1, 3)),
            len(net),
            total,
            [n for n, _ in net.named_parameters()],
            net[-1].bias,
        )

    return f, (t(2, 3),)


@agrees()
def test_parameter_sum_over_modules():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))

    def f(x):
        penalty = sum((p**2).sum() for p in net.parameters())
        return net(x).sum() + penalty, isinstance(net[0], nn.Linear), type(net[1]) is nn.Linear

    return f, (t(2, 3),), [lambda: net.append(nn.Linear(2, 2)) and None]


@agrees(calls=2)
def test_bound_methods_and_identity():
    def f(x, o):
        m = o.items.append
        m(x * 2)
        g = o.__init__
        g(5)
        return o.items, o.n, o.items is o.items

    return f, (t(2), Box(1))


@agrees(calls=2)
def test_no_such_attribute():
    def f(x, o):
        y = x + 1
        try:
            return o.nothing
        except AttributeError as error:
            return y, str(error)

    return f, (t(2), Box(1))


@agrees(calls=2)
def test_attribute_of_none_raises():
    def f(x, o):
        y = x + 1
        o.n = y
        return o.items.nothing

    return f, (t(2), Box(1))


@agrees(calls=2)
def test_same_object_by_two_paths():
    def f(x, a, b):
        a.n = 5
        b.items.append(a.n)
        return x * b.n, a is b, a.items, a.items is b.items

    o = Box(1)
    return f, (t(2), o, o)


@agrees()
def test_objects_become_one():
    def f(x, a, b):
        a.n = a.n + 1
        return x * b.n, a is b, a == b

    x, o, p = t(2), Box(1), Box(1)
    return f, (x, o, p), [lambda: (x, o, o), lambda: (x, p, o)]


@agrees(calls=2)
def test_effects_in_order():
    class Log:
        def __init__(self):
            object.__setattr__(self, "log", [])

        def __setattr__(self, name, value):
            self.log.append(name)
            object.__setattr__(self, name, value)

    def f(x, o, d):
        o.a = 1
        d["k"] = o.log
        o.b = x * 2
        d["n"] = len(o.log)
        print(o.log)
        o.c = 3
        return o.b

    return f, (t(2), Log(), {})


@agrees()
def test_class_patched_with_instance_hooks():
    class A:
        pass

    def f(x, o):
        try:
            return x * o.v
        except AttributeError:
            return x

    o = A()
    return f, (t(2), o), [
        lambda: setattr(A, "__getattr__", lambda self, n: 5),
        lambda: setattr(A, "__getattribute__", lambda self, n: 6), lambda: delattr(A, "__getattribute__"),
        lambda: setattr(o, "v", 8),
    ]  # fmt: skip


@agrees()
def test_class_of_the_object_changes():
    class A:
        def m(self):
            return 2

    class B:
        def m(self):
            return 3

    def f(x, o):
        return x * o.m(), isinstance(o, A)

    o = A()
    return f, (t(2), o), [lambda: setattr(o, "__class__", B)]


@agrees(calls=2)
def test_delete_attributes():
    def f(x, o):
        o.extra = x + 1
        del o.n
        y = o.extra
        del o.extra
        o.n = 3
        return y, hasattr(o, "extra")

    return f, (t(2), Box(2))


@agrees(calls=2)
def test_new_and_singletons():
    class Single:
        _made = None

        def __new__(cls, *a):
            if cls._made is None:
                cls._made = super().__new__(cls)
            return cls._made

        def __init__(self, v):
            self.v = v

    class Plain:
        def __new__(cls, v):
            self = super().__new__(cls)
            self.early = v
            return self

    def f(x):
        a, b = Single(2), Single(3)
        p = Plain(x)
        return x * a.v, a is b, p, p.early

    return f, (t(2),)


@agrees(calls=2)
def test_weird_bools_and_lens():
    class Falsy:
        def __len__(self):
            return 0

    class Bad:
        def __bool__(self):
            raise ValueError("no truth")

    def f(x, a, b):
        y = x + 1
        if a:
            y = y * 2
        return y if b else x

    return f, (t(2), Falsy(), Bad())


def noted_box():
    class Noted(property):
        def __init__(self, *parts, note=""):
            super().__init__(*parts)
            self.note = note

    class Box:
        def __init__(self):
            self.n = 1.0

        def _get(self):
            return self.n * 2

        def _set(self, value):
            self.n = value

        twice = Noted(_get, note="doubled")
        both = Noted(_get).setter(_set)

    return Noted, Box


@agrees(graphs=1, breaks=0)
def test_subclasses_of_property():
    _, Box = noted_box()
    box = Box()

    def f(x):
        box.both = 4.0
        return x * box.twice + box.both, Box.twice.note

    return f, (t(3),)


@agrees()
def test_subclasses_of_property_patched():
    Noted, Box = noted_box()
    box = Box()

    def f(x):
        box.both = 4.0
        return x * box.twice + box.both

    def patched():
        Noted.__get__ = lambda self, instance, owner=None: self if instance is None else 7.0

    def restored():
        del Noted.__get__

    return f, (t(3),), [patched, restored]


@agrees(graphs=1, breaks=0)
def test_descriptor_of_the_users_read_from_the_class():
    class Registry:
        def __init__(self, value):
            self.value = value

        def __get__(self, instance, owner):
            return self.value * 2 if instance is None else self.value

    class Holder:
        scale = Registry(3)

    def f(x):
        return x * Holder.scale + Holder().scale

    return f, (t(3),)


@agrees(breaks=0)
def test_attributes_of_tensors_made_here():
    def f(x):
        y = x * 2
        y.note = "made"
        y.note = y.note + " here", x
        z = y + 1
        z.of = y
        return y, y.view(-1), hasattr(y, "other"), hasattr(z, "note"), z.of.note[0], y.note

    return f, (t(3),)


@agrees()
def test_attributes_of_tensors_that_stay():
    def f(x):
        x.note = 3
        y = x * 2
        y.requires_grad = True
        y.first = 1
        del y.first
        return x, y, hasattr(y, "first"), x.note

    return f, (t(3),)


def test_attributes_of_tensors_are_on_the_results():
    def f(x):
        y = x * 2
        y.note = "made"
        return y

    run = jit(f)
    assert [run(t(3)).note for _ in range(3)] == ["made"] * 3


class Settings(types.SimpleNamespace):
    def twice(self, x):
        return x * self.scale * 2


@agrees(breaks=0)
def test_simple_namespaces():
    outside = types.SimpleNamespace(scale=2.0, inner=types.SimpleNamespace(p=0.5), n=1)
    derived = Settings(scale=3.0)

    def f(x):
        copied = types.SimpleNamespace(**vars(outside.inner))
        outside.n += 1
        outside.last = x * outside.scale
        made = types.SimpleNamespace(h=x * outside.inner.p, k=1)
        made.z = made.h + made.k
        del made.k
        derived.scale += 1
        try:
            made.k
        except AttributeError as error:
            text = str(error)
        try:
            derived.gone
        except AttributeError as error:
            text += str(error)
        copied.scale = copied.p + 7
        own = Settings(scale=x)
        return made, derived.twice(x), copied.scale, text, hasattr(made, "q"), own.twice(x), own

    return (
        f,
        (t(2),),
        [
            lambda: setattr(outside, "scale", 5.0),
            lambda: setattr(outside.inner, "p", 2),
            lambda: delattr(outside, "last"),
        ],
    )


@agrees()
def test_messages_name_the_modules_of_classes_in_c():
    def f(x, queue, ordered):
        texts = []
        for one in (queue, ordered, types.SimpleNamespace(), Settings()):
            try:
                one.missing
            except AttributeError as error:
                texts.append(str(error))
        return x + 1, texts

    return f, (t(2), collections.deque(), collections.OrderedDict())


@agrees(graphs=1, breaks=0, recompiles=0)
def test_an_attribute_is_set_on_an_argument():
    def f(x):
        before = getattr(x, "note", None)
        x.note = 5
        setattr(x, "twice", x * x.note)
        return x + 1, x.twice, before, hasattr(x, "note"), hasattr(x, "other")

    kept = [torch.ones(3) for _ in range(3)]
    steps = [lambda: (kept[1],), lambda: (kept[2],), lambda: (kept[2].clone(),)]
    return f, (kept[0],), steps


@agrees(breaks=0)
def test_an_attribute_of_an_argument_is_replaced():
    """What it was is seen by the caller."""
    held = torch.ones(3)

    def f(x):
        x.note = x * 2
        return x.note + 1

    return f, (held,), [lambda: (held,), lambda: (held.note,), lambda: (held.note.note,)]


@agrees(breaks=0, recompiles=2)
def test_an_attribute_is_set_on_arguments_that_are_one_at_times():
    def f(x, y):
        x.n = getattr(x, "n", 0) + 1
        y.n = getattr(y, "n", 0) + 10
        return x.n, y.n, x + y

    one, other = torch.ones(3), torch.zeros(3)
    steps = [lambda: (one, one), lambda: (other, one), lambda: (other, other)]
    return f, (one, other), [*steps, *steps]


@agrees(codes=("GB115", "GB113"))
def test_an_attribute_is_set_on_a_subclass_of_tensor():
    class Marked(torch.Tensor):
        pass

    def f(x):
        x.note = 5
        return x.note

    return f, (torch.ones(3).as_subclass(Marked),)


@agrees(calls=2)
def test_what_reading_an_attribute_of_a_constant_raises():
    def f(x):
        caught = []
        for dtype in (torch.quint8, torch.float32):
            try:
                caught.append(dtype.is_signed)
            except RuntimeError as error:
                caught.append(str(error))
        try:
            caught.append(torch.float32.missing)
        except AttributeError as error:
            caught.append(str(error))
        return x + 1, caught

    return f, (torch.ones(2),)
