"""What every fuzzed program may use: classes, functions and globals, each taken into a program only if it is named there.

`PRELUDE` is read statement by statement; `needed` gives the part of it that a text refers to, with what that part
refers to in turn.
"""

from __future__ import annotations

import re

from .statements import Statement, block_lines, parse

PRELUDE = """\
import torch
import contextlib
import copy
import collections
import dataclasses
import enum
import functools
import itertools
import math
import numpy as np
import operator
import random
import sys
import typing
from functools import partial
GI = 3
GF = 0.5
GT = torch.tensor([0.5, -1.0, 2.0])
GL = [1, 2, 3]
GD = {"a": 1, "b": 2}
class Thing:
    bias = 1.5
    def __init__(self, scale):
        self.scale = scale
        self.count = 0
        self.flag = True
        self.kind = None
        self.w = torch.tensor([0.25, -0.5, 1.0])
        self.items = [1, 2]
    def method(self, t, k=2):
        self.count += 1
        return t * self.scale + k
    def __call__(self, t):
        return self.method(t, k=1) - self.bias
    @property
    def double(self):
        return self.scale * 2
    @double.setter
    def double(self, value):
        self.scale = value / 2
    @staticmethod
    def fixed(t):
        return t - 1
    @classmethod
    def made(cls, scale):
        return cls(scale + 1)
class Child(Thing):
    def method(self, t, k=1):
        return super().method(t, k) * self.bias
OBJ = Thing(2.0)
def helper(t, k=1):
    if k > 2:
        return t - k
    return t + k
def gen(n):
    for j in range(n):
        yield j * j
def make_counter():
    n = 0
    def bump(by=1):
        nonlocal n
        n = (n + by) % 5
        return n
    return bump
COUNTER = make_counter()
class Guard:
    def __init__(self, kinds=()):
        self.kinds = kinds
    def __enter__(self):
        print("enter")
        return self
    def __exit__(self, kind, value, trace):
        print("exit", kind and kind.__name__)
        return kind is not None and issubclass(kind, self.kinds)
LOG = []
class Quiet:
    def __init__(self, name):
        self.name = name
    def __enter__(self):
        LOG.append(("enter", self.name))
        return self.name
    def __exit__(self, kind, value, trace):
        LOG.append(("exit", self.name, kind and kind.__name__))
        return kind is KeyError
@contextlib.contextmanager
def managed(name):
    LOG.append("in " + name)
    try:
        yield name + "!"
    except KeyError as error:
        LOG.append("kept " + str(error))
    finally:
        LOG.append("out " + name)
class Oops(ValueError):
    def __init__(self, text, number=0):
        super().__init__(text)
        self.number = number
@dataclasses.dataclass
class Point:
    x: torch.Tensor
    n: int = 1
    tags: list = dataclasses.field(default_factory=list)
    def norm(self):
        return self.x.abs() * self.n
@dataclasses.dataclass(frozen=True, order=True)
class Fixed:
    a: int
    b: int = 2
    def __post_init__(self):
        LOG.append(self.a)
class Pair(typing.NamedTuple):
    left: torch.Tensor
    right: int = 3
    def swapped(self):
        return self.right * self.left
Row = collections.namedtuple("Row", "first second", defaults=(5,))
class Color(enum.Enum):
    RED = 1
    GREEN = "g"
    @property
    def loud(self):
        return self.name.upper() + "!"
class Rank(enum.IntEnum):
    LOW = 1
    HIGH = 3
class Vec:
    def __init__(self, data, n=0):
        self.data = data
        self.n = n
    def __add__(self, other):
        if isinstance(other, Vec):
            return Vec(self.data + other.data, self.n + other.n)
        return Vec(self.data + other, self.n)
    __radd__ = __add__
    def __mul__(self, other):
        if not isinstance(other, (int, float)):
            return NotImplemented
        return Vec(self.data * other, self.n * 2)
    def __iadd__(self, other):
        self.data = self.data + other
        self.n += 1
        return self
    def __neg__(self):
        return Vec(-self.data, -self.n)
    def __eq__(self, other):
        return isinstance(other, Vec) and self.n == other.n
    def __hash__(self):
        return hash(self.n)
    def __lt__(self, other):
        return self.n < other.n
    def __len__(self):
        return 2
    def __bool__(self):
        return self.n != 1
    def __getitem__(self, key):
        if isinstance(key, slice):
            return [self.data, self.n][key]
        if key >= 2:
            raise IndexError(key)
        return (self.data, self.n)[key]
    def __setitem__(self, key, value):
        self.n = key
        self.data = value
    def __contains__(self, item):
        return item == self.n
    def __iter__(self):
        yield self.n
        yield self.n + 1
    def __int__(self):
        return self.n
    def __index__(self):
        return self.n % 3
    def __str__(self):
        return "Vec" + str(self.n)
    def __format__(self, spec):
        return spec + str(self)
class Slim:
    __slots__ = ("w", "n", "__weakref__")
    def __init__(self, w, n=1):
        self.w = w
        self.n = n
    def scaled(self, t):
        self.n += 1
        return t * self.n
class Scaled:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return getattr(instance, self.name, 1) * 2
    def __set__(self, instance, value):
        if value > 50:
            raise ValueError("too much")
        setattr(instance, self.name, value)
class Plain:
    def __get__(self, instance, owner=None):
        return 7
class Magic:
    size = Scaled()
    plain = Plain()
    def __init__(self):
        self.seen = []
        self.size = 2
    def __getattr__(self, name):
        if name.startswith("no"):
            raise AttributeError("never " + name)
        return len(name)
    def __setattr__(self, name, value):
        if name == "odd":
            value = value * 2 + 1
        object.__setattr__(self, name, value)
    def __delattr__(self, name):
        self.seen.append(name)
        object.__delattr__(self, name)
    @functools.cached_property
    def cached(self):
        self.seen.append("cached")
        return self.size + 1
MAGIC = Magic()
class Watched:
    def __init__(self, n):
        self.n = n
    def __getattribute__(self, name):
        if name == "m":
            return object.__getattribute__(self, "n") + 1
        return object.__getattribute__(self, name)
class Stack(list):
    limit = 9
    def push(self, item):
        if len(self) > self.limit:
            raise OverflowError("full")
        self.append(item)
        return self
    def __getitem__(self, key):
        return super().__getitem__(key)
    def top(self):
        return self[-1] if self else None
class Table(dict):
    def __missing__(self, key):
        self[key] = torch.zeros(3)
        return self[key]
    def total(self):
        return sum(self.values())
class Reader:
    def __init__(self, items):
        self.items = items
        self.at = 0
    def __iter__(self):
        return self
    def __next__(self):
        if self.at >= len(self.items):
            raise StopIteration
        self.at += 1
        return self.items[self.at - 1]
class Base:
    made = []
    def __init_subclass__(cls, **options):
        super().__init_subclass__()
        cls.options = options
    def __new__(cls, *args):
        self = super().__new__(cls)
        self.args = args
        return self
    def go(self, t):
        return t + 1
class Left(Base):
    def go(self, t):
        return super().go(t) * 2
class Right(Base, mark=3):
    def go(self, t):
        return super().go(t) - self.options["mark"]
class Both(Left, Right):
    def go(self, t):
        return super().go(t) + len(self.args)
class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.late = len(args)
        return made
    def __len__(cls):
        return 4
class Metal(metaclass=Meta):
    def __init__(self, *args):
        self.args = args
class Mortal:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        LOG.append("gone " + self.name)
def logged(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        LOG.append(fn.__name__)
        return fn(*args, **kwargs)
    return wrapper
def times(n):
    def decorate(fn):
        def repeated(t, *rest):
            for _ in range(n):
                t = fn(t, *rest)
            return t
        return repeated
    return decorate
@logged
@times(2)
def doubled(t, k=1):
    return t + t * k
@functools.lru_cache(maxsize=None)
def remembered(n):
    LOG.append(n)
    return n * 3
@functools.singledispatch
def shown(value):
    return "other"
@shown.register
def _(value: int):
    return "int"
@shown.register(str)
def _(value):
    return "str"
def positional(t, b=2, /, c=3, *rest, d=4, **more):
    return t * b + c + sum(rest) - d + len(more)
def keyword(*, t, scale=2):
    return t * scale
def fact(n):
    return 1 if n < 2 else n * fact(n - 1)
def is_even(n):
    return n == 0 or is_odd(n - 1)
def is_odd(n):
    return n != 0 and is_even(n - 1)
def deep(t, n):
    if n <= 0:
        print("bottom", tuple(t.shape))
        return t + 1
    t = t * 2
    t = deep(t, n - 1)
    return t - n
def flatten(value):
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flatten(item)]
    return [value]
def noisy(t, n=1):
    t = t + n
    print("noisy", t.dim())
    return t * 2
def branchy(t):
    if t.sum() > 0.37:
        t = t - 1
    else:
        t = t * 2
    return t.abs()
def inplace(t, by=1):
    t.add_(by)
    return t
def fussy(t, n):
    LOG.append(n)
    if n % 3 == 0:
        raise Oops("fussy " + str(n), n)
    return t + n
def guarded(t, n):
    try:
        return fussy(t, n)
    except Oops as error:
        LOG.append(error.number)
        return t * error.number
    finally:
        LOG.append("end")
def chained(n):
    try:
        return 6 // n
    except ZeroDivisionError as error:
        raise Oops("chained", n) from error
def echo(start):
    total = start
    try:
        while True:
            got = yield total
            if got is None:
                return total
            total += got
    except ValueError as error:
        yield str(error)
        return -1
    finally:
        LOG.append("echo")
def relay(start):
    result = yield from echo(start)
    yield ("result", result)
def pairs(ts):
    for n, t in enumerate(ts):
        yield n, t
def tensors(t, n):
    for j in range(n):
        t = t + j
        yield t
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 0.5))
        self.register_buffer("steps", torch.zeros(1))
        self.calls = 0
        self.act = torch.nn.ReLU()
    def forward(self, t, k=1):
        self.calls += 1
        self.steps = self.steps + 1
        if k > 2:
            self.steps.add_(1)
        return self.act(t * self.weight[:1].detach()) + k
NET = Net()
class Wide(Net):
    def forward(self, t, k=2):
        if t.sum() > 0.37:
            return super().forward(t, k)
        return super().forward(-t, k) * self.steps
WIDE = Wide()
def by_size(one, other):
    LOG.append("compared")
    return one - other
class Shape(typing.Protocol):
    n: int
@functools.total_ordering
class Grade:
    def __init__(self, n):
        self.n = n
    def __eq__(self, other):
        return self.n == other.n
    def __lt__(self, other):
        return self.n < other.n
class Weekday(enum.IntFlag):
    ONE = 1
    TWO = 2
    BOTH = 3
class Slots2(Slim):
    __slots__ = ("extra",)
    @property
    def twice(self):
        return self.w * 2
    @twice.setter
    def twice(self, value):
        self.w = value / 2
    @twice.deleter
    def twice(self):
        del self.w
class Bag(collections.UserDict):
    def __getitem__(self, key):
        return self.data.get(key, 0)
def spread(*ts, scale=1, **named):
    total = scale
    for t in ts:
        total = total + t
    for name, t in named.items():
        total = total - t if name < "m" else total + t
    return total
def early(t, n):
    for j in range(5):
        with Quiet(str(j)):
            if j == n:
                return t + j
            if j % 2:
                continue
            t = t * 2
    else:
        t = t - 1
    return t
def nested(t, n):
    def inner(u):
        nonlocal t
        t = t + u
        def deeper():
            nonlocal n
            n += 1
            return t * n
        return deeper
    made = inner(n)
    return made() + made()
def final(t, n):
    try:
        if n > 1:
            return t
        LOG.append("in")
        raise KeyError(n)
    except KeyError:
        t = t + 1
        if n == 1:
            return t
    else:
        t = t - 5
    finally:
        LOG.append("finally")
        if n == 0:
            return t * 2
    return t
"""


