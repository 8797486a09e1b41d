"""Loops, branches, exceptions, with blocks, and graph breaks at every kind of place.

PYTEST_DONT_REWRITE: assertions inside the programs keep their own messages.
"""

from __future__ import annotations

import contextlib
import dataclasses

import torch

from ..harness import agrees, t


# -- loops and branches ----------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0, calls=2)
def test_loops():
    def f(x, n):
        for i in range(n):
            if i == 1:
                continue
            if i == 4:
                break
            x = x + i
        else:
            x = x * 100
        while n > 0:
            n -= 1
            if n == 2:
                continue
            x = x * 2
        else:
            x = x - 1
        for i, j in zip(range(3), "abc"):
            for k in (i, j):
                if k == "b":
                    break
                x = x + 1
        return x, n, i, j

    return f, (t(2), 6)


@agrees()
def test_branch_on_argument():
    def f(x, n):
        if n > 2 and x.shape[0] == 2 or n == -1:
            return x * 2
        elif not n:
            return x - 1
        return x if n < 0 else -x

    x = t(2)
    return f, (x, 3), [lambda: (x, 0), lambda: (x, -1), lambda: (x, -5), lambda: (t(3), 3)]


@agrees()
def test_branch_on_data():
    def f(x):
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        return y + (1 if x[0] > 0 else 2)

    return f, (t(3),), [lambda: (t(3) + 5,), lambda: (t(3) * 0,), lambda: (-t(3),)]


@agrees()
def test_while_on_data():
    def f(x):
        n = 0
        while x.sum() < 20:
            x = x + 1
            n += 1
            if n > 50:
                break
        else:
            n = -n
        return x, n

    return f, (t(3),), [lambda: (t(3) * 0,), lambda: (t(3) - 100,)]


@agrees()
def test_boolean_operators_on_data():
    def f(x, y):
        a = (x > 0).all() and (y > 0).all()
        b = (x > 0).any() or (y > 0).any()
        c = not x.any()
        return a, b, c, bool(x.sum() > 0), 1 if x.any() and not y.any() else 0

    return (
        f,
        (t(2), t(2)),
        [lambda: (t(2) + 3, t(2)), lambda: (t(2) + 3, t(2) + 3), lambda: (t(2) * 0, t(2) * 0)],
    )


# -- breaks ----------------------------------------------------------------------------------------------
@agrees(calls=2, breaks=1)
def test_print():
    def f(x):
        y = x * 2
        print("hi", y.shape, y)
        return y + 1

    return f, (t(2),)


@agrees(calls=2)
def test_item_in_nested_expressions():
    def f(x, d):
        return [
            x + 1,
            {"a": x * x.sum().item(), "b": (x - 1, d["k"] + x.max().item())},
            f"{x.mean().item():.2f}",
        ]

    return f, (t(2), {"k": 2})


@agrees(calls=2)
def test_break_with_live_stack():
    def g(*a, **k):
        return a, k

    def show(v):
        print(v)
        return v

    def f(x):
        return g(x + 1, show(1), *[show(2), x * 2], k=show(3), z=x[show(0)] + show(4)), x.add(
            show(5)
        ).mul(show(6))

    return f, (t(2),)


@agrees(calls=2)
def test_break_in_loops():
    def f(x):
        out = []
        for i in range(3):
            for j, k in enumerate("ab"):
                if i == j:
                    print(i, j, k)
                out.append(x * i + j)
            x = x + i
        return out, x

    return f, (t(2),)


@agrees(calls=2)
def test_break_in_comprehensions():
    def show(v):
        print(v)
        return v

    def f(x):
        a = [x * show(i) for i in range(2)]
        b = {show(i): x + i for i in range(2)}
        c = sum(show(i) for i in range(3))
        return a, b, c, max((show(v) for v in (1, 3, 2)), key=lambda v: -v)

    return f, (t(2),)


