"""Parts of a graph (`read_parts`) that are one program: equal but for names and lines.

The bodies of a loop over experts are such parts. In: the graph of a part. Out: a text that is equal
for equal parts; None for a graph with values that it would not describe.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from ..ir.graph.nodes import Graph, Node
from ..ir.symbolic.expr import Expr, Symbol, symbols_of
from .plan_cache.key import SAID, GraphText

# The fields of a graph whose values are in the text as they are.
_SAID = (*SAID, "needs_grad", "late")
_PLAIN = (complex, type(...))


class _Unknown(Exception):
    """A value that has no text."""


def text_of(graph: Graph) -> str | None:
    """The text of a part."""
    try:
        return _text(graph)
    except _Unknown:
        return None


def _text(graph: Graph) -> str:
    lines = _Text().lines(graph, _SAID)
    lines.append(f"numbers {[str(one) for one in graph.numbers]}")
    lines += [f"{symbol} {origin!r}" for symbol, origin in graph.symbols.items()]
    used = symbols_of([[n.meta, n.args, n.kwargs] for n in (*graph.inputs, *graph.nodes)])
    lines += _facts(graph.facts, used | graph.symbols.keys())
    return _renamed("\n".join(lines), {symbol.name for symbol in used | graph.symbols.keys()})


class _Text(GraphText):
    """With expressions, and constants by what they are."""

    def target(self, node: Node) -> str:
        is_constant = isinstance(node.target, torch.Tensor)
        return f"constant {id(node.target)}" if is_constant else str(node.target)

    def other(self, value: Any) -> str:
        if isinstance(value, Expr):
            return f"<{value}>"
        if type(value) in _PLAIN and value == value:
            return repr(value)
        raise _Unknown


def _facts(facts: Any, used: set[Symbol]) -> list[str]:
    """What is known of the numbers of a part, as far as it is about these only."""
    if facts is None:
        return []
    relations = [*facts.relations, *facts.required]
    told = [(one, symbols_of((one.left, one.right))) for one in relations]
    found = [str(one) for one, symbols in told if symbols and symbols & used]
    ordered = sorted(used, key=lambda symbol: int(symbol.name[1:]))
    return [*found, *(f"{one} {one.kind} {one.low} {one.high}" for one in ordered)]


def _renamed(text: str, names: set[str]) -> str:
    """The text with names of symbols by the order in which they occur."""
    new: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        known = found[0]
        return new.setdefault(known, f"#{len(new)}") if known in names else known

    # the device follows an offset without a space
    return re.sub(r"\b[a-z]\d+(?=\b|cpu|cuda)", name, text)
