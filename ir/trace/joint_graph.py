"""The joint graph as data: `Graph.joint`, which `ir.trace.joint` makes, and what dividing it costs.

`ir.trace.joint` and `ir.autograd` are loaded for graphs with a gradient only; these classes always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dataclass import dataclass, field
from ..graph.nodes import Node
from ..symbolic.expr import Symbol

if TYPE_CHECKING:
    from ..graph.interpreter import Replaced
    from .autocast_cache import Casts
    from .output_views import Found

# in place of `Found`, for hidden results
HIDDEN = "hidden", 0


@dataclass(frozen=True, slots=True)
class CustomBackward:
    """What a backward of a custom function is given, the gradients that it makes, and saved tensors
    that it unpacks without a use."""

    given: tuple[Node, ...]
    made: tuple[Node, ...]
    unused: tuple[Node, ...] = ()

    def replaced(self, now: Replaced) -> CustomBackward:
        """Where these nodes replace others."""
        return CustomBackward(
            *(tuple(map(now.__getitem__, some)) for some in (self.given, self.made, self.unused))
        )


# A node of autograd, and the number of its output.
Edge = tuple[Any, int]
# Conditions, of which one must hold: numbers of the graph that must not be zero, all of them.
When = tuple[tuple[Any, ...], ...]
ALWAYS: When = ((),)


@dataclass(slots=True, eq=False)
class Span:
    """A part of a trace that runs if a number is not zero, in autograd's graph.

    taken    the number
    first    the sequence number of autograd where the part begins; `last`: where it ends
    before   tensors from before the part, and what made them then
    changed  what made the tensors that the part wrote, after it -> before it (None: no gradient)
    replaced those of `changed` whose part has overwritten all that was there before: where it ran,
             no gradient passes to that
    """

    taken: Symbol
    first: int
    before: list[tuple[Any, Edge | None]]
    last: int = -1
    changed: dict[Edge, Edge | None] = field(default_factory=dict)
    replaced: set[Edge] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Joint:
    """The backward of a graph.

    nodes       the backward's nodes, which follow the graph's own
    pieces, found, views, given
                the outputs of the autograd node, and how the graph's outputs are made from them:
                see
                `ir.trace.output_views.Roots`
    results     the pieces that have a gradient, by position. The last of them may be hidden
                (`ir.trace.hidden_results`): these are no outputs of the graph
    tangents    their gradients, then those of `views_inside`: inputs of the backward, numbered
                after the graph's inputs
    wanted      the inputs of the graph that want a gradient, by position
    gradients   the gradients of `wanted`; None for an input that the results do not depend on
    parameters  the inputs that are parameters, by position
    names       autograd's names of the operators that compute the results
    owners      for each result the first one whose node in autograd's graph is the same
    ages        for each result the rank of its node by sequence number in autograd's graph
    leaves      the inputs that are leaves, in the order in which autograd finishes their gradients
    givers      for each of `leaves`, the number of the node in autograd's graph that finishes it
    arrived     for each tangent, the whole gradient of its tensor: for a result its tangent, and
                what other results add
    kept        memory of the graph (roots of inputs, constants and pieces) that autograd itself
                saves
    arguments   for each region, the memory of the tensors that its function got
    users       of a segment: see `ir.autograd.partial_backward.users_of_regions`
    inner       the positions in `results` of those that other results depend on
    frees       what backwards free in eager mode: see `ir.trace.frees.frees_of`
    views_inside
                the outputs, by position, that are views and that other results depend on. Torch's
                autograd computes what their gradients add to that of their memory
    custom      the backwards of custom functions
    casts       autocast around the graph: (device type, dtype) where it is on
    when        with parts that data skip: for each of `wanted` when its gradient exists, by numbers
                of the graph, and by results, by position, that must have a gradient; `parted`: the
                same where what comes before an inner result depends on its gradient alone
    tracked     with such parts: for each of `results` when it has a history
    """

    nodes: tuple[Node, ...]
    pieces: tuple[Node, ...]
    found: tuple[Found | None, ...]
    views: tuple[tuple[Node, bool], ...]
    given: tuple[Node, ...]
    results: tuple[int, ...]
    tangents: tuple[Node, ...]
    wanted: tuple[int, ...]
    gradients: tuple[Node | None, ...]
    parameters: tuple[int, ...]
    names: tuple[str, ...]
    arrived: tuple[Node | None, ...]
    kept: frozenset[Node]
    inner: tuple[int, ...] = ()
    frees: tuple[tuple[int, int], ...] = ()
    views_inside: tuple[int, ...] = ()
    custom: tuple[CustomBackward, ...] = ()
    casts: Casts = ()
    owners: tuple[int, ...] = ()
    ages: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()
    givers: tuple[int, ...] = ()
    arguments: tuple[frozenset[Node], ...] = ()
    users: dict[int, frozenset[int]] | None = None
    when: tuple[When, ...] = ()
    parted: tuple[When, ...] = ()
    tracked: tuple[When, ...] = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """Why a graph has no backward of its own."""

    reason: str


@dataclass(frozen=True, slots=True)
class Trade:
    """What a division keeps for the backward, and what a budget changes.

    saved    bytes of saved values
    spared   bytes that the minimum cut on bytes would save in addition
    again    number of operators that run again and would not without the budget
    seconds  their estimated time, at nominal rates of the device
    """

    saved: int = 0
    spared: int = 0
    again: int = 0
    seconds: float = 0.0