@agrees(calls=2)
def test_break_in_callees():
    class A:
        def m(self, x):
            self.n = 1
            print("in m")
            self.n += 1
            return x * self.n

    def deep(x, n):
        if n == 0:
            print("bottom")
            return x + 1
        y = deep(x * 2, n - 1)
        return y - n

    def f(x):
        a = A()
        y = deep(x, 3)
        return a.m(y), a.n

    return f, (t(2),)


@agrees(calls=2)
def test_break_with_cells_and_closures():
    def f(x):
        n, items = 1, []

        def add(v):
            nonlocal n
            n += v
            items.append(n)
            return n

        add(1)
        print(n, items)
        add(2)
        y = x * n
        print(n, items, add(3))
        n = 100
        return y, add(4), n, items, add

    return f, (t(2),)


@agrees(calls=2)
def test_break_in_property_and_operator():
    class A:
        def __init__(self, v):
            self.v = v

        @property
        def loud(self):
            print("loud")
            return self.v

        def __add__(self, o):
            print("add")
            return A(self.v + o)

        def __getitem__(self, k):
            print("get", k)
            return self.v * k

        def __enter__(self):
            print("enter")
            return self

        def __exit__(self, *a):
            print("exit", a[0])
            return True

    def f(x, a):
        y = x * a.loud
        b = a + 3
        z = b[2]
        with a as c:
            y = y + c.v
            print("body")
            raise ValueError("swallowed")
        return y, b, z

    return f, (t(2), A(2))


@agrees(calls=2)
def test_effects_around_breaks():
    def f(x, o, items):
        o["n"] = 1
        items.append(x)
        x.add_(1)
        print(o, items, x)
        o["n"] += 1
        x.mul_(2)
        v = x.sum().item()
        items[0].sub_(v)
        o["v"] = v
        return x, items[0] is x

    return f, (t(2), {}, [])


@agrees(calls=2)
def test_two_jitted_functions():
    from graftjit import jit

    @jit
    def inner(x):
        print("inner")
        return x * 2

    @jit
    def quiet(x):
        return x + 1

    def f(x):
        return quiet(inner(quiet(x)))

    return f, (t(2),)


# -- exceptions ------------------------------------------------------------------------------------------
@agrees(calls=2)
def test_try_except_finally():
    def f(x, mode):
        log = []
        try:
            log.append("try")
            y = x + 1
            if mode == 1:
                raise ValueError("boom %d" % mode)
            if mode == 2:
                return log, y
            if mode == 3:
                {}["k"]
        except ValueError as error:
            log.append(str(error))
            y = x * 3
        except (KeyError, TypeError):
            log.append("key")
            y = x * 4
        else:
            log.append("else")
        finally:
            log.append("finally")
        return log, y

    x = t(2)
    return f, (x, 0), [lambda: (x, 1), lambda: (x, 2), lambda: (x, 3), lambda: (x, 1)]


@agrees(calls=2)
def test_break_inside_try():
    def f(x):
        out = []
        for i in range(3):
            try:
                print("try", i)
                if i == 1:
                    raise KeyError(i)
                y = x * i
            except KeyError as error:
                print("caught", error, x.sum().item())
                y = x - 1
                continue
            finally:
                print("finally", i)
                out.append(y)
            out.append("end")
        return out

    return f, (t(2),)


@agrees(calls=2)
def test_nested_try_and_reraise():
    def f(x):
        log = []
        try:
            try:
                y = x + 1
                raise ValueError("inner")
            except ValueError as error:
                log.append(repr(error))
                raise RuntimeError("outer") from error
            finally:
                log.append("f1")
        except RuntimeError as error:
            log.append((str(error), repr(error.__cause__)))
        try:
            try:
                raise KeyError("a")
            except KeyError:
                raise
        except KeyError as error:
            log.append(error.args)
        return y, log

    return f, (t(2),)


