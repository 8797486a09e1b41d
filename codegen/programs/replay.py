"""Replay: the torch-level calls of a graph as one Python function, `replay(*inputs) -> tuple`.

It is compiled from `graph.calls`, as readable source. It runs when a gradient is needed (autograd
and hooks see each call as in eager), at level O0, and beside compiled code under GRAFTJIT_CHECK.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from typing import Any

import torch

from ...ir.graph.effects import operands
from ...ir.graph.interpreter import changes_state
from ...ir.graph.nodes import Graph, Ref
from ...ir.symbolic.expr import Expr, Symbol, fold, symbols_of
from ...ir.symbolic.operators import OPS, SIGNS
from ...ir.trace.conditional import overwrite, part_begins, part_ends, placeholder
from ...runtime.errors import Unusual
from ...runtime.own_files import GENERATED

_LITERALS = (bool, int, str, type(None), type(...))


class Writer:
    """The lines of the function, and the objects that they name."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.names: dict[str, Any] = {}
        self.known: dict[int, str] = {}
        self.lines: list[str] = []
        self.last = self._last_uses()
        # those of `required` whose numbers have not been read yet
        self.unchecked = list(graph.required)
        self.unread = {s for s, origin in graph.symbols.items() if origin[0] == "data"}

    def _last_uses(self) -> dict[int, int]:
        """Ref -> the last call that mentions it."""
        last: dict[int, int] = {}
        for position, call in enumerate(self.graph.calls):
            for ref in refs_of((call.args, call.kwargs, call.results)):
                last[ref] = position
        for output in self.graph.call_outputs:
            last.pop(output.index, None)
        return last

    def named(self, value: Any, hint: str) -> str:
        """A global name for an object."""
        name = self.known.get(id(value))
        if name is None:
            hint = hint if hint.isidentifier() and not keyword.iskeyword(hint) else "value"
            name = hint if hint not in self.names else f"{hint}_{len(self.names)}"
            self.names[name] = value
            self.known[id(value)] = name
        return name

    def text(self, value: Any) -> str:
        """The text of an argument."""
        if isinstance(value, Ref):
            return self.variable(value.index)
        kind = type(value)
        if kind in _LITERALS:
            return repr(value)
        if isinstance(value, Expr):
            return self.number(value)
        if kind is tuple:
            return "(" + "".join(f"{self.text(item)}, " for item in value) + ")"
        if kind is list:
            return "[" + ", ".join(self.text(item) for item in value) + "]"
        if kind is dict and all(type(key) in _LITERALS for key in value):
            return "{" + ", ".join(f"{k!r}: {self.text(v)}" for k, v in value.items()) + "}"
        if kind is slice:
            return (
                "slice("
                + ", ".join(self.text(v) for v in (value.start, value.stop, value.step))
                + ")"
            )
        if kind is torch.dtype:
            return self.named(value, str(value).removeprefix("torch."))
        return self.named(value, "given")

    def read_sizes(self, users: Any) -> None:
        """Read the sizes and strides that a nested value mentions."""
        used = symbols_of(users)
        for symbol, (what, position, *dim) in self.graph.symbols.items():
            if what in ("size", "stride") and symbol in used:
                method = self.named(getattr(torch.Tensor, what), f"read_{what}")
                self.lines.append(f"    {symbol.name} = {method}(v{position}, {dim[0]})")

    def number(self, value: Expr) -> str:
        """The text of a symbolic number, computed from the sizes and numbers that came in."""
        made = fold(value, self.constant, lambda s: s.name, _call)
        for op in OPS:
            self.names.setdefault(f"number_{op}", OPS[op])
        return str(made)

    def constant(self, value: Any) -> str:
        """The text of a plain number of an expression; no literal exists for nan and infinities."""
        return repr(value) if type(value) is int else self.named(value, "number")

    def variable(self, ref: int) -> str:
        constant = self.graph.constants.get(ref)
        return f"v{ref}" if constant is None else self.named(constant, f"constant{ref}")

    def pattern(self, results: Any) -> str:
        """The left side of an assignment that unpacks a call's results."""
        if isinstance(results, Ref):
            return f"v{results.index}" if results.index not in self.graph.constants else "_"
        if isinstance(results, (tuple, list)) and results and any(True for _ in refs_of(results)):
            return "(" + "".join(f"{self.pattern(item)}, " for item in results) + ")"
        return "_"

    def call(self, position: int) -> None:
        call = self.graph.calls[position]
        called: Any = call.target
        target = self.named(call.target, getattr(call.target, "__name__", "call"))
        arguments = [self.text(item) for item in call.args]
        arguments += [
            f"{key}={self.text(item)}" if key.isidentifier() and not keyword.iskeyword(key)
            else f"**{{{key!r}: {self.text(item)}}}"
            for key, item in call.kwargs.items()
        ]  # fmt: skip
        line = f"{target}({', '.join(arguments)})"
        if called is overwrite:
            # Autograd gives no gradient to the tensor before, not even zeros.
            line = " = ".join(arguments)
        if isinstance(call.results, dict):
            self.lines.append(f"    found = {line}")
            for key, item in call.results.items():
                self.lines.append(f"    {self.pattern(item)} = found[{self.text(key)}]")
            self.lines.append("    del found")
        elif isinstance(call.results, Symbol):
            self.lines.append(f"    {call.results.name} = {line}")
        elif any(True for _ in refs_of(call.results)):
            self.lines.append(f"    {self.pattern(call.results)} = {line}")
        else:
            self.lines.append(f"    {line}")
        if call.where is not None:
            self.lines[-1] += f"  # {call.where.file}:{call.where.line}"
        if isinstance(call.results, Symbol):
            self.unread.discard(call.results)
            self.check()
        step = _LEAVES.get(getattr(call.target, "__name__", ""))
        if call.results is None and step is not None:  # see `_restoring`
            context = self.named(called.__self__, "given") if step == "append" else ""
            self.lines.append(f"    entered.{step}({context})")
        dead = sorted(
            ref for ref in set(refs_of((call.args, call.kwargs, call.results)))
            if self.last.get(ref) == position and ref not in self.graph.constants
        )  # fmt: skip
        if dead:
            self.lines.append("    del " + ", ".join(f"v{ref}" for ref in dead))

    def parts(self) -> None:
        """The lines of all calls, those of a part with a condition (`ir.trace.conditional`) in a
        block."""
        begun: list[tuple[int, int]] = []  # (call, line) with which a part begins
        for position, call in enumerate(self.graph.calls):
            if call.target is part_begins:
                begun.append((position, len(self.lines)))
            elif call.target is part_ends:
                self._close(*begun.pop(), position)
            else:
                self.call(position)

    def _close(self, begin: int, start: int, end: int) -> None:
        (taken,) = self.graph.calls[begin].args
        calls = self.graph.calls[begin:end]
        read = [call.results for call in calls if isinstance(call.results, Symbol)]
        outputs = {ref.index for ref in self.graph.call_outputs}
        before = set(refs_of([call.results for call in self.graph.calls[:begin]]))
        before |= {*range(len(self.graph.inputs)), *self.graph.constants}
        made = set(refs_of([call.results for call in calls])) & outputs - before
        named = [(f"v{ref}", self.graph.values[ref].meta) for ref in sorted(made)]
        self.conditional(start, self.number(taken), read, named)

    def conditional(
        self, start: int, condition: str, read: list[Symbol], made: list[tuple[str, Any]]
    ) -> None:
        """Put the lines from `start` on into a block with a condition.

        Where it does not hold, the numbers that they read are 0, and other tensors stand for what
        they make (name, metadata).
        """
        inner = [f"    {line}" for line in self.lines[start:]]
        self.lines[start:] = [f"    if {condition}:", *(inner or ["        pass"])]
        other = [f"        {symbol.name} = 0" for symbol in read]
        for name, meta in made:
            other.append(f"        {name} = {self.named(placeholder(meta), 'nothing')}")
        self.lines += ["    else:", *other] if other else []

    def check(self) -> None:
        """Check the required relations whose numbers are known by now."""
        for one in [*self.unchecked]:
            if self.unread.isdisjoint(symbols_of((one.left, one.right))):
                self.unchecked.remove(one)
                self.lines.append(f"    if not {self.relation(one)}:")
                fail, name = (not_usual, "leave") if one.usual else (not_as_required, "fail")
                self.lines.append(f"        {self.named(fail, name)}({str(one)!r})")

    def relation(self, one: Any) -> str:
        """The text of a relation that holds."""
        left, right = (
            self.number(side) if isinstance(side, Expr) else self.constant(side)
            for side in (one.left, one.right)
        )
        return f"{left} {one.op} {right}"


