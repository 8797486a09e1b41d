"""Results of a trace that other results depend on.

In eager mode the gradient of such a result passes through it: `torch.autograd.grad` gives it, and
hooks on the result see and change it. `ir.trace.joint` calls `passed_through`, and
`ir.trace.hidden_results` for what such results share.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ..graph.nodes import Node
from .ghost import Ghost

VALUE = "graftjit value"


def passed_through(
    outputs: Sequence[Ghost], pieces: Sequence[Node], results: Sequence[Any]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(positions in `results`, positions in `outputs`) of the results, and of the outputs that are
    views, that the history of a result passes through.

    `pieces`: the nodes of whole memory, which `ir.trace.output_views` finds; `results`: the ghosts
    of those with a gradient.
    """
    if len(outputs) < 2 and len(results) < 2:
        return (), ()
    passed: set[Any] = set()
    for node in nodes_behind(ghost.grad_fn for ghost in results):
        passed.update(node.next_functions)
    whole = {ghost._node for ghost in results} | set(pieces)
    views = {
        edge_of(ghost): at
        for at, ghost in enumerate(outputs)
        if ghost.requires_grad and ghost.grad_fn is not None and ghost._node not in whole
        if ghost._node.op not in ("input", "constant")
    }
    inner = (at for at, one in enumerate(results) if edge_of(one) in passed)
    return tuple(inner), tuple(at for end, at in views.items() if end in passed)


def saves(node: Any) -> bool:
    """Whether a node of autograd has saved a tensor."""
    kind: Any = type(node)
    return any(_saved(node, name) is not None for name in _names_of_saved(kind))


def _saved(node: Any, name: str) -> Any:
    try:
        found = getattr(node, name)
        return None if type(found) is tuple and not found else found
    except RuntimeError:  # a value that was written since: it was saved
        return node


@functools.cache
def _names_of_saved(kind: type) -> tuple[str, ...]:
    """The attributes of a class of nodes that hold saved tensors."""
    raw = [name for name in dir(kind) if name.startswith("_raw_saved_")]
    # a node of a custom function has the raw form only
    return tuple(name if name == "_raw_saved_tensors" else name[len("_raw") :] for name in raw)


def nodes_behind(starts: Iterable[Any], stops: Iterable[Any] = ()) -> Iterator[Any]:
    """These nodes of autograd, or leaves, and the nodes behind them, each once and in the same
    order in every process. The walk does not enter `stops`."""
    pending = list(dict.fromkeys(starts))
    seen = {*pending, *stops}
    while pending:
        node = pending.pop()
        yield node
        for before, _ in getattr(node, "next_functions", ()):
            if before is not None and before not in seen:
                seen.add(before)
                pending.append(before)


def leaves_of(outputs: Sequence[torch.Tensor], until: Sequence[torch.Tensor] = ()) -> list[Any]:
    """The leaves that a backward of `outputs` reaches, without going beyond `until`."""
    stops = {ghost.grad_fn for ghost in until}
    starts = [ghost.grad_fn or ghost for ghost in outputs if ghost.requires_grad]
    found: dict[int, Any] = {}
    for node in nodes_behind((one for one in starts if one not in stops), stops):
        leaf = node if isinstance(node, torch.Tensor) else getattr(node, "variable", None)
        if leaf is not None:
            found.setdefault(id(leaf), leaf)
    return list(found.values())


def edge_of(ghost: Any) -> tuple[Any, int]:
    """The node of autograd that makes a ghost, and its place among the node's outputs."""
    return ghost.grad_fn, ghost.output_nr


def note_value(ghost: Ghost) -> None:
    """Note in autograd's graph which value of the torch level a new ghost is."""
    if ghost.requires_grad and not ghost._is_view() and ghost.grad_fn is not None:
        ghost.grad_fn.metadata[VALUE, ghost.output_nr] = ghost._ref