@agrees(calls=2)
def test_exceptions_from_callees():
    class Mine(Exception):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    def check(x, n):
        if n > 1:
            raise Mine(n)
        return x + n

    def f(x, n, items):
        items.append("before")
        try:
            y = check(x, n)
        except Mine as error:
            items.append(error.code)
            y = x
        items.append("after")
        return check(y, n)

    x, items = t(2), []
    return f, (x, 1, items), [lambda: (x, 2, items), lambda: (x, 1, items)]


@agrees()
def test_raising_leaves_half_done():
    def f(x, o, n):
        o["a"] = 1
        x.add_(1)
        if n:
            raise ValueError("half")
        o["b"] = 2
        return x

    x, o = t(2), {}
    return f, (x, o, 0), [lambda: (x, o, 1), lambda: (x, o, 0)]


@agrees()
def test_torch_errors():
    def f(x, y):
        z = x + 1
        return z @ y

    x = t(2, 3)
    return (
        f,
        (x, t(3, 2)),
        [lambda: (x, t(2, 2)), lambda: (x, t(3, 4)), lambda: (x, t(3, 2).long())],
    )


@agrees()
def test_torch_errors_of_data():
    def f(x, i):
        try:
            y = x[i] + 1
        except IndexError as error:
            return x, type(error).__name__
        return y * 2, "fine"

    x = t(3)
    return (
        f,
        (x, torch.tensor([1])),
        [lambda: (x, torch.tensor([9])), lambda: (x, torch.tensor([2]))],
    )


@agrees()
def test_torch_errors_of_data_escape():
    def f(x, i, log):
        log.append(1)
        return x[i] + 1

    x, log = t(3), []
    return f, (x, torch.tensor([1]), log), [
        lambda: (x, torch.tensor([9]), log), lambda: (x, torch.tensor([2]), log),
    ]  # fmt: skip


@agrees()
def test_assertions():
    def f(x, n):
        assert x.dim() == 1, "one dim"
        y = x * n
        assert n < 3, f"too big: {n}"
        return y

    x = t(2)
    return f, (x, 1), [lambda: (x, 5), lambda: (t(2, 2), 1), lambda: (x, 2)]


@agrees(calls=2)
def test_exception_variable_is_deleted():
    def f(x):
        try:
            raise ValueError("v")
        except ValueError as e:
            text = str(e)
        try:
            e  # noqa: B018, F821
        except UnboundLocalError:
            text += " gone"
        return x + 1, text

    return f, (t(2),)


@agrees(calls=2)
def test_finally_overrides():
    def f(x):
        for _ in range(2):
            try:
                return x + 1
            finally:
                break
        try:
            raise ValueError
        finally:
            return x * 2  # noqa: B012

    return f, (t(2),)


# -- with ------------------------------------------------------------------------------------------------
@agrees()
def test_grad_modes():
    def f(x):
        a = torch.is_grad_enabled()
        with torch.no_grad():
            b = x * 2
            with torch.enable_grad():
                c = x * 3
                d = torch.is_grad_enabled()
            e = x * 4
        return a, b, c, d, e, torch.is_grad_enabled(), (x * 5).requires_grad

    x = t(2).requires_grad_()
    y = t(2)
    return f, (x,), [lambda: (y,), lambda: torch.set_grad_enabled(False) and None, lambda: (x,)]


@agrees(calls=2)
def test_grad_mode_and_breaks():
    def f(x):
        with torch.no_grad():
            y = x * 2
            print("inside", torch.is_grad_enabled())
            z = y + x
            for i in range(2):
                print(i)
                z = z * x
        print("outside", torch.is_grad_enabled())
        return y, z, x * 2

    return f, (t(2).requires_grad_(),)


@agrees(calls=2)
def test_grad_mode_and_exceptions():
    def f(x):
        try:
            with torch.no_grad():
                y = x * 2
                raise ValueError("inside")
        except ValueError:
            z = x * 3
        return y, z, torch.is_grad_enabled()

    return f, (t(2).requires_grad_(),)


@agrees(calls=2)
def test_grad_mode_and_return_inside():
    def f(x):
        with torch.no_grad():
            y = x * 2
            return y, torch.is_grad_enabled()

    return f, (t(2).requires_grad_(),)


