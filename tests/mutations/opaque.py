"""Objects whose contents no guard can walk, replaced by others of their type: patterns, getters, jitted functions, C iterators."""

from __future__ import annotations

import datetime
import functools
import inspect
import itertools
import operator
import pathlib
import random
import re
import struct
import types
import uuid

import numpy as np
import torch

import graftjit

from .kinds import kind, unsettled
from .objects import Box

X = torch.tensor([0.5, -1.0])


@kind
def jitted_function_replaced():
    one, two = graftjit.jit(lambda x: x + 1), graftjit.jit(lambda x: x * 5)
    o = Box(go=one)

    def f(x):
        return o.go(x)

    yield f, (X,)
    o.go = two
    yield
    o.go = one
    yield


@kind
def jitted_method_replaced():
    class A:
        n = 2

        @graftjit.jit
        def go(self, x):
            return x * self.n

    a = A()

    def f(x):
        return a.go(x)

    first = A.go
    yield f, (X,)
    A.go = graftjit.jit(lambda self, x: x - self.n)
    yield
    A.go = first
    yield
    a.n = 7
    yield


@kind
def jitted_module_replaced():
    config = graftjit.JitConfig(jit_level="O0")
    o = Box(net=graftjit.compile(torch.nn.ReLU(), config=config))

    def f(x):
        return o.net(x)

    yield f, (X,)
    first, o.net = o.net, graftjit.compile(torch.nn.Tanh(), config=config)
    yield
    o.net = first
    yield
    o.net = torch.nn.Sigmoid()
    yield


@kind
def regular_expression_replaced():
    o = Box(pattern=re.compile("a+"))

    def f(x):
        return x + 1 if o.pattern.match("aab") else x - 1, o.pattern.pattern

    yield f, (X,)
    o.pattern = re.compile("b+")
    yield
    o.pattern = re.compile("a*")
    yield


@kind
def getters_replaced():
    o = Box(get=operator.itemgetter(0), items=[1, 5])

    def f(x):
        return x + o.get(o.items)

    yield f, (X,)
    o.get = operator.itemgetter(1)
    yield
    o.get = operator.itemgetter(-1)
    yield


@kind
def method_callers_replaced():
    o = Box(call=operator.methodcaller("count", 1), items=[1, 5])

    def f(x):
        return x + o.call(o.items)

    yield f, (X,)
    o.call = operator.methodcaller("index", 5)
    yield
    o.call = operator.methodcaller("count", 7)
    yield


@kind
def cached_functions_replaced():
    one = functools.lru_cache(lambda n: n + 1)
    two = functools.lru_cache(lambda n: n * 50)
    o = Box(go=one)

    def f(x):
        return x + o.go(3)

    yield f, (X,)
    o.go = two
    yield
    o.go = functools.lru_cache(maxsize=1)(lambda n: -n)
    yield


@kind
def dates_replaced():
    o = Box(day=datetime.date(2024, 1, 2), span=datetime.timedelta(seconds=3))

    def f(x):
        return x + o.day.day + o.span.total_seconds()

    yield f, (X,)
    o.day = datetime.date(2024, 1, 9)
    yield
    o.span = datetime.timedelta(seconds=30)
    yield


@kind
def paths_replaced():
    o = Box(path=pathlib.PurePosixPath("a/b.c"))

    def f(x):
        return x + len(o.path.name) + len(o.path.parts)

    yield f, (X,)
    o.path = pathlib.PurePosixPath("a/b/longer.c")
    yield


@kind
def identifiers_replaced():
    o = Box(key=uuid.UUID(int=5))

    def f(x):
        return x + o.key.int

    yield f, (X,)
    o.key = uuid.UUID(int=9)
    yield


@kind
def structs_and_views_replaced():
    o = Box(layout=struct.Struct("i"), view=memoryview(b"ab"))

    def f(x):
        return x + o.layout.size + o.view[0] + len(o.view)

    yield f, (X,)
    o.layout = struct.Struct("qq")
    yield
    o.view = memoryview(b"zzz")
    yield


