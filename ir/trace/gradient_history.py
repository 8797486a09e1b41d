"""What the gradients of a region lead back to.

In eager mode the history of a gradient leads to the inputs of the region, to the gradients that
arrived, and to results that the backward has saved: `exp` saves its result, so a second derivative
goes through the result, its hooks and its node. On the way it uses other nodes of the forward, and
frees what they have saved. The functions here give gradients that history where a region's calls
run again:

    points = entered(inputs, results, ...)            # tensors like the inputs
    gradients = differentiated(calls(points), ...)    # with a history, which leads to `results` too
    found = history(gradients, ...)                   # which results, and which nodes
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter
from typing import Any

import torch

from ..dataclass import dataclass
from ..own_hooks import put_on
from .inner_results import edge_of, nodes_behind, saves
from .output_views import Found, pieces_of

_task = torch._C._current_graph_task_id  # type: ignore[attr-defined]
_SAME = torch.ops.aten._unsafe_view.default  # the same memory, but no view for autograd
Tensors = tuple[torch.Tensor | None, ...]
Edge = tuple[Any, int]  # a node of autograd and the number of its output
# Results that are known from an earlier run, by position, each with the point whose node gives it
# its gradient.
Earlier = tuple[tuple[int, int], ...]


class _Entered(torch.autograd.Function):
    """An input as it is. Its node runs after the nodes of the calls that lead to it, and gives the
    results those gradients that have been kept from the nodes which compute them again."""

    @staticmethod
    def forward(ctx: Any, one: torch.Tensor, *results: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.n_results, ctx.met = len(results), {}
        return _SAME(one, one.shape)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        met = ctx.met.pop(_task(), {})
        return (gradient, *[met.get(at) for at in range(ctx.n_results)])


def entered(
    inputs: Tensors, results: tuple[torch.Tensor, ...] = (), earlier: Earlier = ()
) -> Tensors:
    """Tensors like the inputs, which lead back to them and to the results of an earlier run."""
    behind: dict[int, list[torch.Tensor]] = {}
    for result, (_, at) in zip(results, earlier, strict=True):
        behind.setdefault(at, []).append(result)
    return tuple([
        _Entered.apply(one, *behind.get(at, ()))  # type: ignore[no-untyped-call]
        if one is not None and one.requires_grad
        else one
        for at, one in enumerate(inputs)
    ])  # fmt: skip


def differentiated(
    outputs: tuple[Any, ...],
    given: tuple[Any, ...],
    points: Tensors,
    wanted: tuple[int, ...],
    tangents: Tensors,
    found: tuple[Found, ...],
    earlier: Earlier = (),
    taped: bool = True,
) -> tuple[Any, ...]:
    """The gradients at the `wanted` of the `points`, with a history if `taped`. Graphs record calls
    of this function.

    outputs, given  the results of the calls, and their inputs
    points          what `entered` gave
    found           how to find what is differentiated among `outputs` and `given`
    tangents        its gradients; None for a missing one
    earlier         what of it `entered` was given from an earlier run: the history of the gradients
                    leads to the tensors of that run in its place
    """
    pieces = pieces_of(found, outputs, given)
    pairs = [pair for pair in zip(pieces, tangents, strict=True) if pair[1] is not None]
    # As torch.autograd.grad, without its check of shapes, which imports sympy (a second).
    gradients = torch.autograd.graph._engine_run_backward(
        tuple([piece for piece, _ in pairs]),
        tuple([tangent for _, tangent in pairs]),
        True,
        taped,
        tuple([points[at] for at in wanted]),
        True,
        accumulate_grad=False,
    )
    for at, (node, number) in _receivers(points, earlier).items():
        function, output = edge_of(pieces[at])
        put_on(function.register_prehook, _kept_for(node, number, output))
    return gradients  # type: ignore[return-value]


def _receivers(points: Sequence[Any], earlier: Earlier) -> dict[int, tuple[Any, int]]:
    """For each result that is known from an earlier run, the node of `entered` that gives it its
    gradient, and the result's number there."""
    found: dict[int, tuple[Any, int]] = {}
    numbers: dict[int, int] = {}
    for at, point in earlier:
        numbers[point] = numbers.get(point, -1) + 1
        found[at] = points[point].grad_fn, numbers[point]
    return found


def _kept_for(node: Any, at: int, number: int) -> Any:
    """A hook that keeps the gradient of an output for a node of `entered`."""

    def keep(gradients: Sequence[Any]) -> Any:
        if gradients[number] is None:
            return None
        node.met.setdefault(_task(), {})[at] = gradients[number]
        return *gradients[:number], None, *gradients[number + 1 :]

    return keep


