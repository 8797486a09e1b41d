"""The outputs of a differentiable graph by memory: whole pieces, and views to be made outside.

autograd ties a view to its base: they share a version, and a write to one of them appears in the
history of the other. So the autograd node of a compiled graph returns whole pieces of memory, each
once. ATen then makes the views of them (and of arguments) anew under autograd, as the graph made
them. Arguments that the graph writes with autograd following are also outputs of the node, as the
same tensors. `ir.trace.joint` uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..dataclass import dataclass
from ..graph.effects import root
from ..graph.interpreter import Replaced, moved
from ..graph.nodes import Node
from ..graph.schema import plan_of
from .ghost import Ghost
from .quiet_views import quiet_way

if TYPE_CHECKING:
    from .tracer import Tracer

# How to find a piece's tensor among the results of the calls: (an output, the base of an output, or
# an input; position).
Found = tuple[str, int]


def pieces_of(
    found: Sequence[Found | None], outputs: Sequence[Any], inputs: Sequence[Any]
) -> list[Any]:
    """The pieces with a gradient, after the calls have run under autograd."""
    made = []
    for one in found:
        assert one is not None
        how, at = one
        source = inputs[at] if how == "input" else outputs[at]
        made.append(source._base if how == "base" else source)
    return made


@dataclass(frozen=True, slots=True)
class Roots:
    """How the graph's outputs are made from the outputs of its autograd node.

    pieces   outputs of the node: fresh memory, and inputs that are written under autograd; the
             only one with a gradient first
    ghosts   ghosts of the pieces, with the history that counts; None for pieces without a gradient
    found    how to find the pieces with a gradient among the results of the calls
    views    the views to make anew, in order, and whether they were made without grad mode
    given    the node of each output: a piece, a view, an input or a constant
    """

    pieces: tuple[Node, ...]
    ghosts: tuple[Ghost | None, ...]
    found: tuple[Found | None, ...]
    views: tuple[tuple[Node, bool], ...]
    given: tuple[Node, ...]

    @property
    def results(self) -> tuple[int, ...]:
        """The positions of the pieces that have a gradient."""
        return tuple(at for at, ghost in enumerate(self.ghosts) if ghost is not None)


class NoRoots(Exception):
    """Why the outputs cannot be made from whole pieces."""


def roots_of(tracer: Tracer, outputs: Sequence[Ghost]) -> Roots:
    """The Roots of `outputs`; raises NoRoots."""
    return _Finder(tracer, outputs).roots()


class _Finder:
    def __init__(self, tracer: Tracer, outputs: Sequence[Ghost]) -> None:
        self.outputs = outputs
        self.quiet = tracer.quiet_views()
        self.known = tracer.known_nodes()  # of inputs and constants
        self.rewritten = tracer.rewritten()
        # Per fresh memory: the ghost with the history that counts.
        self.bases: dict[Node, Ghost] = {}
        self.pieces: dict[Node, Ghost | None] = {}
        self.found: dict[Node, Found] = {}
        self.views: dict[Node, bool] = {}
        # the views from an output to its memory
        self.ways: list[list[Node]] = []
        # the output that has a node; each node that is made again -> its copy
        self.seen = {ghost._node: ghost for ghost in outputs if ghost.requires_grad}
        self.copies = Replaced()

    def roots(self) -> Roots:
        for ghost in self.outputs:
            if ghost.requires_grad:
                self._base(ghost)
        for at, ghost in enumerate(self.outputs):
            self._follow(at, ghost)
        anew = list(map(self._is_anew, self.outputs, self.ways))
        pairs = list(zip(self.ways, anew, strict=True))
        if any(anew):  # a view comes before the views of it
            pairs.sort(key=lambda pair: len(pair[0]))
        for way, is_anew in pairs:
            if not (is_anew and way[0] in self.copies):  # an output may be there twice
                self._note_views(way[::-1], is_anew)
        for at, ghost in self.rewritten:
            self.pieces[ghost._node] = ghost
            self.found[ghost._node] = "input", at
        pieces = list(self.pieces)
        own = [piece for piece in pieces if self.pieces[piece] is not None]
        if len(own) == 1:
            # It is output 0 of the node, as of most operators: autograd fails where a write in
            # place gives a tensor with `retain_grad` another number. Several have nodes of their
            # own.
            pieces.sort(key=lambda piece: piece is not own[0])
        return Roots(
            tuple(pieces),
            tuple(self.pieces[piece] for piece in pieces),
            tuple(self.found.get(piece) for piece in pieces),
            tuple(self.views.items()),
            tuple(self.copies[ghost._node] for ghost in self.outputs),
        )

    def _base(self, ghost: Ghost) -> None:
        """Note the base of an output with a gradient."""
        base: Ghost = ghost._base if ghost._is_view() else ghost  # type: ignore[assignment]
        origin = root(ghost._node)
        if origin in self.known:
            if base is not self.known[origin]:
                raise NoRoots("a result is a leaf of its own")
        elif base.grad_fn is None:
            raise NoRoots("a result is a leaf of its own")
        elif any(node in self.quiet for node in _way(base._node)):
            raise NoRoots("a view that was made without grad mode is written to")
        elif self.bases.setdefault(origin, base) is not base:
            raise NoRoots("two results share memory without autograd knowing it")

    def _follow(self, at: int, ghost: Ghost) -> None:
        """Note the views between memory and an output."""
        origin = root(ghost._node)
        base = self.known[origin] if origin in self.known else self.bases.get(origin)
        start = origin if base is None else base._node
        way: list[Node] = []
        node = ghost._node
        while node is not start:
            plan = plan_of(node.args[0].target if node.op == "get" else node.target)
            if node.alias is None or plan.kind != "view":
                raise NoRoots("a result shares memory with another in a form that is not modelled")
            way += [node, node.args[0]] if node.op == "get" else [node]
            node = node.alias
        history = base is not None and base.requires_grad
        if history and ghost._store.written and any(one in self.quiet for one in way):
            raise NoRoots("a view that was made without grad mode, of memory that is written to")
        if base is None and any(map(self.quiet.get, quiet_way(ghost._node, self.quiet))):
            raise NoRoots("a view that was made without grad mode, of memory with a history")
        if way:
            apart = any(one in self.quiet or _parts(one) for one in way)
            floating = ghost.dtype.is_floating_point or ghost.dtype.is_complex
            if ghost.requires_grad != (history and not apart and floating):
                raise NoRoots("a result is a view that autograd treats specially")
        self.ways.append(way)
        if origin not in self.known:
            self.pieces.setdefault(start, base)
            if ghost.requires_grad:
                self.found.setdefault(start, ("base" if way else "output", at))

    def _is_anew(self, ghost: Ghost, way: Sequence[Node]) -> bool:
        """Whether the history of a view does not lead through the output that it is a view of:
        autograd has made it anew from the base, since the memory was written after the view."""
        before = next((self.seen[node] for node in way[1:] if node in self.seen), None)
        if before is None or not ghost.requires_grad:
            return False
        function: Any = ghost.grad_fn
        for _ in way:
            if function is before.grad_fn:
                return False
            if function is None or not function.next_functions:
                return True
            function = function.next_functions[0][0]
        return True

    def _note_views(self, way: Sequence[Node], anew: bool) -> None:
        """Note the views from memory to an output, the first one first. `anew`: other outputs do
        not depend on them, and later views of the output are views of its own copy."""
        copies = Replaced() if anew else self.copies
        for node in way:
            operands = *(one for one in node.args if type(one) is Node), node.alias
            if anew or any(one in copies for one in operands):
                copies[node] = moved(node, copies.__getitem__)
            self.views.setdefault(copies[node], node in self.quiet)
        if anew:
            self.copies[way[-1]] = copies[way[-1]]


def _way(node: Node) -> list[Node]:
    """The nodes from `node` to its memory's root."""
    found = [node]
    while found[-1].alias is not None:
        found.append(found[-1].alias)
    return found


def _parts(node: Node) -> bool:
    """Whether the node is a view that autograd does not follow."""
    return node.op == "call" and node.target.__name__ == "detach.default"
