"""The backward of a trace with parts that data skip (`conditional`).

Autograd's graph over ghosts has the nodes of all parts. `Conditions` says of each of them when
eager mode would have run it: a node of a part only if the part ran, and each node only if a
gradient reaches it. So zeros never take the place of a gradient that is not there, and a leaf that
only skipped parts use has none. In a part that did not run, the gradient of a tensor that it writes
to is that of the tensor before it.

`Recorded` watches a run of autograd's engine, and puts what each node computes into a part of the
backward with that condition. Where a gradient leaves it for one that exists more often, it is added
to zeros that always exist there; where it passes by a part that did not run, it is copied over the
gradient behind that part.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..dataclass import dataclass, field
from ..errors import CannotTrace
from ..graph.effects import uses
from ..graph.nodes import Node
from ..own_hooks import put_on
from ..symbolic.expr import add, mul, sub
from .conditional import end_only_if, only_if, places
from .ghost import Ghost, Store, make_ghost
from .inner_results import edge_of, nodes_behind
from .joint_graph import ALWAYS, Edge, Joint, Span, When

if TYPE_CHECKING:
    from .tracer import Tracer

aten = torch.ops.aten
# Alternatives of one condition. There are few, unless parts follow on each other without a way
# around them.
_MOST = 256
# Names of numbers that must not be zero (behind `_NOT`: that must be), and (as ints) results whose
# gradient has to be there.
_NOT = "not "
_Terms = frozenset[frozenset[Any]]
_ALWAYS: _Terms = frozenset([frozenset()])
_NEVER: _Terms = frozenset()


INNER = "one changes a result that others depend on"


class _NotKnown(CannotTrace):
    """Why the backward of parts cannot be a graph."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"parts that data skip: {reason}", "parts")


# Most nodes of a part depend on the same.
@functools.lru_cache(maxsize=4096)
def _least(terms: _Terms) -> _Terms:
    """The terms without those that others imply."""
    kept: list[frozenset[Any]] = []
    pending = sorted(terms, key=len, reverse=True)
    while pending:
        term = pending.pop()
        if any(one <= term for one in kept) or any(_inverse(one) in term for one in term):
            continue
        met = [*kept]
        kept = [one for one in kept if not term <= one] + [term]
        # "a and b, or a and not b" is a.
        for other in met:
            apart = term ^ other
            if len(apart) == 2 and _inverse(next(iter(apart))) in apart:
                pending.append(term & other)
    if len(kept) > _MOST:
        raise _NotKnown("too many ways")
    return frozenset(kept)


def _inverse(name: Any) -> Any:
    """The name of the opposite of a condition on a number."""
    if type(name) is int:
        return None
    return name.removeprefix(_NOT) if name.startswith(_NOT) else _NOT + name


def _and(terms: _Terms, symbols: Iterable[Any]) -> _Terms:
    return _least(frozenset(term.union(symbols) for term in terms))


def _of_data(terms: _Terms) -> _Terms:
    """The terms where all results have a gradient."""
    known = (frozenset(one for one in term if type(one) is not int) for term in terms)
    return _least(frozenset(known))


def _ordered(terms: _Terms) -> When:
    def name(one: Any) -> tuple[int, Any]:
        return (0, one) if type(one) is int else (len(one), one)

    found = [tuple(sorted(term, key=name)) for term in terms]
    return tuple(sorted(found, key=lambda term: [name(one) for one in term]))


