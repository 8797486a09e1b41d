"""Nodes that a second derivative passes through, and what it frees.

In eager mode the history of a gradient leads through nodes of the forward that have computed what
the backward has saved. A backward of the gradient runs these nodes again, frees what they have
saved, and raises if an earlier backward has freed it. The program of the gradient computes what
they compute by itself. So `Passed` notes in the region's node which of eager's nodes have been
freed, by the bits of `ir.trace.gradient_history.History`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from ...ir.own_hooks import put_on
from ...ir.trace.gradient_history import History
from .. import _native
from .freed_graph import used_up
from .lasting import ALL, keeps_graph
from .result_nodes import ResultBackward

_will_run = torch._C._will_engine_execute_node  # type: ignore[attr-defined]
_LEAF = torch._C._functions.AccumulateGrad  # type: ignore[attr-defined]
_task = torch._C._current_graph_task_id  # type: ignore[attr-defined]
# whether the running backward takes all gradients, not those of chosen tensors
takes_all = torch.autograd._is_checkpoint_valid  # type: ignore[attr-defined]
next_number = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


def needed_inputs(
    node: Any, joint: Any, edges: tuple[Any, Any] | None = None
) -> Callable[[int], bool]:
    """A predicate: whether the running backward uses the gradient of an input of `joint`, the
    program of `node`. `edges`: those of `edges_of(node)`, where autograd may have dropped the node.

    The node keeps the answers of one backward.
    """
    functions, asked = edges or edges_of(node)

    def is_needed(at: int) -> bool:
        task, (of, known) = _task(), node.answers
        if of != task:
            known = {}
            node.answers = task, known
        found = known.get(at)
        if found is None:
            found = known[at] = look(at)
        return found

    def look(at: int) -> bool:
        edge = joint.edge_of(at)
        behind = functions[edge][0]
        if behind is None or not asked[edge]:
            return False
        behind = joint.behind(behind, at)
        return _leaf_runs(behind) if type(behind) is _LEAF else bool(_will_run(behind))

    return is_needed


class _LeafRuns:
    """Whether the running backward reaches the node of a leaf.

    torch answers for a leaf whose gradient is requested by name by raising, which takes longer than
    a small operator. The native part reads the engine's plan of the backward. It is compared with
    torch until both answers have been seen a few times.
    """

    def __init__(self) -> None:
        # how often each answer is compared
        self._left: dict[bool | None, int] = {True: 3, False: 3}
        self._read = _native.engine_runs

    def __call__(self, function: Any) -> bool:
        found = self._read(function)
        if not self._left.get(found, 1):
            return bool(found)
        try:
            wanted = bool(_will_run(function))
        # a leaf whose gradient is requested by name
        except RuntimeError:
            wanted = True
        if found == wanted:
            self._left[found] -= 1
        elif found is not None:
            self._read = _unknown
        return wanted


def _unknown(_function: Any) -> None:
    """What takes the place of the native part where it disagrees with torch."""


_leaf_runs = _LeafRuns()


def edges_of(node: Any) -> tuple[Any, Any]:
    """The nodes that a node leads to, and whether each input needs a gradient."""
    return node.next_functions, node.needs_input_grad


def needed(node: Any, joint: Any) -> int:
    """The inputs and results, as bits as in `Plan.frees`, whose gradients the running backward
    uses. `joint`: the program of the node."""
    if takes_all():
        return ALL
    plan = joint.plan
    some = list(filter(needed_inputs(node, joint), plan.wanted))
    if some and len(some) == len(plan.wanted):
        return ALL
    own = node.asked[1] if node.asked[0] == _task() else 0
    if not some and not plan.has_own_nodes:
        own = ALL
    return sum(1 << at for at in some) | own << plan.n_tensors


def ends_at(node: Any, joint: Any) -> bool:
    """Whether the node, which is that of the results, runs only as they are inputs of the backward,
    which is one for chosen tensors: the engine uses no gradient behind them."""
    if joint.plan.has_own_nodes:
        return False
    return not any(map(needed_inputs(node, joint), joint.plan.wanted))


class Passed:
    """What a region's node notes of eager's nodes.

    history  what gradients that this node computes lead to, once it has been differentiated with a
             history; so which of eager's nodes it represents
    earlier  if its results are gradients: the nodes that they are gradients of, the first one first
    behind   for each of its results, the nodes that this one leads to, of those that the `earlier`
             ones represent, as bits of `past`
    edges    those of the node, from when it was differentiated with a history: torch 2.11 gives
             none once autograd has dropped the node
    """

    __slots__ = (
        *("_before", "_freed", "_needed", "_task"),
        *("behind", "earlier", "edges", "history", "past"),
    )

    def __init__(self, earlier: Sequence[Any], past: History | None) -> None:
        self.earlier, self.past = earlier, past
        self.behind: dict[int, int] = {}
        self.history: History | None = None
        self.edges: tuple[Any, Any] | None = None
        # what is freed, also before the backward `_task`
        self._freed = self._before = 0
        self._task = -1
        self._needed: tuple[History | None, int] = None, 0

    def run(self, node: Any, gradients: Sequence[Any]) -> None:
        """The node runs, with these gradients of its results."""
        used = 0
        for at, nodes in self.behind.items():
            if gradients[at] is not None:
                used |= nodes
        if used and self.past is not None:
            _pass(self.earlier, used, self.past)
        if self.history is not None:
            used = 0
            for nodes, at in zip(self.history.results, node.joint.plan.results, strict=True):
                if gradients[at] is not None:
                    used |= nodes
            self._use(used & self.history.runs[-1] & self.needed(node, self.history))

    def passes(self, node: Any, nodes: int) -> None:
        """A backward passes through these of eager's nodes, though maybe not through `node`."""
        self._use(nodes)
        history = self.history
        if not nodes or history is None or keeps_graph() or _will_run(node):
            return
        # no backward can use what the node has saved
        if all(bits & self._freed for bits in history.points.values()) and _exists(node):
            node.drop()

    def _use(self, nodes: int) -> None:
        self._enter()
        if nodes & self._before:
            raise used_up()
        if not keeps_graph():
            self._freed |= nodes

    def _enter(self) -> None:
        """Note the running backward."""
        task = _task()
        if self._task != task:
            self._task, self._before, self._needed = task, self._freed, (None, 0)

    def needed(self, node: Any, history: History) -> int:
        """The nodes that lead to inputs whose gradients the running backward uses."""
        self._enter()
        of, found = self._needed
        if of is history:
            return found
        joint, found = node.joint, 0
        # not kept: it refers to the node, which has this
        is_needed = needed_inputs(node, joint, self.edges)
        for at, nodes in history.points.items():
            further = nodes & ~found and at in joint.plan.wanted
            if further and is_needed(at):
                found |= nodes
        self._needed = history, found
        return found


