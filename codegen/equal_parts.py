"""Parts of a graph (`read_parts`) that are one program: equal but for names and lines.

The bodies of a loop over experts are such parts. In: the graph of a part. Out: a text that is equal
for equal parts; None for a graph with values that it would not describe.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from ..ir.graph.nodes import Graph, Meta, Node
from ..ir.symbolic.expr import Expr, Symbol, symbols_of

_PLAIN = (int, float, complex, bool, str, type(None), type(...))
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)
# The fields of a graph whose values are in the text as they are.
_SAID = ("mutates", "random", "overlaps", "apart", "written", "consumes", "needs_grad", "late")


class _Unknown(Exception):
    """A value that has no text."""


def text_of(graph: Graph) -> str | None:
    """The text of a part."""
    try:
        return _text(graph)
    except _Unknown:
        return None


def _text(graph: Graph) -> str:
    numbers: dict[Node, int] = {}
    lines = []
    for node in (*graph.inputs, *graph.nodes):
        lines.append(_node(node, numbers))
        numbers[node] = len(numbers)
    lines.append(f"return {[numbers[node] for node in graph.outputs]}")
    lines += [f"{name} {getattr(graph, name)!r}" for name in _SAID]
    lines.append(f"joined {sorted(graph.joined)} numbers {[str(one) for one in graph.numbers]}")
    lines += [f"{symbol} {origin!r}" for symbol, origin in graph.symbols.items()]
    used = symbols_of([[n.meta, n.args, n.kwargs] for n in (*graph.inputs, *graph.nodes)])
    lines += _facts(graph.facts, used | graph.symbols.keys())
    return _renamed("\n".join(lines), {symbol.name for symbol in used | graph.symbols.keys()})


def _node(node: Node, numbers: dict[Node, int]) -> str:
    target = node.target
    if isinstance(target, torch.Tensor):
        target = f"constant {id(target)} {node.args!r}"
    alias = None if node.alias is None else numbers[node.alias]
    named = [(name, _value(value, numbers)) for name, value in node.kwargs.items()]
    args = "" if node.op == "constant" else _value(node.args, numbers)
    return f"{node.op} {target} {args} {named} {_meta(node.meta)} {alias}"


def _meta(meta: Any) -> str:
    if type(meta) is Meta:
        sizes = [_value(one, {}) for one in (meta.shape, meta.stride, meta.offset)]
        return f"{sizes} {meta.dtype} {meta.device}"
    if type(meta) is tuple:
        return f"({';'.join(map(_meta, meta))})"
    return _value(meta, {})


def _value(value: Any, numbers: dict[Node, int]) -> str:
    if type(value) is Node:
        return f"%{numbers[value]}"
    if isinstance(value, Expr):
        return f"<{value}>"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({','.join([_value(one, numbers) for one in value])})"
    if isinstance(value, (_PLAIN, _TORCH)):
        return f"{type(value).__name__} {value!r}"
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

    return re.sub(r"\b[a-z]\d+\b", name, text)
