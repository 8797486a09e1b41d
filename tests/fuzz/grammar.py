"""The grammar of the program fuzzer: from a seed to a `Program`, a small Python module with a function `f`.

Expressions and simple statements are templates ([templates.py](templates.py)), compound statements are functions
([compound.py](compound.py)), and what they use is the prelude ([prelude.py](prelude.py)). Programs are meant to be
right most of the time; what they raise now and then is part of what is compared.
"""

from __future__ import annotations

import itertools
import random
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from . import compound
from .mutations import MUTATIONS, fit
from .prelude import ALL, needed
from .statements import Program, Statement, block_lines
from .templates import EXPRESSIONS, LITERALS, RISKY, STATEMENTS

PLACEHOLDER = re.compile(r"\{\{(?=\{)|\{([A-Zvsibfz])(=?)\}|\{\{|\}\}")
ASSIGNED = re.compile(r"\]?\)?(, | = |: | := )")  # what follows a name that an assignment makes

TENSORS = [
    "torch.arange(6.0).reshape(2, 3) - 2.5", "torch.tensor([0.1, -0.7, 1.3])", "torch.tensor(0.6)",
    "torch.tensor([[1.0], [-2.0]])", "torch.linspace(-1, 1, 6).reshape(3, 2).t()", "torch.ones(2, 3, dtype=torch.float64)",
    "torch.tensor([float('nan'), 1.0, -0.0])", "torch.ones(2, 3, requires_grad=True)",
    "(torch.arange(12.0) / 7).reshape(2, 6)[:, ::2]",
]  # fmt: skip
# Arguments that share memory: (x, y), or a y that is a view of what x is a view of.
ALIASES = [
    ("GT", "GT"), ("GT", "GT[:1]"), ("GT", "GT.view(-1)[-1:]"), ("OBJ.w", "OBJ.w"), ("OBJ.w", "OBJ.w[1:2]"), ("GT.detach()", "GT"),
]  # fmt: skip


