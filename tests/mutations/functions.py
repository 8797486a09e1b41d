"""Functions and what they are made of: code, defaults, closures, partials, wrappers, caches, generators."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import operator
import types

import torch

from .kinds import SAME, kind, unsettled
from .objects import Box

X = torch.tensor([0.5, -1.0])


@kind
def code_replaced():
    def g(x):
        return x + 1

    def h(x):
        return x * 3

    def f(x):
        return g(x)

    first = g.__code__
    yield f, (X,)
    g.__code__ = h.__code__
    yield
    g.__code__ = first
    yield SAME


@kind
def code_of_the_program_replaced():
    def f(x):
        return x + 1

    def h(x):
        return x * 3

    first = f.__code__
    yield f, (X,)
    f.__code__ = h.__code__
    yield
    f.__code__ = first
    yield


@kind
def code_with_another_constant():
    def g(x):
        return x + 1

    def f(x):
        return g(x)

    yield f, (X,)
    g.__code__ = g.__code__.replace(
        co_consts=tuple(5 if c == 1 else c for c in g.__code__.co_consts)
    )
    yield


@kind
def defaults_replaced():
    def g(x, n=1, *, k=2):
        return x * k + n

    def f(x):
        return g(x)

    yield f, (X,)
    g.__defaults__ = (5,)
    yield
    g.__kwdefaults__ = {"k": 7}
    yield
    g.__kwdefaults__["k"] = 8
    yield
    g.__defaults__, g.__kwdefaults__ = (1,), {"k": 2}
    yield SAME


@kind
def defaults_of_the_program():
    def f(x, n=1, *, k=2):
        return x * k + n

    yield f, (X,)
    f.__defaults__ = (5,)
    yield
    f.__kwdefaults__ = {"k": 7}
    yield
    f.__defaults__, f.__kwdefaults__ = (1,), {"k": 2}
    yield SAME


@kind
def default_taken_away():
    def g(x, n=1):
        return x + n

    def f(x):
        try:
            return g(x)
        except TypeError:
            return x * 9

    yield f, (X,)
    g.__defaults__ = None
    yield
    g.__defaults__ = (1,)
    yield SAME


@kind
def cell_of_the_program_rebound():
    n = 1

    def f(x):
        return x + n

    yield f, (X,)
    n = 2
    yield
    n = 1
    yield SAME


@kind
def cell_contents_set():
    def make():
        n = 1

        def g(x):
            return x * n

        return g

    g = make()

    def f(x):
        return g(x)

    yield f, (X,)
    g.__closure__[0].cell_contents = 6
    yield
    g.__closure__[0].cell_contents = 1
    yield SAME


@kind
def cell_emptied():
    def make():
        n = 1

        def g(x):
            return x * n

        return g

    g = make()

    def f(x):
        try:
            return g(x)
        except NameError:
            return x - 7

    yield f, (X,)
    del g.__closure__[0].cell_contents
    yield
    g.__closure__[0].cell_contents = 1
    yield SAME


@kind
def nonlocal_rebound_by_another_function():
    n = 1

    def bump():
        nonlocal n
        n += 1

    def f(x):
        return x + n

    yield f, (X,)
    bump()
    yield
    bump()
    yield


@unsettled
def nonlocal_rebound_by_the_program():
    n = 1

    def f(x):
        nonlocal n
        n += 1
        return x + n

    yield f, (X,)
    n = 50
    yield
    n = 0.5
    yield


@kind
def deep_closure():
    def outer(n):
        def middle(k):
            def inner(x):
                return x * k + n

            return inner

        return middle

    g = outer(1)(2)

    def f(x):
        return g(x)

    yield f, (X,)
    dict(zip(g.__code__.co_freevars, g.__closure__, strict=True))["n"].cell_contents = 4
    yield
    dict(zip(g.__code__.co_freevars, g.__closure__, strict=True))["k"].cell_contents = 4
    yield


@kind
def function_replaced_in_a_cell():
    def g(x):
        return x + 1

    def f(x):
        return g(x)

    first = g
    yield f, (X,)
    g = lambda x: x * 2  # noqa: E731
    yield
    g = torch.sin
    yield
    g = first
    yield SAME


@kind
def function_attributes():
    def g(x):
        return x + g.n

    g.n = 1

    def f(x):
        return g(x)

    yield f, (X,)
    g.n = 2
    yield
    g.__dict__["n"] = 3
    yield
    g.n = 1
    yield SAME


@kind
def name_of_a_function():
    def g(x):
        return x

    def f(x):
        return x + len(g.__name__) + len(g.__doc__ or "")

    yield f, (X,)
    g.__name__ = "longer"
    yield
    g.__doc__ = "words"
    yield


@kind
def partial_fields():
    def g(x, n, k=1):
        return x * k + n

    part = functools.partial(g, n=2)

    def f(x):
        return part(x)

    yield f, (X,)
    part.keywords["n"] = 5
    yield
    part.keywords["k"] = 7
    yield
    part.__setstate__((lambda x, n: x - n, (), {"n": 3}, {}))
    yield


@kind
def partial_arguments():
    def g(n, x):
        return x * n

    part = functools.partial(g, 2)

    def f(x):
        return part(x)

    yield f, (X,)
    part.__setstate__((g, (5,), {}, {}))
    yield
    part.__setstate__((g, ([2][0],), {}, {}))
    yield SAME


@kind
def partial_jitted():
    def g(n, x, k=1):
        return x * n + k

    part = functools.partial(g, 2)
    yield part, (X,)
    part.keywords["k"] = 9
    yield
    part.__setstate__((g, (5,), {}, {}))
    yield


@kind
def partial_method():
    class A:
        def go(self, n, x):
            return x * n

        twice = functools.partialmethod(go, 2)

    a = A()

    def f(x):
        return a.twice(x)

    yield f, (X,)
    A.twice = functools.partialmethod(A.go, 5)
    yield
    A.go = lambda self, n, x: x - n
    yield


@kind
def wrapped_function():
    def logged(fn):
        @functools.wraps(fn)
        def inner(*args):
            return fn(*args)

        return inner

    def g(x):
        return x + 1

    h = logged(g)

    def f(x):
        return h(x), h.__wrapped__(x)

    yield f, (X,)
    h.__wrapped__ = lambda x: x * 4
    yield
    g.__code__ = (lambda x: x * 8).__code__
    yield


@kind
def lru_cache_emptied():
    o = Box(n=1)

    @functools.lru_cache(None)
    def g():
        return o.n

    def f(x):
        return x + g()

    yield f, (X,)
    o.n = 2
    yield
    g.cache_clear()
    yield


@kind
def lru_cache_of_arguments():
    o = Box(scale=2)

    @functools.lru_cache(maxsize=2)
    def g(n):
        return n * o.scale

    def f(x, n):
        return x + g(n)

    yield f, (X, 1)
    o.scale = 5
    yield
    yield X, 2
    yield X, 3
    yield X, 1


# the first call of a class fills the cache of singledispatch, which the second one finds
@unsettled
def single_dispatch_registered():
    @functools.singledispatch
    def g(value, x):
        return x

    o = Box(value=1)

    def f(x):
        return g(o.value, x)

    yield f, (X,)
    g.register(int, lambda value, x: x + value)
    yield
    g.register(bool, lambda value, x: x * 9)
    yield
    o.value = True
    yield


@kind
def operators_of_the_library():
    o = Box(get=operator.attrgetter("n"), n=1, k=5)

    def f(x):
        return x + o.get(o)

    yield f, (X,)
    o.n = 3
    yield
    o.get = operator.attrgetter("k")
    yield
    o.get = operator.methodcaller("__len__")
    Box.__len__ = lambda self: 8
    try:
        yield
    finally:
        del Box.__len__


@kind
def bound_method_kept():
    class A:
        n = 1

        def go(self, x):
            return x + self.n

    a, b = A(), A()
    b.n = 5
    o = Box(go=a.go)

    def f(x):
        return o.go(x)

    yield f, (X,)
    a.n = 3
    yield
    o.go = b.go
    yield
    A.go = lambda self, x: x * 100
    yield
    o.go = types.MethodType(lambda self, x: x - self.n, a)
    yield


@kind
def method_of_a_list_kept():
    items = [1, 2, 2]
    o = Box(count=items.count)

    def f(x):
        return x + o.count(2)

    yield f, (X,)
    items.append(2)
    yield
    o.count = [2].count
    yield


@kind
def generator_function_replaced():
    def numbers():
        yield 1
        yield 2

    def other():
        yield 5

    def f(x):
        for n in numbers():
            x = x * 2 + n
        return x

    yield f, (X,)
    numbers.__code__ = other.__code__
    yield


@kind
def context_manager_replaced():
    o = Box(n=1)

    @contextlib.contextmanager
    def scaled():
        yield o.n

    def f(x):
        with scaled() as n:
            return x * n

    yield f, (X,)
    o.n = 4
    yield
    scaled = lambda: contextlib.nullcontext(7)  # noqa: E731, F811
    yield


@kind
def context_variable():
    level = contextvars.ContextVar("level", default=1)

    def f(x):
        return x * level.get()

    yield f, (X,)
    token = level.set(5)
    yield
    level.set(6)
    yield
    level.reset(token)
    yield


@kind
def context_variable_in_another_context():
    level = contextvars.ContextVar("level", default=1)

    def g(x):
        return x * level.get()

    o = Box(context=contextvars.copy_context())

    def f(x):
        return o.context.run(g, x)

    yield f, (X,)
    o.context.run(level.set, 4)
    yield
    o.context = contextvars.copy_context()
    yield


@kind
def decorated_again():
    def double(fn):
        return lambda x: fn(x) * 2

    def g(x):
        return x + 1

    def f(x):
        return g(x)

    yield f, (X,)
    g = double(g)
    yield
    g = double(g)
    yield


@kind
def functions_in_a_table():
    table = {"act": torch.relu, "post": [torch.sin]}

    def f(x):
        x = table["act"](x)
        for fn in table["post"]:
            x = fn(x)
        return x

    yield f, (X,)
    table["act"] = torch.tanh
    yield
    table["post"].append(lambda x: x + 1)
    yield
    table["act"] = torch.relu
    table["post"].pop()
    yield SAME


@kind
def recursion_replaced():
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def f(x):
        return x + fact(4)

    yield f, (X,)
    first, fact = fact, lambda n: n
    yield
    fact = first
    yield SAME


@kind
def annotations_read():
    def g(x: int) -> float:
        return x

    def f(x):
        return x + len(g.__annotations__)

    yield f, (X,)
    g.__annotations__["y"] = int
    yield
    g.__annotations__ = {}
    yield


@kind
def thread_local():
    import threading

    local = threading.local()
    local.n = 1

    def f(x):
        return x + local.n

    yield f, (X,)
    local.n = 5
    yield


@kind
def function_as_an_argument():
    def f(x, fn):
        return fn(x) + 1

    def make(n):
        return lambda x: x * n

    yield f, (X, make(2))
    yield X, make(3)
    yield X, torch.sin
    yield X, make(2)


@kind
def property_of_a_callable_object():
    class Call:
        n = 2

        def __call__(self, x):
            return x * self.n

    o = Call()

    def f(x):
        return o(x)

    yield f, (X,)
    Call.__call__ = lambda self, x: x - self.n
    yield
    o.n = 9
    yield
    o.__call__ = lambda x: x  # not what a call looks up
    yield SAME
