"""Programs of many kinds, as people write them: classes, control flow, generators, tensors as values."""

import abc
import collections
import contextlib
import dataclasses
import enum
import math
import traceback
import typing

import torch
import torch.nn.functional as F
from torch import nn

from ..harness import agrees


@dataclasses.dataclass
class Item:
    name: str
    weight: float = 1.0
    tags: list = dataclasses.field(default_factory=list)
    total: float = dataclasses.field(init=False)

    def __post_init__(self):
        self.total = self.weight * 2


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: str = "b"


@agrees()
def test_dataclasses():
    def f(x, n):
        items = [Item("a", n), Item("b", 0.5, ["t"])]
        items[0].tags.append(n)
        try:
            Frozen(1).a = 2
        except dataclasses.FrozenInstanceError as e:
            message = str(e)
        best = max(Frozen(2, "x"), Frozen(n))
        made = dataclasses.replace(items[1], weight=3.0)
        return (
            x * items[0].total,
            [dataclasses.asdict(i) for i in items],
            message,
            best,
            made,
            dataclasses.astuple(best),
        )

    return f, (torch.ones(2), 3)


class Shape(typing.NamedTuple):
    w: int
    h: int = 2

    @property
    def area(self):
        return self.w * self.h


@agrees()
def test_named_tuples():
    def f(x, n):
        s = Shape(n)
        t = s._replace(h=5)
        w, h = t
        return (
            x.reshape(1, -1) * t.area,
            s,
            t._asdict(),
            Shape._make([7, 8]),
            w + h,
            s < t,
            t.index(5),
            s._fields,
        )

    return f, (torch.ones(3), 4)


@agrees()
def test_match_statements():
    def f(x, things):
        out = []
        for thing in things:
            match thing:
                case {"kind": "mul", "by": int(by) | float(by), **rest}:
                    x = x * by
                    out.append(sorted(rest))
                case [Shape(w=w, h=h), *_] if w > h:
                    x = x + w
                case Frozen(a, b="b"):
                    out.append(a)
                case (1 | 2) as small:
                    out.append(("small", small))
                case str() as s if s.startswith("x"):
                    out.append(s.upper())
                case None | True:
                    out.append("none")
                case [[a, b], *rest, c]:
                    out.append((a, b, rest, c))
                case torch.Tensor(shape=[n]):
                    out.append(n)
                case _:
                    out.append(type(thing).__name__)
        return x, out

    return f, (
        torch.ones(2),
        [
            {"kind": "mul", "by": 2, "z": 1, "y": 2},
            [Shape(5, 1), 3],
            Frozen(4),
            2,
            "xyz",
            None,
            [[1, 2], 3, 4, 5],
            torch.ones(7),
            1.5,
            b"b",
        ],
    )


class Meter:
    made = 0
    registry: dict = {}

    def __init_subclass__(cls, /, kind="plain", **kwargs):
        super().__init_subclass__(**kwargs)
        Meter.registry[kind] = cls.__name__

    def __init__(self):
        type(self).made += 1
        self._v = 0

    @property
    def v(self):
        return self._v

    @v.setter
    def v(self, value):
        if value < 0:
            raise ValueError(f"negative: {value}")
        self._v = value

    @v.deleter
    def v(self):
        self._v = -1

    def __class_getitem__(cls, item):
        return f"{cls.__name__}[{item}]"


class Sub(Meter, kind="sub"):
    def __init__(self):
        super().__init__()
        self.extra = super().v


@agrees()
def test_classes_with_counters_and_properties():
    def f(x, m):
        s = Sub()
        s.v = 3
        s.v += 2
        try:
            s.v = -4
        except ValueError as e:
            text = e.args[0]
        del m.v
        return x * s.v, text, Sub.made, Meter.made, m._v, Meter["k"], s.extra, Meter.registry

    Meter.made = 0
    if "made" in vars(Sub):
        del Sub.made
    return f, (torch.ones(2), Meter())


