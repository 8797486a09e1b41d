"""Every fact that a program reaches is changed in turn, and back: the next call always sees it.

A world is walked from its roots (objects, containers, modules, functions with their cells and defaults, classes);
each place found is given another value, an equal copy, or taken away. The same changes are made to a twin that runs
in plain Python.
"""

from __future__ import annotations

import copy
import enum
import functools
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from graftjit import JitConfig, jit

from .harness import Describer, difference

Change = tuple[str, Callable[[], Any], Callable[[], Any]]  # what, do, undo
SCALE = 1.5
TABLE = {"a": 1, "b": [1.0, 2.0]}


# -- the world --------------------------------------------------------------------------------------------
class Mode(enum.Enum):
    UP = 1
    DOWN = 2


class Base:
    bias = 0.5
    kinds = ("p", "q")

    def shift(self, x, by=1):
        return x + by * self.bias

    @property
    def double(self):
        return self.scale * 2

    @staticmethod
    def fixed(x):
        return x - 1

    @classmethod
    def named(cls):
        return len(cls.__name__)


class Thing(Base):
    def __init__(self, scale, inner=None):
        self.scale = scale
        self.flag = True
        self.name = "thing"
        self.items = [1, 2.5, [3]]
        self.table = OrderedDict(k=1, l=None)
        self.tags = {"s", "t"}
        self.pair = (1, [2])
        self.mode = Mode.UP
        self.inner = inner
        self.w = torch.tensor([0.5, -1.0])

    def shift(self, x, by=2):
        return super().shift(x, by) * self.scale

    def __len__(self):
        return len(self.items)

    def __call__(self, x):
        return self.shift(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lin = nn.Linear(2, 2)
        self.act = nn.ReLU()
        self.norm = nn.BatchNorm1d(2).eval()
        self.register_buffer("offset", torch.ones(2))
        self.gain = 2.0

    def forward(self, x):
        return self.norm(self.act(self.lin(x))) * self.gain + self.offset


def make_scaled(n):
    def scaled(x, k=2, *, extra=0):
        return x * n * k + extra

    return scaled


def world() -> dict[str, Any]:
    things = Thing(2.0, Thing(0.5))
    return {
        "o": things, "net": Net(), "fn": make_scaled(3), "part": functools.partial(make_scaled(2), k=5),
        "cfg": {"depth": 2, "names": ["a", "b"], 3: "three"}, "alias": things.items, "helper": types.SimpleNamespace(v=1),
    }  # fmt: skip


def attributes(x, w):
    o = w["o"]
    y = o.shift(x) * o.scale + o.double + o.fixed(x) + o.named()
    y = o(y) + (o.inner.scale if o.inner is not None else 7)
    if o.flag and o.name == "thing" and o.mode is Mode.UP:
        y = y + o.w
    return (
        y,
        len(o),
        o.kinds[0],
        bool(o),
        o.bias,
        hasattr(o, "extra"),
        getattr(o, "other", 3),
        isinstance(o, Base),
    )


def containers(x, w):
    o, cfg = w["o"], w["cfg"]
    y = x * o.items[0] + o.items[2][0] + len(o.tags) + sum(o.items[:2])
    for name in cfg["names"]:
        y = y + len(name)
    y = y * cfg["depth"] + o.pair[1][0] + (o.table["k"] or 0)
    return (
        y,
        list(o.table),
        "s" in o.tags,
        cfg.get("missing"),
        cfg[3],
        w["alias"] is o.items,
        dict(cfg),
    )


def functions(x, w):
    fn, part = w["fn"], w["part"]
    y = fn(x) + fn(x, k=1) + part(x) + w["helper"].v
    return y * SCALE + TABLE["a"] + sum(TABLE["b"]), max([1, 2]), fn.__name__


def modules(x, w):
    net = w["net"]
    return net(x.expand(2, 2)), net.training, len(list(net.children())), net.lin.out_features


PROGRAMS = (attributes, containers, functions, modules)


# -- the changes ------------------------------------------------------------------------------------------
def others(value: Any) -> Iterator[Any]:
    """Other values for one."""
    if isinstance(value, bool):
        yield not value
        yield int(value)
    elif isinstance(value, int):
        yield from (value + 1, float(value), 0)
    elif isinstance(value, float):
        yield from (value + 1, -value, int(value))
    elif isinstance(value, str):
        yield from (value + "x", "", None)
    elif value is None:
        yield from (1, "none")
    elif isinstance(value, torch.Tensor):
        with torch.no_grad():
            changed = value.detach().clone() + 1
        yield nn.Parameter(changed) if isinstance(value, nn.Parameter) else changed
    elif isinstance(value, (list, tuple, set, OrderedDict)):
        yield copy.copy(value)
        yield type(value)()
    elif isinstance(value, dict):
        yield dict(value)
    elif isinstance(value, enum.Enum):
        yield Mode.DOWN
    elif isinstance(value, Thing):
        yield copy.copy(value)
        yield None
    elif isinstance(value, nn.ReLU):
        yield nn.Tanh()
    elif isinstance(value, nn.Linear):
        yield nn.Linear(2, 2, bias=False)
    elif isinstance(value, types.FunctionType):
        yield lambda *args, **kwargs: args[-1] * 3
    elif isinstance(value, property):
        yield property(lambda self: 9.0)
        yield 4.0
    elif isinstance(value, staticmethod):
        yield staticmethod(lambda x: x * 10)
    elif isinstance(value, classmethod):
        yield classmethod(lambda cls: 5)


def places(
    value: Any, path: str, seen: set[int]
) -> Iterator[tuple[str, Callable, Callable, Callable]]:
    """(path, get, set, delete) of every place under an object."""
    if id(value) in seen or len(path) > 60:
        return
    seen.add(id(value))
    inside: list[tuple[str, Any]] = []
    if isinstance(value, (list, dict)):
        for key in list(range(len(value)) if isinstance(value, list) else value):
            yield (
                f"{path}[{key!r}]",
                partial_get(value, key),
                partial_set(value, key),
                partial_del(value, key),
            )
            inside.append((f"{path}[{key!r}]", value[key]))
    elif isinstance(value, tuple):
        inside += [(f"{path}[{n}]", item) for n, item in enumerate(value)]
    elif isinstance(value, types.FunctionType):
        for name in ("__defaults__", "__kwdefaults__", "__code__", "__name__"):
            yield f"{path}.{name}", *attribute(value, name)
        for n, cell in enumerate(value.__closure__ or ()):
            yield f"{path}.cell{n}", *attribute(cell, "cell_contents")
    elif isinstance(value, (type, Base, nn.Module, types.SimpleNamespace, functools.partial)):
        own = vars(value)
        for name in [n for n in own if not n.startswith("__")]:
            yield f"{path}.{name}", *attribute(value, name)
            inside.append((f"{path}.{name}", own[name]))
        if isinstance(value, functools.partial):
            inside += [(f"{path}.func", value.func), (f"{path}.keywords", value.keywords)]
        if isinstance(value, Base):
            inside += [(f"type({path})", type(value)), (f"base({path})", Base)]
    for name, item in inside:
        yield from places(item, name, seen)


def attribute(owner: Any, name: str) -> tuple[Callable, Callable, Callable]:
    def get():
        return vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)

    return get, lambda v: setattr(owner, name, v), lambda: delattr(owner, name)


