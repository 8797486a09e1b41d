"""Programs whose writes, reads, breaks and errors must come in order, with identities and aliasing as in Python."""

from __future__ import annotations

import functools
import random

import torch
import torch.nn.functional as F
from torch import nn

from ..harness import agrees, t


class Box:
    def __init__(self, **names):
        self.__dict__.update(names)


# -- identity and aliasing ---------------------------------------------------------------------------------
@agrees()
def test_what_comes_back_is_what_went_in():
    def f(x, items, d, o):
        same = items
        d["items"] = same
        o.d = d
        return x, items, (items, d), d["items"] is items, o, [x, x], o.d is d

    return f, (t(2), [1], {}, Box())


@agrees()
def test_views_of_inputs_are_returned():
    def f(x, y):
        v = x.view(-1)
        w = x[0]
        z = x.T
        y.mul_(2)
        return v, w, z, x.detach(), x.reshape(-1), x.contiguous(), x[:], x.expand(2, 2, 3), y[1:]

    return f, (t(2, 3), t(4))


@agrees()
def test_writes_through_views():
    def f(x):
        row = x[0]
        row += 1
        x[1] = row * 2
        column = x[:, 1]
        column.zero_()
        flat = x.view(-1)
        flat[::2] = -5
        return row, column, flat, x.sum()

    return f, (t(2, 3),)


@agrees()
def test_one_tensor_as_two_arguments():
    def f(x, y):
        x.add_(1)
        y.mul_(3)
        return x + y, x is y

    x = t(3)
    return (
        f,
        (x, t(3)),
        [lambda: (x, x), lambda: (x, x[:2] if False else x.view(3)), lambda: (x[:2], x[1:])],
    )


@agrees()
def test_the_same_tensor_by_many_paths():
    shared = t(3)
    o = Box(a=shared, inner=Box(b=shared), items=[shared])

    def f(x):
        o.a.add_(1)
        o.items[0].mul_(2)
        o.inner.b = o.a
        return o.a + x, o.inner.b is o.items[0], shared is o.a, o.items[0]

    return f, (t(3),), [lambda: setattr(o, "a", t(3)), lambda: o.items.__setitem__(0, o.a)]


@agrees()
def test_lists_inside_lists_inside_themselves():
    def f(x):
        a = [x]
        b = [a, a]
        a.append(b)
        print(len(a), b[0] is b[1])
        b.append(a[1])
        return a

    return f, (t(2),)


# -- writes and breaks ---------------------------------------------------------------------------------------
@agrees()
def test_attributes_written_read_and_broken():
    o = Box(n=1, log=[])

    def show(o):
        print(sorted(k for k in o.__dict__ if k != "log"), o.n)

    def f(x):
        o.n += 1
        o.y = x * o.n
        show(o)
        o.log.append(o.n)
        o.z = o.y + 1
        del o.y
        show(o)
        o.n = o.z
        show(Box(n=o.n))
        return o.z, o.log

    return f, (t(2),), [lambda: setattr(o, "n", 10), lambda: setattr(o, "n", 0.5)]


@agrees()
def test_containers_written_and_broken():
    def f(x, items, d, s):
        items.append(x)
        items[0] = "first"
        d["k"] = items
        d.pop("old", None)
        s.add(len(items))
        print(len(items), sorted(d), sorted(s))
        items.extend([1, 2])
        items.remove(1)
        d.setdefault("n", []).append(x + 1)
        print(len(items), list(d), len(d["n"]))
        del items[1]
        items.insert(0, d.pop("k"))
        items.reverse()
        s.discard(2)
        return d, s

    return f, (t(2), [0], {"old": 1}, set())


@agrees()
def test_globals_written_and_broken():
    def bump(by):
        global total
        total += by
        return total

    def f(x):
        global total, made
        made = x * bump(1)
        print(total)
        total = total + bump(2)
        print(total)
        y = made + total
        del made
        return y

    f.__globals__["total"] = 0
    return (
        f,
        (t(2),),
        [lambda: f.__globals__.update(total=5), lambda: f.__globals__.update(total=1.5)],
    )


@agrees()
def test_closures_written_across_breaks():
    def make():
        n, items = 0, []

        def inc(by):
            nonlocal n
            n += by
            items.append(n)
            return n

        def f(x):
            nonlocal n
            y = x * inc(1)
            print(n)
            n = n * 2
            y = y + inc(3)
            g = lambda v: v * n + len(items)  # noqa: E731
            n += 1
            print(g(1))
            return g(y), [h() for h in [lambda i=i: i + n for i in range(3)]]

        return f

    return make(), (t(2),)


