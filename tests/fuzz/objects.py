"""Random objects for the guard fuzzer: nested containers, instances, classes, modules, tensors, functions.

In: a random generator. Out: `Roots`, which a program reaches as its argument `a`, a global `G` and a closure variable
`C`; the places in them, as text and value; and the lines that may read a value of one type.
"""

from __future__ import annotations

import collections
import enum
import math
import random
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


class Mode(enum.Enum):
    UP = 1
    DOWN = 2


def new_classes() -> dict[str, type]:
    """Classes of one world: they are changed, too."""

    class Base:
        limit = 3

        def go(self, n):
            return n + self.limit

    class A(Base):
        @property
        def twice(self):
            return self.__dict__.get("n", 1) * 2

    class B(Base):
        limit = 4

        @staticmethod
        def fixed(n):
            return n - 1

        @classmethod
        def named(cls):
            return cls.limit

    class S:
        __slots__ = ("k", "n")

    return {"Base": Base, "A": A, "B": B, "S": S}


@dataclass
class Roots:
    """Where a program begins to read. `cell` is the closure's, once the program is made."""

    scope: dict[str, Any]
    argument: Any
    first_cell: Any
    classes: dict[str, type]
    cell: Any = None

    def get(self, name: str) -> Any:
        if name == "a":
            return self.argument
        if name == "C":
            return self.first_cell if self.cell is None else self.cell.cell_contents
        return self.scope["G"]

    def put(self, name: str, value: Any) -> None:
        if name == "a":
            self.argument = value
        elif name == "C":
            self.cell.cell_contents = value
        else:
            self.scope["G"] = value


SMALL: tuple[Any, ...] = (
    0, 1, 2, -1, True, False, None, 0.0, -0.0, 1.0, 2.5, math.inf, "a", "b", "", (1, 2), (), 10**12, Mode.UP, b"x",
)  # fmt: skip


@dataclass
class Maker:
    """Makes values, to a depth; what it has made may turn up again at another place."""

    rng: random.Random
    classes: dict[str, type]
    made: list[Any] = field(default_factory=list)

    def value(self, depth: int) -> Any:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.3:
            return rng.choice(SMALL)
        if self.made and rng.random() < 0.1:
            return rng.choice(self.made)
        found = rng.choice(_MAKERS)(self, depth - 1)
        self.made.append(found)
        return found

    def several(self, depth: int) -> list[Any]:
        return [self.value(depth) for _ in range(self.rng.randint(0, 3))]

    def instance(self, depth: int) -> Any:
        cls = self.classes[self.rng.choice(["A", "B", "S"])]
        made = cls()
        made.n = self.value(depth)
        if cls is not self.classes["S"]:
            for name in ("items", "part", "flag")[: self.rng.randint(0, 3)]:
                setattr(made, name, self.value(depth))
        return made

    def dict(self, depth: int) -> dict[Any, Any]:
        keys = self.rng.sample(["a", "b", "c", 1, 2, None, (1, 2)], self.rng.randint(0, 3))
        return {key: self.value(depth) for key in keys}

    def tensor(self, depth: int) -> torch.Tensor:
        made = torch.arange(1.0, 3.0) * self.rng.randint(1, 3)
        return made.reshape(self.rng.choice([(2,), (2, 1), (1, 2)]))

    def module(self, depth: int) -> nn.Module:
        first = nn.Linear(2, 2).requires_grad_(False)
        nn.init.constant_(first.weight, 0.5)
        nn.init.constant_(first.bias, self.rng.randint(0, 2))
        return self.rng.choice([first, nn.Sequential(first, nn.ReLU()), nn.Dropout(0.0), nn.Tanh()])

    def function(self, depth: int) -> Callable[..., Any]:
        n = self.rng.randint(1, 3)

        def adds(x, k=self.rng.randint(0, 2)):
            return x + n + k

        return adds


_MAKERS: tuple[Callable[[Maker, int], Any], ...] = (
    Maker.several,
    lambda m, d: tuple(m.several(d)),
    Maker.dict,
    lambda m, d: collections.OrderedDict(m.dict(d)),
    lambda m, d: {m.rng.choice([1, 2, "a", None]) for _ in range(3)},
    lambda m, d: collections.deque(m.several(0)),
    Maker.instance, Maker.instance, Maker.tensor, Maker.module, Maker.function,
    lambda m, d: types.SimpleNamespace(n=m.value(d), k=m.value(0)),
)  # fmt: skip


