"""The operators at the borders of regions: each is its operand, as another value.

`again` is a value that a backward reads when it runs: one from outside a region
(`ir.trace.regions`), or one that eager mode reads again without a comparison of versions
(`ir.trace.custom_function`).
`nested` is the gradient of a result, where a backward enters a checkpoint that has
`use_reentrant=True` (`ir.trace.reentrant`). No pass merges their results with the operands;
`without_borders` removes them when all passes have run. Programs without regions load this file,
and not `ir.trace.regions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..graph.effects import is_random, uses
from ..graph.interpreter import Replaced, moved
from ..graph.nodes import Graph, Node
from ..graph.opdef import OPS, OpDef

_LIBRARY = torch.library.Library("graftjit", "FRAGMENT")
_LIBRARY.define("again(Tensor self, int region) -> Tensor")
_LIBRARY.impl("again", lambda tensor, region: tensor.detach(), "CompositeExplicitAutograd")
again = torch.ops.graftjit.again.default
OPS[str(again)] = OpDef(str(again), "barrier", lambda op, tensor, region: tensor)
_LIBRARY.define("nested(Tensor gradient) -> Tensor")
_LIBRARY.impl("nested", lambda gradient: gradient.detach(), "CompositeExplicitAutograd")
nested = torch.ops.graftjit.nested.default
OPS[str(nested)] = OpDef(str(nested), "barrier", lambda op, gradient: gradient)
BORDERS = (again, nested)
# the number of a region where the value belongs to none
NO_REGION = -1


def redrawn(nodes: Sequence[Node]) -> list[set[Node]]:
    """The operators that draw the numbers of a region again, those of each region together. They
    leave the generator as it was, so they are of no use if nothing reads the numbers."""
    if "graftjit.swap_state.default" not in OPS:
        # no region was ever copied
        return []
    own = torch.ops.graftjit
    swap_state, put_state = own.swap_state.default, own.put_state.default
    begun: dict[Node, set[Node]] = {}
    found: list[set[Node]] = []
    for node in nodes:
        if node.target is swap_state:
            begun[node] = {node}
        elif node.target is put_state and node.args[0] in begun:
            found.append(begun.pop(node.args[0]) | {node})
        elif begun and is_random(node):
            begun[next(reversed(begun))].add(node)
    return found


def without_borders(graph: Graph) -> Graph:
    """The graph whose values from outside of regions are read as they are."""
    if not any(node.target in BORDERS for node in graph.nodes):
        return graph
    now = Replaced()
    nodes = []
    for node in graph.nodes:
        if node.target in BORDERS:
            now[node] = now[node.args[0]]
            continue
        if any(one in now for one in uses(node)):
            now[node] = moved(node, now.__getitem__)
        nodes.append(now[node])
    return replace(graph, nodes=nodes, outputs=[now[one] for one in graph.outputs])
