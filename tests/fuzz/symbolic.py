"""Fuzz programs over sizes and numbers that vary from call to call, plain against compiled.

    python -m tests.fuzz.symbolic --seed 0 --count 200
    python -m tests.fuzz.symbolic --seed 17 --show

A program is a function of three tensors, two numbers and an object, over globals; between its calls sizes (0, 1, equal
and unequal ones), numbers (also True for 1, -0.0, nan, beyond 64 bits), layouts and the object's attributes change.
Each statement is chosen so that it runs for the first call's arguments; for later ones it may raise, which is
compared like results. Running, comparing and making small are `tests.fuzz.programs`.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
import types
import warnings
from dataclasses import replace
from typing import Any

import torch

from graftjit import JitConfig, jit

from . import programs
from .statements import Program, Statement, parse
from .symbolic_templates import CONDITIONS, FLOATS, INTS, PLACE, STATEMENTS, TENSORS

PRELUDE = """\
import math
import torch
import torch.nn.functional as F
from graftjit import mark_dynamic
class Holder:
    def __init__(self, n, k):
        self.n = n
        self.k = k
OBJ = Holder(3, 0.5)
GI = 4
GF = 1.25
def data(*shape, dtype=torch.float32):
    whole = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    return (torch.sin(whole * 1.7 + 0.3) * 3).to(dtype)
def turned(x):
    return x.transpose(0, -1).contiguous().transpose(0, -1)
def part(*shape):
    return data(*shape[:-1], shape[-1] + 2)[..., 1:-1]
def marked(x, *dims):
    for dim in dims:
        mark_dynamic(x, dim)
    return x
def grad(x):
    return x.requires_grad_()
def helper(a, s, by=2):
    if a.shape[0] > s:
        return a * s + a.shape[0] // by
    return a - s
def twice(a, s):
    return helper(helper(a, s), s + 1, by=3)
