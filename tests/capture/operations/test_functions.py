"""Functions: binding, closures, cells, globals, decorators, partials, recursion, functions made inside."""

from __future__ import annotations

import functools
import math
import operator
import re
import sys
import types

import torch

from graftjit import graft_break

from ..harness import agrees, t

COUNT = 0
SCALE = 2
LIST = [1]


@agrees(calls=3)
def test_globals_written():
    global COUNT, LIST
    COUNT, LIST = 0, [1]

    def f(x):
        global COUNT, MADE
        COUNT += 1
        LIST.append(COUNT)
        MADE = x * COUNT
        return MADE + len(LIST)

    return f, (t(2),)


@agrees()
def test_globals_changed_between():
    global SCALE
    SCALE = 2

    def f(x):
        return x * SCALE

    def five():
        global SCALE
        SCALE = 5

    def text():
        global SCALE
        SCALE = t(2)

    def gone():
        global SCALE
        del SCALE

    return f, (t(2),), [five, text, gone, five]


@agrees()
def test_builtin_shadowed_and_unshadowed():
    def f(x):
        return x * len([1, 2]) + abs(-1)

    def shadow():
        global len
        len = lambda v: 10  # noqa: E731

    def back():
        global len
        del len

    return f, (t(2),), [shadow, back]


@agrees()
def test_global_function_replaced():
    global helper

    def helper(x):
        return x + 1

    def f(x):
        return helper(x) * 2

    def other():
        global helper

        def helper(x):
            return x + 100

    return f, (t(2),), [other]


@agrees()
def test_closure_changed():
    n = 2

    def f(x):
        return x * n

    def three():
        nonlocal n
        n = 3

    def tensor():
        nonlocal n
        n = t(2)

    return f, (t(2),), [three, tensor, three]


@agrees(calls=3)
def test_nonlocal_written():
    n = 0
    seen = []

    def f(x):
        nonlocal n
        n += 1
        seen.append(n)
        if n == 2:
            print("two")
        n += 1
        return x * n

    return f, (t(2),)


@agrees(calls=2)
def test_binding():
    def g(a, b=2, /, c=3, *rest, d, e=5, **more):
        return a * b + c, rest, d, e, more

    def f(x):
        return (
            g(x, d=1), g(x, 1, 2, 3, 4, d=5, e=6, q=7), g(x, *(1, 2), **{"d": 3, "z": 4}), g(x, c=8, d=0),
            (lambda *a, **k: (a, k))(1, k=2),
        )  # fmt: skip

    return f, (t(2),)


@agrees(calls=2)
def test_own_star_arguments():
    def f(x, *rest, k=1, **more):
        more["added"] = k
        return x * k, rest, more

    return f, (t(2), 1, 2)


@agrees()
def test_wrong_arguments():
    def g(a, b):
        return a + b

    def f(x, mode):
        y = x + 1
        if mode == 0:
            return g(y)
        if mode == 1:
            return g(y, 1, 2)
        if mode == 2:
            return g(y, c=1)
        return g(y, 1)

    x = t(2)
    return f, (x, 0), [lambda: (x, 1), lambda: (x, 2), lambda: (x, 3)]


@agrees()
def test_wrong_arguments_of_the_jitted():
    def f(x, n):
        return x * n

    x = t(2)
    return f, (x,), [lambda: (x, 1), lambda: (x, 1, 2), lambda: ()]


@agrees(calls=2)
def test_functions_made_and_returned():
    def f(x, n):
        k = n + 1

        def inner(y, z=k, *, w=x):
            return y * k + z + w

        def counter():
            nonlocal k
            k += 1
            return k

        inner.note = "hello"
        counter()
        r = inner(x)
        return r, inner, counter, k

    return f, (t(2), 2)


@agrees(calls=2)
def test_returned_closures_share_cells():
    def f(x):
        n = 0

        def up():
            nonlocal n
            n += 1
            return n

        def get():
            return n

        up()
        y = x + n
        print("n", n)
        up()
        return y, up, get, (up(), get())

    return f, (t(2),)


@agrees(calls=2)
def test_closures_called_after():
    box = []

    def f(x):
        total = 0

        def add(v):
            nonlocal total
            total += v
            return total

        box.append(add)
        add(2)
        return x * total

    def step():
        box[-1](5)

    return f, (t(2),), [step, step]


@agrees(calls=2)
def test_late_binding_in_loops():
    def f(x):
        fs = [lambda: i for i in range(3)]
        gs = [lambda i=i: i for i in range(3)]
        return x + 1, [g() for g in fs], [g() for g in gs]

    return f, (t(2),)