@agrees()
def test_comprehensions_and_late_binding():
    def f(x, n):
        fs = [lambda v: v * i for i in range(n)]
        early = [lambda v, i=i: v * i for i in range(n)]
        print(len(fs))
        total = sum(g(x) for g in fs) + sum(g(x) for g in early)
        table = {k: [k * j for j in range(k)] for k in range(n) if k}
        flat = [j for row in table.values() for j in row]
        return total, table, flat, {j % 2 for j in flat}, (lambda: x.shape)()

    return f, (t(2), 3), [lambda: (t(2), 2), lambda: (t(3), 4)]


@agrees()
def test_mutable_defaults():
    def helper(v, seen=[], *, table={}):  # noqa: B006
        seen.append(len(seen))
        table[len(seen)] = v
        return v * len(seen), len(table)

    def f(x, kept=[]):  # noqa: B006
        y, n = helper(x)
        kept.append(n)
        print(len(kept))
        z, n = helper(y, table={})
        return z, n, kept

    return (
        f,
        (t(2),),
        [lambda: helper.__defaults__[0].clear(), lambda: setattr(helper, "__defaults__", ([7],))],
    )


@agrees()
def test_star_arguments():
    def inner(a, *rest, scale=1, **named):
        return a * scale + sum(rest), sorted(named), rest, named

    def f(*args, **kwargs):
        y, names, rest, named = inner(*args, **kwargs)
        print(len(rest), names)
        first, *others = args
        z, *_ = inner(first, *others[:1], **{"scale": 2, "extra": y})
        named["mine"] = 1
        return y, z, args, kwargs, others, named is kwargs

    def g(x):
        return f(x, 1, 2, scale=3, other="o"), f(x), f(*[x, 2.5], **dict(k=x))

    return g, (t(2),)


# -- errors -------------------------------------------------------------------------------------------------
@agrees()
def test_an_error_half_way_leaves_what_was_done():
    o = Box(n=0)

    def f(x, items, bad):
        o.n += 1
        items.append(x)
        x.add_(1)
        y = x @ bad
        items.append("after")
        o.n += 100
        return y

    return f, (t(3), [], t(3)), [lambda: (t(3), ["kept"], t(4)), lambda: (t(3), [], t(3))]


@agrees()
def test_errors_of_python_half_way():
    o = Box(n=0)

    def f(x, key):
        o.n += 1
        y = x * 2
        print("before", o.n)
        z = {"a": y, "b": [y]}[key]
        o.n += 10
        return z[5] if key == "b" else z

    return f, (t(3), "a"), [lambda: (t(3), "missing"), lambda: (t(3), "b"), lambda: (t(3), "a")]


@agrees()
def test_try_around_breaks_and_errors():
    def risky(x, n):
        print("risky", n)
        if n == 2:
            raise ValueError("two")
        if n == 3:
            return x @ x @ torch.ones(77)
        return x * n

    def f(x, n):
        log = []
        try:
            y = risky(x, n)
            log.append("ok")
        except ValueError as error:
            log.append(str(error))
            y = x
        except RuntimeError:
            log.append("torch")
            y = x - 1
        else:
            y = y + 1
            print("else")
        finally:
            log.append("finally")
            print("finally", log)
        return y + len(log), log

    return f, (t(3), 1), [lambda: (t(3), 2), lambda: (t(3), 3), lambda: (t(3), 1)]


@agrees()
def test_nested_handlers_and_reraise():
    def f(x, n):
        try:
            try:
                y = x * [1, 2][n]
                print("inner")
                y = y / {1: 2}[n]
            except IndexError:
                print("index")
                raise KeyError("from index") from None
            except KeyError as error:
                print("key", error)
                raise
        except KeyError as error:
            return x, repr(error), error.__cause__ is None
        return y

    return f, (t(2), 1), [lambda: (t(2), 0), lambda: (t(2), 5), lambda: (t(2), 1)]


@agrees()
def test_context_managers_of_the_program():
    import contextlib

    log = []

    class Guard:
        def __init__(self, name, swallow=False):
            self.name, self.swallow = name, swallow

        def __enter__(self):
            log.append(("enter", self.name))
            return self

        def __exit__(self, kind, error, trace):
            log.append(("exit", self.name, kind and kind.__name__))
            return self.swallow

    @contextlib.contextmanager
    def scope(name):
        log.append(("open", name))
        try:
            yield name * 2
        finally:
            log.append(("close", name))

    def f(x, n):
        with Guard("a") as a, Guard("b", swallow=True):
            x = x + len(a.name)
            print("in", n)
            x = x * [1, 2][n]
        with scope("s") as name:
            print(name)
            x = x + len(name)
        return x, list(log)

    return f, (t(2), 0), [lambda: (t(2), 5), lambda: (t(2), 1)]


