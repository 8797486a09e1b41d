"""Views that a trace makes without grad mode: *quiet* views.

Without grad mode the ghost of a view is no view to autograd. In eager mode it is one, without a
history: it requires a gradient as long as its base does, an operator on it makes a result with a
history that leads nowhere, and autograd refuses it once its memory was written. So the tracer
refuses what would show that (`Tracer.run` calls `requiring`). `quiet` is `Tracer.quiet_views`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import torch

from ..errors import Unsupported
from ..graph.effects import operands
from ..graph.nodes import Node
from .ghost import Ghost


def quiet_way(node: Node, quiet: Container[Node]) -> list[Node]:
    """The views without grad mode by which a view leads to its memory, so that its ghost has no
    base, although autograd says that it requires a gradient if its base does: not so behind
    `detach`."""
    found = []
    while node.alias is not None:
        made = node.args[0] if node.op == "get" else node
        if made.op == "call" and made.target is torch.ops.aten.detach.default:
            return []
        found += [made] if made in quiet else []
        node = node.alias
    return found


def is_tied(ghost: Ghost, quiet: Mapping[Node, bool]) -> bool:
    """Whether this is a quiet view of memory that requires a gradient."""
    way = quiet_way(ghost._node, quiet) if quiet else ()
    members = (member() for member in ghost._store.members) if way else ()
    return any(map(quiet.get, way)) or any(one is not None and one.requires_grad for one in members)


def check_history(target: Ghost, quiet: Mapping[Node, bool]) -> None:
    """Refuse a write that autograd refuses: with grad mode, to a quiet view of memory that requires
    a gradient."""
    if torch.is_grad_enabled() and is_tied(target, quiet):
        raise Unsupported("quiet", "a write to a view that was made without grad mode")


@contextlib.contextmanager
def requiring(given: Any, quiet: Mapping[Node, bool]) -> Iterator[list[Any]]:
    """Call a function on arguments `given` in this block, and append its result to the list.

    Raises Unsupported if autograd would follow the function because of a quiet view: the block
    runs with such views as leaves that require a gradient.
    """
    results: list[Any] = []
    if not (quiet and torch.is_grad_enabled()):
        yield results
        return
    tied = [one for one in operands(given, Ghost) if _asks(one) and is_tied(one, quiet)]
    for one in tied:
        one.requires_grad_()
    try:
        yield results
    except RuntimeError as error:
        if tied:  # torch may refuse a leaf for another reason than a view
            raise _refused() from error
        raise
    finally:
        for one in tied:
            one.requires_grad_(False)
    if tied and any(one.requires_grad for one in _ghosts(results)):
        raise _refused()


def _asks(ghost: Ghost) -> bool:
    """Whether this may require a gradient, and does not."""
    return not ghost.requires_grad and (ghost.is_floating_point() or ghost.is_complex())


def _ghosts(results: Iterable[Any]) -> Iterator[Any]:
    for one in results:  # named tuples as well
        yield from operands(list(one) if isinstance(one, tuple) else one, Ghost)


def _refused() -> Unsupported:
    text = "a view that was made without grad mode, of a tensor that requires a gradient"
    return Unsupported("quiet", text)