def not_as_required(relation: str) -> None:
    """Raise for a number from tensor data for which eager mode raises something: Python runs the
    frame again."""
    raise ValueError(f"a number from tensor data is not as the program needs it: {relation}")


def not_usual(relation: str) -> None:
    """Raise for a size from tensor data with rules of its own: Python runs the frame again."""
    raise Unusual(f"a size from tensor data is 0 or 1: not {relation}")


def _call(op: str, _kind: str, *parts: str) -> str:
    sign = SIGNS.get(op)
    return f"({f' {sign} '.join(parts)})" if sign else f"number_{op}({', '.join(parts)})"


def refs_of(value: Any) -> list[int]:
    """The numbers of all Refs in a nested value."""
    return [ref.index for ref in operands(value, Ref)]


def source(graph: Graph) -> tuple[str, dict[str, Any]]:
    """(the text of the function, the objects it names)."""
    writer = Writer(graph)
    inputs = [f"v{i}" for i in range(len(graph.inputs))]
    head = f"def replay({', '.join(inputs + [symbol.name for symbol in graph.numbers])}):"
    restores = any(changes_state(call) for call in graph.calls)
    if restores:
        writer.names.update(
            # reserved: the function's own locals
            dict.fromkeys(("grad", "entered", "context"))
        )
        writer.names["grad_is_enabled"] = torch.is_grad_enabled
        writer.names["set_grad"] = torch._C._set_grad_enabled
    told = [(one.left, one.right) for one in graph.required]
    writer.read_sizes([told, *((call.args, call.kwargs) for call in graph.calls)])
    writer.check()
    writer.parts()
    outputs = "".join(f"{writer.variable(ref.index)}, " for ref in graph.call_outputs)
    writer.lines.append(f"    return ({outputs})")
    body = _restoring(writer.lines) if restores else writer.lines
    return "\n".join([head, *body]) + "\n", writer.names


_LEAVES = {"__enter__": "append", "__exit__": "pop"}


def _restoring(body: list[str]) -> list[str]:
    """The same lines, in a `try`: an exception restores the interpreter's state, as `with` does."""
    return [
        "    grad, entered = grad_is_enabled(), []",
        "    try:",
        *[f"    {line}" for line in body],
        "    except BaseException:",
        "        for context in reversed(entered):",
        "            context.__exit__(None, None, None)",
        "        set_grad(grad)",
        "        raise",
    ]


def compile_replay(graph: Graph) -> Callable[..., tuple[Any, ...]]:
    """The function; its attribute `source` is its text."""
    text, names = source(graph)
    scope = dict(names)
    exec(compile(text, f"{GENERATED}replay of {graph.name}>", "exec"), scope)
    function: Any = scope["replay"]
    function.source = text
    return function  # type: ignore[no-any-return]