# -- data decides -----------------------------------------------------------------------------------------------
@agrees()
def test_items_in_loops_and_nested_calls():
    def clamp(x, limit):
        if x.abs().max().item() > limit:
            return x * 0.5
        return x + 1

    def deep(x, n):
        return clamp(x, n) if n else clamp(deep(x, n + 1), 2)

    def f(x, n):
        trace = []
        for i in range(n):
            x = clamp(x, i + 1)
            trace.append(round(x.sum().item(), 3))
            if trace[-1] > 3:
                break
            while float(x.min()) < -0.5:
                x = x + 0.25
        else:
            trace.append("done")
        return deep(x, 0), trace

    return f, (t(4), 3), [lambda: (t(4) * 5, 4), lambda: (t(4) * -2, 2)]


@agrees()
def test_branches_on_data_inside_callees():
    def sign(x):
        return "up" if x.sum() > 0 else "down"

    def f(x):
        kinds = [sign(x), sign(-x)]
        if torch.any(x > 0) and not torch.all(x > 0):
            kinds.append("mixed")
        assert x.numel() == 4, "four"
        return x * (2 if kinds[0] == "up" else 3), kinds, max(kinds), bool(x[0] < 0)

    return f, (t(4),), [lambda: (t(4) + 3,), lambda: (t(4) - 3,)]


# -- grad mode and random state ------------------------------------------------------------------------------------
@agrees(backward=True)
def test_no_grad_around_breaks():
    def f(x, w):
        y = x * w
        with torch.no_grad():
            scale = y.abs().max()
            print("max", round(float(scale), 3))
            y2 = y / scale
            flag = torch.is_grad_enabled()
        with torch.enable_grad():
            print(torch.is_grad_enabled())
            z = y + y2
        return z, y2, flag, torch.is_grad_enabled(), z.requires_grad, y2.requires_grad

    return f, (t(3).requires_grad_(), t(3).requires_grad_())


@agrees(backward=True)
def test_decorated_by_no_grad():
    @torch.no_grad()
    def stats(x):
        print("stats", torch.is_grad_enabled())
        return x.mean(), x.std()

    def f(x):
        mean, std = stats(x)
        return (x - mean) / std, mean.requires_grad

    return f, (t(5).requires_grad_(),)


@agrees()
def test_grad_mode_and_an_error():
    def f(x, n):
        try:
            with torch.no_grad():
                y = x * 2
                print("in")
                y = y * [1, 2][n]
        except IndexError:
            y = x
        return y, torch.is_grad_enabled(), y.requires_grad

    return f, (t(2).requires_grad_(), 0), [lambda: (t(2).requires_grad_(), 5)]


@agrees(calls=4)
def test_random_states():
    drop = nn.Dropout(0.5)

    def f(x):
        a = torch.rand(3)
        b = random.random()
        y = drop(x)
        print(round(b, 3))
        c = torch.randn_like(x)
        d = F.dropout(x, 0.3, training=True)
        return a, b, y, c, d, torch.randint(0, 9, (3,)), torch.randperm(4)

    random.seed(1)
    return f, (t(4),)


@agrees(calls=3)
def test_seeds_set_inside():
    def f(x):
        torch.manual_seed(3)
        a = torch.rand(2)
        torch.manual_seed(3)
        b = torch.rand(2)
        return a + x, b, torch.rand(1)

    return f, (t(2),)


# -- modules ----------------------------------------------------------------------------------------------------
@agrees(backward=True)
def test_state_of_modules_changes_in_forward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.lin = nn.Linear(3, 3)
            self.register_buffer("seen", torch.zeros(3))
            self.steps = 0
            self.last = None
            self.history = []

        def forward(self, x):
            self.steps += 1
            y = self.lin(x)
            self.seen = self.seen + x.detach().sum(0)
            self.seen.mul_(0.5)
            self.last = y
            self.history.append(y.shape)
            if self.steps % 2:
                print("odd", self.steps)
            return y * self.steps + self.seen

    net = Net()
    return net, (t(2, 3),), [lambda: setattr(net, "steps", 6), lambda: net.eval().training]


@agrees(backward=True)
def test_batch_norm_in_training():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.0))
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(0.25)

    def f(x):
        y = net(x)
        print(int(net[1].num_batches_tracked))
        return y

    return f, (t(4, 3),), [lambda: net.eval().training, lambda: net.train().training]


