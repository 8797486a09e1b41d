"""The rewriter: how a pass walks a graph, and the tables of rules.

A rule gets a node (its operands already rewritten) and returns a node to use instead, or None. The
contract: the replacement has the same shape, strides, dtype and the same values to the last bit,
including nan payloads, infinities and the sign of zero. Decompositions are the exception: they
compute as eager's own kernel does. `Rewriter` refuses a visible replacement: other metadata, memory
that is returned or written, an output that would become the same tensor as another. Rules only
remove nodes, or replace an operator by ones that no rule turns back, so one walk in order is enough
and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..errors import NoRule
from ..graph.effects import Facts, facts_of, operands, root
from ..graph.interpreter import substitute
from ..graph.nodes import Graph, Meta, Node, meta_args
from ..graph.schema import plan_of
from ..ops.infer import infer
from ..symbolic.expr import Undecided

aten = torch.ops.aten
Rule = Callable[["Rewriter", Node], Node | None]
Table = dict[Any, tuple[Rule, ...]]


class Rewriter:
    """One walk over a graph, which builds the next graph."""

    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.facts: Facts = facts_of(graph)
        self.nodes: list[Node] = []
        self.now: dict[Node, Node] = {}
        self._written: set[Node] = set()  # the new nodes of memory that the graph writes
        for node in graph.inputs:
            self.put(node, node)
        self.origin: Node | None = None
        self._made = 0

    def put(self, node: Node, new: Node) -> None:
        """Replace a node of the old graph."""
        self.now[node] = new
        if node in self.facts.written:
            self._written.add(new)

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        """A new node in place of the current one, with inferred metadata."""
        assert self.origin is not None
        plan = plan_of(op)
        meta = infer(plan, meta_args(args), {k: meta_args(v) for k, v in kwargs.items()})
        self._made += 1
        shared = plan.view_of if plan.kind == "view" else next(iter(plan.returned), None)
        alias = args[shared] if isinstance(shared, int) else None
        name = f"{self.origin.name}_{self._made}"
        node = Node("call", op, args, kwargs, meta, name, self.origin.where, alias)
        self.nodes.append(node)
        return node

    def constant(self, tensor: torch.Tensor, meta: Meta) -> Node:
        """A new constant that only the graph holds."""
        assert self.origin is not None
        self._made += 1
        name = f"{self.origin.name}_{self._made}"
        node = Node("constant", tensor, ("own",), {}, meta, name, self.origin.where)
        self.nodes.append(node)
        return node

    def result(self, call: Node, number: int) -> Node:
        """One result of a new call."""
        node = Node(
            "get", number, (call,), {}, call.meta[number], f"{call.name}_{number}", call.where
        )
        self.nodes.append(node)
        return node

    def carry(self, node: Node) -> Node:
        """The node over its current operands; the same node if none changed."""
        args = substitute(node.args, self.now.__getitem__, Node)
        kwargs = substitute(node.kwargs, self.now.__getitem__, Node)
        alias = None if node.alias is None else self.now[node.alias]
        if args == node.args and kwargs == node.kwargs and alias is node.alias:
            return node
        return Node(node.op, node.target, args, kwargs, node.meta, node.name, node.where, alias)

    def walk(self, rules: Callable[[Node], Sequence[Rule]]) -> Graph:
        """Try the rules for each node in order; the first allowed replacement is used."""
        for node in self.old.nodes:
            self.origin = node
            carried = self.carry(node)
            self.put(node, self._replacement(node, carried, rules(node)))
        return with_nodes(self.old, self.nodes, [self.now[node] for node in self.old.outputs])

    def _replacement(self, node: Node, carried: Node, rules: Sequence[Rule]) -> Node:
        mark = len(self.nodes)
        for rule in rules:
            instead = self.tried(rule, carried)
            if instead is not None and self._allowed(node, carried, instead, mark):
                return instead
            del self.nodes[mark:]
        self.nodes.append(carried)
        return carried

    def tried(self, rule: Callable[[Rewriter, Node], Any], carried: Node) -> Any:
        """The result of a rule, or None.

        With symbolic sizes a rule may ask for a comparison that only the trace could answer, or see
        as different two sizes that guards hold equal: then the node stays unchanged.
        """
        if not self.old.symbols:
            return rule(self, carried)
        try:
            return rule(self, carried)
        except (Undecided, RuntimeError, IndexError, ValueError, NoRule):
            return None

    def _allowed(self, node: Node, carried: Node, instead: Node, mark: int) -> bool:
        if instead.meta != node.meta:
            return False
        made = any(instead is one for one in self.nodes[mark:])
        if root(instead) is root(carried):
            # Another view of the same memory.
            return made or node not in self.facts.outputs
        if made and root(instead) in self.nodes[mark:]:
            return True  # new memory replaces new memory
        return self.facts.private(node) and self.steady(instead)

    def steady(self, node: Node) -> bool:
        """Whether no write in the whole graph changes the memory of a (new) node."""
        origin = root(node)
        if origin.op in ("input", "constant"):
            return origin.args == ("own",) or not self.facts.writes_outside
        return origin not in self._written


def with_nodes(graph: Graph, nodes: list[Node], outputs: list[Node]) -> Graph:
    """The same graph with another ATen level."""
    return replace(graph, nodes=nodes, outputs=outputs)


def apply_table(table: Table, results: Table | None = None) -> Callable[[Graph], Graph]:
    """A pass that tries the rules of `table` at each call, and of `results` at each get."""
    of_gets = results or {}

    def rules(node: Node) -> Sequence[Rule]:
        if node.op == "get":
            return of_gets.get(node.args[0].target, ())
        return table.get(node.target, ()) if node.op == "call" else ()

    return lambda graph: Rewriter(graph).walk(rules)


def split_results(
    graph: Graph,
    splits: Callable[[Node], bool],
    parts_of: Callable[[Rewriter, Node], tuple[Node, ...] | None],
) -> Graph:
    """The graph with calls of several results in parts, one node per result.

    `splits` selects calls over their current operands. A call stays unchanged if its parts (None:
    there are none) have other metadata than its results.
    """
    walk = Rewriter(graph)
    parts: dict[Node, tuple[Node, ...]] = {}
    for node in graph.nodes:
        walk.origin = node
        if node.op == "get" and node.args[0] in parts:
            walk.put(node, parts[node.args[0]][node.target])
            continue
        carried = walk.carry(node)
        walk.put(node, carried)
        if node.op == "call" and splits(carried):
            mark = len(walk.nodes)
            found = walk.tried(parts_of, carried) or ()
            if tuple(part.meta for part in found) == node.meta:
                parts[node] = found
                continue
            del walk.nodes[mark:]
        walk.nodes.append(carried)
    return with_nodes(graph, walk.nodes, [walk.now[node] for node in graph.outputs])


# -- algebra


def _number(node: Node, at: int, name: str) -> Any:
    return node.args[at] if len(node.args) > at else node.kwargs.get(name)


def _exactly(value: Any, wanted: float) -> bool:
    """Whether this is a Python number of that value, with the same sign if it is zero."""
    if type(value) not in (int, float) or value != wanted:
        return False
    return value != 0 or type(value) is int or _sign(value) == _sign(wanted)


def _sign(value: float) -> float:
    return torch.copysign(torch.ones(()), torch.tensor(float(value))).item()


def _neutral(wanted: float, at: int = 1) -> Rule:
    """op(x, neutral) is x."""

    def rule(_: Rewriter, node: Node) -> Node | None:
        scaled = node.kwargs.get("alpha", 1) != 1 and wanted != 0
        if len(node.args) <= at or scaled or not _exactly(node.args[at], wanted):
            return None
        first = node.args[0]
        return first if type(first) is Node else None

    return rule


def _neutral_sum(_: Rewriter, node: Node) -> Node | None:
    """x + 0 for integers, x - 0 for all, x + -0.0 for floats."""
    if len(node.args) < 2 or "alpha" in node.kwargs or type(node.args[0]) is not Node:
        return None
    x, number = node.args[:2]
    if node.meta.dtype is torch.bool or type(number) not in (int, float) or number != 0:
        return None
    minus = node.target in (aten.sub.Tensor, aten.sub.Scalar)
    negative = type(number) is float and _sign(number) < 0
    if node.meta.dtype.is_floating_point and minus == negative:
        return None  # -0.0 + 0 is 0.0, and so is -0.0 - -0.0
    return x


def _inverse_view(_: Rewriter, node: Node) -> Node | None:
    inner = node.args[0]
    return inner.args[0] if inner.op == "call" and inner.target is node.target else None


def _made_by(rewriter: Rewriter, node: Node, op: Any) -> bool:
    """Whether `op` computed the node and nothing writes to its memory."""
    return node.op == "call" and node.target is op and rewriter.steady(node)


def _inverse(rewriter: Rewriter, node: Node) -> Node | None:
    inner = node.args[0]
    return inner.args[0] if _made_by(rewriter, inner, node.target) else None


def _idempotent(rewriter: Rewriter, node: Node) -> Node | None:
    inner = node.args[0]
    return inner if _made_by(rewriter, inner, node.target) else None


def _first(_: Rewriter, node: Node) -> Node | None:
    return node.args[0]


def _undetached(rewriter: Rewriter, node: Node) -> Node | None:
    """Remove a detach, except in a result: that must be no view of the detached tensor."""
    return None if root(node) in rewriter.facts.returned else node.args[0]


def _view_of_view(rewriter: Rewriter, node: Node) -> Node | None:
    inner = node.args[0]
    if inner.op != "call" or inner.target not in (aten.view.default, aten._unsafe_view.default):
        return None
    if node.target is aten._unsafe_view.default:
        return None
    return rewriter.call(aten.view.default, inner.args[0], node.args[1])


def _permute_of_permute(rewriter: Rewriter, node: Node) -> Node | None:
    inner = node.args[0]
    if inner.op != "call" or inner.target is not aten.permute.default:
        return None
    rank = len(node.meta.shape)
    outer = [d % rank for d in node.args[1]]
    dims = tuple(inner.args[1][d] % rank for d in outer)
    if dims == tuple(range(rank)):
        return inner.args[0]
    return rewriter.call(aten.permute.default, inner.args[0], dims)


def _transpose_of_transpose(_: Rewriter, node: Node) -> Node | None:
    inner = node.args[0]
    if inner.op != "call" or inner.target is not node.target:
        return None
    rank = len(node.meta.shape)
    pairs = [{d % rank for d in one.args[1:3]} for one in (node, inner)] if rank else [0, 0]
    return inner.args[0] if pairs[0] == pairs[1] else None


def _there_and_back(rewriter: Rewriter, node: Node) -> Node | None:
    inner = node.args[0]
    if not _made_by(rewriter, inner, aten._to_copy.default):
        return None
    source = inner.args[0]
    if source.meta.dtype is not node.meta.dtype or source.meta.device != inner.meta.device:
        return None
    return source if (source.meta.dtype, inner.meta.dtype) in WIDENING else None


WIDENING = {
    (torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float32, torch.float64),
    (torch.bfloat16, torch.float64), (torch.float16, torch.float64), (torch.int32, torch.int64),
    (torch.int32, torch.float64), (torch.int16, torch.int32), (torch.int16, torch.int64),
    (torch.uint8, torch.int32), (torch.uint8, torch.int64), (torch.int8, torch.int32),
    (torch.int8, torch.int64), (torch.bool, torch.int64), (torch.bool, torch.float32),
}  # fmt: skip

ALGEBRA: Table = {
    aten.mul.Tensor: (_neutral(1),),  # x * 1 -> x
    aten.mul.Scalar: (_neutral(1),),  # x * 1 -> x
    aten.div.Tensor: (_neutral(1),),  # x / 1 -> x
    aten.div.Scalar: (_neutral(1),),  # x / 1 -> x
    aten.pow.Tensor_Scalar: (_neutral(1),),  # x ** 1 -> x
    aten.add.Tensor: (_neutral_sum,),  # i + 0 -> i, x + -0.0 -> x
    aten.add.Scalar: (_neutral_sum,),
    aten.sub.Tensor: (_neutral_sum,),  # x - 0 -> x
    aten.sub.Scalar: (_neutral_sum,),
    aten.neg.default: (_inverse,),  # -(-x) -> x
    aten.bitwise_not.default: (_inverse,),  # ~~x -> x
    aten.relu.default: (_idempotent,),  # relu(relu(x)) -> relu(x)
    aten.abs.default: (_idempotent,),  # | |x| | -> |x|
    aten.floor.default: (_idempotent,),  # floor(floor(x)) -> floor(x)
    aten.ceil.default: (_idempotent,),
    aten.trunc.default: (_idempotent,),
    aten.clone.default: (_first,),  # an unwritten copy that is not returned is the original
    aten._to_copy.default: (_first, _there_and_back),  # to the same dtype; f32 -> f64 -> f32
    aten.view.default: (_first, _view_of_view),  # view(x, its shape) -> x; view(view(x)) -> view(x)
    aten._unsafe_view.default: (_first,),
    aten.expand.default: (_first,),  # to the same shape
    aten.permute.default: (_permute_of_permute,),  # two permutations make one
    aten.t.default: (_inverse_view,),  # x.t().t() -> x
    aten.transpose.int: (_transpose_of_transpose,),
    aten.slice.Tensor: (_first,),  # x[:] -> x
    aten.detach.default: (_undetached,),
    aten.alias.default: (_first,),
}


# -- constants


def fold_rule(rewriter: Rewriter, node: Node) -> Node | None:
    """Evaluate an operator on constants that only the graph holds, into another constant."""
    if node.op != "call" or type(node.meta) is not Meta:
        return None
    plan = plan_of(node.target)
    if (
        plan.row is None
        or plan.kind == "write"
        or plan.random
        or plan.row.kind in ("create", "random")
    ):
        return None
    sources = [*operands(node.args), *operands(node.kwargs)]
    if not sources or any(one.op != "constant" or one.args != ("own",) for one in sources):
        return None
    if any(one.target.numel() > FOLD_LIMIT for one in sources) or _size(node.meta) > FOLD_LIMIT:
        return None
    assert rewriter.origin is not None
    if not rewriter.facts.private(rewriter.origin) and plan.kind != "view":
        return None
    args = substitute(node.args, lambda one: one.target, Node)
    kwargs = substitute(node.kwargs, lambda one: one.target, Node)
    with torch.no_grad():
        return rewriter.constant(node.target(*args, **kwargs), node.meta)


FOLD_LIMIT = 1024


def _size(meta: Meta) -> int:
    count = 1
    for size in meta.shape:
        count *= size
    return count
