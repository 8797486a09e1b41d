"""The order of units while they are joined and merged, against ways that are walked each time."""

from __future__ import annotations

import random

import pytest

from graftjit.codegen.fusion.precedence import Placed


def ways(edges: set[tuple[int, int]], start: int) -> set[int]:
    """All that can be reached."""
    found: set[int] = set()
    left = [start]
    while left:
        one = left.pop()
        for a, b in edges:
            if a == one and b not in found:
                found.add(b)
                left.append(b)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_against_walks(seed: int) -> None:
    """New units, joined nodes and merges at random; a circle is never made, because it is asked before."""
    rng = random.Random(seed)
    units: list[Placed] = []
    edges: set[tuple[int, int]] = set()  # (before, after), by number

    def alive() -> list[Placed]:
        return [unit for unit in units if unit.merged is None]

    for _ in range(60):
        some = rng.sample(alive(), min(len(alive()), rng.randint(0, 3)))
        unit = rng.choice(alive()) if len(units) > 2 and rng.random() < 0.6 else None
        if unit is not None and rng.random() < 0.3:
            other = next((one for one in some if one is not unit), None)
            if other is None:
                continue
            ok = not (other.leads_to(unit.before) or unit.leads_to(other.before))
            between = any(
                (middle.number in ways(edges, a.number) and b.number in ways(edges, middle.number))
                for a, b in ((unit, other), (other, unit))
                for middle in alive()
                if middle is not a and middle is not b
            )
            assert ok == (not between)
            if ok:
                unit.absorb(other)
                assert other.now() is unit
                edges = {
                    (unit.number if a == other.number else a, unit.number if b == other.number else b)
                    for a, b in edges
                }  # fmt: skip
                edges = {(a, b) for a, b in edges if a != b}
            continue
        if unit is None:
            unit = Placed(len(units), bits=1 << len(units))
            units.append(unit)
        else:
            leads = any(one is not unit and one.number in ways(edges, unit.number) for one in some)
            assert unit.leads_to(some) == leads
            if leads:
                continue
        unit.put_after(some)
        edges |= {(one.number, unit.number) for one in some if one is not unit}

    for unit in alive():
        assert {one.number for one in unit.before} == {a for a, b in edges if b == unit.number}
        assert {one.number for one in unit.after} == {b for a, b in edges if a == unit.number}
        for other in alive():
            assert bool(other.follows & unit.bits) == (other.number in ways(edges, unit.number))
