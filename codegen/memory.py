"""How much memory a plan needs at most, beside eager: `schedule.plan` weighs its ways of fusion with it.

A value lives from the step that makes it to the last one that reads it or a view of it; results live on. What is written over an
operand (`inplace`) adds nothing. Eager is taken
at its best: an operator's result is freed after its last reader, as if no local variable held it longer. What lies
between kernels is in one workspace, which stays until the program ends. Inputs, constants and what operators allocate
inside count for neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..ir.effects import reads, root
from ..ir.graph import Meta, Node
from .extents import estimated
from .flow import Flow, is_plain_view
from .nest import Kernel

Use = tuple[tuple[Node, ...], tuple[Node, ...]]  # what a step makes, and what it reads, as roots


def peak(steps: Sequence[Kernel | Node], flow: Flow, scratch: frozenset[Node], over: Mapping[Node, Node]) -> int:  # fmt: skip
    """Bytes of a plan's steps; `scratch`: what lies in the workspace; `over`: what takes another one's memory."""
    uses = [
        (step.stores, tuple(map(root, step.reads)))
        if isinstance(step, Kernel)
        else _of_call(step, flow)
        for step in steps
    ]
    apart = _highest(uses, flow, lambda node: node not in scratch, over)
    return apart + (_highest(uses, flow, scratch.__contains__, over) if scratch else 0)


def peak_of_eager(flow: Flow) -> int:
    """Bytes of the operators one by one, in the order of the program."""
    calls = [
        node
        for node in flow.nodes
        if node.op == "call" and node not in flow.whole and not is_plain_view(node)
    ]
    return _highest([_of_call(node, flow) for node in calls], flow, lambda node: True, {})


def _of_call(node: Node, flow: Flow) -> Use:
    made: Iterable[Node] = (node,)
    if not isinstance(node.meta, Meta):
        made = (user for user in flow.users.get(node, ()) if user.op == "get")
    return tuple(one for one in made if one.alias is None), tuple(map(root, reads(node)))


def size_of(node: Node) -> int:
    return estimated(node.meta.shape) * node.meta.dtype.itemsize


def _highest(
    uses: Sequence[Use], flow: Flow, counted: Callable[[Node], bool], over: Mapping[Node, Node]
) -> int:
    last: dict[Node, int] = {}
    for position, (made, read) in enumerate(uses):
        last.update(dict.fromkeys((*made, *read), position))
    last.update((root(node), len(uses)) for node in flow.graph.outputs)
    sizes: dict[Node, int] = {}
    live = highest = 0
    for position, (made, read) in enumerate(uses):
        for node in made:
            if node in over and over[node] in sizes:
                sizes[node] = sizes.pop(over[node])
            elif node not in sizes and counted(node):
                live += sizes.setdefault(node, size_of(node))
        highest = max(highest, live)
        for node in {*made, *read}:
            if last[node] == position and node in sizes:
                live -= sizes.pop(node)
    return highest
