"""Classes, metaclasses, functions and torch itself patched between two calls: special methods of all kinds."""

from __future__ import annotations

import builtins
import collections
import enum
import functools
import sys
import types
import unittest.mock

import torch
import torch.nn.functional as F

import graftjit

from .harness import agrees

X = torch.ones(2)


@agrees()
def test_init_patched():
    class A:
        pass

    def f(x):
        a = A()
        return x + getattr(a, "n", 0)

    return (
        f,
        (X,),
        [
            lambda: setattr(A, "__init__", lambda s: setattr(s, "n", 5)),
            lambda: setattr(A, "__new__", staticmethod(lambda c: types.SimpleNamespace(n=9))),
        ],
    )


@agrees()
def test_meta_call():
    class M(type):
        pass

    class A(metaclass=M):
        n = 1

    def f(x):
        return x + A().n

    return f, (X,), [lambda: setattr(M, "__call__", lambda c: types.SimpleNamespace(n=9))]


@agrees()
def test_callable():
    class A:
        pass

    a = A()

    def f(x):
        return x + callable(a), callable(a)

    return f, (X,), [lambda: setattr(A, "__call__", lambda s: 1)]


@agrees()
def test_class_repr():
    class A:
        pass

    def f(x):
        return x + 1, f"{A}", str(A), repr(A)

    return (
        f,
        (X,),
        [lambda: setattr(A, "__qualname__", "Z"), lambda: setattr(A, "__module__", "mm")],
    )


@agrees()
def test_tensor_add():
    before = torch.Tensor.__add__

    def f(x):
        return x + 1, 2 + x

    return (
        f,
        (X,),
        [
            lambda: setattr(torch.Tensor, "__add__", lambda s, o: before(s, o * 10)),
            lambda: setattr(torch.Tensor, "__add__", before),
        ],
    )


@agrees()
def test_tensor_dim():
    before = torch.Tensor.dim

    def f(x):
        return x + x.dim(), x.size()

    def undo():
        del torch.Tensor.dim

    return f, (X,), [lambda: setattr(torch.Tensor, "dim", lambda s: 7), lambda: undo()]


@agrees()
def test_tensor_class_attr():
    def f(x):
        return x + x.note

    def undo():
        del torch.Tensor.note

    torch.Tensor.note = 3
    return (
        f,
        (X,),
        [
            lambda: setattr(torch.Tensor, "note", 4),
            lambda: setattr(torch.Tensor, "note", property(lambda s: 5)),
            lambda: undo(),
        ],
    )


@agrees()
def test_instancecheck():
    class A:
        __slots__ = ()

    class M(type):
        pass

    class B(metaclass=M):
        pass

    a = A()

    def f(x):
        return x + isinstance(a, B), isinstance(a, B)

    return f, (X,), [lambda: setattr(M, "__instancecheck__", lambda c, o: True)]


@agrees()
def test_namedtuple():
    P = collections.namedtuple("P", "a b")

    def f(x):
        p = P(x, 2)
        return p.a * p.b, p

    return (
        f,
        (X,),
        [
            lambda: setattr(P, "__new__", lambda c, a, b: tuple.__new__(c, (a, b * 10))),
            lambda: setattr(P, "b", property(lambda s: 7)),
        ],
    )


@agrees()
def test_enum():
    class E(enum.Enum):
        A = 1

    def f(x):
        return x + E.A.value, E.A.name, E["A"] is E.A, E(1) is E.A

    return f, (X,), [lambda: setattr(E.A, "_value_", 5)]


@agrees()
def test_with():
    class C:
        def __enter__(self):
            return 1

        def __exit__(self, *a):
            return None

    c = C()

    def f(x):
        with c as k:
            y = x + k
        return y

    return (
        f,
        (X,),
        [
            lambda: setattr(C, "__enter__", lambda s: 5),
            lambda: setattr(C, "__exit__", lambda s, *a: 1 / 0),
        ],
    )


@agrees()
def test_list_subclass():
    class L(list):
        pass

    l = L([1, 2])

    def f(x):
        return x + sum(l), len(l), [v for v in l], l[0], 2 in l

    return (
        f,
        (X,),
        [
            lambda: setattr(L, "__iter__", lambda s: iter([9])),
            lambda: setattr(L, "__len__", lambda s: 77),
            lambda: setattr(L, "__getitem__", lambda s, i: 5),
            lambda: setattr(L, "__contains__", lambda s, i: False),
        ],
    )


