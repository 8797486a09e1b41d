"""What runs when a kernel has met trouble: ATen's own operators, for the exception that eager raises.

A kernel that loads at places it was given (`checked` values) touches no memory out of range; it tells, and gives no
result. `otherwise(kernel, ...)` is the function that then runs the kernel's operators that may raise, in the graph's
order, on what lies in memory; what does not is computed anew. Called by `codegen.schedule` for its `Otherwise` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..ir.effects import may_raise, reads
from ..ir.graph import Node
from ..ir.symbols import evaluate, symbols_of
from ..ir.torch_level import substitute
from ..runtime.errors import InternalError
from .flow import base_of, is_plain_view
from .lowering import RULES
from .nest import Kernel


def otherwise(
    kernel: Kernel, is_tensor: Callable[[Node], bool]
) -> tuple[Callable[..., None], tuple[Node, ...], tuple[Any, ...]]:
    """(the function, the nodes whose tensors it takes, the symbols whose numbers it takes after them).
    `is_tensor`: does the node's tensor exist before the kernel runs?"""
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
    names = [symbol.name for symbol in symbols]
    count, where = len(given), f"the kernel {kernel.nest.name}"

    def run(*values: Any) -> None:
        with torch.no_grad():
            known = dict(zip(given, values[:count], strict=True))
            numbers = dict(zip(names, values[count:], strict=True))
            for node in raising:
                _value(node, known, numbers)
        raise InternalError(f"{where} met trouble where ATen's operators met none")

    return run, tuple(given), symbols


def _layout(node: Node) -> Any:
    return [(m.shape, m.stride, m.offset) for m in _metas(node)]


def _metas(node: Node) -> list[Any]:
    found = node.meta if isinstance(node.meta, tuple) else (node.meta,)
    return [meta for meta in found if meta is not None]


def _value(node: Node, known: dict[Node, Any], numbers: Mapping[str, Any]) -> Any:
    """A node's tensor (or tuple of results)."""
    if node in known:
        return known[node]
    if is_plain_view(node):
        base = base_of(node)
        tensor = _value(base, known, numbers)
        meta, offset = node.meta, node.meta.offset - base.meta.offset
        shape, stride, offset = evaluate((meta.shape, meta.stride, offset), numbers)
        found = torch.as_strided(tensor, shape, stride, tensor.storage_offset() + offset)
    elif node.op == "get":
        found = _value(node.args[0], known, numbers)[node.target]
    else:
        called: Any = node.target
        args, kwargs = evaluate((node.args, node.kwargs), numbers)
        read = lambda one: _value(one, known, numbers)  # noqa: E731
        found = called(*substitute(args, read, Node), **substitute(kwargs, read, Node))
    known[node] = found
    return found