@agrees()
def test_parameters_and_subclasses():
    class Tagged(nn.Parameter):
        tag = "p"

    class Special(torch.Tensor):
        pass

    net = nn.Module()
    net.w = Tagged(t(3))
    net.plain = nn.Parameter(t(3))
    special = t(3).as_subclass(Special)

    def f(x, s):
        return (
            x * net.w, x + net.plain, isinstance(net.w, nn.Parameter), type(s * 2).__name__,
            net.w.tag, [n for n, _ in net.named_parameters()],
        )  # fmt: skip

    return f, (t(3), special)


@agrees(backward=True)
def test_backward_inside():
    def f(x, w):
        loss = (x * w).sum()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        g = torch.autograd.grad((w**2).sum(), w)[0]
        return loss.detach(), w, g

    return f, (t(3), t(3).requires_grad_())


# -- functions --------------------------------------------------------------------------------------------------
@agrees()
def test_generators_consumed_inside():
    def numbers(n, log):
        log.append("start")
        for i in range(n):
            got = yield i
            log.append(got)
        return "end"

    def chained(n, log):
        result = yield from numbers(n, log)
        log.append(result)

    def f(x):
        log = []
        for i in numbers(2, log):
            x = x + i
            print("i", i)
        x = x + sum(chained(3, log))
        g = (v * 2 for v in [x, x + 1])
        first = next(g)
        rest = list(g)
        a, b = numbers(2, log)
        e = dict(enumerate(chained(2, log)))
        return x, first, rest, log, a + b, e, next(iter(()), "none")

    return f, (t(2),)


@agrees()
def test_recursion():
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def tree(x, depth):
        if depth == 0:
            print("leaf")
            return x
        return tree(x + 1, depth - 1) + tree(x * 2, depth - 1)

    def f(x, n):
        return tree(x, n), fact(n + 3)

    return f, (t(2), 2), [lambda: (t(2), 1)]


@agrees()
def test_decorators_and_caches():
    calls = []

    def traced(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            calls.append(fn.__name__)
            return fn(*args, **kwargs)

        return wrapper

    @functools.lru_cache(maxsize=None)
    def table(n):
        calls.append(n)
        return n * 2

    @traced
    @traced
    def step(x, n=1):
        return x * table(n)

    class A:
        @traced
        def m(self, x):
            return step(x, n=3)

        @functools.cached_property
        def slow(self):
            calls.append("slow")
            return 5

    def f(x):
        o = A()
        return step(x) + o.m(x) + o.slow + o.slow, list(calls), step.__name__

    o = A()
    return f, (t(2),)


@agrees()
def test_functions_with_state_on_them():
    def counted(x):
        counted.calls += 1
        return x * counted.calls

    counted.calls = 0

    def f(x):
        y = counted(x) + counted(x)
        print(counted.calls)
        counted.note = y
        return y, counted.calls, hasattr(counted, "other")

    return f, (t(2),), [lambda: setattr(counted, "calls", 10)]


@agrees()
def test_texts_of_shapes_and_tensors():
    def f(x, n):
        label = f"{tuple(x.shape)} {x.dtype} {n:>4} {n!r} {x.ndim:02d} {x.device}"
        print(label, "%s-%d" % ("a", n), "{:.2f}".format(n / 3))
        value = f"{x.sum():.3f} {x[0]} {x.tolist()}"
        return x * len(label), label, value, str(x.shape), repr(x[0])

    return f, (t(3), 3), [lambda: (t(2, 2), 4)]


@agrees()
def test_print_order_of_nested_calls():
    def a(x):
        print("a in")
        x = b(x * 2)
        print("a out")
        return x + 1

    def b(x):
        print("b in")
        for i in range(2):
            x = x + c(x, i)
        print("b out", i)
        return x

    def c(x, i):
        if i:
            print("c", i)
        return x * i

    def f(x):
        return [a(x), b(x), *map(lambda v: a(v), [x])]

    return f, (t(2),)


@agrees()
def test_jit_inside_jit():
    from graftjit import jit

    @jit
    def inner(x, n):
        print("inner", n)
        return x * n

    @jit(fullgraph=False)
    def other(x):
        return inner(x, 2) + 1

    def f(x):
        return inner(x, 3) + other(x), [jit(lambda v: v + 1)(x)]

    return f, (t(2),)


@agrees()
def test_walrus_chains_unpacking_and_conditionals():
    def f(x, d):
        if (n := len(d)) > 1 and 0 < n < 5:
            x = x + n
        (a, b), *rest = [(1, 2), 3, 4]
        first, *middle, last = x.unbind()
        x, y = x + 1, x
        print(n, a, b, rest, last is not first)
        p = q = []
        p.append(1)
        d["new"] = d.get("k", 0) or 5
        return x, y, middle, q, p is q, [*rest, *d], {**d, "z": 1}, not d, x if d else y

    return f, (t(4), {"k": 0, "l": 1})