def make_roots(rng: random.Random) -> Roots:
    classes = new_classes()
    maker = Maker(rng, classes)
    scope: dict[str, Any] = {"torch": torch, "Mode": Mode, **classes, "__name__": "fuzzed"}
    argument, first_cell = maker.instance(4), maker.dict(3)
    scope["G"] = maker.several(4) or [1]
    return Roots(scope, argument, first_cell, classes)


# -- places ------------------------------------------------------------------------------------------------
def inside(value: Any) -> list[tuple[str, Any]]:
    """What one step leads to: (text of the step, value)."""
    kind = type(value)
    if kind in (list, tuple):
        return [(f"[{at}]", item) for at, item in enumerate(value)]
    if issubclass(kind, dict):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if issubclass(kind, nn.Module):
        names = ["training"] + [f"_modules[{key!r}]" for key in value._modules]
        return [(f".{name}", eval(f"v.{name}", {"v": value})) for name in names]
    if kind.__name__ in ("A", "B", "SimpleNamespace"):
        return [(f".{name}", item) for name, item in vars(value).items()]
    if kind.__name__ == "S":
        return [(f".{name}", getattr(value, name)) for name in ("k", "n") if hasattr(value, name)]
    return []


def places(roots: Roots) -> list[tuple[str, Any]]:
    """All (path, value) below the roots, nested to a depth."""
    found = [(name, roots.get(name)) for name in ("a", "G", "C")]
    level = list(found)
    for _ in range(4):
        level = [(path + step, item) for path, value in level for step, item in inside(value)]
        found += level
    return found


# -- reads -------------------------------------------------------------------------------------------------
_BY_TYPE: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (bool, ("x = x + 1 if {p} else x - 1", "r.append(not {p})")),
    ((int, float), ("r.append({p} + 1)", "x = x + ({p} > 1)", "r.append({p} == 1)", "x = x * type({p}).__name__.count('i')")),
    (str, ("r.append(len({p}))", "r.append({p} == 'a')", "r.append({p} + '!')")),
    (torch.Tensor, ("x = x + {p}.sum()", "r.append({p}.shape)", "r.append({p}.requires_grad)", "x = x * {p}.flatten()", "r.append({p}.dtype)")),
    (nn.Module, ("x = {p}(x)", "r.append({p}.training)", "r.append(len({p}._forward_hooks))")),
    (types.FunctionType, ("x = {p}(x)", "r.append({p}(1, k=5))", "r.append({p}.__defaults__)", "r.append({p}.__name__)")),
    (dict, ("r.append(len({p}))", "r.append(list({p}))", "r.append('a' in {p})", "r.append({p}.get('b', 7))", "r.append([k for k, v in {p}.items() if v is None])")),
    ((set, collections.deque), ("r.append(len({p}))", "r.append(1 in {p})", "x = x + 1 if {p} else x")),
    ((list, tuple), ("r.append(len({p}))", "r.append(None in {p})", "r.append([i for i in {p} if type(i) is int])", "x = x + 1 if {p} else x")),
    (enum.Enum, ("r.append({p} is Mode.UP)", "r.append({p}.value)")),
    (type(None), ("r.append({p} is None)",)),
)  # fmt: skip
_OF_OBJECTS = (
    "r.append(hasattr({p}, 'extra'))", "r.append(getattr({p}, 'limit', 9))", "r.append(type({p}).__name__)",
    "r.append(isinstance({p}, (A, S)))", "r.append({p}.go(2) if hasattr({p}, 'go') else 0)", "r.append(len(vars({p})))",
    "r.append(getattr({p}, 'twice', 1) is None)", "r.append({p} is a)", "r.append(B.named() + B.fixed(2))",
)  # fmt: skip


def reads(path: str, value: Any) -> list[str]:
    """Lines that read this value in one way or another."""
    for kinds, lines in _BY_TYPE:
        if isinstance(value, kinds):
            break
    else:
        lines = _OF_OBJECTS
    return [line.format(p=path) for line in (*lines, "r.append({p})")]