@agrees(calls=2)
def test_decorators():
    def twice(fn):
        @functools.wraps(fn)
        def wrapper(*a, **k):
            return fn(fn(*a, **k), **k)

        return wrapper

    def scaled(by):
        def decorate(fn):
            return lambda x, **k: fn(x, **k) * by

        return decorate

    @twice
    @scaled(3)
    def g(x, n=1):
        return x + n

    def f(x):
        @twice
        def local(y):
            return y * 2

        return g(x), g(x, n=2), local(x), g.__name__, local.__name__

    return f, (t(2),)


@agrees()
def test_partials():
    def g(a, b, c=3, *, k=1):
        return a * b + c + k

    p = functools.partial(g, b=2, k=5)

    def f(x):
        q = functools.partial(g, x)
        return p(x), q(2), functools.partial(p, c=9)(x), q, functools.partial(q, 7).args

    def change():
        p.keywords["b"] = 4

    return f, (t(2),), [change]


@agrees(calls=2)
def test_recursion():
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def f(x, n):
        def fib(k):
            return k if k < 2 else fib(k - 1) + fib(k - 2)

        return x * fact(n), fib(n)

    return f, (t(2), 6)


@agrees(calls=2)
def test_endless_recursion():
    def g(n):
        return g(n + 1)

    def f(x):
        y = x + 1
        try:
            g(0)
        except RecursionError as error:
            return y, type(error).__name__
        return y

    return f, (t(2),)


@agrees(calls=2)
def test_functions_as_values():
    def f(x, fn, fns):
        out = [g(x) for g in fns]
        return fn(x), out, {"k": fn}["k"](x), (fn or None)(x), fn is fns[0], callable(fn)

    def one(x):
        return x + 1

    return f, (t(2), one, [one, torch.sin, math.floor and torch.abs, lambda x: x * 2])


@agrees()
def test_function_argument_changes():
    def f(x, fn):
        return fn(x)

    x = t(2)
    return f, (x, torch.sin), [
        lambda: (x, torch.cos), lambda: (x, lambda v: v * 2), lambda: (x, lambda v: v * 3),
        lambda: (x, x.add), lambda: (x, functools.partial(torch.mul, 3)),
    ]  # fmt: skip


@agrees(calls=2)
def test_operator_and_functools():
    def f(x, d):
        get = operator.itemgetter("a")
        return (
            operator.add(x, 1), operator.mul(2, 3), functools.reduce(operator.add, [x, x, x]),
            functools.reduce(lambda a, b: a * b, [1, 2, 3], x), get(d), operator.attrgetter("shape")(x),
        )  # fmt: skip

    return f, (t(2), {"a": 1})


@agrees(calls=2)
def test_unbound_names():
    def f(x, n):
        y = x + 1
        if n:
            z = 1
        try:
            return y, z
        except UnboundLocalError as error:
            return y, str(error)

    x = t(2)
    return f, (x, 0), [lambda: (x, 1)]


@agrees(calls=2)
def test_unbound_closure():
    def f(x):
        def g():
            return later

        y = x + 1
        try:
            g()
        except NameError as error:
            text = str(error)
        later = 5
        return y, text, g()

    return f, (t(2),)


@agrees(calls=2)
def test_undefined_global():
    def f(x):
        y = x + 1
        return y + nothing_here  # noqa: F821

    return f, (t(2),)


@agrees(calls=2)
def test_delete_names():
    def f(x):
        y = x + 1
        z = y
        del y
        try:
            y  # noqa: B018, F821
        except UnboundLocalError:
            return z

    return f, (t(2),)


@agrees(calls=3)
def test_mutable_default_argument():
    def f(x, seen=[]):  # noqa: B006
        seen.append(len(seen))
        return x * len(seen), seen

    return f, (t(2),)


@agrees(calls=2)
def test_function_attributes():
    def g(x):
        g.calls += 1
        return x * g.calls

    g.calls = 0

    def f(x):
        return g(x), g.calls, g.__name__, g.__doc__, g.__defaults__

    return f, (t(2),), [lambda: setattr(g, "calls", 10)]


@agrees(calls=2)
def test_generators():
    def gen(x, n):
        for i in range(n):
            got = yield x * i
            if got:
                yield got
        return "done"

    def f(x):
        a = list(gen(x, 3))
        b = [v + 1 for v in gen(x, 2)]
        g = gen(x, 2)
        c = next(g)
        d = g.send(5)
        total = sum(v for v in gen(x, 3))

        def outer():
            r = yield from gen(x, 1)
            yield r

        first, *rest = outer()
        return a, b, c, d, total, first, rest

    return f, (t(2),)


@agrees(calls=2)
def test_generator_over_a_break():
    def gen(x):
        try:
            for i in range(3):
                print("gen", i)
                yield x * i
        finally:
            print("closed")

    def f(x):
        out = []
        for y in gen(x):
            out.append(y + 1)
            if len(out) == 2:
                break
        return out

    return f, (t(2),)


