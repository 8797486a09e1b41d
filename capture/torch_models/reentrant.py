"""The result of a checkpoint with `use_reentrant=True`, in a frame.

In: the function's result, with the history that the walk has recorded. Out: the result as the
checkpoint's own Function returns it (`ir.trace.reentrant`). In eager mode autograd runs a backward
inside, from the function's results to all leaves. So a tensor with a history that the function
reads beside its arguments is a break (the backward inside frees that history), and so are hooks of
the leaves, which that backward calls once for each checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.graph.effects import root
from ...ir.graph.layout import is_dense
from ...ir.trace.ghost import Ghost
from ...ir.trace.reentrant import joined
from ...ir.trace.regions import Region
from ..breaks import Break
from ..values import containers
from ..values.registry import Args
from ..values.value import Const, Sequence, Tensor, Value
from . import calls
from .backward import require_no_hooks

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB114"


def reentrant_results(m: Machine, region: Region, args: Args, reads: Args, result: Value) -> Value:
    """The function's result as the checkpoint returns it. `reads`: what the function refers to."""
    tuples = isinstance(result, Sequence) and result.cls is tuple
    parts = containers.sequence_items(m, result) if tuples else [result]  # type: ignore[arg-type]
    given = [one for one in args if isinstance(one, Tensor) and one.ghost.requires_grad]
    try:  # in the trace: a read of `grad_fn` may make the history of a view anew
        m.tracer.beside(lambda _owner: _require_known_histories(m, region, given, reads, parts))
    except RuntimeError as error:  # autograd refuses a view
        raise Break(_CODE, f"a checkpoint with use_reentrant=True: {error}") from error
    follows = [one for one in parts if isinstance(one, Tensor) and _differentiable(one.ghost)]
    _require_own_memory(m, region, follows, parts)
    if not follows:
        return result
    ghosts = tuple([[one.ghost for one in some] for some in (follows, given)])
    made = calls.record(m, joined, ghosts, {}, may_fail=False)
    assert isinstance(made, Sequence)
    found = dict(zip(map(id, follows), containers.sequence_items(m, made), strict=True))
    parts = [found.get(id(part), part) for part in parts]
    return Sequence(parts, tuple) if tuples else parts[0]


def _differentiable(ghost: Ghost) -> bool:
    return ghost.dtype.is_floating_point or ghost.dtype.is_complex


def _require_own_memory(
    m: Machine, region: Region, follows: list[Tensor], parts: list[Value]
) -> None:
    """Break for a result that eager mode returns as a view, or without a history."""
    assert m.tracer.regions is not None
    memory = [root(one.ghost._node) for one in parts if isinstance(one, Tensor)]
    if len(set(memory)) < len(memory) or not all(
        m.tracer.regions.made(region, one) for one in memory
    ):
        raise Break(_CODE, "a checkpoint with use_reentrant=True returns what it was given")
    with m.facts.active():
        dense = all(is_dense(one.ghost._node.meta.shape, one.ghost._node.meta.stride)
                    for one in follows)  # fmt: skip
    others = [one for one in parts if not isinstance(one, (Tensor, Const))]
    if others or not dense:
        raise Break(_CODE, "a checkpoint with use_reentrant=True returns other than dense tensors")


def _require_known_histories(
    m: Machine, region: Region, given: list[Tensor], reads: Args, parts: list[Value]
) -> None:
    """Break unless the function's results depend on its arguments and on leaves without hooks."""
    if any(one.ghost.grad_fn is not None and one in reads for one in given):
        raise Break(_CODE, "a checkpoint with use_reentrant=True reads its argument otherwise, too")
    edges = {(one.ghost.grad_fn, one.ghost.output_nr) for one in given}
    outside = {one.grad_fn for _, one in m.tracer.entered_inputs() if one.grad_fn is not None}
    pending: list[tuple[Any, int]] = [
        (one.ghost.grad_fn, one.ghost.output_nr)
        for one in parts
        if isinstance(one, Tensor) and one.ghost.requires_grad
    ]
    arguments = {id(one.ghost) for one in given}
    seen: set[Any] = set()
    while pending:
        function, number = pending.pop()
        if function is None or function in seen or (function, number) in edges:
            continue
        seen.add(function)
        leaf = getattr(function, "variable", None)
        if leaf is None:
            if function in outside or function._sequence_nr() < region.first:
                raise Break(_CODE, "a checkpoint with use_reentrant=True reads a tensor with a"
                            " history that is not an argument")  # fmt: skip
            pending += function.next_functions
            continue
        known = m.heap.known.get(id(leaf))
        if not isinstance(known, Tensor):
            raise Break(_CODE, "a checkpoint with use_reentrant=True reads an unknown leaf")
        if id(leaf) not in arguments:
            require_no_hooks(m, known, "a checkpoint with use_reentrant=True reads a tensor with"
                             " hooks")  # fmt: skip
