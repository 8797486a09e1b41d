"""Random changes for the guard fuzzer: one place of the world becomes something else, equal, or takes another shape.

In: a random generator and `Roots`. Out: the change, made; and its text. A place is chosen first, then one of the
changes for values of its type, or that it is put there anew: a look-alike (True for 1, -0.0 for 0.0, an equal copy) or
another value. Many changes do not matter to the program: then nothing may be captured.
"""

from __future__ import annotations

import collections
import copy
import random
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .objects import SMALL, Maker, Roots, inside, places

Change = Callable[[random.Random, Any, Roots], Any]


def _anything(rng: random.Random, roots: Roots) -> Any:
    return Maker(rng, roots.classes).value(2)


LOOK_ALIKES: dict[Any, tuple[Any, ...]] = {
    int: (True, 1.0, 0, -1), bool: (1, 0, None), float: (-0.0, 0.0, 0, 1.0), str: ("a", "b", b"a"), type(None): (0, False, ()),
}  # fmt: skip


def look_alike(rng: random.Random, value: Any) -> Any:
    for kind, others in LOOK_ALIKES.items():
        if type(value) is kind:
            return rng.choice(others)
    return copy.deepcopy(value)


CHANGES: tuple[tuple[Any, str, Change], ...] = (
    (list, "append", lambda rng, v, w: v.append(_anything(rng, w))),
    (list, "pop", lambda rng, v, w: v.pop()),
    (list, "reverse", lambda rng, v, w: v.reverse()),
    (list, "clear", lambda rng, v, w: v.clear()),
    (list, "insert", lambda rng, v, w: v.insert(0, rng.choice(SMALL))),
    (dict, "set", lambda rng, v, w: v.__setitem__(rng.choice(["a", "b", "z"]), _anything(rng, w))),
    (dict, "delete", lambda rng, v, w: v.pop(next(iter(v)))),
    (dict, "delete and put back", lambda rng, v, w: (lambda k: v.__setitem__(k, v.pop(k)))(next(iter(v)))),
    (dict, "key of another type", lambda rng, v, w: v.__setitem__(True, v.pop(1))),
    (collections.OrderedDict, "move to end", lambda rng, v, w: v.move_to_end(next(iter(v)))),
    (set, "add", lambda rng, v, w: v.add(rng.choice([1, "z", 3]))),
    (set, "discard", lambda rng, v, w: v.pop()),
    (collections.deque, "rotate", lambda rng, v, w: v.rotate(1)),
    (collections.deque, "append", lambda rng, v, w: v.append(rng.choice(SMALL))),
    (torch.Tensor, "in place", lambda rng, v, w: v.data.add_(1)),
    (torch.Tensor, "data", lambda rng, v, w: setattr(v, "data", torch.ones(rng.choice([2, 1])))),
    (torch.Tensor, "transpose", lambda rng, v, w: v.t_()),
    (torch.Tensor, "attribute", lambda rng, v, w: setattr(v, "note", 1)),
    (nn.Module, "training", lambda rng, v, w: v.train(not v.training)),
    (nn.Module, "hook", lambda rng, v, w: v.register_forward_hook(lambda m, a, o: o + 1)),
    (nn.Module, "hooks gone", lambda rng, v, w: v._forward_hooks.clear()),
    (nn.Module, "attribute", lambda rng, v, w: setattr(v, "note", 1)),
    (nn.Linear, "weight", lambda rng, v, w: setattr(v, "weight", nn.Parameter(torch.ones(2, 2), False))),
    (nn.Linear, "bias", lambda rng, v, w: setattr(v, "bias", None)),
    (types.FunctionType, "defaults", lambda rng, v, w: setattr(v, "__defaults__", (rng.randint(0, 5),))),
    (types.FunctionType, "cell", lambda rng, v, w: setattr(v.__closure__[0], "cell_contents", rng.randint(0, 5))),
    (types.FunctionType, "attribute", lambda rng, v, w: setattr(v, "note", 1)),
    (types.FunctionType, "name", lambda rng, v, w: setattr(v, "__name__", "other")),
    (types.SimpleNamespace, "attribute", lambda rng, v, w: setattr(v, rng.choice(["n", "extra"]), _anything(rng, w))),
    ("A", "attribute", lambda rng, v, w: setattr(v, rng.choice(["n", "items", "extra"]), _anything(rng, w))),
    ("A", "shadow", lambda rng, v, w: v.__dict__.update(limit=8, go=lambda n: n)),
    ("A", "unshadow", lambda rng, v, w: [v.__dict__.pop(k, None) for k in ("limit", "go")]),
    ("A", "dict replaced", lambda rng, v, w: setattr(v, "__dict__", dict(v.__dict__))),
    ("A", "class", lambda rng, v, w: setattr(v, "__class__", w.classes[rng.choice("AB")])),
    ("S", "slot", lambda rng, v, w: setattr(v, rng.choice("nk"), _anything(rng, w))),
    ("class", "attribute", lambda rng, v, w: setattr(v, "limit", rng.randint(3, 6))),
    ("class", "attribute gone", lambda rng, v, w: delattr(v, "limit")),
    ("class", "method", lambda rng, v, w: setattr(v, "go", lambda self, n: n * 3)),
    ("class", "method gone", lambda rng, v, w: delattr(v, "go")),
    ("class", "extra", lambda rng, v, w: setattr(v, "extra", 1)),
    ("class", "unread", lambda rng, v, w: setattr(v, "unread", rng.randint(0, 9))),
    ("class", "property", lambda rng, v, w: setattr(v, "twice", property(lambda self: 5))),
    ("class", "getattr", lambda rng, v, w: setattr(v, "__getattr__", lambda self, name: 3 if name == "extra" else _no(name))),
)  # fmt: skip


def _no(name: str) -> Any:
    raise AttributeError(name)


def _fits(kind: Any, value: Any) -> bool:
    if kind == "class":
        return isinstance(value, type)
    if isinstance(kind, str):
        name = type(value).__name__
        return name == kind or (kind == "A" and name == "B")
    return isinstance(value, kind)


def change(rng: random.Random, roots: Roots) -> str:
    """Make one change that can be made, and tell it."""
    for _ in range(20):
        found = places(roots) + [(name, cls) for name, cls in roots.classes.items() if name != "S"]
        path, value = rng.choice(found)
        fitting = [row for row in CHANGES if _fits(row[0], value)]
        try:
            if fitting and rng.random() < 0.7:
                _, what, act = rng.choice(fitting)
                act(rng, value, roots)
                return f"{path}: {what}"
            if not isinstance(value, type) and _put(rng, roots, path, value):
                return f"{path}: put anew"
        except (
            TypeError,
            ValueError,
            KeyError,
            IndexError,
            AttributeError,
            StopIteration,
            RuntimeError,
        ):
            continue  # this value does not take this change
    return "nothing"


def _put(rng: random.Random, roots: Roots, path: str, value: Any) -> bool:
    """Another value at a place: a look-alike, or anything."""
    new = look_alike(rng, value) if rng.random() < 0.5 else _anything(rng, roots)
    if path in ("a", "G", "C"):
        return False
    for parent, owner in places(roots):
        for step, item in inside(owner):
            if parent + step == path and item is value:
                exec(f"owner{step} = new", {"owner": owner, "new": new})
                return True
    return False