class Conditions:
    """When the nodes of autograd's graph behind some results run."""

    def __init__(
        self, results: Sequence[Any], spans: Sequence[Span], inner: Iterable[tuple[int, Any]]
    ) -> None:
        """`inner`: the results that other ones depend on, by position, and their nodes."""
        self.results = results
        self.inner: dict[Any, list[int]] = {}
        for at, function in inner:
            self.inner.setdefault(function, []).append(at)
        self.functions = [
            one for one in nodes_behind(r.grad_fn for r in results) if _leaf(one) is None
        ]
        self.inside = places(self.functions, spans)
        self.spans = spans
        self.symbols: dict[str, Any] = {span.taken.name: span.taken for span in spans}
        # Such a number is the truth of a tensor, 0 or 1.
        self.symbols |= {_NOT + span.taken.name: sub(1, span.taken) for span in spans}
        self.needed: dict[Any, _Terms] = {}  # for each node what its gradients depend on
        # the same where what comes before an inner result depends on its gradient alone
        self.parted: dict[Any, _Terms] = {}
        self._existing: dict[Any, When] = {}
        self._check(spans)

    def _check(self, spans: Sequence[Span]) -> None:
        """Raise where a gradient enters a part by another way than what the part wrote."""
        edges = [(None, edge_of(one)) for one in self.results]
        edges += [(one, edge) for one in self.functions for edge in one.next_functions]
        for function, (to, number) in edges:
            mine = self.inside.get(function, ())
            for span in self.inside.get(to, ()):
                written = (to, number) in span.changed
                if written == (span in mine):
                    raise _NotKnown("a value that one computes and another one reads")

    def observed(self) -> tuple[Any, Any]:
        """The hooks (see `watched`) of a run that finds out what runs when."""
        for at, one in enumerate(self.results):
            own = frozenset([frozenset([at])])
            self._need(one.grad_fn, own, own)
        return self._begun, self._done

    def _need(self, function: Any, terms: _Terms, parted: _Terms) -> None:
        self.needed[function] = _least(self.needed.get(function, _NEVER) | terms)
        self.parted[function] = _least(self.parted.get(function, _NEVER) | parted)

    def _begun(self, function: Any, _gradients: Sequence[Any]) -> None:
        if function in self.inner:
            same = [at for at, one in enumerate(self.results) if one.grad_fn is function]
            own = [frozenset([at]) for at in {*same, *self.inner[function]}]
            self.parted[function] = frozenset(own)
            if self.exists(function) != ALWAYS or self.inside[function]:
                raise _NotKnown(INNER)
        terms = self.needed.get(function, _NEVER), self.parted.get(function, _NEVER)
        for span in self.inside[function]:
            for edge, before in span.changed.items():
                if edge[0] is function and before is not None:
                    past = [_NOT + span.taken.name] if edge in span.replaced else []
                    self._need(before[0], *(_and(one, past) for one in terms))

    def _done(self, function: Any, made: Sequence[Any]) -> None:
        symbols = [span.taken.name for span in self.inside[function]]
        terms = self.runs(function), _and(self.parted.get(function, _NEVER), symbols)
        past = self.past(function)
        for edge, one in zip(function.next_functions, made, strict=True):
            if edge[0] is not None and one is not None and (past is None or edge != past[1]):
                self._need(edge[0], *terms)

    def past(self, function: Any) -> tuple[Span, Edge] | None:
        """For a node that overwrites a whole tensor in a part (`Span.replaced`): that part, and
        what made the tensor before."""
        for span in self.inside.get(function, ()):
            for edge in span.replaced:
                before = span.changed.get(edge) if edge[0] is function else None
                if before is not None:
                    return span, before
        return None

    def runs(self, function: Any) -> _Terms:
        """When a node runs."""
        symbols = [span.taken.name for span in self.inside.get(function, ())]
        terms = self.needed.get(function, _NEVER)
        return _and(terms, symbols) if symbols else terms

    def exists(self, function: Any) -> When:
        """When a node is given gradients, if all results have one."""
        found = self._existing.get(function)
        if found is None:
            found = _ordered(_of_data(self.needed.get(function, _NEVER)))
            self._existing[function] = found
        return found

    def block(self, function: Any) -> When:
        """When a node runs, if all results have a gradient."""
        return _ordered(_of_data(self.runs(function)))

    def told(self, joint: Joint, leaves: Sequence[Any], edges: Iterable[Edge]) -> Joint:
        """The backward that knows when gradients and histories exist."""
        return replace(
            joint,
            when=self.of_leaves(leaves, False),
            parted=self.of_leaves(leaves, True),
            tracked=self.tracked(edges),
        )

    def of_leaves(self, leaves: Sequence[Any], parted: bool) -> tuple[When, ...]:
        """For each leaf when it has a gradient; results, by position, must have one, too."""
        found = self.parted if parted else self.needed
        known = {id(_leaf(one)): terms for one, terms in found.items()}
        terms = (known.get(id(leaf), _NEVER) for leaf in leaves)
        return tuple(self._told(_ordered(one)) for one in terms)

    def _told(self, when: When) -> When:
        return tuple(tuple(self.symbols.get(one, one) for one in term) for term in when)

    def number(self, when: When) -> Any:
        """A number that is not zero if the condition holds."""
        total: Any = 0
        for term in when:
            product: Any = 1
            for name in term:
                product = mul(product, self.symbols[name])
            total = add(total, product)
        return total

    def tracked(self, edges: Iterable[Edge]) -> tuple[When, ...]:
        """For each result, by its place in autograd's graph, when it has a history."""
        known: dict[Any, _Terms] = {}

        def of(edge: Edge | None) -> _Terms:
            if edge is None or edge[0] is None:
                return frozenset()
            if _leaf(edge[0]) is not None:
                return _ALWAYS
            function = edge[0]
            terms = known.get(function, _NEVER)
            for span in self.inside.get(function, ()):
                if span.changed.get(edge) is not None:
                    terms |= of(span.changed[edge])
            return _least(terms)

        for function in sorted(self.functions, key=lambda one: one._sequence_nr()):
            terms = _least(_NEVER.union(*map(of, function.next_functions)))
            symbols = [span.taken.name for span in self.inside[function]]
            known[function] = _and(terms, symbols) if terms else terms
        return tuple(self._told(_ordered(of(edge))) for edge in edges)


