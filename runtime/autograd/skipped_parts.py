"""Gradients and histories that depend on which parts of a graph data skip (`Plan.when`).

A backward program gives something for each gradient. `with_gaps` puts None in the place of those
that eager mode would not have computed; `without_history` says which results have no node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from .joint_plan import Plan, When


def parts_decide(plan: Plan) -> bool:
    """Whether parts of the graph decide which gradients exist."""
    return any(all(numbers for _, numbers in when) for when in plan.when)


def without_history(plan: Plan, numbers: Sequence[Any]) -> list[int]:
    """The pieces without a history, since no part that gives them one has run."""
    pairs = zip(plan.results, plan.tracked, strict=True) if plan.tracked else ()
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
    return any(all(numbers[at] for at in some) for some in needed)
