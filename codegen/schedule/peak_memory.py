"""Peak memory: the most memory that a plan needs, and eager's; `schedule.plan` compares fusions by
it.

A value lives from the step that makes it to the last one that reads it or a view of it; results
live on. A result over an operand (`inplace`) adds nothing. Eager is assumed at its best: an
operator's result is freed after its last reader, as if no local variable held it longer, and
updates of inputs are in place. Values between kernels are in one workspace, which stays until the
program ends. Of the inputs those count that die with their last reader (held only by a backward).
Constants and memory that operators allocate inside do not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ir.dataclass import dataclass
from ...ir.graph.effects import reads, root, writes
from ...ir.graph.nodes import Meta, Node
from ..analysis.dataflow import Flow, is_plain_view
from ..loops.extents import estimated
from ..loops.kernel import Kernel

# the roots that a step makes, and those that it reads
Use = tuple[tuple[Node, ...], tuple[Node, ...]]


def peak(
    steps: Sequence[Kernel | Node], flow: Flow, scratch: frozenset[Node], over: Mapping[Node, Node]
) -> int:
    """Bytes of a plan's steps; `scratch`: values in the workspace; `over`: results that take
    another value's memory.
    """
    used = uses(steps, flow)
    apart = _highest(used, flow, lambda node: node not in scratch, over)
    return apart + (_highest(used, flow, scratch.__contains__, over) if scratch else 0)


def uses(steps: Sequence[Kernel | Node], flow: Flow) -> list[Use]:
    """The roots that each step makes and reads."""
    return [
        (tuple(node for node in step.stores if node.op != "input"), step.uses)
        if isinstance(step, Kernel)
        else _of_call(step, flow)
        for step in steps
    ]


def peak_of_eager(flow: Flow) -> int:
    """Bytes of the operators one by one, in the order of the program."""
    calls = [
        node
        for node in flow.nodes
        if node.op == "call" and node not in flow.whole and not is_plain_view(node)
    ]
    inside = _in_place(flow)
    used = [_of_call(node, flow) for node in calls]
    return _highest(used, flow, lambda node: node not in inside, {})


def _in_place(flow: Flow) -> set[Node]:
    """Values for which eager mode takes no memory: an input is updated in place, operator by
    operator (`exp_avg_sq.mul_(b).addcmul_(g, g)`), so each value has the layout of the input and
    the one before it as its first operand, which nothing else reads later.
    """
    found: set[Node] = set()
    for write in flow.graph.nodes:
        if write.op != "call" or not writes(write) or len(write.args) < 2:
            continue
        target, value = write.args[:2]
        chain: list[Node] = []
        while _updates(value, target):
            # `addcmul` and `addcdiv` with a tensor as their factor are several operators here
            factors = (one for one in value.args[1:] if _product(one))
            chain += [value, *(one for one in factors if len(flow.users.get(one, ())) == 1)]
            value = value.args[0]
        if value is target and target.op == "input":
            found.update(chain)
    return found


def _product(node: Any) -> bool:
    return type(node) is Node and str(node.target) in ("aten.mul.Tensor", "aten.div.Tensor")


def _updates(value: Any, target: Node) -> bool:
    if type(value) is not Node or value.op != "call" or value.alias is not None or not value.args:
        return False
    one, other = value.meta, target.meta
    return isinstance(one, Meta) and (one.shape, one.stride, one.dtype) == (
        other.shape,
        other.stride,
        other.dtype,
    )


def _of_call(node: Node, flow: Flow) -> Use:
    made: Iterable[Node] = (node,)
    if not isinstance(node.meta, Meta):
        made = (user for user in flow.users.get(node, ()) if user.op == "get")
    return tuple(one for one in made if one.alias is None), tuple(map(root, reads(node)))


def owned(flow: Flow) -> list[Node]:
    """The inputs that die with their last reader."""
    return [flow.graph.inputs[at] for at in sorted(flow.graph.own)]


def size_of(node: Node) -> int:
    return estimated(node.meta.shape) * node.meta.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Life:
    """A value takes so many bytes from the step that makes it to the last one that needs it, both
    included.
    """

    node: Node
    nbytes: int
    made: int
    last: int


def lives(steps: Sequence[Kernel | Node], flow: Flow, over: Mapping[Node, Node]) -> list[Life]:
    """The lives of all values that a plan's steps make; tools/peak_memory.py uses it, too."""
    return _lives(uses(steps, flow), flow, lambda node: True, over)


def _lives(
    used: Sequence[Use], flow: Flow, counted: Callable[[Node], bool], over: Mapping[Node, Node]
) -> list[Life]:
    last: dict[Node, int] = {}
    for position, (made, read) in enumerate(used):
        last.update(dict.fromkeys((*made, *read), position))
    last.update((root(node), len(used)) for node in flow.graph.outputs)
    found = {
        node: Life(node, size_of(node), 0, last.get(node, 0))
        for node in owned(flow)
        if counted(node)
    }
    for position, (made, _) in enumerate(used):
        for node in made:
            if node in found or not counted(node):
                continue
            nbytes, below = size_of(node), over.get(node)
            if below in found:
                given = found[below]
                nbytes = given.nbytes
                found[below] = replace(given, last=position - 1)
            found[node] = Life(node, nbytes, position, last[node])
    return list(found.values())


def fullest(steps: Sequence[Kernel | Node], flow: Flow, over: Mapping[Node, Node]) -> int:
    """The position of the step beside which most bytes are alive."""
    bytes_at = _alive(len(steps), lives(steps, flow, over))
    return max(range(len(steps)), key=bytes_at.__getitem__)


def _highest(used: Sequence[Use], *rest: Any) -> int:
    return max(_alive(len(used), _lives(used, *rest)), default=0)


def _alive(n_steps: int, found: Iterable[Life]) -> list[int]:
    """The bytes alive at each step, and at the end."""
    change = [0] * (n_steps + 2)
    for life in found:
        change[life.made] += life.nbytes
        change[life.last + 1] -= life.nbytes
    return list(itertools.accumulate(change))