@agrees()
def test_dict_subclass():
    class D(dict):
        pass

    d = D(a=1)

    def f(x):
        return x + d["a"], d.get("a"), list(d), "a" in d, {**d}, dict(d), len(d), bool(d)

    return (
        f,
        (X,),
        [
            lambda: setattr(D, "__getitem__", lambda s, i: 5),
            lambda: setattr(D, "keys", lambda s: ["a"]),
            lambda: setattr(D, "__bool__", lambda s: False),
            lambda: setattr(D, "get", lambda s, k: 8),
            lambda: setattr(D, "__missing__", lambda s, k: 3),
        ],
    )


@agrees()
def test_cached_property():
    class A:
        @functools.cached_property
        def v(self):
            return 4

    a = A()

    def f(x):
        return x + a.v

    return f, (X,), [lambda: a.__dict__.pop("v"), lambda: a.__dict__.update(v=9)]


@agrees()
def test_class_of_object():
    class A:
        n = 1

    class B(A):
        pass

    b = B()

    def f(x):
        return x + b.n, b.__class__.__name__, type(b).__mro__[1].__name__

    return f, (X,), [lambda: setattr(b, "__class__", A), lambda: setattr(A, "n", 5)]


@agrees()
def test_code():
    fn = lambda x: x + 1

    def f(x):
        return fn(x)

    def wr(x):
        return x * 100

    return (
        f,
        (X,),
        [lambda: setattr(fn, "__code__", wr.__code__), lambda: setattr(fn, "__defaults__", (1,))],
    )


@agrees()
def test_forward_patched():
    net = torch.nn.Sequential(torch.nn.ReLU())

    def f(x):
        return net(x - 2)

    before = torch.nn.ReLU.forward
    return (
        f,
        (X,),
        [
            lambda: setattr(torch.nn.ReLU, "forward", lambda s, x: x * 3),
            lambda: setattr(net[0], "forward", lambda x: x * 4),
            lambda: setattr(net, "forward", lambda x: x * 5),
            lambda: setattr(torch.nn.ReLU, "forward", before),
        ],
    )


@agrees()
def test_f_relu_patched():
    before = F.relu
    net = torch.nn.ReLU()

    def f(x):
        return net(x - 2)

    return (
        f,
        (X,),
        [
            lambda: setattr(F, "relu", lambda x, inplace=False: x * 3),
            lambda: setattr(F, "relu", before),
        ],
    )


@agrees()
def test_method_on_tensor_instance():
    y = torch.ones(2)

    def f(x):
        return y.sum() + x

    return f, (X,), [lambda: setattr(y, "sum", lambda: torch.tensor(50.0))]


@agrees()
def test_module__call_():
    before = torch.nn.Module.__call__
    net = torch.nn.ReLU()

    def f(x):
        return net(x - 2)

    return (
        f,
        (X,),
        [
            lambda: setattr(torch.nn.Module, "__call__", lambda s, x: x * 3),
            lambda: setattr(torch.nn.Module, "__call__", before),
        ],
    )


@agrees()
def test_sequence_protocol():
    class A:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            if i > 2:
                raise IndexError
            return i

    a = A()

    def f(x):
        return x + len(a), list(a), bool(a), [*reversed(a)]

    return (
        f,
        (X,),
        [
            lambda: setattr(A, "__len__", lambda s: 2),
            lambda: setattr(A, "__iter__", lambda s: iter("ab")),
            lambda: setattr(A, "__reversed__", lambda s: iter("z")),
            lambda: setattr(A, "__bool__", lambda s: False),
        ],
    )


@agrees()
def test_eq():
    class A:
        def __eq__(self, o):
            return True

    a = A()

    def f(x):
        return x + (a == 1), a != 1, a in [3], 3 in [a], [a].index(5)

    return (
        f,
        (X,),
        [
            lambda: setattr(A, "__ne__", lambda s, o: "ne"),
            lambda: setattr(A, "__eq__", lambda s, o: o == 1),
        ],
    )