@agrees()
def test_exit_stacks_and_other_contexts():
    class Logged:
        def __init__(self, log, name, swallow=False):
            self.log, self.name, self.swallow = log, name, swallow

        def __enter__(self):
            self.log.append("in " + self.name)
            return self

        def __exit__(self, kind, error, trace):
            self.log.append(f"out {self.name} {kind.__name__ if kind else None}")
            return self.swallow

    def f(x, log):
        with contextlib.ExitStack() as stack:
            for name in "abc":
                stack.enter_context(Logged(log, name, name == "b"))
            stack.callback(log.append, "callback")
            x = x + len(log)
            if x.shape[0] == 2:
                raise KeyError("k")
        with contextlib.suppress(ZeroDivisionError, KeyError):
            log.append(1 // 0)
        with contextlib.nullcontext(x * 3) as y:
            pass
        with Logged(log, "p", True) as p, Logged(log, "q"):
            raise ValueError(p.name)
        return x, y, log

    return f, (torch.ones(2), [])


class Perm(enum.IntFlag):
    R = 4
    W = 2
    X = 1


class Mood(enum.Enum):
    HAPPY = enum.auto()
    SAD = enum.auto()

    def turned(self):
        return Mood.SAD if self is Mood.HAPPY else Mood.HAPPY

    @classmethod
    def default(cls):
        return cls.HAPPY


class Level(str, enum.Enum):
    LOW = "low"
    HIGH = "high"


@agrees()
def test_enums_of_many_kinds():
    def f(x, mood, perm):
        got = Perm.R | Perm.W
        table = {m: i for i, m in enumerate(Mood)}
        return (
            x * got,
            Perm.W in got,
            got & ~Perm.R,
            mood.turned(),
            Mood["SAD"].value,
            Mood(1),
            table[mood],
            Mood.default().name,
            Level.LOW == "low",
            Level("high").upper(),
            [p.name for p in Perm],
            perm ^ Perm.X,
            len(Mood),
            f"{Level.LOW.value}-{mood.name}",
        )

    return f, (torch.ones(2), Mood.SAD, Perm.X | Perm.R)


T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, item: T):
        self.item = item

    def get(self) -> T:
        return self.item


@typing.runtime_checkable
class HasGet(typing.Protocol):
    def get(self): ...


class Base(abc.ABC):
    @abc.abstractmethod
    def run(self, x): ...

    def __repr__(self):
        return f"<{type(self).__name__}>"


class Twice(Base):
    def run(self, x):
        return x * 2


class Foreign:
    def run(self, x):
        return x - 1


Base.register(Foreign)


@agrees()
def test_generics_protocols_and_abstract_classes():
    def f(x, objs):
        b = Box[int](3)
        out = []
        for o in objs:
            if isinstance(o, Base):
                x = o.run(x)
            out.append(
                (
                    isinstance(o, HasGet),
                    isinstance(o, collections.abc.Sequence),
                    isinstance(o, typing.Sized.__origin__),
                )
            )
        try:
            Base()
        except TypeError as e:
            out.append("abstract" in str(e))
        y = typing.cast("torch.Tensor", x)
        return y * b.get(), out, repr(Twice())

    return f, (torch.ones(2), [Twice(), Foreign(), Box(1), [1], "s"])


@agrees()
def test_exceptions_of_many_kinds():
    class Bad(Exception):
        def __init__(self, code, text):
            super().__init__(text)
            self.code = code

    def inner(n):
        try:
            if n == 0:
                return "zero"
            raise Bad(n, "bad")
        except Bad as e:
            e.add_note("noted")
            raise RuntimeError("outer") from e
        else:
            return "else"
        finally:
            if n == 2:
                return "swallowed"

    def f(x):
        out = []
        for n in range(4):
            try:
                out.append(inner(n))
                continue
            except RuntimeError as e:
                out.append(
                    (e.__cause__.code, e.__cause__.__notes__, str(e), e.__suppress_context__)
                )
                if n == 3:
                    break
            finally:
                out.append(("finally", n))
        else:
            out.append("never")
        try:
            try:
                {}["k"]
            except KeyError:
                int("q")
        except ValueError as e:
            out.append(type(e.__context__).__name__)
            out.append(traceback.format_exception_only(type(e), e))
        try:
            assert x.shape[0] == 3, f"shape {tuple(x.shape)}"
        except AssertionError as e:
            out.append(e.args)
        try:
            raise ExceptionGroup(
                "g", [ValueError(1), TypeError("t"), ExceptionGroup("h", [ValueError(2)])]
            )
        except* ValueError as g:
            out.append([type(e).__name__ for e in g.exceptions])
        except* TypeError as g:
            out.append(len(g.exceptions))
        return x * len(out), out

    return f, (torch.ones(2),)


