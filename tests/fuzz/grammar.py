"""The grammar of the program fuzzer: from a seed to a `Program`, a small Python module with a function `f`.

Expressions and simple statements are templates in tables, by kind of value; a `{K}` in a template is filled with
an expression of kind K, a `{K=}` with a name to be assigned, a `{k}` with a name or number. Compound statements are written by functions below.
Programs are meant to be right most of the time; what they raise now and then is part of what is compared.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# Kinds: T tensor that broadcasts to [2, 3], N int64 tensor, I int, F float, B bool, S string, L list of tensors,
# J list of ints, D dict of tensors by string, O Thing, C function of (tensor, int).
EXPRESSIONS: dict[str, list[str]] = {
    "T": [
        "({T} + {T})", "({T} - {T})", "({T} * {T})", "({T} * {I})", "({T} + {F})", "({T} / 2)", "-{T}",
        "torch.sin({T})", "torch.relu({T})", "{T}.abs()", "{T}.tanh()", "torch.sigmoid({T})", "{T}.sum()",
        "{T}.mean(dim=-1, keepdim=True)", "{T}.softmax(-1)", "{T}.clamp(-1, 1)", "torch.maximum({T}, {T})",
        "torch.where({T} > 0, {T}, {T})", "{T}.reshape(-1).sum()", "torch.stack([{v}, {v} * 2]).mean(0)",
        "{T}.float()", "({N} * {T})", "{O}.w", "{O}.method({T})", "{O}.method({T}, k={I})", "{O}.fixed({T})",
        "{O}({T})", "GT", "helper({T})", "helper({T}, {I})", "helper(*[{T}, {I}])", "helper(k={I}, t={T})",
        "{C}({T}, {I})", "({T} if {B} else {T})", "{D}['a']", "{L}[0]", "{L}[-1]", "sum({L})",
        "torch.zeros(3)", "torch.full((2, 1), {F})", "(torch.nn.functional.gelu({T}) + 0.0)", "{D}.get('b', {T})",
        "({T} @ torch.eye(3)[:1].t() if {v}.dim() and {v}.shape[-1] == 3 else {v})", "{T}.detach().clone()",
        "getattr({O}, 'w')", "max({T}, {T}, key=lambda t: t.numel())", "[{T}, {T}][{I} % 2]",
    ],
    "N": ["k", "({N} + {I})", "({N} * 2)", "({N} // 2)", "({N} % 3)", "({T} > 0).long()", "torch.arange(3)"],
    "I": [
        "({I} + {I})", "({I} - 1)", "({I} * 2)", "({I} % 3)", "({I} // 2)", "min({I}, {I})", "max({I}, 1)",
        "len({J})", "len({L})", "len({D})", "{T}.dim()", "{T}.numel()", "GI", "{O}.count", "abs({I})",
        "({I} if {B} else {I})", "sum({J})", "{J}[0]", "{J}[-1]", "len({S})", "int({B})", "sum(j for j in gen({s}))",
        "GL[0]", "GD['a']", "COUNTER()", "len({O}.items)", "({I} ^ 1)", "[3, 1, 2][{I} % 3]", "len(GL)",
        "{N}.sum().item()", "max({J}, default=0)",
    ],
    "F": ["0.5", "({I} / 4)", "{O}.scale", "GF", "({F} + 1)", "{O}.double", "Thing.bias", "float({I})", "round({F}, 1)"],
    "B": [
        "({I} > {I})", "({I} == {I})", "flag", "{O}.flag", "(not {B})", "({B} and {B})", "({B} or {B})",
        "({T}.dim() > 1)", "('a' in {D})", "({O}.kind is None)", "isinstance({O}, Child)", "(0 < {I} < 4)",
        "({I} in {J})", "({S} == 'a')", "hasattr({O}, 'extra')", "any(j > 1 for j in {J})", "bool({J})",
        "({T} is {T})", "({O} is {O})", "({O} == OBJ)", "({J} is GL)", "({O} in [{O}, OBJ])", "torch.is_grad_enabled()", "({T}.dtype == torch.float32)", "bool({T}.sum() > 0.37)",
        "all([{B}, {B}])", "({T}.shape == {T}.shape)", "callable({C})",
    ],
    "S": [
        "f'{{{i}}}'", "f'i={{{i}}} {{{z}!r}}'", "({S} + 'x')", "{S}.upper()", "str({I})", "f'{{{b}!s:>6}}'",
        "'-'.join(str(j) for j in {J})", "f'{{{i}:03d}}|{{{f}:.2f}}'", "(f'{{{i}}}' if {B} else f'{{GI=}}')", "type({O}).__name__", "str({T}.shape)",
    ],
    "L": ["[{T}, {T}]", "[{T} for _ in range(2)]", "[{v} * j for j in range(1, 3)]", "list({D}.values())",
          "[helper(t) for t in {L}]", "({L} + [{T}])", "[t for t in {L} if t.dim()] + [{T}]", "{L}[::-1]"],
    "J": ["[1, 2, 3]", "[{I}, {I}]", "list(range({s}))", "[j * 2 for j in {J}]", "sorted({J}, key=lambda j: -j)",
          "GL", "({J} + [{I}])", "[*{J}, {I}]", "[j for j in {J} if j % 2]", "list(map(abs, {J}))",
          "[a + b for a, b in zip({J}, {J})]", "{O}.items", "list(gen({s}))", "{J}[1:] + [0]"],
    "D": ["{{'a': {T}}}", "{{'a': {T}, 'b': {T}}}", "dict(a={T})", "{{**{D}, 'c': {T}}}",
          "{{'a' if n == 0 else str(n): t for n, t in enumerate({L})}} | dict(a=({T}))"],
    "O": ["OBJ", "Thing({F})", "Child({F})", "Thing.made({F})"],
    "C": ["helper", "(lambda t, n: t * n)", "(lambda t, n=2, *rest: t + n + {I})", "{O}.method", "partial(helper)"],
}  # fmt: skip

LITERALS = {
    "T": ["x", "y"], "N": ["k"], "I": ["0", "1", "2", "3"], "F": ["0.5", "2.0"], "B": ["True", "flag"],
    "S": ["'a'", "'bc'"], "L": ["[x, y]"], "J": ["[1, 2]"], "D": ["{'a': x}"], "O": ["OBJ"], "C": ["helper"],
}  # fmt: skip

STATEMENTS: list[str] = [
    *["{T=} = {T}"] * 6, *["{I=} = {I}"] * 2, "{F=} = {F}", "{B=} = {B}", "{S=} = {S}", "{L=} = {L}", "{J=} = {J}",
    "{D=} = {D}", "{O=} = {O}", "{C=} = {C}", "{N=} = {N}", "{I=} += {I}", "{T=} += {I}", "{T=} = {T=}",
    "{T=}, {I=} = {T}, {I}", "{I=}, *{J=} = [{I}, {I}]", "{S=} += {S}", "{J=} += [{I}]", "{L=}.append({T})",
    "{D=}['a'] = {T}", "{D=}['new'] = {T}", "{O=}.count += {I}", "{O=}.w = {T}", "{O=}.scale = {F}",
    "{O=}.flag = {B}", "{O=}.extra = {I}", "setattr({O}, 'kind', {S})", "GI = {I} % 7", "GL.append({I})",
    "GD['n'] = {I}", "GT = {T}.detach()", "print({I}, {S})", "print(f'{{{z}}}:{{{i} + 1}}', {B}, sep=', ')",
    "print({T}.shape, end='|')", "{I=} = ({T} > 0.37).sum().item()", "{I=} = int({N}.max())", "{v}.mul_(2)",
    "{v}.add_({I})", "{v}[..., 0] = {I}", "assert {B} or {I} >= 0, {S}", "{T=} = {J=} and {T}",
    "{O}.items.append({I})", "{J=}.sort()", "{J=}.extend(range({s}))", "{I=} = {J=}.pop() if {J=} else 0",
    "{D=}.update(z={T})", "{D=}.pop('new', None)", "{J=}[0:1] = [{I}, {I}]", "{T=} = {D=}.setdefault('q', {T})",
    "{I=} = (lambda n: n + {I})({I})", "{v}.unsqueeze(0)", "{T=}, {T=} = {T}, {T}", "{S=} = {S} if {B} else {S}",
    "{I=} = 10 // max({I}, 1)", "COUNTER({I})", "{D=}['n'] = {D=}.pop('n', {T})",
]  # fmt: skip

RISKY: list[str] = [
    "{I=} = 1 // {I}", "{I=} = {J}[5]", "{T=} = {D}['missing']", "{I=} = {O}.nothing", "{I=} = int({S})",
    "raise ValueError(f'bad {{{i}}}')", "raise KeyError({S})", "{T=} = {T} @ {T}", "{T=} = torch.cat([{T}, {T}])",
    "{T=} = {T}.view(7)", "{S=} = {S} + {I}", "{I=} = undefined_name", "{I=} = next(iter([]))", "del {D=}['c']", "assert not {B}, {S}",
]  # fmt: skip

PRELUDE = """\
import torch
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
"""

MUTATIONS = [
    "OBJ.scale = OBJ.scale + 1", "OBJ.flag = not OBJ.flag", "OBJ.kind = 'a'", "OBJ.extra = 4", "OBJ.items.append(9)",
    "OBJ.w = torch.tensor([1.0, 2.0, 3.0])", "OBJ.w.add_(1)", "OBJ.count = 0", "GI = 5", "GI = 0", "GF = 1.25",
    "GT = torch.tensor([[1.0], [2.0]])", "GT.mul_(2)", "GL.append(4)", "GL[0] = 7", "GL = [9]", "GD['a'] = 6",
    "Thing.bias = 2.5", "Child.bias = 0.5", "Thing.method = lambda self, t, k=3: t - k",
    "Thing.fixed = staticmethod(lambda t: t + 10)", "helper.__defaults__ = (4,)", "helper = lambda t, k=2: t * k",
    "OBJ.__class__ = Child", "OBJ.method = lambda t, k=0: t + 100 + k", "OBJ.__dict__['scale'] = 0.5",
    "COUNTER = make_counter()", "Thing.double = property(lambda self: 1.0)", "gen = lambda n: iter([n, n])",
    "torch.set_grad_enabled(not torch.is_grad_enabled())", "OBJ.items = GL", "GT = OBJ.w", "OBJ.w = GT",
    "abs = lambda v: v + 1", "len = lambda v: 2", "Thing.__call__ = lambda self, t: t * 3",
    "Thing.__init__ = lambda self, scale: self.__dict__.update(OBJ.__dict__, scale=scale)",
    "Thing.__bool__ = lambda self: False", "Thing.__eq__ = lambda self, other: True", "Child.__bases__ = (Child.__mro__[1],)",
    "OBJ = Child(0.25)", "Child.method = Thing.method", "del Child.method", "Thing.__getattr__ = lambda self, name: 3",
    "Thing.extra = property(lambda self: 8)", "GD = OBJ.__dict__", "GD = {'a': 3, 'n': 1}",
]  # fmt: skip

TENSORS = [
    "torch.arange(6.0).reshape(2, 3) - 2.5", "torch.tensor([0.1, -0.7, 1.3])", "torch.tensor(0.6)",
    "torch.tensor([[1.0], [-2.0]])", "torch.linspace(-1, 1, 6).reshape(3, 2).t()", "torch.ones(2, 3, dtype=torch.float64)",
    "torch.tensor([float('nan'), 1.0, -0.0])", "torch.ones(2, 3, requires_grad=True)",
    "(torch.arange(12.0) / 7).reshape(2, 6)[:, ::2]",
]  # fmt: skip


@dataclass(slots=True)
class Statement:
    """One line, or a compound statement: blocks of (head, body)."""

    line: str = ""
    blocks: list[tuple[str, list[Statement]]] = field(default_factory=list)

    def lines(self, indent: int) -> Iterator[str]:
        pad = "    " * indent
        if not self.blocks:
            yield pad + self.line
        for head, body in self.blocks:
            yield pad + head
            yield from block_lines(body, indent + 1)


def block_lines(body: list[Statement], indent: int) -> Iterator[str]:
    """The lines of a body; an empty one is a `pass`."""
    if not body:
        yield "    " * indent + "pass"
    for statement in body:
        yield from statement.lines(indent)


@dataclass(slots=True)
class Program:
    """`prelude` and `f` with `body`; `steps` are calls ("(args)") and mutations (statements) in turn."""

    seed: int
    prelude: list[Statement]
    head: str
    body: list[Statement]
    steps: list[str]

    def source(self) -> str:
        lines = [line for statement in self.prelude for line in statement.lines(0)]
        return "\n".join([*lines, self.head, *block_lines(self.body, 1), ""])


def generate(seed: int, size: int = 9) -> Program:
    """The program of a seed, always the same."""
    return _Writer(seed).program(size)


def parse_prelude(text: str) -> list[Statement]:
    """Indented text as statements, so that a prelude can be reduced like a body."""
    root: list[Statement] = []
    stack: list[tuple[int, list[Statement]]] = [(-1, root)]
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        while stack[-1][0] >= indent:
            stack.pop()
        if line.endswith(":"):
            body: list[Statement] = []
            stack[-1][1].append(Statement(blocks=[(line.strip(), body)]))
            stack.append((indent, body))
        else:
            stack[-1][1].append(Statement(line.strip()))
    return root


class _Writer:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.scope: dict[str, list[str]] = {
            "T": ["x", "y"], "N": ["k"], "I": ["i"], "B": ["flag"], "L": ["ts"], "J": ["js"], "D": ["d"], "O": ["o"],
        }  # fmt: skip
        self.count = 0
        self.loops = 0
        self.depth = 0

    def program(self, size: int) -> Program:
        body = [Statement("global GI, GT")]
        body += self.body(size)
        body.append(self._return())
        parameters = "x, y, k, i, flag, ts, js, d, o" + self.random.choice(
            ["", ", *, scale=1.5", ", n=2"]
        )
        return Program(
            self.seed, parse_prelude(PRELUDE), f"def f({parameters}):", body, self._steps()
        )

    def _steps(self) -> list[str]:
        first = self._call()
        steps = [first, first]
        for _ in range(self.random.randint(2, 4)):
            if self.random.random() < 0.7:
                steps.append(self.random.choice(MUTATIONS))
            steps.append(self.random.choice([first, first, self._call()]))
        return steps

    def _call(self) -> str:
        pick = self.random.choice
        x, y = pick([*TENSORS, "GT", "OBJ.w"]), pick([*TENSORS[:4], "GT"])
        thing = pick(["OBJ", "OBJ", "Thing(1.5)", "Child(3.0)"])
        ints = pick(["[2, 1]", "[1, 2, 3]", "[5]", "GL", "OBJ.items"])
        return (
            f"(x={x}, y={y}, k=torch.arange(3), i={pick([1, 2, 3, 0])}, flag={pick([True, False])}, "
            f"ts=[torch.ones(3), torch.full((2, 1), 0.5)], js={ints}, d={{'a': torch.ones(3)}}, o={thing})"
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
                return self.random.choice(names or ["2" if kind != "b" else "flag"])
            if kind == "s":  # a small range
                return self.random.choice(["2", "3", "min(i, 3)"])
            if target:
                assigned.append((kind, self._target(kind, template)))
                return assigned[-1][1]
            return self.expression(kind, depth)

        # "{{{I}!r}}" is a literal brace, a placeholder with its format, a literal brace
        text = re.sub(r"\{\{(?=\{)|\{([A-Zvsibfz])(=?)\}|\{\{|\}\}", replaced, template)
        for kind, name in assigned:
            if name not in self.scope.setdefault(kind, []):
                self.scope[kind].append(name)
        return text

    def _target(self, kind: str, template: str) -> str:
        names = self.scope.get(kind, [])
        plain = re.search(r"\{" + kind + r"=\}(, | = )", template)
        if names and (not plain or self.random.random() < 0.5):
            return self.random.choice(names)
        self.count += 1
        return f"{kind.lower()}{self.count}"

    # -- statements --------------------------------------------------------------------------------

    def body(self, size: int) -> list[Statement]:
        found: list[Statement] = []
        while size > 0:
            if self.depth < 3 and size > 2 and self.random.random() < 0.35:
                part = self.random.randint(1, size - 1)
                found.append(self.random.choice(_COMPOUND)(self, part))
                size -= part
            else:
                table = RISKY if self.random.random() < 0.02 else STATEMENTS
                found.append(self.simple(table))
                size -= 1
        return found

    def simple(self, table: list[str]) -> Statement:
        """A statement whose targets can be had: `+=` and methods need a name that exists."""
        while True:
            template = self.random.choice(table)
            kinds = re.findall(r"\{(\w)=\}(?!, | = )", template)
            if all(self.scope.get(kind) for kind in kinds):
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

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def _return(self) -> Statement:
        kinds = [k for k in "TTIFBSLJDONC" if self.scope.get(k)]
        parts = [
            self.expression(self.random.choice(kinds), 1) for _ in range(self.random.randint(1, 4))
        ]
        shape = self.random.choice(["{}", "({},)", "[{}]", "{{'r': ({},)}}"])
        return Statement("return " + shape.format(", ".join(parts)))


def _if(w: _Writer, size: int) -> Statement:
    blocks = [(f"if {w.expression('B', 2)}:", w.block(size // 2))]
    if w.random.random() < 0.3:
        blocks.append((f"elif {w.expression('B', 1)}:", w.block(size // 3)))
    if w.random.random() < 0.5:
        blocks.append(("else:", w.block(size // 2)))
    if w.random.random() < 0.15:
        blocks[0][1].append(w._return())
    return Statement(blocks=blocks)


def _for(w: _Writer, size: int) -> Statement:
    name = w.fresh("e")
    heads: list[tuple[str, dict[str, str]]] = [
        (f"for {name} in range({w.fill('{s}', 0)}):", {"I": name}),
        (f"for {name} in {w.expression('J', 1)}[:3]:", {"I": name}),
        (f"for {name} in {w.expression('L', 1)}[:3]:", {"T": name}),
        (
            f"for n{name}, {name} in enumerate({w.expression('L', 0)}[:2]):",
            {"T": name, "I": f"n{name}"},
        ),
        (
            f"for s{name}, {name} in list({w.expression('D', 0)}.items()):",
            {"T": name, "S": f"s{name}"},
        ),
        (f"for {name} in gen(3):", {"I": name}),
        (
            f"for {name}, n{name} in zip({w.expression('L', 0)}, [1, 2]):",
            {"T": name, "I": f"n{name}"},
        ),
    ]
    head, names = w.random.choice(heads)
    body = w.block(size, **names)
    blocks = [(head, body)]
    if w.random.random() < 0.3:
        word = w.random.choice(["break", "continue"])
        test = w.expression("B", 1)
        body.insert(
            w.random.randint(0, len(body)), Statement(blocks=[(f"if {test}:", [Statement(word)])])
        )
        if w.random.random() < 0.3:
            blocks.append(("else:", w.block(1)))
    return Statement(blocks=blocks)


def _while(w: _Writer, size: int) -> Statement:
    name = w.fresh("n")
    body = [Statement(f"{name} = {name} + 1"), *w.block(size)]
    test = f"while ({name} := {name} + 1) < 4:" if w.random.random() < 0.3 else f"while {name} < 3:"
    return Statement(
        blocks=[("if True:", [Statement(f"{name} = 0"), Statement(blocks=[(test, body)])])]
    )


def _try(w: _Writer, size: int) -> Statement:
    body = w.block(size)
    if w.random.random() < 0.7:
        with w.inner():
            risky = w.simple(RISKY)
        body.insert(w.random.randint(0, len(body)), risky)
    kinds = w.random.choice(
        ["Exception", "(ValueError, KeyError)", "RuntimeError", "LookupError", "ArithmeticError"]
    )
    handler = [Statement("message = str(error)"), *w.block(1, S="message")]
    if w.random.random() < 0.4:
        handler.append(Statement("print(type(error).__name__, error)"))
    blocks = [("try:", body), (f"except {kinds} as error:", handler)]
    if w.random.random() < 0.2:
        blocks.append(("else:", w.block(1)))
    if w.random.random() < 0.25:
        blocks.append(("finally:", w.block(1)))
    return Statement(blocks=blocks)


def _with(w: _Writer, size: int) -> Statement:
    head = w.random.choice(
        [
            "with torch.no_grad():",
            "with torch.enable_grad():",
            "with Guard():",
            "with Guard((ValueError, KeyError)):",
        ]
    )
    body = w.block(size)
    if "ValueError" in head and w.random.random() < 0.5:
        body.append(Statement(w.fill("raise ValueError({S})", 1)))
    return Statement(blocks=[(head, body)])


def _function(w: _Writer, size: int) -> Statement:
    name = w.fresh("c")
    default = w.random.choice(["", "=2", f"={w.expression('I', 0)}"])
    with w.inner():
        kept = w.scope
        # Assigning in an inner function makes a name local there: only fresh names and its parameters.
        w.scope = {"T": ["t"], "I": ["n"], "O": ["o"], "J": ["js"], "D": ["d"], "L": ["ts"]}
        body = [
            s
            for s in w.body(max(1, size // 2))
            if not re.match(r"(o|js|d|ts|GI|GT)( |,).*=", s.line)
        ]
        w.scope = {**kept, "T": ["t", *kept["T"]], "I": ["n", *kept["I"]]}
        body.append(Statement("return " + w.expression("T", 2)))
    w.scope.setdefault("C", []).append(name)
    return Statement(blocks=[(f"def {name}(t, n{default}):", body)])


def _match(w: _Writer, size: int) -> Statement:
    cases = [("case 0 | 1:", w.block(1)), ("case 2:", w.block(1)), ("case _:", w.block(size // 2))]
    blocks = [(head, body) for head, body in cases]
    return Statement(
        blocks=[(f"match {w.expression('I', 1)}:", [Statement(blocks=[b]) for b in blocks])]
    )


_COMPOUND: list[Callable[[_Writer, int], Statement]] = [
    _if, _if, _if, _for, _for, _for, _while, _try, _try, _with, _function, _function, _match,
]  # fmt: skip