@agrees(calls=2)
def test_jitted_generator_function():
    def f(x):
        y = x + 1
        yield y
        print("middle")
        yield y * 2

    def g(x):
        return [v for v in f(x)]

    return g, (t(2),)


@agrees(calls=2)
def test_class_defined_inside():
    def f(x):
        class Local:
            n = 3

            def m(self, y):
                return y * self.n

        return Local().m(x), Local.__name__

    return f, (t(2),)


@agrees(calls=2)
def test_import_inside():
    def f(x):
        import math as m
        from os import path

        return x * m.pi, path.join("a", "b")

    return f, (t(2),)


@agrees(calls=2)
def test_match():
    def g(v):
        match v:
            case 0:
                return "zero"
            case [a, b, *rest]:
                return (a, b, rest)
            case {"k": k, **more}:
                return (k, more)
            case str() | float() as s:
                return s
            case _:
                return "other"

    def f(x):
        return x + 1, [g(v) for v in (0, [1, 2, 3], {"k": x, "z": 1}, "s", 1.5, None, (4, 5))]

    return f, (t(2),)


@agrees(calls=2)
def test_locals_and_frames():
    def f(x):
        y = x + 1
        names = sorted(locals())
        name = sys._getframe().f_code.co_name
        return y, names, name

    return f, (t(2),)


def _parted(x):
    y = x + 1
    graft_break("once")
    y = y * 2
    graft_break("twice")
    return y - 3


@agrees(breaks=2, graphs=4)
def test_breaks_of_a_callee_are_told_to_the_last():
    """Also those that the rest of the callee meets after its first."""

    def f(x):
        y = x * 2
        z = _parted(y)
        return z + 1

    return f, (t(3),)


@agrees(graphs=2, calls=2)
def test_what_a_code_object_tells():
    """Its names and counts are constants of the graph, and another code object is seen."""

    def g(x, scale=2, *, shift=1):
        return x * scale + shift

    def f(x):
        code = g.__code__
        at = code.co_varnames.index("scale") if "scale" in code.co_varnames else 7
        return g(x) * at, code.co_name, code.co_argcount, code.co_flags & 4, code.co_freevars

    def other():
        g.__code__ = (lambda x, y, *, shift: x - y).__code__

    return f, (t(2),), [other, other]


@agrees()
def test_a_comprehension_with_a_cell_of_its_closures_name():
    def around(items):
        def inner(x):
            made = [lambda: items for items in items]
            return x + len(made), [one() for one in made]

        return inner

    inner = around((1, 2))

    def f(x):
        return inner(x), inner(x * 2)

    return f, (torch.ones(2),)


@agrees(codes=("GB101", "GB112"))
def test_code_with_an_opcode_that_does_not_exist():
    def unknown():
        pass

    unknown.__code__ = unknown.__code__.replace(co_code=b"\xe5" + unknown.__code__.co_code[1:])

    def f(x):
        y = x + 1
        try:
            unknown()
        except SystemError as error:
            return y, str(error)

    return f, (t(2),)


@agrees(calls=2)
def test_cells_of_a_function_made_inside_are_one_tuple():
    def f(x):
        held = [x]

        def down(n):
            return held if n == 0 else down(n - 1)

        cells = down.__closure__
        whose = [cell.cell_contents is down for cell in cells]
        return x + 1, cells is down.__closure__, down, cells, whose, down.__closure__[0] is cells[0]

    return f, (t(2),)


def answering(name, log, **names):
    """A module whose own code answers for names that it does not have."""

    def answer(wanted):
        if wanted == "__file__":  # as `inspect` asks of each module that there is
            raise AttributeError(wanted)
        log.append(wanted)
        return 5

    module = types.ModuleType(name)
    module.__getattr__ = answer
    vars(module).update(names)
    return module


@agrees(calls=3)
def test_an_import_from_a_module_that_answers_itself_asks_it_each_time():
    log = []
    sys.modules["answers"] = answering("answers", log, known=2)
    sys.modules["answers_as_a_package"] = answering(
        "answers_as_a_package", log, __path__=[], known=3
    )

    def f(x):
        from answers import known, other
        from answers_as_a_package import known as third
        from answers_as_a_package import missing

        return x + other + known, third, missing, log

    return f, (t(2),)


@agrees(level="O1")
def test_the_owner_of_a_c_method_that_varies():
    def methods(n):
        owner = re.compile("a" * n)
        return t(2), [n].__len__, [n].copy, float(n).__neg__, owner.match

    def f(x, length, copy, negative, match):
        y = x + 1
        owners = length.__self__, copy.__self__, negative.__self__, match.__self__.pattern
        return y * 2, owners, negative.__name__

    return f, methods(1), [lambda _, n=n: methods(n) for n in (2, 3, 1)]