def _units() -> list[tuple[set[str], str, list[Statement]]]:
    """(names defined, text, statements) of each top-level statement; a decorator goes with what it decorates."""
    units: list[tuple[set[str], str, list[Statement]]] = []
    held: list[Statement] = []
    for statement in parse(PRELUDE):
        held.append(statement)
        if statement.line.startswith("@"):
            continue
        text = "\n".join(block_lines(held, 0))
        head = statement.blocks[0][0] if statement.blocks else statement.line
        found = re.match(r"(?:class|def|import .* as|import|from \w+ import)? ?(\w+)", head)
        names = {found.group(1)} if found else set()
        if names == {"_"}:
            names = {"shown"}
        units.append((names, text, held))
        held = []
    return units


_UNITS = [(names, set(re.findall(r"\b[A-Za-z_]\w*", text))) for names, text, _ in _units()]


def needed(text: str) -> list[Statement]:
    """The statements of the prelude that a text refers to, directly or through another."""
    wanted = {"torch", *re.findall(r"\b[A-Za-z_]\w*", text)}
    taken: set[int] = set()
    while True:
        more = {n for n, (names, _) in enumerate(_UNITS) if n not in taken and names & wanted}
        if not more:
            break
        taken |= more
        wanted = wanted.union(*(_UNITS[n][1] for n in more))
    fresh = _units()
    return [statement for n in sorted(taken) for statement in fresh[n][2]]


ALL: set[str] = set().union(*(names for names, _ in _UNITS))