@unsettled
def random_generators_replaced():
    o = Box(random=random.Random(1), numbers=np.random.default_rng(1))

    def f(x):
        return x + o.random.random() + o.numbers.random()

    yield f, (X,)
    o.random = random.Random(7)
    yield
    o.numbers = np.random.default_rng(8)
    yield


@kind
def generator_of_torch_replaced():
    o = Box(generator=torch.Generator().manual_seed(1))

    def f(x):
        return x + torch.rand(2, generator=o.generator)

    yield f, (X,)
    o.generator = torch.Generator().manual_seed(5)
    yield


@kind
def signatures_replaced():
    o = Box(signature=inspect.signature(lambda a: a))

    def f(x):
        return x + len(o.signature.parameters)

    yield f, (X,)
    o.signature = inspect.signature(lambda a, b, c: a)
    yield


@unsettled
def iterators_of_the_library():
    o = Box(it=itertools.chain([1], [2, 3], [4, 5, 6, 7]))

    def f(x):
        return x + next(o.it)

    yield f, (X,)
    o.it = itertools.chain([10, 20, 30])
    yield
    o.it = zip([5, 6, 7], strict=False)
    o.it = map(abs, [-5, -6, -7])
    yield
    o.it = itertools.cycle([9, 8])
    yield


@kind
def aliases_and_unions_replaced():
    o = Box(kind=list[int])

    def f(x):
        return x + len(o.kind.__args__)

    yield f, (X,)
    o.kind = dict[int, str]
    yield
    o.kind = int | str | None
    yield


@kind
def numpy_functions_and_dtypes():
    o = Box(fn=np.maximum, dtype=np.dtype("float32"))

    def f(x):
        return x + float(o.fn(1.0, 2.0)) + o.dtype.itemsize

    yield f, (X,)
    o.fn = np.minimum
    yield
    o.dtype = np.dtype("float64")
    yield


@kind
def operators_of_torch_replaced():
    o = Box(op=torch.ops.aten.sin.default)

    def f(x):
        return o.op(x)

    yield f, (X,)
    o.op = torch.ops.aten.cos.default
    yield
    o.op = torch.ops.aten.tan
    yield


@kind
def builtin_methods_replaced():
    one, two = {"a": 1}, {"a": 5, "b": 2}
    o = Box(get=one.get, join=",".join)

    def f(x):
        return x + o.get("a") + len(o.join(["p", "q"]))

    yield f, (X,)
    o.get = two.get
    yield
    o.join = " and ".join
    yield
    o.get = lambda name: 9
    yield


@kind
def functions_with_equal_code():
    def make(n, k=1):
        def go(x, k=k):
            return x * n + k

        return go

    o = Box(go=make(2))

    def f(x):
        return o.go(x)

    yield f, (X,)
    o.go = make(3)
    yield
    o.go = make(2, 9)
    yield
    o.go = make(2)
    yield


@kind
def functions_with_equal_code_and_other_globals():
    def go(x):
        return x * SCALE

    o = Box(go=types.FunctionType(go.__code__, {"SCALE": 2}))

    def f(x):
        return o.go(x)

    yield f, (X,)
    o.go = types.FunctionType(go.__code__, {"SCALE": 5})
    yield
    o.go.__globals__["SCALE"] = 6
    yield
    o.go = types.FunctionType(go.__code__, globals())
    globals()["SCALE"] = 7
    yield


SCALE = 1


@kind
def functions_that_share_a_cell():
    def make():
        n = 1

        def put(value):
            nonlocal n
            n = value

        def get():
            return n

        return put, get

    (put_a, get_a), (put_b, get_b) = make(), make()
    o = Box(put=put_a, get=get_b)

    def f(x):
        o.put(5)
        return x + o.get()

    yield f, (X,)
    o.get = get_a
    yield
    o.put = put_b
    yield
    o.get = get_b
    yield


@kind
def functions_compared():
    def make():
        return lambda x: x + 1

    one, two = make(), make()
    o = Box(a=one, b=two)

    def f(x):
        return o.a(x) if o.a is o.b else o.b(x) * 2, o.a == one, {one: 5}.get(o.a, 7)

    yield f, (X,)
    o.a = two
    yield
    o.b, o.a = one, make()
    yield
    o.a = one
    yield
