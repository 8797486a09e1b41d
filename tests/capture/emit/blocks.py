"""Programs made of blocks: a break in the middle of every kind of block, and of every block inside another.

`program(blocks, stop, leave)` gives the source of a function `f(x, n, log, marks)`: the blocks from the outermost
in, in the innermost a break (`stop`) and then a way to leave it (`leave`). What is seen goes to `log`; to `marks` goes at each place
with a tensor operation beside it whether that place was compiled.
"""

from __future__ import annotations

import linecache
import textwrap
import types
from dataclasses import dataclass
from typing import Any

PRELUDE = '''
import contextlib
import sys
import time

import torch

compiling = torch.compiler.is_compiling


def chain(error):
    """An exception with all that hangs on it."""
    if error is None:
        return None
    notes = getattr(error, "__notes__", None)
    return (type(error).__name__, str(error), error.__suppress_context__, notes,
            chain(error.__cause__), chain(error.__context__))


def handled():
    return chain(sys.exc_info()[1])


def fails(y, text):
    y = y + 1
    raise ValueError(text)


def boom(text):
    print("boom")
    raise ValueError(text)


class Log:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append(("out", kind and kind.__name__))
        return self.swallow


class Loud(Log):
    def __enter__(self):
        print("in")
        return self

    def __exit__(self, kind, value, traceback):
        print("out", value)
        return self.swallow


@contextlib.contextmanager
def managed(log, swallow=False):
    log.append("start")
    try:
        yield 2
    except ValueError as error:
        log.append(("caught", str(error)))
        if not swallow:
            raise
    finally:
        log.append("end")


class Box:
    def __init__(self, y):
        self.y = y
'''


@dataclass(frozen=True)
class Block:
    """`text` has one line BODY. In a `loop`, the body may break and continue; a `function` has a frame of its own.
    `plain`: the body runs in plain Python after a break in it (a generator's)."""

    name: str
    text: str
    loop: bool = False
    function: bool = False
    plain: bool = False


def block(name: str, text: str, **facts: bool) -> Block:
    return Block(name, textwrap.dedent(text).strip("\n"), **facts)


BLOCKS = (
    block("try", """
        try:
            BODY
        except ValueError as error:
            log.append(("caught", chain(error)))
            y = y - 1
    """),
    block("try of others", """
        try:
            BODY
        except (IndexError, AttributeError):
            y = y - 1
    """),
    block("except", """
        try:
            y = fails(y, "first")
        except ValueError as error:
            y = y + len(str(error))
            BODY
            log.append(chain(error))
    """),
    block("except without a name", """
        try:
            boom("first")
        except ValueError:
            BODY
            log.append(handled())
            y = y * 2
    """),
    block("except of a look-up", """
        try:
            y = y + {}[n]
        except LookupError as error:
            BODY
            log.append(error.args)
    """),
    block("except of torch", """
        try:
            y = y + torch.ones(17)
        except RuntimeError as error:
            BODY
            log.append(str(error))
    """),
    block("else", """
        try:
            y = y + 1
        except ValueError:
            y = y - 1
        else:
            BODY
    """),
    block("finally", """
        try:
            y = y + 1
        finally:
            BODY
            y = y - 1
    """),
    block("try with finally", """
        try:
            BODY
        finally:
            y = y - 1
            log.append("finally")
    """),
    block("finally after a return", """
        try:
            y = y + 1
            if n:
                return y
        finally:
            BODY
            y = y - 1
    """),
    block("finally after an exception", """
        try:
            y = fails(y, "first")
        finally:
            BODY
            y = y - 1
    """),
    block("finally after break and continue", """
        for i in range(3):
            try:
                y = y + i
                if i == 1:
                    continue
                if i == 2:
                    break
            finally:
                BODY
                y = y - 1
    """),
    block("try in full", """
        try:
            BODY
        except KeyError as error:
            log.append(("key", chain(error)))
            y = y - 3
        except ValueError:
            y = y - 1
            log.append(handled())
            raise
        else:
            y = y + 5
        finally:
            y = y * 2
            log.append(handled())
    """),
    block("with", """
        with Log(log) as made:
            BODY
            log.append(len(made.log))
    """),
    block("with that swallows", """
        with Log(log, swallow=True):
            BODY
    """),
    block("with of two, loud", """
        with Loud(log), Loud(log, swallow=n > 1):
            BODY
    """),
    block("with no_grad", """
        with torch.no_grad():
            BODY
            log.append(torch.is_grad_enabled())
    """),
    block("with set_grad_enabled", """
        with torch.set_grad_enabled(n > 5):
            BODY
            log.append(torch.is_grad_enabled())
    """),
    block("with autocast", """
        with torch.autocast("cpu", torch.bfloat16):
            BODY
            log.append((y.unsqueeze(0) @ y.unsqueeze(1)).dtype)
    """),
    block("with suppress", """
        with contextlib.suppress(ValueError):
            BODY
    """),
    block("with a generator", """
        with managed(log, swallow=n > 1) as two:
            BODY
            y = y * two
    """),
    block("for", """
        for i in range(3):
            y = y + i
            BODY
        else:
            log.append("else")
            y = y - 1
    """, loop=True),
    block("for over a list", """
        for part in [y, y + 1]:
            y = y + part
            BODY
    """, loop=True),
    block("else of for", """
        for i in range(2):
            y = y + i
        else:
            BODY
    """),
    block("while", """
        count = 0
        while count < 2:
            count += 1
            BODY
        else:
            y = y - 1
    """, loop=True),
    block("match", """
        match (n, y):
            case (1 | 2 as m, part):
                y = y + part * m
                BODY
            case _:
                y = y - 1
    """),
    block("callee", """
        def inner(y, k):
            y = y + k
            BODY
            return y

        y = inner(y, 2)
    """, function=True),
    block("callee that writes what it shares", """
        def inner():
            nonlocal y
            y = y + 1
            BODY

        inner()
    """, function=True),
    block("comprehension", """
        def inner(y, k):
            y = y + k
            BODY
            return y

        y = sum([inner(y, k) for k in range(2)])
    """, function=True),
    block("generator", """
        def steps(y):
            y = y + 1
            yield y
            BODY
            yield y * 2

        for y in steps(y):
            log.append("step")
            y = y + 1
    """, function=True, plain=True),
)  # fmt: skip

