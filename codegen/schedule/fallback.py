"""Fallback of a kernel that reports an error: ATen's own operators run, to raise eager's exception.

A kernel that loads at given positions (`checked` values) never reads out of range; it reports the
error and its results are not used. `otherwise(kernel, ...)` is the tape that then runs those of the
kernel's operators that may raise, in the graph's order, on tensors in memory; other operands are
computed again. `codegen.schedule.plan` uses it for its `Otherwise` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...ir.graph.effects import reads
from ...ir.graph.interpreter import substitute
from ...ir.graph.nodes import Node
from ...ir.ops.may_raise import may_raise
from ...ir.symbolic.expr import symbols_of
from ...runtime.program.fallback_tape import Entry, Tape
from ...runtime.program.program import Slot
from ..analysis.dataflow import base_of, is_plain_view
from ..loops.kernel import Kernel
from ..lower.builder import RULES


def otherwise(
    kernel: Kernel, is_tensor: Callable[[Node], bool]
) -> tuple[Tape, tuple[Node, ...], tuple[Any, ...]]:
    """(the tape, the nodes whose tensors it takes, the symbols whose numbers it takes after them).

    `is_tensor`: whether the node's tensor exists before the kernel runs.
    """
    raising = [node for node in kernel.nodes if may_raise(node) and RULES[node.target].far]
    given: dict[Node, None] = {}
    seen: set[Node] = set()

    def find(node: Node) -> None:
        node = base_of(node)
        if node in seen:
            return
        seen.add(node)
        if is_tensor(node):
            given[node] = None
            return
        for operand in reads(node):
            find(operand)

    for node in raising:
        seen.add(node)
        for operand in reads(node):
            find(operand)
    needs = [(n.args, n.kwargs, _layout(n)) for n in seen]
    symbols = tuple(sorted(symbols_of(needs), key=lambda symbol: symbol.name))
    names = tuple(symbol.name for symbol in symbols)
    tape = Tape(kernel.nest.name, len(given), names, _entries(raising, given))
    return tape, tuple(given), symbols


def _entries(raising: Sequence[Node], given: Iterable[Node]) -> tuple[Entry, ...]:
    """These operators in order, each after its operands."""
    numbers = {node: at for at, node in enumerate(given)}
    entries: list[Entry] = []

    def place(node: Node) -> int:
        if node not in numbers:
            entry = _entry(node, place)
            numbers[node] = len(numbers)
            entries.append(entry)
        return numbers[node]

    for node in raising:
        place(node)
    return tuple(entries)


def _entry(node: Node, place: Callable[[Node], int]) -> Entry:
    if is_plain_view(node):
        base = base_of(node)
        meta, offset = node.meta, node.meta.offset - base.meta.offset
        return "view", place(base), meta.shape, meta.stride, offset
    if node.op == "get":
        return "get", place(node.args[0]), node.target
    read = lambda one: Slot(place(one))  # noqa: E731
    return (
        "call",
        node.target,
        substitute(node.args, read, Node),
        substitute(node.kwargs, read, Node),
    )


def _layout(node: Node) -> Any:
    return [(m.shape, m.stride, m.offset) for m in _metas(node)]


def _metas(node: Node) -> list[Any]:
    found = node.meta if isinstance(node.meta, tuple) else (node.meta,)
    return [meta for meta in found if meta is not None]
