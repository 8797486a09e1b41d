"""The functions that make a program's results from its pieces (`ir.trace.output_views`).

ATen makes views of pieces and of inputs again, under autograd. `tail_of(graph)` makes all results
after the nodes. A view that the results of another segment depend on is made before the node of
that segment: see `early_views`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import torch

from ..ir.graph.interpreter import substitute
from ..ir.graph.nodes import Call, Graph, Node, Ref
from ..ir.trace.joint_graph import Joint
from .programs.replay import compile_replay

Make = Callable[..., tuple[Any, ...]]
# (positions of the views behind the pieces, the function that makes them)
Early = tuple[tuple[int, ...], Make]


def tail_of(graph: Graph) -> Make | None:
    """The function of the inputs, the pieces, the views made early, and the numbers, that returns
    the results; None if the results are the pieces."""
    joint: Joint = graph.joint
    if joint.given == joint.pieces and joint.results:
        return None
    known = [*graph.inputs, *joint.pieces, *_early(joint)]
    return _made(graph, joint, known, joint.given)


def early_views(graph: Graph, needed: Sequence[Sequence[int]]) -> tuple[Early | None, ...]:
    """What to make before each segment. `needed`: for each segment the pieces and views, by
    position, that its results depend on."""
    joint: Joint = graph.joint
    early, n = _early(joint), len(joint.pieces)
    known = [*graph.inputs, *joint.pieces, *early]
    missing = dict(zip(range(n, n + len(early)), early, strict=True))
    found: list[Early | None] = []
    for positions in needed:
        wanted = [missing[at] for at in positions if at in missing]
        if not wanted:
            found.append(None)
            continue
        # the views on the way, and all parts of an operator with several results
        way = _way(wanted)
        now = {
            at: node
            for at, node in missing.items()
            if node in way or (node.op == "get" and node.args[0] in way)
        }
        for at in now:
            del missing[at]
        others = [node for node in known if node not in now.values()]
        found.append((tuple(now), _made(graph, joint, known, tuple(now.values()), set(others))))
    return tuple(found)


def _early(joint: Joint) -> list[Node]:
    """The views that are made early: those inside, and the other parts of the operators that make
    them."""
    inside = [joint.given[at] for at in joint.views_inside]
    made = {node.args[0] for node in _way(inside) if node.op == "get"}
    parts = [node for node, _ in joint.views if node.op == "get" and node.args[0] in made]
    return list(dict.fromkeys([*inside, *parts]))


def _way(nodes: Iterable[Node], known: Container[Node] = ()) -> set[Node]:
    """The nodes, and the views, operators and memory that they come from, up to `known`."""
    found: set[Node] = set()
    for one in nodes:
        node: Node | None = one
        while node is not None and node not in known and node not in found:
            found.add(node)
            if node.op == "get":
                found.add(node.args[0])
            node = node.alias
    return found


def _made(
    graph: Graph,
    joint: Joint,
    arguments: Sequence[Node],
    results: Sequence[Node],
    known: set[Node] | None = None,
) -> Make:
    """The function of `arguments` and numbers that returns `results`. `known`: those of the
    arguments that exist already (None: all)."""
    numbers: dict[Node, int] = {}
    for at, node in enumerate(arguments):
        if known is None or node in known:
            numbers[node] = at
    for at, node in enumerate(graph.inputs):
        numbers[node] = at
    fresh = itertools.count(len(arguments))
    constants = {}
    # for an operator with several results, those that are used
    parts: dict[Any, dict[int, Ref]] = {}

    def ref(node: Any) -> Ref:
        if node not in numbers:
            numbers[node] = next(fresh)
        at = numbers[node]
        if node.op == "constant":
            constants[at] = node.target
        return Ref(at)

    calls = []
    wanted = _way(results, numbers)
    for node, quiet in joint.views:
        if node in numbers or node not in wanted:
            continue
        if node.op == "get":
            parts[node.args[0]][node.target] = ref(node)
            continue
        args = substitute(node.args, ref, Node)
        several = isinstance(node.meta, tuple)
        made = parts.setdefault(node, {}) if several else ref(node)
        call = Call(node.target, args, node.kwargs, made, node.where)
        around = [Call(torch._C._set_grad_enabled, (on,), {}, None) for on in (False, True)]
        calls += [around[0], call, around[1]] if quiet else [call]
    return compile_replay(
        Graph(
            f"{graph.name}_views",
            inputs=list(arguments),
            calls=calls,
            call_outputs=[ref(node) for node in results],
            constants=constants,
            symbols=graph.symbols,
            numbers=graph.numbers,
        )
    )