@agrees()
def test_loops_and_unpacking():
    def f(x, grid):
        out = []
        for i, (a, (b, *c), d) in enumerate(grid):
            if i == 1:
                continue
            for v in c:
                if v > 4:
                    break
                x = x + v
            else:
                out.append(("all", i))
            out.append((a, b, c, d))
        n = 5
        while (n := n - 1) > 0:
            if n == 2:
                break
        else:
            out.append("none")
        first, *mid, last = [*range(5), *out[:1]]
        m = {**{"a": 1}, "b": 2, **dict(c=3)}
        fs = [lambda v, k=k: v + k for k in range(3)]
        gs = [lambda v: v + k for k in range(3)]
        sq = [y for z in range(4) if (y := z * z) > 1]
        nested = [[i * j for j in range(i)] for i in range(4)]
        return (
            x,
            out,
            n,
            first,
            mid,
            last,
            m,
            [g(1) for g in fs],
            [g(1) for g in gs],
            sq,
            y,
            nested,
            1 < n <= 4 != 3,
            {i % 2 for i in range(5)},
        )

    return f, (torch.ones(2), [(1, (2, 3, 4), 5), (0, (0,), 0), (6, [7, 8, 1], 9)])


class Vec:
    __slots__ = ("a", "b", "__weakref__")

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __add__(self, o):
        return Vec(self.a + o.a, self.b + o.b) if isinstance(o, Vec) else NotImplemented

    def __radd__(self, o):
        return ("radd", o, self.a)

    def __iadd__(self, o):
        self.a += o
        return self

    def __matmul__(self, o):
        return self.a * o.a

    def __rmatmul__(self, o):
        return "rmatmul"

    def __neg__(self):
        return Vec(-self.a, -self.b)

    def __eq__(self, o):
        return isinstance(o, Vec) and (self.a, self.b) == (o.a, o.b)

    def __hash__(self):
        return hash((self.a, self.b))

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return (self.a, self.b)[i]

    def __setitem__(self, i, v):
        setattr(self, "ab"[i], v)

    def __delitem__(self, i):
        delattr(self, "ab"[i])

    def __contains__(self, v):
        return v in (self.a, self.b)

    def __bool__(self):
        return bool(self.a)

    def __index__(self):
        return int(self.a)

    def __call__(self, x):
        return x * self.a

    def __format__(self, spec):
        return f"V{spec}"

    def __iter__(self):
        yield self.a
        yield self.b

    def __reversed__(self):
        return iter((self.b, self.a))

    def __int__(self):
        return 7

    def __float__(self):
        return 7.5

    def __round__(self, n=None):
        return ("round", n)

    def __missing(self):
        return "mangled"

    def secret(self):
        return self.__missing()


@agrees()
def test_special_methods():
    def f(x, v):
        w = Vec(2, 3)
        u = v + w
        r = 5 + w
        v += 4
        try:
            v + 3
        except TypeError as e:
            text = str(e)
        d = {v: 1, Vec(0, 0): 2}
        a, b = w
        w[1] = 9
        del w[0]
        try:
            w.a
        except AttributeError as e:
            missing = str(e)
        return (
            v(x),
            (u.a, u.b),
            r,
            text,
            v @ Vec(3, 0),
            4 @ v,
            (-v).a,
            d[Vec(v.a, v.b)],
            len(v),
            v[0],
            a,
            b,
            3 in v,
            "yes" if v else "no",
            [10, 20, 30, 40, 50, 60][v],
            f"{v:>q}",
            list(v),
            list(reversed(v)),
            int(v),
            float(v),
            round(v),
            round(v, 2),
            v.secret(),
            missing,
            v == Vec(v.a, v.b),
            v != 3,
            x[v.__index__() - 5] if v.a == 5 else None,
            sum(Vec(1, 2)),
            sorted(v),
            max(v),
            tuple(v),
            [*v],
        )

    return f, (torch.ones(2), Vec(1, 2))


