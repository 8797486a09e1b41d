"""The nodes of results that share saved values.

In eager mode the result of each operator has a node of its own, which runs only if the result has a
gradient. Hooks, `grad_fn` and gradient edges see it. Results of a compiled region that share saved
values share the node that has these (`ir.autograd.segments`). In front of it, each of them gets a
node that passes its gradient on. `runtime.autograd.joint_program` uses this module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

_takes_all = torch.autograd._is_checkpoint_valid  # type: ignore[attr-defined]
_task = torch._C._current_graph_task_id  # type: ignore[attr-defined]
_will_run = torch._C._will_engine_execute_node  # type: ignore[attr-defined]


class ResultBackward(BackwardCFunction):
    """The node of one result, or of the results of one operator: `own`, as bits, which are these
    `pieces`."""

    own: int
    pieces: Sequence[int]

    def apply(self, *gradients: Any) -> Any:
        """The gradients themselves."""
        if not _takes_all():
            self._tell(self.next_functions[0][0])
        return gradients

    def _tell(self, node: Any) -> None:
        """Tell the node behind this one if results may be inputs of the running backward: eager
        mode runs their operator, though nothing behind it may be needed."""
        held = [one for at in self.pieces if (one := node.seen[at]()) is not None]
        if not _will_run(node):
            node.joint.ends(node, self.own)
        # such a backward keeps their gradients
        elif any(one.retains_grad and one.grad_fn is self for one in held):
            task, before = _task(), node.asked
            node.asked = task, self.own | (before[1] if before[0] == task else 0)


def function_of(forward: Callable[..., Any], back: type) -> Any:
    """`torch.autograd.Function.apply` in C++, with this forward and nodes of this class."""
    made = type("Graft", (torch.autograd.Function,), {"forward": staticmethod(forward)})
    # This replaces the class that the metaclass made.
    made._backward_cls = back  # type: ignore[attr-defined]
    return torch._C._FunctionBase.__dict__["apply"].__get__(None, made)


def mark_dirty(node: Any, written: tuple[torch.Tensor, ...]) -> None:
    """Mark tensors as written by the forward of this node, at the versions that they have.

    Autograd increments the version of each such tensor once more, so it is decremented here.
    """
    node.dirty_tensors = written
    torch._C._autograd._unsafe_set_version_counter(  # type: ignore[attr-defined]
        written, tuple([tensor._version - 1 for tensor in written])
    )


def _function(name: str, own: int, at: Sequence[int], dirty: Sequence[bool]) -> Any:
    """The function that gives results a node of this name. `own`, `at`: see `ResultBackward`.
    `dirty`: for each whether it is an input that the region has written, which remains the same
    tensor. Of another one the memory and the version remain."""

    def forward(node: Any, *pieces: torch.Tensor) -> tuple[torch.Tensor, ...]:
        node.materialize_grads = False
        if any(dirty):
            mark_dirty(node, tuple([one for one, is_dirty in pairs(pieces) if is_dirty]))
        return tuple([one if is_dirty else one.detach() for one, is_dirty in pairs(pieces)])

    def pairs(pieces: Sequence[torch.Tensor]) -> Iterable[tuple[torch.Tensor, bool]]:
        return zip(pieces, dirty, strict=True)

    return function_of(forward, type(name, (ResultBackward,), {"own": own, "pieces": at}))


def with_nodes(
    names: Sequence[str], owners: Sequence[int], results: Sequence[int], dirty: Container[int]
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """The function that gives these results among the pieces nodes of these names.

    `owners`: for each of them the first one with the same node; `dirty`: the pieces that are inputs
    which the region writes."""
    steps = []
    for owner in dict.fromkeys(owners):
        numbers = [number for number, one in enumerate(owners) if one == owner]
        own, bits = [results[number] for number in numbers], sum(1 << number for number in numbers)
        steps.append((own, _function(names[owner], bits, own, [at in dirty for at in own])))

    def given(pieces: Sequence[Any]) -> tuple[Any, ...]:
        made, node = list(pieces), pieces[results[0]].grad_fn
        node.seen = {}
        for own, function in steps:
            parts = function(*[made[at] for at in own])
            for at, part in zip(own, parts, strict=True):
                made[at] = part
                node.seen[at] = weakref.ref(part)
        return tuple(made)

    return given


def as_seen(node: Any, at: int, saved: torch.Tensor) -> torch.Tensor:
    """The saved piece `at`, with the node that the program sees, if the program holds it."""
    held = node.seen.get(at)
    piece = None if held is None else held()
    function = None if piece is None else piece.grad_fn
    if isinstance(function, ResultBackward) and function.next_functions[0][0] is node:
        return piece  # type: ignore[no-any-return]
    return saved