def _fits(one: Any, other: Any) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _leaf(function: Any) -> Any:
    return getattr(function, "variable", None)


@dataclass(slots=True)
class _Block:
    """Nodes of the same parts with one condition, nodes with others that come before them, and
    behind them."""

    when: When
    inside: tuple[Span, ...]
    nodes: list[Node] = field(default_factory=list)
    before: list[tuple[When, list[Node]]] = field(default_factory=list)
    after: list[tuple[When, list[Node]]] = field(default_factory=list)

    def put(self, when: When, nodes: list[Node]) -> None:
        """Add nodes at the end."""
        behind = {one for _, some in self.after for one in some}
        waits = any(not behind.isdisjoint(uses(node)) for node in nodes) if behind else False
        if when == self.when and not waits:
            self.nodes += nodes
        else:
            self.after.append((when, nodes))


class Recorded:
    """The nodes of a backward that autograd's engine runs over ghosts, in parts."""

    def __init__(self, tracer: Tracer, conditions: Conditions, tangents: Sequence[Node]) -> None:
        self.recorder, self.conditions = tracer._recorder, conditions
        self.at = len(self.recorder.nodes)
        self.blocks = [_Block(ALWAYS, ())]
        self.arrived: dict[Edge, Any] = {}  # the gradients of what parts have written
        self.passed: set[tuple[int, Edge]] = set()
        # for each edge the sum of the gradients so far, and whether nothing else has it
        self.given: dict[Edge, tuple[Node, bool]] = {}
        for one, node in zip(conditions.results, tangents, strict=False):
            self.given[edge_of(one)] = node, False
        self.added: list[Edge] = []  # edges to which the engine now adds a gradient
        self.written = {edge for span in conditions.spans for edge in span.changed}

    def begun(self, function: Any, gradients: Sequence[Any]) -> None:
        self._sums()
        when = self.conditions.block(function)
        inside = self.conditions.inside[function]
        if (when, inside) != (self.blocks[-1].when, self.blocks[-1].inside):
            self.blocks.append(_Block(when, inside))
        for number, gradient in enumerate(gradients):
            if (function, number) in self.written:
                self.arrived[function, number] = gradient

    def done(self, function: Any, made: Sequence[Any]) -> Sequence[Any]:
        block = self.blocks[-1]
        block.nodes += self._new()
        found = []
        past = self.conditions.past(function)
        for edge, one in zip(function.next_functions, made, strict=True):
            if one is None or edge[0] is None:
                found.append(one)
                continue
            if past is not None and edge == past[1]:
                value, when = self._past(function, past[0], edge)
            else:
                value, when = self._passing(function, edge, one, block)
            wanted = self.conditions.exists(edge[0])
            if when != wanted:
                value = self._widened(edge, value, when, wanted, block)
            if value is not None and edge in self.given:
                self.added.append(edge)
            elif value is not None:
                self.given[edge] = value._node, when != wanted
            found.append(value)
        return found

    def nodes(self) -> list[Node]:
        """All nodes, with the marks of parts."""
        self._sums()
        for span in self.conditions.spans:
            for after, before in span.changed.items():
                ran = after in self.arrived and self.arrived[after] is not None
                if before is not None and ran and (id(span), before) not in self.passed:
                    raise _NotKnown("one overwrites a tensor")
        found: list[Node] = []
        now: When = ALWAYS
        for when, nodes in self._groups():
            if not nodes:
                continue
            if when != now:
                found += [Node("call", end_only_if)] if now != ALWAYS else []
                mark = Node("call", only_if, (self.conditions.number(when),))
                found += [mark] if when != ALWAYS else []
                now = when
            found += nodes
        return found + ([Node("call", end_only_if)] if now != ALWAYS else [])

    def _groups(self) -> Iterable[tuple[When, list[Node]]]:
        for block in self.blocks:
            yield from block.before
            yield block.when, block.nodes
            yield from block.after

    def _new(self) -> list[Node]:
        made = self.recorder.nodes[self.at :]
        self.at = len(self.recorder.nodes)
        return made

    def _sums(self) -> None:
        """Take the sums that the engine has made since a node was done."""
        made, block = self._new(), self.blocks[-1]
        if len(made) != len(self.added):
            raise _NotKnown("a hook on a gradient")
        for edge, node in zip(self.added, made, strict=True):
            block.put(self.conditions.exists(edge[0]), [node])
            # Parts of a sum before an inner result stay separate.
            self.given[edge] = node, edge[0] not in self.conditions.inner
        self.added = []

    def _passing(self, function: Any, edge: Edge, one: Any, block: _Block) -> tuple[Any, When]:
        """A gradient, with that which comes in its place where the parts that it leaves did not
        run; and when it exists."""
        when = block.when
        outside = self.conditions.inside.get(edge[0], ())
        for span in reversed(self.conditions.inside[function]):
            if span in outside:
                break
            after = next((new for new, old in span.changed.items() if old == edge), None)
            behind = None if after is None else self.arrived.get(after)
            if after is None or behind is None or (id(span), edge) in self.passed:
                continue
            self.passed.add((id(span), edge))
            existing = self.conditions.exists(after[0])
            if behind._node is one._node:
                when = existing
                continue
            copy = self.recorder.value(aten.clone.default, (behind._node,), {})
            block.before.append((existing, self._new()))
            self._write(block, when, aten.copy_.default, copy, one._node)
            one, when = self._ghost(copy), existing
        return one, when

    def _past(self, function: Any, span: Span, edge: Edge) -> tuple[Any, When]:
        """The gradient of a tensor that a part overwrites, if the part did not run."""
        self.passed.add((id(span), edge))
        terms = _and(self.conditions.needed[function], [_NOT + span.taken.name])
        return self.arrived[function, 0], _ordered(_of_data(terms))

    def _widened(self, edge: Edge, one: Any, when: When, wanted: When, block: _Block) -> Any:
        """A gradient where one has to exist more often: it is added to zeros. None if it has been
        added to what is there."""
        known, own = self.given.get(edge, (None, False))
        meta = one._node.meta
        if known is not None and own and edge not in self.added and _fits(known.meta, meta):
            self._write(block, when, aten.add_.Tensor, known, one._node)
            return None
        options = {"dtype": meta.dtype, "device": meta.device}
        zeros = self.recorder.value(aten.zeros.default, (meta.shape,), options)
        block.before.append((wanted, self._new()))
        self._write(block, when, aten.copy_.default, zeros, one._node)
        return self._ghost(zeros)

    def _write(self, block: _Block, when: When, op: Any, target: Node, value: Node) -> None:
        self.recorder.node(op, (target, value), {}, target.meta, target)
        block.put(when, self._new())

    def _ghost(self, node: Node) -> Ghost:
        return make_ghost(self.recorder.owner, node, node.meta, Store(fresh=True))


def watched(conditions: Conditions, begun: Any, done: Any) -> list[Any]:
    """Hooks on all nodes of autograd's graph: `begun(node, gradients)` before one runs, and
    `done(node, gradients that it made)` after it, which may give others."""
    hooks = []
    for one in conditions.functions:
        hooks.append(put_on(one.register_prehook, partial(_begins, begun, one)))
        hooks.append(put_on(one.register_hook, partial(_ends, done, one)))
    return hooks


def _begins(begun: Any, function: Any, gradients: Any) -> None:
    begun(function, gradients)


def _ends(done: Any, function: Any, made: Any, _gradients: Any) -> Any:
    found = done(function, made)
    return None if found is None else tuple(found)