"""
SHAPES = {  # of x, y, z, over the sizes a, b, c
    "x": (("a", "b"), ("a", "b"), ("a",), ("a", "b", "c"), ("b", "a")),
    "y": (("a", "b"), ("b", "c"), ("b",), ("a", 1), (1, "b"), ("a", "b", "c"), ("c", "b")),
    "z": (("b", "a"), ("a", "a"), ("c",), ("b",), (3, "b"), ("a", "b")),
}
SIZES = (0, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33)
SMALL = (2, 3, 4, 5, 6, 7, 3, 4)
NUMBERS = (0, 1, -1, -2, -3, 2, 3, 4, 5, 6, 7, 8, 9)
ODD_NUMBERS = (True, False, 2**40, 2**63 - 1, 2**63, 2**70, -(2**63), -(2**64), 1.0, 2.5)
REALS = (0.5, 1.5, -2.0, 3.25, 0.25, -0.75, 2.0, 4.5, 7.125)
ODD_REALS = (0.0, -0.0, 1.0, -1.0, 3, True, 1e300, 1e-300)
NOT_REAL = ("float('nan')", "float('inf')", "-float('inf')")
ARGUMENTS = ("x", "y", "z", "n", "k", "o")
TRIES = 12  # of a statement that is to run


def jitted(function: Any, config: JitConfig | None = None) -> Any:
    """`jit`, as dynamic as the program says; at the level that users have, where no other is given."""
    config = config or JitConfig()
    return jit(function, config=replace(config, dynamic=function.__globals__.get("DYNAMIC")))


# -- the calls ----------------------------------------------------------------------------------------


class _Calls:
    """What a program is called with: for each argument a plan, and one of its values for each call."""

    def __init__(self, r: random.Random) -> None:
        self.r = r
        self.shapes = {name: r.choice(SHAPES[name]) for name in SHAPES}
        self.base = {name: r.choice(SMALL) for name in "abc"}
        if r.random() < 0.3:
            self.base["b"] = self.base["a"]
        self.moving = [name for name in "abc" if r.random() < 0.7]
        self.dtypes = {name: r.choice(("float32",) * 6 + ("int64", "float64")) for name in SHAPES}
        self.marks = r.random() < 0.2

    def first(self) -> str:
        return self._call(self.base, plain=True)

    def later(self) -> str:
        r = self.r
        sizes = dict(self.base)
        for name in self.moving:
            if r.random() < 0.7:
                sizes[name] = r.choice(SIZES)
        if r.random() < 0.15:
            sizes["b"] = sizes["a"]
        return self._call(sizes)

    def _call(self, sizes: dict[str, int], plain: bool = False) -> str:
        parts = [f"{name}={self._tensor(name, sizes, plain)}" for name in SHAPES]
        parts += [f"n={self.whole(plain)!r}", f"k={self.real(plain)}", "o=OBJ"]
        return f"({', '.join(parts)})"

    def _tensor(self, name: str, sizes: dict[str, int], plain: bool) -> str:
        r = self.r
        shape = [sizes[d] if isinstance(d, str) else d for d in self.shapes[name]]
        args = ", ".join(map(str, shape))
        text = f"data({args}, dtype=torch.{self.dtypes[name]})"
        if not plain and r.random() < 0.2:
            text = r.choice(
                (
                    f"turned({text})",
                    f"part({args})",
                    f"data({args}).double()",
                    f"grad(data({args}))",
                )
            )
        if self.marks and not plain and r.random() < 0.5:
            text = f"marked({text}, {r.randrange(len(shape))})"
        return text

    def whole(self, plain: bool = False) -> Any:
        r = self.r
        if plain:
            return r.choice((2, 3, 4))
        return r.choice(ODD_NUMBERS if r.random() < 0.06 else NUMBERS)

    def real(self, plain: bool = False) -> str:
        r = self.r
        if not plain and r.random() < 0.15:
            return r.choice((*map(repr, ODD_REALS), *NOT_REAL))
        return repr(r.choice(REALS))

    def mutation(self) -> str:
        what = self.r.choice(("OBJ.n", "OBJ.k", "GI", "GF"))
        return (
            f"{what} = {self.whole()!r}" if what in ("OBJ.n", "GI") else f"{what} = {self.real()}"
        )


# -- the body -----------------------------------------------------------------------------------------


class _Body:
    """Statements over names that are bound by then: `t*` tensors, `i*` whole numbers, `k*` floats."""

    def __init__(self, r: random.Random, space: dict[str, Any]) -> None:
        self.r, self.space = r, space
        self.names = {
            "t": ["x", "y", "z"],
            "i": ["n", "n", "GI", "o.n"],
            "k": ["k", "k", "GF", "o.k"],
        }
        self.made: list[str] = []

    def fill(self, template: str, depth: int = 0) -> str:
        """A template with its places filled: {t} {i} {k} {c} by names or, less and less likely, by expressions."""
        return PLACE.sub(lambda found: self._place(found[1], depth), template)

    def _place(self, kind: str, depth: int) -> str:
        r = self.r
        if kind == "c":
            return self.fill(r.choice(CONDITIONS), depth + 1)
        if kind == "i" and r.random() < 0.2:
            return r.choice(("1", "2", "3", "4", "-1", "0"))
        if kind == "t" or r.random() < 0.25 + 0.35 * depth:
            names = self.names[kind]
            return r.choice(names[-4:] if r.random() < 0.5 else names)
        return "(" + self.fill(r.choice(INTS if kind == "i" else FLOATS), depth + 1) + ")"

    def statement(self, inside: bool = False) -> list[Statement]:
        r = self.r
        roll = r.random()
        if roll < 0.2 and not inside:
            return self._branch()
        if roll < 0.28 and not inside:
            return self._loop()
        if roll < 0.42:
            return parse(self.fill(r.choice(STATEMENTS)))
        kind, templates = r.choice((("t", TENSORS), ("t", TENSORS), ("i", INTS), ("k", FLOATS)))
        text = self.fill(r.choice(templates))
        if kind == "t" and r.random() < 0.5:  # a chain
            text = self.fill(r.choice(TENSORS).replace("{t}", f"({text})", 1))
        name = f"{kind}{10 + len(self.made)}"
        return [Statement(f"{name} = {text}")]

    def _branch(self) -> list[Statement]:
        head = f"if {self.fill('{c}')}:"
        name = f"{self.r.choice('tik')}{10 + len(self.made)}"
        templates = {"t": TENSORS, "i": INTS, "k": FLOATS}[name[0]]
        ways = [[Statement(f"{name} = {self.fill(self.r.choice(templates))}")] for _ in range(2)]
        return [Statement(blocks=[(head, ways[0]), ("else:", ways[1])])]

    def _loop(self) -> list[Statement]:
        r = self.r
        name = f"t{10 + len(self.made)}"
        first = Statement(f"{name} = {self.fill('{t}')}")
        count = r.choice(("{t}.shape[0]", "{i}", "{i}", "3"))
        head = f"for e in range(min({self.fill(count)}, 5)):"
        self.names["i"].append("e")
        step = self.fill(r.choice(TENSORS).replace("{t}", name, 1))
        self.names["i"].remove("e")
        return [first, Statement(blocks=[(head, [Statement(f"{name} = {step}")])])]

    def runs(self, statements: list[Statement]) -> bool:
        """Whether they run after what there is; then their names are bound."""
        source = "\n".join(line for one in statements for line in one.lines(0))
        before = set(self.space)
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(source, "<statement>", "exec"), self.space)
        except Exception:
            return False
        fitting = {"t": torch.Tensor, "i": int, "k": float}
        for name in sorted(set(self.space) - before):
            kind = name[0]
            if name[1:].isdigit() and kind in fitting:
                self.made.append(name)
                if isinstance(self.space[name], fitting[kind]):
                    self.names[kind].append(name)
        return True


def generate(seed: int, size: int = 6) -> Program:
    r = random.Random(seed)
    calls = _Calls(r)
    prelude = parse(f"{PRELUDE}DYNAMIC = {r.choice((None, None, None, True, True, False))}")
    space = vars(types.ModuleType("fuzzed"))
    for statement in prelude:
        exec("\n".join(statement.lines(0)), space)
    first = calls.first()
    exec(f"globals().update(dict{first})", space)
    body = _Body(r, space)
    lines: list[Statement] = []
    for _ in range(r.randint(2, size)):
        for attempt in range(TRIES):
            statements = body.statement()
            if body.runs(statements) or (attempt == 0 and r.random() < 0.03):
                lines += statements
                break
    lines += [Statement("r = []"), *(Statement(f"r.append({name})") for name in body.made)]
    rest = range(r.randint(6, 10))
    steps = [first, *(calls.mutation() if r.random() < 0.25 else calls.later() for _ in rest)]
    head = f"def f({', '.join(ARGUMENTS)}):"
    return Program(seed, prelude, head, [*lines, Statement("return r")], steps)


def main(arguments: list[str] | None = None) -> int:
    return programs.main(arguments, generate, "tests.fuzz.symbolic:jitted", 6, __doc__)


if __name__ == "__main__":
    sys.exit(main())
