"""Programs that lean on the standard library and on torch's odder corners."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import gc
import itertools
import operator
import sys
import types
import typing
import warnings
import weakref

import torch
import torch.nn.functional as F
from torch import nn

from ..harness import agrees, t


# -- the standard library ------------------------------------------------------------------------------------
@agrees()
def test_itertools():
    def f(x):
        pairs = list(itertools.product([1, 2], "ab"))
        chained = [*itertools.chain([x], (x + 1,), iter([x * 2]))]
        total = list(itertools.accumulate([1, 2, 3], operator.mul))
        counted = [v for v, _ in zip(itertools.count(3), range(2))]
        cycled = list(itertools.islice(itertools.cycle([x, x * 2]), 3))
        groups = {k: list(g) for k, g in itertools.groupby([1, 1, 2], key=lambda v: v > 1)}
        print(len(pairs))
        rest = list(itertools.combinations(range(3), 2)), list(itertools.zip_longest([1], [2, 3]))
        more = list(itertools.starmap(lambda a, b: x * a + b, [(1, 2), (3, 4)]))
        last = list(itertools.takewhile(lambda v: v < 2, [1, 2, 1])), list(itertools.repeat(x, 2))
        return pairs, sum(chained), total, counted, cycled, groups, rest, more, last

    return f, (t(2),)


@agrees()
def test_functools_and_operator():
    @functools.singledispatch
    def kind(v):
        return "object"

    @kind.register
    def _(v: int):
        return "int"

    @functools.total_ordering
    class Size:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    class Shift:
        def __init__(self, by):
            self.by = by

        def move(self, x, by):
            return x + by * self.by

        twice = functools.partialmethod(move, by=2)

    def f(x):
        s = Shift(3)
        print(kind(1), kind("a"), kind(x))
        by = operator.attrgetter("by")(s), operator.itemgetter(1, 0)([4, 5])
        called = operator.methodcaller("move", x, 1)(s)
        kept = functools.reduce(operator.add, [x, x, 1]), functools.partial(s.move, by=5)(x)
        order = (
            Size(1) <= Size(2),
            max([Size(1), Size(3)], key=lambda v: v.n).n,
            sorted([Size(2), Size(1)])[0].n,
        )
        return (
            s.twice(x),
            by,
            called,
            kept,
            order,
            functools.cmp_to_key(lambda a, b: b - a)(1)
            > functools.cmp_to_key(lambda a, b: b - a)(2),
        )

    return f, (t(2),), [lambda: kind.register(str, lambda v: "str") and None]


@agrees()
def test_collections():
    def f(x, words):
        counts = collections.Counter(words)
        counts["a"] += 2
        grouped = collections.defaultdict(list)
        for w in words:
            grouped[len(w)].append(w)
        print(counts.most_common(1), dict(grouped))
        queue = collections.deque(maxlen=2)
        for i in range(4):
            queue.append(x * i)
        chain = collections.ChainMap({"k": 1}, {"k": 2, "l": 3})
        Point = collections.namedtuple("Point", "a b")  # noqa: PYI024
        p = Point(x, b=2)
        return counts, grouped, list(queue), chain["k"] + chain["l"], p.a * p.b, p._fields

    return f, (t(2), ["a", "bb", "a"]), [lambda: (t(2), ["bb", "cc"])]


@agrees()
def test_contextlib_tools():
    log = []

    class Closing:
        def close(self):
            log.append("closed")

    @contextlib.contextmanager
    def step(name):
        log.append(name)
        yield

    def f(x, n):
        with contextlib.suppress(ZeroDivisionError, KeyError):
            x = x + 1
            x = x / (1 // n)
            print("not suppressed")
        with contextlib.ExitStack() as stack:
            for name in "ab":
                stack.enter_context(step(name))
            stack.callback(log.append, "callback")
            print(len(log))
            x = x * 2
        with contextlib.closing(Closing()), contextlib.nullcontext(3) as three:
            x = x + three
        return x, list(log)

    return f, (t(2), 1), [lambda: (t(2), 0)]


@agrees()
def test_copies():
    class A:
        def __init__(self, x):
            self.x, self.items = x, [x]

    def f(x, o):
        a, b = copy.copy(o), copy.deepcopy(o)
        a.items.append(1)
        b.items.append(2)
        print(len(o.items), a.x is o.x, b.x is o.x)
        b.x.add_(1)
        return a, b, o.x + x, copy.copy([x])[0] is x, {**o.__dict__}.keys() == a.__dict__.keys()

    return f, (t(2), A(t(2)))


@agrees()
def test_typing_and_protocols():
    @typing.runtime_checkable
    class Scales(typing.Protocol):
        def scale(self, x): ...

    class Yes:
        def scale(self, x):
            return x * 2

    class No:
        pass

    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, item: T):
            self.item = item

    def f(x, o):
        y = o.scale(x) if isinstance(o, Scales) else x
        z: typing.Optional[int] = None
        box = Box[int](3)
        print(isinstance(z, (int, type(None))), isinstance(3, int | str))
        return (
            y,
            box.item,
            typing.cast("int", x) is x,
            typing.get_type_hints(Box.__init__, localns={"T": T}),
        )

    return (
        f,
        (t(2), Yes()),
        [lambda: (t(2), No()), lambda: setattr(No, "scale", lambda s, x: x - 1) or None],
    )


@agrees()
def test_match_with_classes():
    class P:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    def pick(v, x):
        match v:
            case P(0, y):
                return x + y
            case P(x=n, y=[a, *rest]) if n > 0:
                return x * a + len(rest)
            case {"k": int(n), **others}:
                return x - n - len(others)
            case [P(a, b), _] | (a, b):
                return x * 0 + b if not isinstance(b, P) else x
            case str() | None:
                return x.sum()
            case _:
                return x

    def f(x, v):
        print(type(v).__name__)
        return pick(v, x) + 1

    return f, (t(2), P(0, 3)), [
        lambda: (t(2), P(2, [4, 5])), lambda: (t(2), {"k": 2, "z": 1}), lambda: (t(2), [P(1, 2), 3]),
        lambda: (t(2), "s"), lambda: (t(2), None), lambda: (t(2), 4.5), lambda: (t(2), (1, 2)),
    ]  # fmt: skip


@agrees()
def test_warnings_and_stack_levels():
    def f(x):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            warnings.warn("careful", UserWarning, stacklevel=1)
            y = x * 2
            warnings.warn("again", DeprecationWarning, stacklevel=1)
        return y, [(str(w.message), w.category.__name__, w.lineno > 0) for w in found]

    return f, (t(2),)


@agrees()
def test_looking_at_the_frame():
    def caller():
        return sys._getframe(1).f_code.co_name, sorted(sys._getframe(1).f_locals)

    def f(x):
        y = x + 1
        name, names = caller()
        z = y * 2
        here = locals()
        return z, name, [n for n in names if n in ("x", "y")], sorted(here)

    return f, (t(2),)


@agrees()
def test_exception_state():
    def f(x, n):
        try:
            y = x / [1, 2][n]
        except IndexError as error:
            kind, value, trace = sys.exc_info()
            print(kind.__name__, value is error, trace is not None)
            y = x
        try:
            raise ValueError("a") from KeyError("b")
        except ValueError as error:
            cause = error.__cause__
            context = error.__context__
        return y, repr(cause), repr(context), sys.exc_info()

    return f, (t(2), 0), [lambda: (t(2), 5)]


@agrees()
def test_strings_of_all_kinds():
    class Thing:
        def __str__(self):
            return "thing"

        def __format__(self, spec):
            return f"<{spec}>"

        def __repr__(self):
            return "Thing()"

    def f(x, name):
        o = Thing()
        lines = [
            f"{o} {o!r} {o!s:>7} {o:abc} {name!a} {len(name):{2 + 2}d}|{name:^{len(name) + 4}}"
        ]
        lines.append("-".join(c.upper() for c in name if c.isalpha()))
        lines.append("{0[k]} {1.shape} {n:.2e}".format({"k": 1}, x, n=12345.678))
        lines.append("%(a)s %(b)05.1f" % {"a": o, "b": 2.25})
        lines.append(
            name.translate(str.maketrans("ab", "xy")) + name.encode().hex() + str(b"q")[1:]
        )
        print(lines[0])
        return (
            x * len("".join(lines)),
            lines,
            name.partition("b"),
            " a b ".split(),
            "a,b".rsplit(",", 1),
        )

    return f, (t(2), "abc"), [lambda: (t(2), "bß1")]


# -- evaluation order and syntax ------------------------------------------------------------------------------
@agrees()
def test_evaluation_order():
    log = []

    def say(v):
        log.append(v)
        return v

    def f(x):
        log.clear()
        items = [0, 0, 0]
        d = {}
        items[say(1)] = say(5)
        d[say("k")] = d[say("j")] = say(x)
        items[say(0)] += say(2)
        a = say(1) < say(3) < say(2) < say(99)
        b = say(0) or say(False) or say("z")
        c = {say("p"): say(1), **{say("q"): say(2)}}
        e = [*[say(7)], say(8)]
        (items[say(2)], d[say("m")]) = say(3), say(4)
        g = (lambda p=say(6), *q, r=say(5): p + r)(*[say(1)], **{"r": say(2)})
        print(len(log))
        return items, d, a, b, c, e, g, list(log), x * g

    return f, (t(2),)


@agrees()
def test_loops_and_ways_out():
    def f(x, n):
        out = []
        for i in range(5):
            try:
                if i == n:
                    break
                if i % 2:
                    continue
                out.append(i)
                x = x + i
            finally:
                out.append(-i)
                print("f", i)
        else:
            out.append("else")
        while True:
            n -= 1
            try:
                if n < 0:
                    break
            finally:
                x = x * 2
        for i in reversed(range(2)):
            for j in "ab":
                if j == "b":
                    break
                print(i, j)
                x = x + i
            else:
                out.append("never")
        return x, out, i, j

    return f, (t(2), 3), [lambda: (t(2), 9), lambda: (t(2), 0)]


@agrees()
def test_return_in_finally_and_shadowed_errors():
    def inner(x, n):
        try:
            if n:
                raise ValueError("lost")
            return x + 1
        finally:
            print("finally")
            if n == 2:
                return x * 5

    def f(x, n):
        try:
            return inner(x, n)
        except ValueError as error:
            return x, str(error)

    return f, (t(2), 0), [lambda: (t(2), 1), lambda: (t(2), 2)]


@agrees()
def test_names_deleted_and_missing():
    def f(x, n):
        y = x
        if n:
            del y
        print("here")
        try:
            return y + 1
        except UnboundLocalError as error:
            return str(error), x

    def g(x):
        return nowhere + x  # noqa: F821

    def h(x, n):
        try:
            return f(x, n), g(x)
        except NameError as error:
            return f(x, n), str(error)

    return h, (t(2), 0), [lambda: (t(2), 1), lambda: h.__globals__.update(nowhere=3)]


@agrees()
def test_mangled_names_and_nested_classes():
    class Outer:
        __hidden = 3

        class Inner:
            def __init__(self, n):
                self.__n = n

            def get(self):
                return self.__n

        def run(self, x):
            inner = Outer.Inner(self.__hidden)
            print(sorted(inner.__dict__))
            return x * inner.get() + self.__hidden

    def f(x):
        return Outer().run(x)

    return f, (t(2),), [lambda: setattr(Outer, "_Outer__hidden", 5)]


@agrees()
def test_comprehensions_with_breaks():
    def f(x, n):
        values = [(x * i).sum().item() for i in range(n)]
        kept = {i: x + v for i, v in enumerate(values) if v > -3}
        signs = {(x + i).sum().item() > 0 for i in range(n)}
        nested = [[(x[j] * i).item() for j in range(2)] for i in range(2)]
        lazy = sum((x * i).max().item() for i in range(n))
        i = "kept"
        return values, kept, signs, nested, lazy, i

    return f, (t(3), 3), [lambda: (t(3), 12), lambda: (t(3) + 5, 2)]


# -- torch ------------------------------------------------------------------------------------------------------
@agrees()
def test_numbers_and_arrays_that_share_memory():
    def f(x):
        a = x.numpy()
        y = x * 2
        a[0] = 9
        z = torch.from_numpy(a) + y
        return z, x, torch.as_tensor(a).sum()

    return f, (t(3),)


@agrees()
def test_tensors_made_of_values():
    values = [1.0, 2.0]

    def f(x):
        a = torch.tensor(values)
        values.append(len(values))
        b = torch.as_tensor([x.shape[0], 2], dtype=torch.float32)
        print(len(values))
        c = torch.full((2,), float(len(values))) + torch.tensor(values[-1])
        a[0] = 5
        return a, b * x[:2], c

    return f, (t(2),), [lambda: values.clear() or values.append(7.0)]


@agrees()
def test_masks_and_sizes_that_depend_on_data():
    def f(x):
        m = x > 0
        y = x[m]
        print(y.shape)
        idx = torch.nonzero(m)
        u = torch.unique(x.round())
        x[m] = -1
        z = torch.where(m, x, 2 * x)
        return y * 2, idx + 1, u, z, x.masked_fill(~m, 0), m.any(), torch.masked_select(x, m).sum()

    return f, (t(5),), [lambda: (t(9),), lambda: (-t(5),)]


@agrees()
def test_errors_of_torch_have_its_words():
    def f(x, n):
        try:
            if n == 0:
                return x @ torch.ones(7, 7)
            if n == 1:
                return torch.cat([x, x[0]])
            if n == 2:
                return x.view(5)
            if n == 3:
                return F.linear(x, torch.ones(2, 99))
            if n == 4:
                return x.sum(dim=7)
            if n == 5:
                return torch.zeros(2, requires_grad=True).add_(1)
            return nn.Linear(3, 2)(x[:, :1])
        except (RuntimeError, IndexError) as error:
            return type(error).__name__, str(error)

    return f, (t(2, 3), 0), [lambda *, n=n: (t(2, 3), n) for n in range(1, 7)]


@agrees(backward=True)
def test_gradients_through_breaks_and_hooks():
    seen = []

    def f(x, w):
        y = x * w
        y.register_hook(lambda g: seen.append(g.sum()) or g * 2)
        print("hooked")
        z = (y.relu() * w).sum()
        if z > 0:
            z = z * 3
        return z, y.detach().sum(), len(seen)

    return f, (t(3).requires_grad_(), t(3).requires_grad_())


@agrees(backward=True)
def test_custom_functions_and_checkpoints():
    from torch.utils.checkpoint import checkpoint

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 3 + x * 0

    def block(x):
        return torch.tanh(x) * 2

    def f(x):
        y = Double.apply(x)
        z = checkpoint(block, y, use_reentrant=False)
        return y + z

    return f, (t(3).requires_grad_(),)


@agrees(backward=True)
def test_module_containers_and_hooks():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
            self.scales = nn.ParameterList([nn.Parameter(torch.ones(2)) for _ in range(2)])
            self.more = nn.ModuleList([nn.ReLU(), nn.Identity()])
            self.calls = []

        def forward(self, x, *, scale=1.0):
            for name, layer in self.layers.items():
                x = layer(x) * scale
                self.calls.append(name)
            for s, m in zip(self.scales, self.more):
                x = m(x * s)
            print(len(self.calls), [n for n, _ in self.named_children()])
            return x + sum(p.sum() for p in self.parameters())

    torch.utils.hooks.RemovableHandle.next_id = 0
    net = Net()
    net.register_forward_hook(lambda m, a, k, out: out * k["scale"], with_kwargs=True)
    net.layers["a"].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))

    def f(x):
        return net(x, scale=2.0)

    return f, (t(1, 2).requires_grad_(),), [
        lambda: net.layers.pop("b") and None, lambda: net.more.append(nn.Tanh()) and None,
        lambda: net.scales.__setitem__(0, nn.Parameter(torch.zeros(2))),
    ]  # fmt: skip


@agrees()
def test_subclasses_that_watch_calls():
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", "?"))
            return super().__torch_function__(func, types, args, kwargs or {})

    def f(x, w):
        y = x + w
        print(type(y).__name__, len(seen) > 0)
        return torch.sin(y), y * 2 if isinstance(y, Watched) else None

    return f, (t(2), t(2).as_subclass(Watched)), [lambda: (t(2), t(2))]


@agrees()
def test_function_modes_and_default_devices():
    from torch.overrides import TorchFunctionMode

    names = []

    class Log(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append(getattr(func, "__name__", "?"))
            return func(*args, **(kwargs or {}))

    def f(x):
        with Log():
            y = torch.sin(x) * 2
        with torch.device("cpu"):
            z = torch.ones(2)
        return y + z, list(names)

    return f, (t(2),)


@agrees()
def test_settings_changed_inside():
    def f(x):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            y = torch.ones(2) * x
            print(y.dtype)
        finally:
            torch.set_default_dtype(before)
        return y, torch.ones(1).dtype, torch.get_num_threads() > 0

    return f, (t(2),)


@agrees()
def test_modules_of_the_programs_own():
    space = types.ModuleType("space")
    exec(
        "import torch\nSCALE = 2\ncache = {}\n"
        "def f(x):\n    key = tuple(x.shape)\n    if key not in cache:\n        cache[key] = torch.ones(key) * SCALE\n"
        "    return x * cache[key]\n",
        space.__dict__,
    )

    def f(x):
        y = space.f(x)
        space.SCALE += 1
        print(len(space.cache), space.SCALE)
        return y + space.f(x[:1]), space.cache

    return f, (t(2),), [lambda: (t(3),), lambda: space.cache.clear()]


@agrees()
def test_lists_of_modules_called_by_index_and_slices():
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(4)])
    order = [0, 2]

    def f(x):
        for i in order:
            x = layers[i](x)
        for layer in layers[1:3]:
            x = torch.relu(layer(x))
        return x, len(layers), layers[-1] is layers[3]

    return (
        f,
        (t(1, 2),),
        [lambda: order.append(3), lambda: order.reverse(), lambda: layers.insert(0, nn.Tanh())],
    )


class Caching:
    def __init__(self, scale):
        self.scale = scale
        self.asked = []

    @functools.lru_cache(maxsize=2)  # noqa: B019 (what is tested)
    def table(self, n):
        self.asked.append(n)
        return torch.arange(float(n)) * self.scale


@agrees(breaks=2, calls=4)
def test_methods_with_a_cache():
    """One break a call: the cache is Python's, and what it holds is what plain Python holds."""

    def f(x, c):
        y = x + c.table(2)
        z = y * c.table(3).sum()
        return z, len(c.asked)

    return f, (torch.ones(2), Caching(3)), [None, lambda: Caching.table.cache_clear(), None]


