"""The compound statements of the grammar: each function writes one, of about `size` lines, with the writer `w`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from .statements import Statement
from .templates import LONG, RISKY

if TYPE_CHECKING:
    from .grammar import Writer

Blocks = list[tuple[str, list[Statement]]]


def _if(w: Writer, size: int) -> Statement:
    blocks = [(f"if {w.expression('B', 2)}:", w.block(size // 2))]
    if w.chance(0.3):
        blocks.append((f"elif {w.expression('B', 1)}:", w.block(size // 3)))
    if w.chance(0.5):
        blocks.append(("else:", w.block(size // 2)))
    if w.chance(0.15) and w.returns:
        blocks[0][1].append(w.returned())
    return Statement(blocks=blocks)


def _jump(w: Writer, size: int) -> Statement:
    """A way out of whatever is around: loops, with, try, finally."""
    words = ["break", "continue"] * 2 if w.loops else []
    with w.inner():
        leave = w.returned().line
    words += [leave] if w.returns else []
    word = w.random.choice(words or ["pass"])
    return Statement(blocks=[(f"if {w.expression('B', 1)}:", [Statement(word)])])


def _for(w: Writer, size: int) -> Statement:
    name = w.fresh("e")
    heads: list[tuple[str, dict[str, str]]] = [
        (f"for {name} in range({w.fill('{s}', 0)}):", {"I": name}),
        (f"for {name} in {w.expression('J', 1)}[:3]:", {"I": name}),
        (f"for {name} in {w.expression('L', 1)}[:3]:", {"T": name}),
        (f"for n{name}, {name} in enumerate({w.expression('L', 0)}[:2]):", {"T": name, "I": f"n{name}"}),
        (f"for s{name}, {name} in list({w.expression('D', 0)}.items())[:3]:", {"T": name, "S": f"s{name}"}),
        (f"for {name} in gen(3):", {"I": name}),
        (f"for {name} in tensors({w.expression('T', 1)}, 2):", {"T": name}),
        (f"for n{name}, {name} in pairs({w.expression('L', 0)}[:3]):", {"T": name, "I": f"n{name}"}),
        (f"for {name}, n{name} in zip({w.expression('L', 0)}, [1, 2]):", {"T": name, "I": f"n{name}"}),
        (f"for {name} in Reader([1, {w.expression('I', 0)}]):", {"I": name}),
        (f"for {name} in {w.expression('V', 1)}:", {"I": name}),
        (f"for {name} in {w.expression('S', 1)}[:2]:", {"S": name}),
        (f"for {name} in sorted({w.expression('M', 1)})[:2]:", {"S": name}),
        (f"for {name}, *r{name} in [(1, 2, 3), ({w.expression('I', 1)}, 5)]:", {"I": name, "J": f"r{name}"}),
        (f"for {name}, (n{name}, _) in zip({w.expression('L', 0)}, [(1, 2), (3, 4)]):", {"T": name, "I": f"n{name}"}),
        (f"for {name} in reversed({w.expression('J', 0)}[:2]):", {"I": name}),
        (f"for {name} in itertools.islice(itertools.count({w.expression('I', 0)}), 2):", {"I": name}),
        (f"for {name} in Color:", {"E": name}),
        (f"for {name} in {w.expression('T', 0)}.reshape(-1)[:2]:", {"T": name}),
        (f"for {name} in {w.expression('W', 0)}:", {"I": name}),
        (f"for {name} in (t for t in {w.expression('L', 0)}[:3] if t.dim()):", {"T": name}),
    ]  # fmt: skip
    head, names = w.random.choice(heads)
    w.loops += 1
    body = w.block(size, **names)
    if w.chance(0.3):
        body.insert(w.random.randint(0, len(body)), _jump(w, 1))
    w.loops -= 1
    blocks = [(head, body)]
    if w.chance(0.15):
        blocks.append(("else:", w.block(1)))
    return Statement(blocks=blocks)


def _long(w: Writer, size: int) -> Statement:
    """More steps than are unrolled; what it does must not double from step to step."""
    name = w.fresh("e")
    with w.inner(I=name):
        body = [w.simple(LONG) for _ in range(w.random.randint(1, 3))]
        w.loops += 1
        if w.chance(0.3):
            body.insert(w.random.randint(0, len(body)), _jump(w, 1))
        if w.chance(0.2):
            body = [Statement(blocks=[("try:", body), ("finally:", [Statement("LOG.append(2)")])])]
        w.loops -= 1
    steps = w.random.choice([66, 70, 130])
    head = w.random.choice(
        [f"for {name} in range({steps}):", f"for {name} in list(range({steps})):"]
    )
    return Statement(blocks=[(head, body)])


def _while(w: Writer, size: int) -> Statement:
    name = w.fresh("n")
    w.loops += 1
    body = [Statement(f"{name} = {name} + 1"), *w.block(size)]
    w.loops -= 1
    test = f"while ({name} := {name} + 1) < 4:" if w.chance(0.3) else f"while {name} < 3:"
    blocks = [(test, body)]
    if w.chance(0.2):
        blocks.append(("else:", w.block(1)))
    return Statement(blocks=[("if True:", [Statement(f"{name} = 0"), Statement(blocks=blocks)])])


KINDS = [
    "Exception", "(ValueError, KeyError)", "RuntimeError", "LookupError", "ArithmeticError", "Oops", "TypeError",
    "(AttributeError, NameError)", "BaseException",
]  # fmt: skip


def _risky(w: Writer, body: list[Statement], share: float) -> None:
    if w.chance(share):
        with w.inner():
            body.insert(w.random.randint(0, len(body)), w.simple(RISKY))


def _handler(w: Writer, name: str, size: int) -> list[Statement]:
    handler = [Statement(f"message = str({name})[:20]"), *w.block(size, S="message")]
    ends = [
        f"print(type({name}).__name__, {name})", "LOG.append(type(sys.exc_info()[1]).__name__)", "raise",
        f"raise Oops('again') from {name}", "raise KeyError('other')", f"LOG.append(type({name}.__context__).__name__)",
        f"{name}.add_note('n'); LOG.append({name}.__notes__)", f"LOG.append({name}.__traceback__.tb_lineno)",
    ]  # fmt: skip
    if w.chance(0.5):
        handler.insert(w.random.randint(1, len(handler)), Statement(w.random.choice(ends)))
    return handler


def _try(w: Writer, size: int) -> Statement:
    body = w.block(size)
    _risky(w, body, 0.7)
    blocks: Blocks = [("try:", body)]
    only_finally = w.chance(0.2)
    if not only_finally:
        name = w.random.choice(["error", "error", "fault"])
        blocks.append(
            (f"except {w.random.choice(KINDS)} as {name}:", _handler(w, name, max(1, size // 3)))
        )
        if w.chance(0.2):
            blocks.append((f"except {w.random.choice(KINDS)}:", w.block(1)))
        if w.chance(0.2):
            blocks.append(
                ("except:", [*w.block(1), *([Statement("raise")] if w.chance(0.3) else [])])
            )
        if w.chance(0.2):
            blocks.append(("else:", w.block(1)))
    if only_finally or w.chance(0.3):
        last = w.block(max(1, size // 3))
        if w.chance(0.15):
            last.append(_jump(w, 1))
        blocks.append(("finally:", last))
    return Statement(blocks=blocks)


def _group(w: Writer, size: int) -> Statement:
    """try with except*: a group raised by hand, or whatever the body raises."""
    body = w.block(size // 2)
    if w.chance(0.7):
        errors = [
            "ValueError('v')",
            "KeyError('k')",
            "Oops('o', 2)",
            "ExceptionGroup('in', [TypeError('t'), Oops('i')])",
            "RuntimeError()",
        ]
        chosen = ", ".join(w.random.sample(errors, w.random.randint(1, 3)))
        body.append(Statement(f"raise ExceptionGroup('g', [{chosen}])"))
    else:
        _risky(w, body, 0.7)
    loops, returns = w.loops, w.returns
    w.loops, w.returns = 0, False  # neither break, continue nor return may leave an except*
    blocks: Blocks = [("try:", body)]
    caught = [["ValueError"], ["(KeyError, TypeError)", "Exception"], ["Oops", "Exception"]]
    for kinds in w.random.choice([*caught, ["Exception"]]):
        inner = [Statement("LOG.append([str(e) for e in group.exceptions])"), *w.block(1)]
        if w.chance(0.15):
            inner.append(Statement(w.random.choice(["raise", "raise KeyError('new')"])))
        blocks.append((f"except* {kinds} as group:", inner))
    w.loops, w.returns = loops, returns
    if w.chance(0.2):
        blocks.append(("else:", w.block(1)))
    if w.chance(0.3):
        blocks.append(("finally:", w.block(1)))
    return Statement(blocks=blocks)


def _with(w: Writer, size: int) -> Statement:
    name = w.fresh("s")
    head, *known = w.random.choice(
        [
            ("with torch.no_grad():",), ("with torch.enable_grad():",), ("with Guard():",), ("with Guard((ValueError, KeyError)):",),
            ("with Quiet('q'):",), (f"with Quiet({w.expression('S', 0)}) as {name}:", "S"), (f"with managed({w.expression('S', 0)}) as {name}:", "S"),
            (f"with managed('m') as {name}, Quiet('p'), Guard(ValueError):", "S"), (f"with Quiet('1') as {name}, Quiet('2'):", "S"),
            ("with contextlib.suppress(ValueError, LookupError):",), (f"with contextlib.nullcontext({w.expression('T', 1)}) as {name}:", "T"),
            ("with contextlib.ExitStack() as stack:", "stack"), ("with torch.set_grad_enabled(flag):",), ("with torch.autocast('cpu', enabled=False):",),
        ]
    )  # fmt: skip
    names = {} if known in ([], ["stack"]) else {known[0]: name}
    body = w.block(size, **names)
    if known == ["stack"]:
        entered = [
            "stack.enter_context(Quiet('x'))",
            "stack.callback(LOG.append, 'back')",
            "stack.enter_context(managed('y'))",
        ]
        body[:0] = [Statement(line) for line in w.random.sample(entered, 2)]
    _risky(w, body, 0.3)
    if "Error" in head and w.chance(0.5):
        body.append(Statement(w.fill("raise ValueError({S})", 1)))
    return Statement(blocks=[(head, body)])


def _function(w: Writer, size: int) -> Statement:
    """A nested function: a closure over what is around it, maybe with nonlocal names, recursive or decorated."""
    name = w.fresh("c")
    default = w.random.choice(["", "=2", f"={w.expression('I', 0)}"])
    outer = {kind: list(names) for kind, names in w.scope.items()}
    shared = [
        n
        for n in outer.get("I", []) + outer.get("T", [])
        if n[0] in "itnxy" and n not in ("t", "n")
    ]
    with w.function(T="t", I="n"):
        body: list[Statement] = []
        if (
            shared and w.depth == 1 and w.chance(0.3)
        ):  # deeper, the name may be a global's or a parameter
            chosen = w.random.choice(shared)
            kind = "I" if chosen in outer["I"] else "T"
            w.scope[kind].append(chosen)
            body.append(Statement(f"nonlocal {chosen}"))
        else:
            chosen = ""
        body += w.body(max(1, size // 2))
        if w.chance(0.2):
            body.append(Statement(blocks=[("if 0 < n < 4:", [Statement(f"t = {name}(t, n - 4)")])]))
        free = [n for n in outer["T"] if n != chosen and not _assigns(body, n)]
        w.scope["T"] += free
        body.append(Statement("return " + w.expression("T", 2)))
    w.scope.setdefault("C", []).append(name)
    head = f"def {name}(t, n{default}):"
    if w.chance(0.1):
        return Statement(
            blocks=[("if True:", [Statement("@logged"), Statement(blocks=[(head, body)])])]
        )
    return Statement(blocks=[(head, body)])


def _assigns(body: list[Statement], name: str) -> bool:
    text = "\n".join(line for statement in body for line in statement.lines(0))
    return bool(re.search(rf"\b{name}\b", text))


def _generator(w: Writer, size: int) -> Statement:
    """A generator function, and its use: consumed, sent to, thrown into, closed, or left alone."""
    name, made = w.fresh("c"), w.fresh("g")
    with w.function(T="t", I="n"):
        body = w.body(max(1, size // 3))
        body.append(
            Statement(
                w.random.choice(
                    [
                        "got = yield t",
                        "got = yield n",
                        "got = yield (t, n)",
                        "got = yield from echo(n)",
                        "got = (yield n) or 0",
                    ]
                )
            )
        )
        body += w.body(max(1, size // 3))
        if w.chance(0.4):
            body = [Statement(blocks=[("try:", body), w.random.choice([
                ("finally:", [Statement("LOG.append('end')")]), ("except ValueError as error:", [Statement("yield str(error)")]),
                ("except GeneratorExit:", [Statement("LOG.append('exit')"), Statement("raise")]),
            ])])]  # fmt: skip
        if w.chance(0.3):
            body.append(Statement("return n"))
        body.append(
            Statement("yield got if 'got' in locals() else 0" if w.chance(0.1) else "yield n")
        )
    uses = [
        [f"{made} = next({made})"], [f"{made} = list({made})"], [f"first, *{made} = {made}"],
        [f"next({made})", f"LOG.append({made}.send({w.expression('I', 1)}))"], [f"next({made})", f"{made}.close()"],
        [f"next({made})", f"LOG.append({made}.throw(ValueError('in')))"], [f"LOG.append(len([*{made}]))"], [],
        [f"{made} = [one for one in {made} if one is not None][:2]"], [f"LOG.append(next({made}, 'over'))", f"{made} = list({made})"],
        [f"next({made})", f"print({w.expression('S', 0)})", f"LOG.append({made}.send(2))", f"LOG.append({made}.gi_frame is None)"],
    ]  # fmt: skip
    use = [Statement(line) for line in w.random.choice(uses)]
    if w.chance(0.5):
        body_after = w.block(1)
        use[1:1] = body_after
    if w.chance(0.4) and use:
        use = [
            Statement(
                blocks=[
                    ("try:", use),
                    (
                        "except (StopIteration, ValueError, RuntimeError) as error:",
                        [Statement("LOG.append(str(error))")],
                    ),
                ]
            )
        ]
    call = Statement(f"{made} = {name}({w.expression('T', 1)}, {w.expression('I', 1)})")
    return Statement(
        blocks=[("if True:", [Statement(blocks=[(f"def {name}(t, n):", body)]), call, *use])]
    )


def _class(w: Writer, size: int) -> Statement:
    """A class made inside of the function, that reads what is around it."""
    name, made = w.fresh("K"), w.fresh("o")
    with w.function(T="t", I="k"):
        method = w.body(max(1, size // 3))
    outer = w.random.choice(w.scope["I"])
    methods: list[Blocks] = [
        [("def method(self, t, k=1):", [*method, Statement("return super().method(t, k)")])],
        [("def __call__(self, t):", [Statement(f"return t + self.count + {outer}")])],
        [("def __getattr__(self, name):", [Statement("return 3")])],
        [
            (
                "def __init__(self, scale):",
                [Statement("super().__init__(scale)"), Statement("self.count = 4")],
            )
        ],
    ]
    body = [Statement(f"bias = {w.expression('F', 1)}")]
    body += [
        Statement(blocks=blocks) for blocks in w.random.sample(methods, w.random.randint(1, 2))
    ]
    w.scope.setdefault("O", []).append(made)
    made_line = Statement(f"{made} = {name}({w.expression('F', 0)})")
    return Statement(
        blocks=[("if True:", [Statement(blocks=[(f"class {name}(Thing):", body)]), made_line])]
    )


def _match(w: Writer, size: int) -> Statement:
    name, other = w.fresh("m"), w.fresh("m")
    half = max(1, size // 2)
    tables: list[tuple[str, list[tuple[str, dict[str, str]]]]] = [
        ("I", [("case 0 | 1:", {}), ("case 2:", {}), (f"case int() as {name} if {name} > 5:", {"I": name})]),
        ("J", [("case []:", {}), (f"case [{name}]:", {"I": name}), (f"case [{name}, *{other}] if {name} > 1:", {"I": name, "J": other}), (f"case [_, {name}, *_]:", {"I": name})]),
        ("D", [(f"case {{'zz': {name}}}:", {"T": name}), (f"case {{'a': {name}, **{other}}}:", {"T": name, "D": other})]),
        ("P", [(f"case Point(x={name}, n=1 | 2):", {"T": name}), (f"case Point({name}, {other}):", {"T": name, "I": other})]),
        ("Q", [(f"case Pair(left={name}, right=0):", {"T": name}), (f"case Pair({name}, {other}) if {other} > 2:", {"T": name, "I": other}), (f"case ({name}, _):", {"T": name})]),
        ("E", [("case Color.RED:", {}), (f"case Color() as {name}:", {"E": name})]),
        ("S", [("case 'a' | 'b':", {}), (f"case str({name}):", {"S": name})]),
        ("O", [("case Child(scale=3.0):", {}), (f"case Thing(count={name}):", {"I": name})]),
        ("T", [(f"case torch.Tensor(ndim=2) as {name}:", {"T": name}), (f"case torch.Tensor(shape=[{name}]):", {"I": name})]),
        ("H", [(f"case [{name}, {other}]:", {"I": name}), ("case Stack():", {})]),
    ]  # fmt: skip
    kind, cases = w.random.choice(tables)
    subject = w.expression(kind, 1)
    if kind == "I" and w.chance(0.3):
        subject = f"({subject}, {w.expression('I', 1)})"
        cases = [
            (f"case (0, {name}) | ({name}, 0):", {"I": name}),
            (f"case ({name}, {other}) if {name} > {other}:", {"I": name}),
        ]
    written = [Statement(blocks=[(head, w.block(half, **names))]) for head, names in cases]
    if w.chance(0.8):
        written.append(Statement(blocks=[("case _:", w.block(1))]))
    return Statement(blocks=[(f"match {subject}:", written)])


COMPOUND: list[Callable[[Writer, int], Statement]] = [
    *[_if] * 4, *[_for] * 5, _long, *[_while] * 2, *[_try] * 5, _group, *[_with] * 4, *[_function] * 3, *[_generator] * 2,
    _class, *[_match] * 2, _jump,
]  # fmt: skip