@agrees(calls=2)
def test_grad_mode_as_decorator():
    @torch.no_grad()
    def g(x):
        return x * 2

    def f(x):
        @torch.no_grad()
        def h(x):
            return x * 3

        return g(x), h(x), x * 4

    return f, (t(2).requires_grad_(),)


@agrees(calls=2)
def test_set_grad_enabled():
    def f(x):
        with torch.set_grad_enabled(False):
            y = x * 2
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        z = x * 3
        print("off", torch.is_grad_enabled())
        torch.set_grad_enabled(True)
        return y, z, before, x * 4

    return f, (t(2).requires_grad_(),)


@agrees(calls=2)
def test_grad_mode_left_off():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2

    return f, (t(2).requires_grad_(),), [lambda: torch.set_grad_enabled(True) and None]


@agrees(calls=2)
def test_autocast():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            print(y.dtype)
            z = y @ x
        return y, z, x @ x

    return f, (t(2, 2),)


@agrees(calls=2)
def test_inference_mode():
    def f(x):
        with torch.inference_mode():
            y = x * 2
        return y.is_inference(), x * 3

    return f, (t(2),)


@agrees(calls=2)
def test_users_contexts():
    class C:
        def __init__(self, log, swallow):
            self.log, self.swallow = log, swallow

        def __enter__(self):
            self.log.append("enter")
            return self

        def __exit__(self, kind, value, tb):
            self.log.append(kind.__name__ if kind else None)
            return self.swallow

    @contextlib.contextmanager
    def made(log):
        log.append("a")
        try:
            yield 5
        finally:
            log.append("b")

    def f(x):
        log = []
        with C(log, True), C(log, False) as c:
            y = x * 2
            print("in", len(c.log))
            raise KeyError("k")
        with made(log) as v, contextlib.suppress(ValueError):
            y = y + v
            raise ValueError
        with C(log, False):
            y = y + 1
        return y, log

    return f, (t(2),)


# -- class patterns --------------------------------------------------------------------------------------
@dataclasses.dataclass
class Pair:
    a: int
    b: int


class Named:
    __match_args__ = ("u", "v")

    def __init__(self, u, v):
        self.u, self.v = u, v

    @property
    def w(self):
        return 9


@agrees(calls=1)
def test_class_patterns():
    def fn(x, values):
        found = []
        for value in values:
            match value:
                case Pair(1, b):
                    found.append(x + b)
                case Pair(a=2, b=b):
                    found.append(x * b)
                case Named(u, v, w=9) if u:
                    found.append(x - u * v)
                case Named(u, nothing=1):
                    found.append(("no", u))
                case bool(flag):
                    found.append(flag)
                case int(k) | float(k):
                    found.append(x * k)
                case str():
                    found.append(value)
                case None:
                    found.append(-x)
                case torch.Tensor(shape=(n,)):
                    found.append(x + n)
                case [Pair(a, _), *rest]:
                    found.append((a, rest))
                case {"k": Pair(a=z), **kw}:
                    found.append((z, kw))
                case _:
                    found.append("else")
        return found

    values = [
        Pair(1, 3), Pair(2, 4), Pair(3, 4), Named(1, 2), Named(0, 1), 7, "s", [Pair(1, 2), 3], {"k": Pair(5, 6), "r": 1},
        None, 1.5, True, torch.ones(4), torch.ones(2, 2), (1, 2), b"x",
    ]  # fmt: skip
    return fn, (torch.ones(2), values)


@agrees()
def test_class_patterns_that_do_not_fit():
    def fn(x, value, how):
        if how:
            match value:
                case Pair(1, 2, 3):
                    return x
        match value:
            case Pair(1, a=2):
                return x
        return x * 2

    return fn, (torch.ones(2), Pair(1, 2), 0), [lambda: (torch.ones(2), Pair(1, 2), 1)]


