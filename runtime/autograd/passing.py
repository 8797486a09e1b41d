"""Nodes that a second derivative passes through, and what it frees.

In eager mode the history of a gradient leads through nodes of the forward that have computed what
the backward has saved. A backward of the gradient runs these nodes again, frees what they have
saved, and raises if an earlier backward has freed it. The program of the gradient computes what
they compute by itself. So `Passed` notes in the region's node which of eager's nodes have been
freed, by the bits of `ir.trace.gradient_history.History`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ...ir.trace.gradient_history import History
from .freed_graph import used_up

_will_run = torch._C._will_engine_execute_node  # type: ignore[attr-defined]
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph  # type: ignore[attr-defined]
_task = torch._C._current_graph_task_id  # type: ignore[attr-defined]
next_number = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


def is_needed(node: Any, edge: int) -> bool:
    """Whether the running backward uses the gradient that `node` gives along this edge."""
    behind = node.next_functions[edge][0]
    if behind is None or not node.needs_input_grad[edge]:
        return False
    try:
        return bool(_will_run(behind))
    # a leaf whose gradient is requested by name
    except RuntimeError:
        return True


class Passed:
    """For the node of a region that has been differentiated with a history: the nodes of eager mode
    that it represents, and those that are freed. `earlier`: the regions' nodes whose gradients
    this one computes, the first one first."""

    __slots__ = ("_before", "_freed", "_task", "earlier", "history")

    def __init__(self, earlier: Sequence[Any]) -> None:
        self.earlier = earlier
        self.history: History | None = None
        # what is freed, also before the backward `_task`
        self._freed = self._before = 0
        self._task = -1

    def run(self, node: Any, gradients: Sequence[Any]) -> None:
        """The node runs, with these gradients of its results."""
        if self.history is not None:
            results, given = self.history.results, 0
            for number, at in enumerate(node.joint.plan.results):
                if gradients[at] is not None:
                    given |= results[number]
            self._use(given & self.history.runs[-1] & _needed(node, self.history))

    def passes(self, node: Any, nodes: int) -> None:
        """A backward passes through these of eager's nodes, though maybe not through `node`."""
        self._use(nodes)
        history = self.history
        if not nodes or history is None or _keeps_graph() or _will_run(node):
            return
        # no backward can use what the node has saved
        if all(bits & self._freed for bits in history.points.values()):
            node.drop()

    def _use(self, nodes: int) -> None:
        task = _task()
        if self._task != task:
            self._task, self._before = task, self._freed
        if nodes & self._before:
            raise used_up()
        if not _keeps_graph():
            self._freed |= nodes


def follow(node: Any, gradients: Sequence[Any], history: History, begin: int) -> None:
    """Let backwards of these gradients, which `node` has computed, pass through the nodes that they
    pass through in eager mode. `begin`: `next_number()` before they were computed."""
    if node.passed is None:
        node.passed = Passed(())
    node.passed.history = history
    nodes = *node.passed.earlier, node
    for gradient, behind in zip(gradients, history.gradients, strict=True):
        function = None if gradient is None else gradient.grad_fn
        if behind and function is not None:
            hook = partial(_pass, nodes, behind, history, gradient.output_nr)
            function.register_prehook(hook)
        _note(function, begin, nodes)


def _pass(
    nodes: Sequence[Any], behind: int, history: History, number: int, gradients: Sequence[Any]
) -> None:
    if gradients[number] is not None:
        used = behind & _needed(nodes[-1], history)
        for node, own in zip(nodes, history.runs, strict=True):
            node.passed.passes(node, used & own)


def _needed(node: Any, history: History) -> int:
    """The nodes that lead to inputs whose gradients the running backward uses."""
    joint, found = node.joint, 0
    for at, nodes in history.points.items():
        further = nodes & ~found and at in joint.plan.wanted
        if further and is_needed(node, joint.edge_of(at)):
            found |= nodes
    return found


def _note(function: Any, begin: int, nodes: Sequence[Any]) -> None:
    """Note the nodes of earlier orders in the node that has computed a gradient."""
    while function is not None and function._sequence_nr() >= begin:
        if hasattr(function, "joint"):
            if function.passed is None:
                function.passed = Passed(nodes)
            return
        function = function.next_functions[0][0]
