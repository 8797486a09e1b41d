"""The plan that joins a forward and a backward program (`runtime.autograd.joint_program.Plan`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.autograd.before import wanted_before
from ..ir.autograd.partial_backward import met_by_custom, readers, users_of_regions
from ..ir.autograd.partition import Halves
from ..ir.graph.effects import root
from ..ir.graph.nodes import Graph, Meta
from ..ir.symbolic.expr import Symbol, hint_of, symbols_of
from ..ir.trace.custom_function import Applied
from ..ir.trace.reentrant import refusing
from ..runtime.autograd import rng_state
from ..runtime.autograd.joint_plan import Plan, When


def joint_plan(graph: Graph, halves: Halves) -> Plan:
    """The plan of a graph with a Joint, divided in two."""
    joint = graph.joint
    arguments = _arguments(graph, halves)
    dirty = {at: node.target for at, node in enumerate(joint.pieces) if node.op == "input"}
    return Plan(
        name=graph.name,
        nodes=joint.names,
        owners=joint.owners,
        n_tensors=len(graph.inputs),
        n_numbers=len(graph.numbers),
        n_pieces=len(joint.pieces),
        results=joint.results,
        found=tuple(joint.found[at] for at in joint.results),
        orders=tuple(_order(node.meta) for node in joint.tangents),
        wanted=joint.wanted,
        leaves=joint.leaves,
        givers=joint.givers,
        gradients=halves.gradients,
        saved=halves.saved,
        witnesses=(*halves.witnesses, *arguments),
        dirty=dirty,
        frees=joint.frees,
        parameters=joint.parameters,
        numbers=tuple(_origin(graph, halves, symbol) for symbol in halves.backward.numbers),
        random=rng_state.drawn_from(graph),
        written=tuple(graph.written),
        before=wanted_before(graph),
        custom=tuple(call.target.reads for call in graph.calls if type(call.target) is Applied)
        if joint.custom
        else (),
        met=met_by_custom(joint) if joint.custom and len(joint.results) > 1 else (),
        casts=joint.casts,
        refusing=refusing(joint),
        # Autograd counts the version of an input that the node writes once more.
        needs=() if dirty else _needs(halves, len(joint.results), arguments.values()),
        when=tuple(_when(halves, one) for one in joint.when),
        tracked=tuple(_when(halves, one) for one in joint.tracked),
    )


def _when(halves: Halves, when: Any) -> When:
    """See `Plan.when`."""
    numbers = halves.backward.numbers

    def place(one: Any) -> int:
        if type(one) is Symbol:
            return numbers.index(one)
        (symbol,) = symbols_of(one)  # 1 - a truth value
        return ~numbers.index(symbol)

    return tuple(
        (
            tuple(one for one in term if type(one) is int),
            tuple(place(one) for one in term if type(one) is not int),
        )
        for term in when
    )


def _origin(graph: Graph, halves: Halves, symbol: Symbol) -> tuple[Any, ...]:
    """The origin of a number of the backward: of one from tensor data, the piece that holds it."""
    origin = graph.symbols[symbol]
    return halves.forward.symbols[symbol] if origin[0] == "data" else origin


def _arguments(graph: Graph, halves: Halves) -> dict[int, frozenset[int]]:
    """The inputs that are arguments of regions or unpacked by custom functions, and that the
    backward does not read, as witnesses: eager mode compares their versions when it computes the
    region again or calls the function. Each with the results, by position, whose backward does."""
    joint, kinds = graph.joint, [kind for kind, _ in halves.saved]
    known = {at for kind, at in halves.saved if kind in ("input", "current")} | {*graph.written}
    first = len(joint.pieces) + kinds.count("made") + kinds.count("constant")
    users = joint.users
    if users is None:
        again = any(joint.arguments) or any(one.unused for one in joint.custom)
        users = users_of_regions(joint) if again else {}
    found: dict[int, frozenset[int]] = {}
    for region, results in users.items():
        if not results:
            continue
        memory = (
            set(map(root, joint.custom[~region].unused))
            if region < 0
            else joint.arguments[region] & joint.kept
        )
        for node in memory:
            if node.op == "input" and node.target not in known:
                at = first + node.target
                found[at] = found.get(at, frozenset()) | results
    return dict(sorted(found.items()))


def _needs(
    halves: Halves, n_results: int, arguments: Iterable[frozenset[int]]
) -> tuple[frozenset[int], ...]:
    """See `Plan.needs`."""
    n, everyone = len(halves.saved), frozenset(range(n_results))
    if n_results < 2:
        return ()
    found = readers(halves.backward, range(n, n + n_results))
    # a version of `current` is not compared
    kinds = [(kind, found[at]) for at, (kind, _) in enumerate(halves.saved) if kind != "current"]
    witnesses = [*(everyone for _ in halves.witnesses), *arguments]
    if all(one == everyone for kind, one in kinds if kind != "made") and all(
        one == everyone for one in witnesses
    ):
        return ()
    return (*(one for _, one in kinds), *witnesses)


def _order(meta: Meta) -> tuple[int, ...] | None:
    """The dimensions by stride, None if they are in order."""
    dims = sorted(range(len(meta.shape)), key=lambda dim: -hint_of(meta.stride[dim]))
    return None if dims == list(range(len(dims))) else tuple(dims)