# -- functions that keep a comprehension's variable --------------------------------------------------------
@agrees(graphs=1, breaks=0)
def test_comprehensions_with_cells():
    def fn(x):
        i = 10
        late = [lambda: i for i in range(3)]
        early = [lambda i=i: i for i in range(3)]
        both = {z: (lambda: i * z) for i in range(2) for z in range(2)}
        seen = [g() for g in late], [g() for g in early], [g() for g in both.values()]
        return x + i, seen, (lambda: i)()

    return fn, (torch.ones(2),)


@agrees()
def test_a_break_in_a_comprehension_with_cells():
    def fn(x):
        made = [((lambda: i), print("made", i)) for i in range(3)]
        return x + 1, [g() for g, _ in made]

    return fn, (torch.ones(2),)


@agrees(graphs=1, breaks=0)
def test_comprehensions_with_variables_named_as_cells():
    def fn(x):
        i, held = 2, (lambda: i)
        seen = [(i, held()) for i in range(i)]
        inner = [[i + held() for i in range(i)] for i in range(3)]
        late = [(lambda: i) for i in [i for i in range(i)]]
        return x + i, seen, inner, [g() for g in late], held()

    return fn, (torch.ones(2),)


@agrees()
def test_a_break_in_a_comprehension_with_a_variable_named_as_a_cell():
    def fn(x):
        i, held = 2, (lambda: i)
        made = [print("made", i, held()) for i in range(i)]
        return x + i, made, held()

    return fn, (torch.ones(2),)


@agrees()
def test_a_break_before_a_comprehensions_variable_named_as_a_cell_has_a_value():
    def fn(x, steps):
        i, held = 2, (lambda: i)
        made = [i + held() for i in steps()]
        return x + i, made, held()

    class Steps:
        def __init__(self):
            self.left = 3

        def __iter__(self):
            return self

        def __next__(self):
            print("step")
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

    return fn, (torch.ones(2), Steps)


@agrees(graphs=2)
def test_a_break_in_a_called_functions_comprehension_with_a_variable_named_as_a_cell():
    def called(i):
        held = lambda: i  # noqa: E731
        return [[print("made", i) or [i for i in range(i)], held()] for i in range(i)], held()

    def fn(x):
        y = x + 1
        made = called(2)
        return y * 2, made

    return fn, (torch.ones(2),)


@agrees()
def test_a_comprehension_in_one_that_has_a_cell_of_the_name():
    def fn(x):
        i = 2
        made = [(lambda: i, [i for i in range(i)], print("made", i)) for i in range(3)]
        return x + i, [(g(), *more) for g, *more in made], (lambda: i)()

    return fn, (torch.ones(2),)


# -- answers that a jump tests ---------------------------------------------------------------------------
class _Above:
    def __contains__(self, item):
        print("asked for", item)
        return item > 3


# One resume function for each way, and none compiled once for each answer, on all versions of Python.
@agrees(graphs=3, breaks=1, recompiles=0)
def test_a_branch_on_data_is_no_recompile():
    def f(x):
        y = x.sin()
        if y.sum() > 0:
            return y * 2
        return y - 1

    more, less = (torch.ones(6),), (-torch.ones(6),)
    return f, less, [lambda: more, lambda: less, lambda: more]


@agrees(graphs=3, breaks=1, recompiles=0)
def test_a_break_at_in_is_no_recompile():
    above = _Above()

    def f(x, n):
        y = x.exp()
        if n in above:
            return y * 2
        return y - 1

    return f, (t(6), 1), [lambda: (t(6), 5), lambda: (t(6), 2)]


@agrees(recompiles=0)
def test_branches_on_data_with_and_or_not():
    def f(x):
        y = x.sin()
        if y.sum() > 0 and not y.mean() > 0.2 or y[0] < -0.5:
            y = y * 2
        while y.abs().sum() > 1:
            y = y * 0.5
        z = y.sum() > 0.1 and y
        return y, z

    return f, (t(6),), [lambda: (t(6) + 1,), lambda: (t(6) + 5,), lambda: (t(6) - 9,)]