def generate(seed: int, size: int = 9) -> Program:
    """The program of a seed, always the same; what would not compile (a walrus where none may be) is not it."""
    for attempt in itertools.count():
        program = Writer(seed, attempt).program(size)
        with suppress(SyntaxError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile("\n".join([program.head, *block_lines(program.body, 1)]), "program", "exec")
            return program
    raise AssertionError


class Writer:
    """`scope` holds the names of each kind that an expression may use where it stands."""

    def __init__(self, seed: int, attempt: int = 0) -> None:
        self.seed = seed
        self.random = random.Random(f"{seed}.{attempt}")
        self.scope: dict[str, list[str]] = {
            "T": ["x", "y"], "N": ["k"], "I": ["i"], "B": ["flag"], "L": ["ts"], "J": ["js"], "D": ["d"], "O": ["o"],
        }  # fmt: skip
        self.count = 0
        self.depth = 0
        self.loops = (
            0  # loops of this function around the place: whether break and continue are right here
        )
        self.returns = True  # whether return is (not in except*)

    def program(self, size: int) -> Program:
        body = self.body(size)
        body.append(self.returned())
        parameters = "x, y, k, i, flag, ts, js, d, o" + self.random.choice(
            ["", ", *, scale=1.5", ", n=2"]
        )
        steps = self._steps()
        prelude = needed("\n".join([*block_lines(body, 0), *(s for s in steps if s[0] == "(")]))
        names = set(re.findall(r"\b[A-Za-z_]\w*", "\n".join(block_lines(prelude, 0)))) & ALL
        steps = [step for step in steps if step.startswith("(") or fit(step, names)]
        text = "\n".join(block_lines(body, 0))
        if globals_ := [name for name in ("GI", "GT", "GF", "GL") if f"{name} = " in text]:
            body.insert(0, Statement("global " + ", ".join(globals_)))
        return Program(self.seed, prelude, f"def f({parameters}):", body, steps)

    def _steps(self) -> list[str]:
        """Calls with mutations in between; those that do not fit the program are left out afterwards."""
        first = self._call()
        steps = [first, first]
        for _ in range(self.random.randint(2, 4)):
            if self.random.random() < 0.7:
                steps += self.random.sample(MUTATIONS, 4)
            steps.append(self.random.choice([first, first, self._call()]))
        return steps

    def _call(self) -> str:
        pick = self.random.choice
        x, y = pick([*TENSORS, "GT", "OBJ.w"]), pick([*TENSORS[:4], "GT"])
        if self.random.random() < 0.15:
            x, y = pick(ALIASES)
        thing = pick(["OBJ", "OBJ", "Thing(1.5)", "Child(3.0)"])
        ints = pick(["[2, 1]", "[1, 2, 3]", "[5]", "GL", "OBJ.items"])
        # Now and then an argument that the function may not take.
        more = "" if self.chance(0.97) else pick([", scale=2", ", n=1"])
        return (
            f"(x={x}, y={y}, k=torch.arange(3), i={pick([1, 2, 3, 0, 'True'])}, flag={pick([True, False])}, "
            f"ts=[torch.ones(3), torch.full((2, 1), 0.5)], js={ints}, d={{'a': torch.ones(3)}}, o={thing}{more})"
        )

    # -- expressions -------------------------------------------------------------------------------

    def expression(self, kind: str, depth: int) -> str:
        names = self.scope.get(kind, [])
        if names and self.random.random() < (0.25 if depth else 0.85):
            return self.random.choice(names)
        if depth <= 0:
            return self.random.choice(LITERALS[kind])
        return self.fill(self.random.choice(EXPRESSIONS[kind]), depth - 1)

    def fill(self, template: str, depth: int) -> str:
        """Replace placeholders; doubled braces become single ones. Names to assign are known afterwards."""
        assigned: list[tuple[str, str]] = []

        def replaced(match: re.Match[str]) -> str:
            if match.group(0) in ("{{", "}}"):
                return match.group(0)[0]
            kind, target = match.group(1), match.group(2)
            if kind == "v":
                return self.random.choice(self.scope["T"])
            if kind in "ibfz":  # without quotes, for the inside of an f-string
                names = self.scope.get({"z": "S"}.get(kind, kind.upper()), [])
                return self.random.choice(names or ["2" if kind != "b" else "True"])
            if kind == "s":  # a small range
                return self.random.choice(
                    ["2", "3", f"min({self.random.choice(self.scope['I'])}, 3)"]
                )
            if target:
                made = bool(ASSIGNED.match(template, match.end()))
                assigned.append((kind, self._target(kind, made)))
                return assigned[-1][1]
            return self.expression(kind, depth)

        # "{{{I}!r}}" is a literal brace, a placeholder with its format, a literal brace
        text = PLACEHOLDER.sub(replaced, template)
        for kind, name in assigned:
            if name not in self.scope.setdefault(kind, []):
                self.scope[kind].append(name)
        return text

    def _target(self, kind: str, made: bool) -> str:
        names = self.scope.get(kind, [])
        if names and (not made or self.random.random() < 0.5):
            return self.random.choice(names)
        return self.fresh(kind.lower())

    # -- statements --------------------------------------------------------------------------------

    def body(self, size: int) -> list[Statement]:
        found: list[Statement] = []
        while size > 0:
            if self.depth < 4 and size > 2 and self.random.random() < 0.4:
                part = self.random.randint(1, size - 1)
                found.append(self.random.choice(compound.COMPOUND)(self, part))
                size -= part
            else:
                found.append(self.simple(RISKY if self.random.random() < 0.02 else STATEMENTS))
                size -= 1
        return found

    def simple(self, table: list[str]) -> Statement:
        """A statement whose targets can be had: `+=` and methods need a name that exists."""
        while True:
            template = self.random.choice(table)
            needs = [
                match.group(1)
                for match in PLACEHOLDER.finditer(template)
                if match.group(2) and not ASSIGNED.match(template, match.end())
            ]
            if all(self.scope.get(kind) for kind in needs):
                return Statement(self.fill(template, 2))

    @contextmanager
    def inner(self, **names: str) -> Iterator[None]:
        """Names assigned in a branch are forgotten after it, but for a few that keep it honest."""
        before = {kind: list(found) for kind, found in self.scope.items()}
        for kind, name in names.items():
            self.scope.setdefault(kind, []).append(name)
        self.depth += 1
        yield
        self.depth -= 1
        if self.random.random() > 0.03:
            self.scope = before

    def block(self, size: int, **names: str) -> list[Statement]:
        with self.inner(**names):
            return self.body(max(1, size))

    @contextmanager
    def function(self, **names: str) -> Iterator[None]:
        """The scope of a nested function: its parameters, and names of the outer one to read.

        Assigning makes a name local there, so that what is read before would be unbound: only its own are targets.
        """
        kept, loops, returns = self.scope, self.loops, self.returns
        self.scope = {"T": [names["T"]], "I": [names["I"]], "B": ["flag"], "O": ["OBJ"]}
        self.loops, self.returns = 0, True
        self.depth += 1
        yield
        self.depth -= 1
        self.scope, self.loops, self.returns = kept, loops, returns

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def returned(self) -> Statement:
        kinds = [k for k in "TTIFBSLJDONCPQEVYHMXWG" if self.scope.get(k)]
        parts = [
            self.expression(self.random.choice(kinds), 1) for _ in range(self.random.randint(1, 4))
        ]
        shape = self.random.choice(["{}", "({},)", "[{}]", "{{'r': ({},)}}"])
        return Statement("return " + shape.format(", ".join(parts)))