class Single:
    one = None

    def __new__(cls, *args):
        if cls.one is None:
            cls.one = super().__new__(cls)
            cls.one.count = 0
        return cls.one

    def __init__(self, n=0):
        self.count += n


class Fallback:
    def __init__(self):
        self.log = []

    def __getattr__(self, name):
        if name.startswith("no"):
            raise AttributeError(name)
        self.log.append(name)
        return len(name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value if name == "log" else (name, value))

    def __delattr__(self, name):
        self.log.append(f"del {name}")
        object.__delattr__(self, name)


@agrees()
def test_objects_with_ways_of_their_own():
    def f(x, o):
        Single(2)
        s = Single(3)
        o.width = 3
        found = o.missing + o.abc
        del o.width
        return (
            x * s.count,
            s is Single(),
            found,
            o.width,
            hasattr(o, "nothing"),
            getattr(o, "nope", 5),
            o.log,
            vars(o).keys(),
        )

    Single.one = None
    return f, (torch.ones(2), Fallback())


@agrees()
def test_tensors_as_python_values():
    def f(x, y):
        out = []
        if x.sum() > 2:
            out.append("big")
        n = int(x[0].item() * 2) + len(x)
        for row in y:
            n += row.numel()
        a, b = y
        d = {x: "x", y: "y"}
        found = [d[x], x in d, y is d, x is None, [x][0] is x]
        best = max(y, key=lambda r: float(r.sum()))
        z = torch.stack([r * i for i, r in enumerate(y)])
        z[0] += 1
        z[:, 1] = a[1]
        z[z > 3] = 0
        w = y.clone()
        w[torch.tensor([0, 1]), torch.tensor([1, 0])] = 9.0
        return (
            out,
            n,
            a + b,
            found,
            best,
            z,
            w,
            y.tolist(),
            x.numpy().sum(),
            bool(x[0] == 1),
            y.shape[-1] * 2,
            y.size(),
            y.dtype == torch.float32,
            y.T.is_contiguous(),
            f"{x[0]:.2f}",
            str(x),
            repr(y.shape),
            list(x),
            tuple(y.unbind(1)),
            divmod(y.numel(), 4),
        )

    return f, (torch.ones(3), torch.arange(6.0).reshape(2, 3))


class LazyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.table = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.scale = nn.Parameter(torch.ones(3))
        self.extra = None
        for p in self.parameters():
            nn.init.constant_(p, 0.25)

    def forward(self, x, which="a"):
        self.steps += 1
        for i, block in enumerate(self.blocks[:-1]):
            x = self.table[which](block(x)) + i
        if self.extra is None:
            self.extra = nn.Identity()
            self.register_buffer("late", torch.full((3,), 2.0))
        for name, p in self.named_parameters():
            if name.endswith("bias") and p.ndim == 1:
                x = x + p
        return (
            self.extra(self.blocks[-1](x)) * self.scale * self.late,
            int(self.steps),
            len(list(self.modules())),
            sorted(self.state_dict()),
        )


@agrees(grad=False)
def test_a_module_that_grows():
    torch.manual_seed(0)
    net = LazyNet()

    def f(x, which):
        return net(x, which), net.training, net.blocks[0].weight.shape

    return (
        f,
        (torch.ones(2, 3), "a"),
        [
            lambda: (torch.ones(2, 3), "b"),
            lambda: net.eval() and None,
            lambda: (torch.ones(4, 3), "a"),
        ],
    )