STOPS = {
    "print": 'print("here", n)',
    "clock": "time.sleep(0)",
    "item": "log.append(y.sum().item())",
    "branch": "if y.sum() > 0:\n    y = y + 1\nelse:\n    y = y - 1",
    "handled": "log.append(handled())",
    "in a list": "y = sum([y + (time.sleep(0) or k) for k in range(2)])",
    "in lists": "y = sum([y + len([time.sleep(k) for m in range(k)]) for k in range(2)])",
    "in a dict": "y = sum({k: y + (time.sleep(0) or k) for k in range(2)}.values())",
    "in a set": "y = y + len({time.sleep(0) or k for k in range(2)})",
    "in a generator": "y = sum(y + (time.sleep(0) or k) for k in range(2))",
    "in a lambda": "y = (lambda k: y + (time.sleep(0) or k))(2)",
    "in an argument": "y = torch.where(y > 0, y, y + (time.sleep(0) or n))",
    "in a chain": "y = y + (0 < n < (time.sleep(0) or 5) and n)",
    "in a text": "log.append(f'{n}{time.sleep(0)!r:>6}')",
    "in a call with names": "y = torch.add(y, other=y * 2, **dict(alpha=time.sleep(0) or n))",
    "in a with": "with Loud(log):\n    y = y + 2",
    "in an unpacking": "y, *rest_ = [y, time.sleep(0), *[n, n]]",
    "in an assertion": "assert y.sum() > -1e9, f'bad {n}'",
    "raises": 'boom("stop")',
    "torch raises": "y = y + torch.ones(19)",
}

LEAVES = {
    "falls": "",
    "returns": "return y * 5",
    "breaks": "break",
    "continues": "continue",
    "raises a key": 'raise KeyError("left")',
    "raises a value": 'raise ValueError("left")',
    "raises again": "raise",
    "raises from": 'raise RuntimeError("left") from OSError(n)',
    "raises with a note": 'error_ = ValueError("noted")\nerror_.add_note(f"at {n}")\nraise error_',
}


@dataclass(frozen=True)
class Program:
    name: str
    source: str
    blocks: tuple[Block, ...]

    def build(self) -> types.FunctionType:
        """`f`, in globals of its own; tracebacks find its lines."""
        file = f"<{self.name}>"
        linecache.cache[file] = (len(self.source), None, self.source.splitlines(True), file)
        scope: dict[str, Any] = {"__name__": "made_of_blocks"}
        exec(compile(self.source, file, "exec"), scope)
        return scope["f"]


def program(blocks: tuple[Block, ...], stop: str, leave: str) -> Program | None:
    """None where the leave means nothing there."""
    if leave in ("breaks", "continues") and not _in_loop(blocks):
        return None
    body = "\n".join(
        (
            'marks.append(("in", compiling()))',
            "y = y * 2",
            STOPS[stop],
            "y = y + 3",
            'marks.append(("on", compiling()))',
            LEAVES[leave],
        )
    )
    for one in reversed(blocks):
        body = "\n".join(("y = y + 1", _filled(one.text, body), "y = y - 2"))
    text = "\n".join(
        (
            "def f(x, n, log, marks):",
            "    y = x + 1",
            '    marks.append(("before", compiling()))',
            textwrap.indent(body, "    "),
            "    y = y * 2",
            '    marks.append(("after", compiling()))',
            "    return y",
        )
    )
    name = " / ".join((*(one.name for one in blocks), stop, leave))
    return Program(name, PRELUDE + "\n\n" + text + "\n", blocks)


def _in_loop(blocks: tuple[Block, ...]) -> bool:
    for one in reversed(blocks):
        if one.loop:
            return True
        if one.function:
            return False
    return False


def _filled(text: str, body: str) -> str:
    lines = []
    for line in text.splitlines():
        if line.strip() == "BODY":
            lines.append(textwrap.indent(body, line[: -len(line.lstrip())]))
        else:
            lines.append(line)
    return "\n".join(lines)
