"""Plain interpreters of a graph's two levels: the reference for all compiled code.

`replay` runs the torch-level calls as the program wrote them (through autograd, hooks and
autocast); `run_nodes` runs the ATen nodes one by one. Both take the graph's inputs in order and
return its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .nodes import Call, Graph, Node, Ref


def substitute(value: Any, read: Callable[[Any], Any], leaf: type) -> Any:
    """The same nested arguments with `read(item)` for each item of type `leaf`."""
    kind = type(value)
    if kind is leaf:
        return read(value)
    if kind is tuple or kind is list:
        return kind([substitute(item, read, leaf) for item in value])
    if kind is dict:
        return {key: substitute(item, read, leaf) for key, item in value.items()}
    if kind is slice:
        return slice(*(substitute(v, read, leaf) for v in (value.start, value.stop, value.step)))
    return value


class Replaced(dict[Node, Node]):
    """Replacements of nodes; a node that has none is its own."""

    def __missing__(self, node: Node) -> Node:
        return node


def moved(node: Node, now: Callable[[Node], Node], name: str | None = None) -> Node:
    """The node over other operands: `now(operand)` for each of them."""
    args, kwargs = substitute((node.args, node.kwargs), now, Node)
    alias = None if node.alias is None else now(node.alias)
    name = node.name if name is None else name
    return Node(node.op, node.target, args, kwargs, node.meta, name, node.where, alias)


def changes_state(call: Call) -> bool:
    """Whether a call sets grad mode, or enters or leaves a context."""
    return call.results is None and (
        call.target is torch._C._set_grad_enabled
        or getattr(call.target, "__name__", "") in ("__enter__", "__exit__")
    )


def renumbered(call: Call, order: Mapping[int, int]) -> Call:
    """The call with other numbers of its Refs."""

    def change(value: Any) -> Any:
        return substitute(value, lambda ref: Ref(order[ref.index]), Ref)

    return Call(
        call.target,
        change(call.args),
        change(call.kwargs),
        change(call.results),
        call.where,
        change(call.writes),
    )


def bind_results(shape: Any, value: Any, values: dict[int, Any]) -> None:
    """Store the parts of a call's result under the numbers of its Refs."""
    if type(shape) is Ref:
        values[shape.index] = value
    elif type(shape) is dict:
        for key, item in shape.items():
            bind_results(item, value[key], values)
    elif type(shape) in (tuple, list):
        for item, part in zip(shape, value, strict=True):
            if type(item) in (Ref, tuple, list, dict):
                bind_results(item, part, values)


def replay(graph: Graph, inputs: Sequence[torch.Tensor]) -> list[Any]:
    """Run the torch level on real tensors."""
    values: dict[int, Any] = dict(graph.constants)
    values.update(enumerate(inputs))

    def read(ref: Ref) -> Any:
        return values[ref.index]

    for call in graph.calls:
        result = call.target(
            *substitute(call.args, read, Ref), **substitute(call.kwargs, read, Ref)
        )
        bind_results(call.results, result, values)
    return [values[ref.index] for ref in graph.call_outputs]


def run_nodes(graph: Graph, inputs: Sequence[torch.Tensor]) -> list[Any]:
    """Run the ATen level on real tensors, below autograd."""
    values: dict[Node, Any] = dict(zip(graph.inputs, inputs, strict=True))

    def read(node: Node) -> Any:
        return values[node]

    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "constant":
                values[node] = node.target
            elif node.op == "get":
                values[node] = values[node.args[0]][node.target]
            else:
                args = substitute(node.args, read, Node)
                values[node] = node.target(*args, **substitute(node.kwargs, read, Node))
    return [values[node] for node in graph.outputs]
