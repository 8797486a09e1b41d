"""The verifier: a table of invariants that every graph obeys, before and after every pass.

`verify(graph)` raises `BrokenGraph` with all violations. Tests and GRAFTJIT_CHECK run it after the
trace and after each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..errors import NoRule
from ..graph.effects import is_random, operands, root, uses, writes
from ..graph.nodes import Graph, Meta, Node, Ref, meta_args
from ..graph.opdef import OPS
from ..graph.printing import node_text, type_text
from ..graph.schema import plan_of
from ..symbolic.expr import hints


class BrokenGraph(AssertionError):
    """A pass or the trace made a graph that violates an invariant."""


def _named_once(graph: Graph) -> Iterator[str]:
    seen: set[str] = set()
    for node in (*graph.inputs, *graph.nodes):
        if not node.name or node.name in seen:
            yield f"{node.name!r} names two values"
        seen.add(node.name)


def _made_before_use(graph: Graph) -> Iterator[str]:
    made: set[Node] = set(graph.inputs)
    for node in graph.nodes:
        for operand in uses(node):
            if operand not in made:
                yield f"{node.name} uses {operand.name} before it is made"
        made.add(node)
    for node in graph.outputs:
        if node not in made:
            yield f"output {node.name} is not made"


def _known_kinds(graph: Graph) -> Iterator[str]:
    for position, node in enumerate(graph.inputs):
        if node.op != "input" or node.target != position or type(node.meta) is not Meta:
            yield f"{node.name} is no proper input {position}"
    for node in graph.nodes:
        if node.op == "get":
            metas = node.args[0].meta
            if not isinstance(metas, tuple) or metas[node.target] != node.meta:
                yield f"{node.name} takes what {node.args[0].name} does not give"
        elif node.op not in ("call", "constant"):
            yield f"{node.name} is of unknown kind {node.op}"


def _metas_follow_rules(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        row = OPS.get(str(node.target)) if node.op == "call" else None
        if row is None:
            continue
        # Symbolic sizes are compared with their values at capture: no trace answers comparisons
        # here.
        args, meta = hints(meta_args(node.args)), hints(node.meta)
        kwargs = {name: hints(meta_args(value)) for name, value in node.kwargs.items()}
        try:
            said = row.rule(node.target, *args, **kwargs)
        except NoRule:
            continue
        if said != meta:
            yield f"{node.name} is {type_text(meta)}, its rule says {type_text(said)}"


def _aliases_follow_schemas(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        if node.op != "call":
            continue
        plan = plan_of(node.target)
        if plan.kind == "view":
            wanted: Any = node.args[plan.view_of]
        elif plan.one and plan.returned and plan.returned[0] is not None:
            wanted = next(iter(writes(node)), None)
        else:
            wanted = None
        if node.alias is not wanted:
            yield f"{node.name} should share {getattr(wanted, 'name', None)}, says {node.alias}"


def _writes_return_nothing(graph: Graph) -> Iterator[str]:
    silent = {
        node
        for node in graph.nodes
        if node.op == "call" and any(at is not None for at in plan_of(node.target).returned)
    }
    for node in (*graph.nodes, *(Node("call", "output", (out,)) for out in graph.outputs)):
        for operand in operands(node.args):
            if operand in silent and node.op != "get":
                yield f"{operand.name} writes; what it returns is its operand, to be used instead"


def _flags_are_true(graph: Graph) -> Iterator[str]:
    outside = any(
        root(target).op in ("input", "constant") for node in graph.nodes for target in writes(node)
    )
    if outside and not graph.mutates:
        yield "an input is written, and the graph does not say so"
    if any(map(is_random, graph.nodes)) and not graph.random:
        yield "a random operator, and the graph does not say so"


def _refs_defined(graph: Graph) -> Iterator[str]:
    defined = set(range(len(graph.inputs))) | set(graph.constants)

    def walk(value: Any) -> Iterator[int]:
        if type(value) is Ref:
            yield value.index
        elif type(value) in (tuple, list):
            for item in value:
                yield from walk(item)
        elif type(value) is dict:
            yield from walk(list(value.values()))
        elif type(value) is slice:
            yield from walk([value.start, value.stop, value.step])

    for call in graph.calls:
        for index in walk([call.args, call.kwargs]):
            if index not in defined:
                yield f"v{index} is used before a call gives it"
        defined.update(walk(call.results))
    for ref in graph.call_outputs:
        if ref.index not in defined:
            yield f"output v{ref.index} is given by no call"


LAWS: tuple[Callable[[Graph], Iterator[str]], ...] = (
    _named_once,
    _made_before_use,
    _known_kinds,
    _metas_follow_rules,
    _aliases_follow_schemas,
    _writes_return_nothing,
    _flags_are_true,
    _refs_defined,
)


def verify(graph: Graph, after: str = "the trace") -> None:
    """Raise BrokenGraph if the graph violates an invariant. `after`: the trace or pass."""
    breaches = [breach for law in LAWS for breach in law(graph)]
    if breaches:
        lines = "\n".join(f"  {node_text(node)}" for node in graph.nodes)
        raise BrokenGraph(f"after {after}:\n" + "\n".join(breaches) + "\n" + lines)