@dataclass(frozen=True, slots=True)
class History:
    """What the gradients lead to, as sets of bits. A bit is a node of autograd that has saved a
    value: first the nodes of the first run of calls that was differentiated, in an order that
    depends on these calls alone, then those of the next one.

    gradients  for each gradient, the nodes behind it, but not those behind a saved result
    results    for each result of the last run, the nodes behind it
    points     for each point, the nodes that lead to it; the point with most of them is first
    runs       for each run, its nodes
    saved      for each gradient, the saved results of the last run (bits of positions) behind it
    """

    gradients: tuple[int, ...]
    results: tuple[int, ...]
    points: dict[int, int]
    runs: tuple[int, ...]
    saved: tuple[int, ...]

    def reached(self) -> Earlier:
        """The saved results behind gradients, each with a point behind it."""
        ways, found = _union(0, self.saved), []
        for at, nodes in enumerate(self.results):
            points = [point for point, bits in self.points.items() if bits & nodes]
            if ways >> at & 1 and points:
                found.append((at, points[0]))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of calls that was differentiated: what was, what `entered` gave before, and what is
    known from an earlier run."""

    results: Sequence[Any]
    points: Sequence[Any]
    earlier: Earlier


def history(
    gradients: Sequence[torch.Tensor | None], runs: Sequence[Run], saved: Iterable[int]
) -> History:
    """The History of the gradients of the last run. `saved`: the positions of those of its results
    that autograd has saved."""
    return _Search(runs).found(gradients, saved)


class _Search:
    """The search. `ends`: the edges of the points; `elsewhere`: those of the known results of
    runs before the last one, and the edges that gradients follow in their place."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.last = runs[-1]
        points = enumerate(self.last.points)
        self.ends = {edge_of(one): at for at, one in points if one is not None and one.grad_fn}
        self.elsewhere: dict[Edge, Edge] = {}
        for run in runs[:-1]:
            for at, (node, number) in _receivers(run.points, run.earlier).items():
                self.elsewhere[edge_of(run.results[at])] = node.next_functions[1 + number]
        # a bit for each node
        self.bits: dict[Any, int] = {}
        seen = {function for function, _ in self.ends}
        self.levels: list[int] = []
        for run in runs:
            first, before = len(self.bits), set(seen)
            for function in nodes_behind([one.grad_fn for one in run.results], before):
                seen.add(function)
                if function not in before and saves(function):
                    self.bits[function] = 1 << len(self.bits)
            self.levels.append((1 << len(self.bits)) - (1 << first))

    def found(self, gradients: Sequence[torch.Tensor | None], saved: Iterable[int]) -> History:
        starts = [None if one is None else edge_of(one) for one in gradients]
        results = list(map(edge_of, self.last.results))
        order = self._order([*starts, *results])
        known = {results[at]: 1 << at for at in saved}
        whole, parted, ways = dict[Edge, int](), dict[Edge, int](), dict[Edge, int]()
        for edge in reversed(order):
            own, behind = self.bits.get(edge[0], 0), self._behind(edge)
            whole[edge] = _union(own, (whole[one] for one in behind))
            parted[edge] = 0 if edge in known else _union(own, (parted[one] for one in behind))
            ways[edge] = known.get(edge) or _union(0, (ways[one] for one in behind))
        above: dict[Edge, int] = {}
        for edge in order:
            mine = above.get(edge, 0) | self.bits.get(edge[0], 0)
            for one in self._behind(edge):
                above[one] = above.get(one, 0) | mine
        points = [(at, above.get(edge, 0)) for edge, at in self.ends.items()]
        return History(
            tuple(0 if one is None else parted.get(one, 0) for one in starts),
            tuple(whole.get(one, 0) for one in results),
            dict(sorted(points, key=lambda one: -one[1].bit_count())),
            tuple(self.levels),
            tuple(0 if one is None else ways.get(one, 0) for one in starts),
        )

    def _order(self, starts: Iterable[Edge | None]) -> list[Edge]:
        """The edges behind these, each before those behind it."""
        sorter = TopologicalSorter[Edge]()
        pending = [one for one in starts if one is not None and one[0] is not None]
        seen = set(pending)
        while pending:
            edge = pending.pop()
            sorter.add(edge)
            for one in self._behind(edge):
                sorter.add(one, edge)
                if one not in seen:
                    seen.add(one)
                    pending.append(one)
        return list(sorter.static_order())

    def _behind(self, edge: Edge) -> Sequence[Edge]:
        if edge in self.ends:
            return ()
        if edge in self.elsewhere:
            return (self.elsewhere[edge],)
        function, _ = edge
        found = getattr(function, "next_functions", ())
        if type(function) is _Entered._backward_cls:  # type: ignore[attr-defined]
            found = found[:1]
        return [one for one in found if one[0] is not None]


def _union(own: int, others: Iterable[int]) -> int:
    return functools.reduce(operator.or_, others, own)
