"""How a forward and a backward program belong together, as data.

`codegen.joint_plan` makes a `Plan` from a graph and its division; `runtime.autograd.joint_program`
makes the autograd node from it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Container, Sequence
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.trace.autocast_cache import Casts
from ...ir.trace.output_views import pieces_of
from . import custom_function

# Conditions, of which one must hold: results that must have a gradient, and numbers of the backward
# that must not be zero, by position (`~position`: that must be).
When = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How forward and backward belong together. Positions are those of the graph's inputs and of
    pieces, the blocks of memory that the node returns (`ir.trace.output_views`).

    nodes       for each of `results` the name of its node: that of the operator in eager
    owners      for each of them the first one that has the same node in eager
    n_tensors   tensor inputs; `n_numbers` numbers follow them
    n_pieces    the first results of the forward program; the others are saved for the backward
    results     pieces with a gradient
    found       for each of those, how it is found among the results of the calls
    orders      for each, the order of its dimensions in memory; None: in order
    wanted      inputs that get a gradient: those that autograd reaches from a result
    leaves      those that are leaves, in the order in which eager finishes their gradients
    givers      for each of those, the number of the operator that finishes it in eager
    gradients   for each of those, its position among the results of the backward program, or None
    saved       the arguments of the backward program, in order: see `ir.autograd.partition.Halves`
    witnesses   pieces whose versions must not change before the backward
    frees       what backwards free in eager mode: (the `results` behind which they are, as bits,
                what they are before, as bits: inputs, then `results`) of the operators that do, see
                `ir.trace.frees.frees_of`
    needs       for each of `saved` and `witnesses` the results, by position, whose backward reads
                it; empty where all of them read what others can write to
    dirty       pieces that are inputs written in place, as autograd knows: piece -> input
    parameters  inputs that live as long as a module
    numbers     origins of the numbers that the backward program takes, as in `Graph.symbols`;
                those from tensor data are read from pieces
    random      devices whose random generators the graph draws from
    written     inputs that the graph writes to
    before      those of them whose old value contributes to the results
    custom      what the backwards of custom functions read (`runtime.autograd.custom_function`)
    met         for each backward of a custom function the results, by position, that each gradient
                that it is given depends on; None if that does not say what autograd reaches
    casts       autocast around the graph: (device type, dtype) where it is on
    refusing    inputs with a gradient from checkpoints that have `use_reentrant=True`
    when        with parts that data skip: for each of `wanted` when its gradient exists
    tracked     with such parts: for each of `results` when it has a history
    """

    name: str
    nodes: tuple[str, ...]
    owners: tuple[int, ...]
    n_tensors: int
    n_numbers: int
    n_pieces: int
    results: tuple[int, ...]
    found: tuple[tuple[str, int], ...]
    orders: tuple[tuple[int, ...] | None, ...]
    wanted: tuple[int, ...]
    leaves: tuple[int, ...]
    givers: tuple[int, ...]
    gradients: tuple[int | None, ...]
    saved: tuple[tuple[str, Any], ...]
    witnesses: tuple[int, ...]
    frees: tuple[tuple[int, int], ...]
    dirty: dict[int, int]
    parameters: tuple[int, ...]
    numbers: tuple[tuple[Any, ...], ...]
    random: tuple[torch.device, ...]
    written: tuple[int, ...]
    before: tuple[int, ...]
    custom: tuple[custom_function.Reads, ...] = ()
    met: tuple[tuple[frozenset[int], ...], ...] | None = ()
    casts: Casts = ()
    refusing: tuple[int, ...] = ()
    needs: tuple[frozenset[int], ...] = ()
    when: tuple[When, ...] = ()
    tracked: tuple[When, ...] = ()

    @property
    def has_own_nodes(self) -> bool:
        """Whether the results have nodes of their own before that of the program: they have several
        in eager mode, or its node gives something without a gradient first. Torch moves the hook of
        `retain_grad` at a write, for which a result must have its place in eager mode."""
        return len(set(self.owners)) > 1 or self.results != tuple(range(len(self.results)))

    def pieces_of(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """The pieces with a gradient, after the calls have run under autograd."""
        return pieces_of(self.found, outputs, inputs)

    def kept_beside(self, others: Container[int]) -> list[int]:
        """The inputs to keep for a backward that is itself differentiated, beside `others`."""
        return [at for at in range(self.n_tensors) if at not in others and at not in self.before]


def number_of(where: tuple[Any, ...], inputs: Sequence[Any], made: Sequence[Any]) -> Any:
    """One of `Plan.numbers` in a call with these inputs, which has made these values."""
    what, position, *dim = where
    if what == "data":
        return made[position].size(*dim) if dim else made[position].item()
    value = inputs[position]
    if what == "number":
        return value
    return value.size(dim[0]) if what == "size" else value.stride(dim[0])


def laid_out(gradient: torch.Tensor, order: tuple[int, ...] | None) -> torch.Tensor:
    """The gradient in the memory layout that its program takes: dense, with dimensions in this
    order (None: in order; see `Plan.orders`)."""
    if order is None:
        return gradient.contiguous()
    turned = gradient.permute(order)
    if turned.is_contiguous():
        return gradient
    return turned.contiguous().permute([order.index(dim) for dim in range(len(order))])


def chosen(positions: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that selects the items at these positions."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    if not positions:
        return lambda items: ()
    (only,) = positions
    return lambda items: (items[only],)


# -- gradients and histories that depend on which parts of a graph data skip (`Plan.when`) ---------
def parts_decide(plan: Plan) -> bool:
    """Whether parts of the graph decide which gradients exist."""
    return any(all(numbers for _, numbers in when) for when in plan.when)


def without_history(plan: Plan, numbers: Sequence[Any]) -> list[int]:
    """The pieces without a history, since no part that gives them one has run."""
    pairs = zip(plan.results, plan.tracked, strict=True)
    return [at for at, when in pairs if not _holds(_needed(when), numbers)]


def with_gaps(
    program: Callable[..., Any], places: Sequence[int | None], missing: Collection[int], plan: Plan
) -> Callable[..., Any]:
    """The backward program for results of which those in `missing` have no gradient, with None for
    gradients that no part has computed."""
    pairs = zip(places, plan.when, strict=True)
    asked = [(at, _needed(when, missing)) for at, when in pairs if at is not None]
    asked = [(at, needed) for at, needed in asked if all(needed)]
    n = len(plan.numbers)

    def run(*arguments: Any) -> list[Any]:
        numbers = arguments[len(arguments) - n :]
        made = list(program(*arguments))
        for at, needed in asked:
            if not _holds(needed, numbers):
                made[at] = None
        return made

    return run


def _needed(when: When, missing: Collection[int] = ()) -> list[tuple[int, ...]]:
    """The numbers of which all in one of these tuples must not be zero."""
    return [numbers for results, numbers in when if not any(at in missing for at in results)]


def _holds(needed: Sequence[tuple[int, ...]], numbers: Sequence[Any]) -> bool:
    return any(all(numbers[at] if at >= 0 else not numbers[~at] for at in some) for some in needed)