def partial_get(owner: Any, key: Any) -> Callable:
    return lambda: owner[key]


def partial_set(owner: Any, key: Any) -> Callable:
    size = len(owner)

    def put(value: Any) -> None:
        if isinstance(owner, list) and len(owner) < size:
            owner.insert(key, value)  # back where it was taken from
        else:
            owner[key] = value

    return put


def partial_del(owner: Any, key: Any) -> Callable:
    return lambda: owner.__delitem__(key)


def changes(w: dict[str, Any]) -> list[Change]:
    """All changes of a world, in an order that both twins have."""
    found: list[Change] = []
    seen: set[int] = set()
    roots = [
        ("w", w),
        ("Thing", Thing),
        ("Base", Base),
        ("globals", {"SCALE": SCALE, "TABLE": TABLE}),
    ]
    for name, root in roots:
        for path, get, put, delete in places(root, name, seen):
            before = get()
            for number, other in enumerate(others(before)):
                found.append(
                    (
                        f"{path} = other {number}",
                        lambda p=put, v=other: p(v),
                        lambda p=put, v=before: p(v),
                    )
                )
            if not path.startswith("w[") or "]." in path or "names" in path:
                found.append((f"del {path}", delete, lambda p=put, v=before: p(v)))
    o, fn, net = w["o"], w["fn"], w["net"]
    extra: list[tuple[str, Callable, Callable]] = [
        ("shadow method", lambda: o.__dict__.update(shift=lambda x, by=1: x), lambda: o.__dict__.pop("shift")),
        ("shadow class attribute", lambda: setattr(o, "bias", 9), lambda: o.__dict__.pop("bias")),
        ("new attribute", lambda: setattr(o, "extra", 1), lambda: delattr(o, "extra")),
        ("__getattr__", lambda: setattr(Base, "__getattr__", lambda s, n: 5), lambda: delattr(Base, "__getattr__")),
        ("__bool__", lambda: setattr(Thing, "__bool__", lambda s: False), lambda: delattr(Thing, "__bool__")),
        ("__class__", lambda: setattr(o, "__class__", Base), lambda: setattr(o, "__class__", Thing)),
        ("bases", lambda: setattr(Thing, "__bases__", (type("Mid", (Base,), {"bias": 8}),)),
         lambda: setattr(Thing, "__bases__", (Base,))),
        ("code", lambda: setattr(fn, "__code__", make_other().__code__), lambda c=fn.__code__: setattr(fn, "__code__", c)),
        ("tensor in place", lambda: o.w.add_(1), lambda: o.w.sub_(1)),
        ("tensor data", lambda: setattr(net.offset, "data", torch.zeros(2)), lambda: setattr(net.offset, "data", torch.ones(2))),
        ("training", lambda: net.train(), lambda: net.eval()),
        ("hook", lambda: hooks.append(net.act.register_forward_hook(lambda m, a, out: out + 1)), lambda: hooks.pop().remove()),
        ("requires grad", lambda: net.lin.requires_grad_(False), lambda: net.lin.requires_grad_(True)),
        ("module type", lambda: setattr(net.act, "__class__", nn.Tanh), lambda: setattr(net.act, "__class__", nn.ReLU)),
        ("ABC", lambda: setattr(Base, "named", classmethod(lambda c: 1)), lambda n=vars(Base)["named"]: setattr(Base, "named", n)),
    ]  # fmt: skip
    hooks: list[Any] = []
    return found + extra