@agrees()
def test_generators_of_many_kinds():
    def averages():
        total, n = 0.0, 0
        try:
            while True:
                v = yield total / n if n else None
                if v is None:
                    return total
                total, n = total + v, n + 1
        finally:
            log.append("closed")

    def outer(xs):
        result = yield from inner(xs)
        yield ("result", result)

    def inner(xs):
        for v in xs:
            got = yield v
            if got:
                yield got * 2
        return len(xs)

    log = []

    def f(x, xs):
        log.clear()
        g = averages()
        next(g)
        out = [g.send(v) for v in xs]
        try:
            g.send(None)
        except StopIteration as e:
            out.append(e.value)
        h = outer(xs)
        out.append(next(h))
        out.append(h.send(5))
        out.extend(h)
        k = (v * x for v in xs if v > 1)
        total = sum(k)
        c = averages()
        next(c)
        c.close()
        try:
            c.send(1)
        except StopIteration:
            out.append("stopped")
        t = averages()
        next(t)
        try:
            t.throw(ValueError("thrown"))
        except ValueError as e:
            out.append(str(e))
        return (
            total,
            out,
            list(log),
            list(zip(*[iter(range(6))] * 2)),
            next(iter([]), "none"),
            list(iter(lambda it=iter([1, 2, 0, 3]): next(it), 0)),
        )

    return f, (torch.ones(2), [1, 2, 3])


COUNT = 0


@agrees()
def test_scopes():
    def maker(start):
        n = start

        def bump(by=1):
            nonlocal n
            n += by
            return n

        def peek():
            return n

        return bump, peek

    def f(x, fns):
        global COUNT
        COUNT += 1
        bump, peek = maker(COUNT)
        bump()
        bump(by=5)
        fns.append(peek)

        def fact(k):
            return 1 if k < 2 else k * fact(k - 1)

        def annotated(a: int, /, b: "str" = "q", *args, c=3, **kw) -> float:
            "doc"
            return a, b, args, c, kw

        class Local:
            value = COUNT * 2

            def get(self):
                return self.value + COUNT + peek()

        del bump
        try:
            bump
        except NameError as e:
            text = str(e)
        exec("made = 3", ns := {})
        return (
            x * peek(),
            fact(5),
            annotated(1, "z", 4, c=5, d=6),
            annotated.__annotations__,
            annotated.__doc__,
            Local().get(),
            text,
            ns["made"],
            [g() for g in fns],
            eval("COUNT + 1"),
            (lambda *a, **k: (a, k))(1, z=2),
            fact.__name__,
            f.__name__,
        )

    global COUNT
    COUNT = 0
    return f, (torch.ones(2), [])


@agrees()
def test_functional_tensor_code():
    def attention(q, k, v, mask=None, heads=2):
        b, t, c = q.shape
        q, k, v = (z.view(b, -1, heads, c // heads).transpose(1, 2) for z in (q, k, v))
        w = q @ k.transpose(-2, -1) / math.sqrt(c // heads)
        if mask is not None:
            w = w.masked_fill(mask == 0, float("-inf"))
        return (F.softmax(w, -1) @ v).transpose(1, 2).reshape(b, t, c)

    def f(x, n):
        mask = torch.tril(torch.ones(x.shape[1], x.shape[1]))
        y = attention(x, x, x, mask, heads=n)
        z = torch.einsum("bij,bkj->bik", x, y)
        parts = torch.split(y, [1, y.size(-1) - 1], dim=-1)
        pos = torch.arange(x.shape[1], device=x.device).unsqueeze(0).expand(x.shape[0], -1)
        emb = F.one_hot(pos, x.shape[1]).to(x.dtype)
        top = torch.topk(z.flatten(), 2)
        return (
            y,
            z,
            parts,
            torch.cat([emb, y], -1),
            top.values,
            torch.where(z > 0, z, -z).mean((1, 2), keepdim=True),
            F.pad(x, (1, 0, 0, 2)),
            x.roll(1, 0).flip(1),
            torch.cumsum(y, 1),
            F.layer_norm(y, y.shape[-1:]),
            torch.nn.functional.interpolate(x[None], scale_factor=2.0),
        )

    return f, (torch.arange(24.0).reshape(2, 3, 4) / 10, 2)