@agrees()
def test_binary():
    class A:
        def __init__(self):
            self.v = 1

        def __add__(self, o):
            return NotImplemented

        def __radd__(self, o):
            return 5

        def __iadd__(self, o):
            self.v += o
            return self

        def __mul__(self, o):
            return o * 2

    class B(A):
        def __radd__(self, o):
            return 7

    a = A()
    b = B()

    def f(x):
        c = a
        c += 1
        return x * a, 1 + a, c.v, a + b, -3 * b if hasattr(b, "__rmul__") else 0

    return (
        f,
        (X,),
        [
            lambda: delattr(A, "__iadd__"),
            lambda: setattr(A, "__add__", lambda s, o: a),
            lambda: setattr(B, "__rmul__", lambda s, o: 8),
        ],
    )


@agrees()
def test_conversions():
    class A:
        def __str__(self):
            return "s"

        def __int__(self):
            return 3

        def __float__(self):
            return 2.5

        def __index__(self):
            return 1

        def __hash__(self):
            return 5

        def __abs__(self):
            return 9

        def __round__(self, n=None):
            return 4

        def __neg__(self):
            return 6

    a = A()

    def f(x):
        return (
            x + int(a),
            str(a),
            f"{a}",
            float(a),
            [1, 2, 3][a],
            hash(a),
            abs(a),
            round(a),
            -a,
            x[a],
            range(a),
        )

    return (
        f,
        (X,),
        [
            lambda: setattr(A, "__int__", lambda s: 8),
            lambda: setattr(A, "__format__", lambda s, k: "f"),
            lambda: delattr(A, "__str__") or setattr(A, "__repr__", lambda s: "r"),
            lambda: setattr(A, "__index__", lambda s: 0),
        ],
    )


@agrees()
def test_builtins_replaced_by_a_function_that_is_called():
    def f(x, name, stands):
        def replace(by):
            setattr(builtins, name, by)

        before, real = len([1, 2]), getattr(builtins, name)
        replace(stands)
        try:
            return before, len([1, 2]), x + len("abc"), [i for i in range(3)]
        finally:
            replace(real)

    return f, (X, "len", lambda _: 40), [lambda: (X, "range", lambda _: (7, 8))]


@agrees()
def test_builtins_made_and_dropped():
    def f(x):
        builtins.made_here = 5
        found = made_here  # noqa: F821
        del builtins.made_here
        try:
            return made_here  # noqa: F821
        except NameError as error:
            return found, x + found, str(error)

    return f, (X,)


@agrees()
def test_an_import_replaced():
    def f(x):
        real = builtins.__import__
        builtins.__import__ = lambda name, *_: types.SimpleNamespace(pi=len(name))
        try:
            import math as found

            return x + found.pi
        finally:
            builtins.__import__ = real

    return f, (X,)


@agrees()
def test_modules_put_in_place_of_others():
    def f(x):
        real, sys.modules["math"] = sys.modules["math"], types.SimpleNamespace(pi=3)
        try:
            import math as found
            from math import pi

            return x + found.pi, pi
        finally:
            sys.modules["math"] = real

    return f, (X,)


@agrees()
def test_modules_put_in_and_looked_through():
    def f(x):
        made = types.ModuleType("made_here")
        made.v = 5
        sys.modules["made_here"] = made
        try:
            import made_here

            names = [name for name in sys.modules if name.startswith("made_h")]
            return x + made_here.v, names, len(sys.modules) > 3
        finally:
            del sys.modules["made_here"]

    return f, (X,)


def test_a_class_of_modules_with_a_look_up_of_its_own():
    log = []

    def f(x):
        class Kind(types.ModuleType):
            def __getattribute__(self, name):
                log.append(name)
                return super().__getattribute__(name)

        made = Kind("made")
        made.value = 5
        return x + made.value

    f(X)
    plain, jitted = log.copy(), graftjit.jit(f)
    for _ in range(2):
        log.clear()
        jitted(X)
        assert log == plain == ["value"]


@agrees()
def test_a_function_of_torch_replaced_for_a_while():
    def f(x):
        real = torch.relu
        torch.relu = lambda x: x + 100
        try:
            return torch.relu(x), F.relu(x), torch.nn.ReLU()(x)
        finally:
            torch.relu = real

    return f, (X,)


@agrees()
def test_torch_patched_by_mock():
    def f(x):
        with unittest.mock.patch.object(F, "softplus", lambda x: x + 100):
            inside = F.softplus(x), torch.nn.Softplus()(x)
        return inside, F.softplus(x)

    return f, (X,)