def _exists(node: Any) -> bool:
    """Whether autograd still has this node: its Python object may live longer, and must not be
    asked to free anything (torch 2.11 crashes)."""
    try:
        node.name()
    except RuntimeError:
        return False
    return True


def _pass(nodes: Sequence[Any], used: int, history: History) -> None:
    used &= nodes[-1].passed.needed(nodes[-1], history)
    for node, own in zip(nodes, history.runs, strict=True):
        node.passed.passes(node, used & own)


def follow(node: Any, gradients: Sequence[Any], history: History, begin: int) -> None:
    """Let backwards of these gradients, which `node` has computed, pass through the nodes that they
    pass through in eager mode. `begin`: `next_number()` before a program has computed them."""
    if node.passed is None:
        node.passed = Passed((), None)
    node.passed.history, node.passed.edges = history, edges_of(node)
    nodes = *node.passed.earlier, node
    for gradient, behind in zip(gradients, history.gradients, strict=True):
        if gradient is None or gradient.grad_fn is None:
            continue
        edge = _computed_by(gradient.grad_fn, gradient.output_nr, begin)
        if edge is not None:
            function, number = edge
            if function.passed is None:
                function.passed = Passed(nodes, history)
            function.passed.behind[number] = function.passed.behind.get(number, 0) | behind
        elif behind:
            hook = partial(_hook, nodes, behind, history, gradient.output_nr)
            put_on(gradient.grad_fn.register_prehook, hook)


def _computed_by(function: Any, number: int, begin: int) -> tuple[Any, int] | None:
    """The new region's node that has computed a gradient, and the gradient's number among its
    results; views may be between them."""
    while function is not None and function._sequence_nr() >= begin:
        if isinstance(function, ResultBackward):
            function, number = function.next_functions[number]
            continue
        if isinstance(function, BackwardCFunction):
            return (function, number) if hasattr(function, "joint") else None
        behind = function.next_functions
        function, number = behind[0] if len(behind) == 1 else (None, 0)
    return None


def _hook(
    nodes: Sequence[Any], behind: int, history: History, number: int, gradients: Sequence[Any]
) -> None:
    if gradients[number] is not None:
        _pass(nodes, behind, history)