def make_other():
    n = 1

    def other(x, k=2, *, extra=0):
        return x - n

    return other


# -- the test -----------------------------------------------------------------------------------------------
def play(program: Callable, wrap: Callable) -> list[tuple[str, Any]]:
    scope = program.__globals__
    scope["SCALE"], scope["TABLE"] = 1.5, {"a": 1, "b": [1.0, 2.0]}
    w, x = world(), torch.tensor([0.5, -0.25])
    run = wrap(types.FunctionType(program.__code__, scope, program.__name__))
    out = [("start", call(run, x, w))]
    for what, do, undo in changes(w):
        try:
            do()
        except (TypeError, AttributeError, ValueError) as error:
            out.append((what, type(error).__name__))
            continue
        out.append((what, call(run, x, w)))
        undo()
    out.append(("end", call(run, x, w)))
    return out


def call(run: Callable, x: torch.Tensor, w: Any) -> Any:
    try:
        return Describer().describe(run(x, w))
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_every_fact(program):
    config = JitConfig(jit_level="O0", recompile_limit=10_000)
    plain = play(program, lambda f: f)
    found = play(program, lambda f: jit(f, config=config))
    assert len(plain) > 40
    for (what, wanted), (_, got) in zip(plain, found, strict=True):
        where = difference(wanted, got, 0.0)
        assert where is None, f"{what}: plain {where}"