NAMED = typing.Callable


@agrees(breaks=0, graphs=2, calls=3)
def test_isinstance_with_names_of_typing():
    def f(x, g):
        asked = [
            isinstance(g, NAMED),
            isinstance([g], (typing.List, int)),
            isinstance({}, typing.Sequence),
        ]
        return x + sum(asked), asked, isinstance(x, typing.Sized)

    def other():
        global NAMED
        NAMED = typing.Mapping

    return f, (torch.ones(2), len), [other, lambda: None]


@agrees()
def test_ints_of_more_digits_than_python_shows():
    huge = 1 << 100_000

    def f(x, n, pair):
        y = x + n % 7 + len(pair)
        print(n.bit_length())
        m = n + (1 << 90_000)
        return y, m, pair, m == huge

    calls = [(t(2), huge, (huge, 1)), (t(2), huge + 1, (huge, 2)), (t(2), huge + 2, (huge, 2))]

    def g():
        return [hash(one) if type(one) is int else one for call in calls for one in f(*call)[:2]]

    return g, ()


@agrees()
def test_a_class_of_the_frame_ends_while_the_frame_runs():
    def f(x, log):
        y = x + 1

        class C:
            def method(self, reference):
                log.append(self.other)

        a, b = C(), C()
        a.other, b.other = b, a
        a.reference = weakref.ref(b, a.method)
        gone = weakref.ref(C, lambda reference: log.append("gone"))
        del a, b, C
        gc.collect()
        return y * 2, list(log), gone() is None

    return lambda x: f(x, []), (t(2),)
