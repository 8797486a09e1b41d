"""Online reductions: a reduction that depends on another reduction of the same row, computed in the
same pass.

`sum(exp(x - max(x)))`: partial sums are scaled when a larger element comes. `sum((x - t) ** 2)`,
where t is a reduced value of the row, mostly the mean: partial sums of squares about the means of
parts (Welford, Chan), shifted to t at the end. `codegen.triton.reductions` uses this for long rows,
`codegen.triton.split_reduction` for rows that are reduced in parts.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.dataclass import dataclass
from . import loop_nest
from .loop_nest import LoopNest


@dataclass(frozen=True, slots=True)
class Pair:
    """The sum `number` of `what` ("exp" or "squares") of the value `element` minus the row value
    `shift`.

        first   of "exp": the reduction that gives the maximum. The shift is that maximum, or a
                constant where the maximum is infinite
    """

    number: int
    what: str
    element: int
    shift: int
    first: int = -1


def find(nest: LoopNest) -> dict[int, Pair]:
    """Number of the second reduction -> its pair."""
    level, phase = loop_nest.levels(nest), loop_nest.phases(nest)
    found = {}
    for number, value in enumerate(nest.values):
        if value.op != "reduce" or value.attr != "sum" or not value.dtype.is_floating_point:
            continue
        pair = _exp(nest, number) or _squares(nest, number)
        if pair is None or not level[pair.element] or level[pair.shift]:
            continue
        if phase[pair.shift] == phase[pair.element] + 1:
            found[number] = pair
    return found


def phases(nest: LoopNest, pairs: Mapping[int, Pair]) -> tuple[int, ...]:
    """As `loop_nest.phases`, but the second reduction of a pair is known as soon as the first."""
    found: list[int] = []
    for number, value in enumerate(nest.values):
        phase = max((found[arg] for arg in value.args), default=0)
        pair = pairs.get(number)
        if pair is not None:
            found.append(max(found[pair.element] + 1, found[pair.shift]))
        else:
            found.append(phase + 1 if value.op == "reduce" else phase)
    return tuple(found)


def _exp(nest: LoopNest, number: int) -> Pair | None:
    values = nest.values
    power = values[values[number].args[0]]
    away = values[power.args[0]] if power.op == "exp" else power
    if power.op != "exp" or away.op != "sub":
        return None
    element, shift = away.args
    first = shift
    if values[shift].op == "where":  # a constant where the maximum is infinite
        asked, other, first = values[shift].args
        plain = values[asked].op == "isinf" and values[asked].args == (first,)
        if not plain or values[other].op != "const":
            return None
    top = values[first]
    if top.op != "reduce" or top.attr != "max" or top.args != (element,):
        return None
    return Pair(number, "exp", element, shift, first)


def _squares(nest: LoopNest, number: int) -> Pair | None:
    square = nest.values[nest.values[number].args[0]]
    if square.op != "mul" or square.args[0] != square.args[1]:
        return None
    away = nest.values[square.args[0]]
    if away.op != "sub":
        return None
    return Pair(number, "squares", *away.args)
