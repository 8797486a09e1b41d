"""Fuzz guards: random objects, a random program that reads them, random changes between calls.

    python -m tests.fuzz.guards --seed 0 --count 200
    python -m tests.fuzz.guards --seed 17 --show

After each change the program is called, plain and jitted. The guards must accept the call exactly when a capture from
nothing states the rows of an entry that is there; what an accepted call gives must be what plain Python gives. The
native guards and their mirror are compared at each call, since GRAFTJIT_CHECK is set in tests. A failing seed is made
small: reads and changes that do not matter are left out.
"""

from __future__ import annotations

import argparse
import random
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from graftjit import JitConfig, jit
from graftjit.jit import make_callable
from graftjit.runtime.events.events import Captured
from graftjit.runtime.guards.sources import Source
from graftjit.runtime.guards.weak_ref import given
from graftjit.runtime.safe_access import same_constant

from .changes import CHANGES, change
from .describe import Describer, difference
from .objects import Roots, make_roots, places, reads

CONFIG = JitConfig(
    jit_level="O0", dynamic=False, recompile_limit=1000
)  # no evidence: one call, one set of facts
X = torch.tensor([0.5, -1.0])


@dataclass(frozen=True, slots=True)
class Case:
    """One seed, made small or not: the numbers of the reads and the seeds of the changes that take part."""

    seed: int
    reads: tuple[int, ...] = tuple(range(6))
    changes: tuple[int, ...] = tuple(range(8))

    def build(self) -> tuple[Roots, str]:
        """The objects, and the text of the program that reads them."""
        rng = random.Random(self.seed)
        roots = make_roots(rng)
        found = places(roots)
        lines = []
        for number in range(6):
            own = random.Random(f"{self.seed} read {number}")
            path, value = own.choice(found)
            line = own.choice(reads(path, value))
            if number in self.reads:
                lines.append(f"    {line}")
        return roots, "\n".join(["def f(x, a):", "    C, r = cell, []", *lines, "    return x, r"])


def function_of(roots: Roots, text: str) -> types.FunctionType:
    """The program over these objects: `a` is its argument, `G` a global, `cell` a closure variable."""
    body = text.replace("\n", "\n    ")
    scope = roots.scope
    exec(f"def outer():\n    cell = None\n    {body}\n    return f", scope)
    made = scope.pop("outer")()
    roots.cell = made.__closure__[0]
    roots.cell.cell_contents = roots.first_cell
    return made


def outcome(run: Callable[..., Any], roots: Roots) -> Any:
    try:
        return Describer().describe(run(X, roots.argument))
    except Exception as error:
        return type(error).__name__, str(error)


def captures(run: Any) -> int:
    return sum(type(event) is Captured for event in run.report().events)


def entries_of(run: Any) -> list[Any]:
    """The entries of the frame's beginning."""
    (first,) = [state for state in run._unit.states if state.origin is None]
    return list(first.entries)


def facts(entry: Any) -> dict[Any, Any]:
    """An entry's rows as a table: what is looked at -> what it is held to."""
    return {
        (row.kind, plain(row.source), plain(row.expected) if row.kind.startswith(_ABOUT) else None): row.expected
        for row in entry.rows
    }  # fmt: skip


_ABOUT = (
    "no_",
    "same",
    "distinct",
    "own_dict",
)  # more than one row of these may be about one place


def plain(source: Any) -> Any:
    """A source, or a tuple of them, as tuples that compare: fixed objects by identity."""
    if type(source) is tuple:
        return tuple(map(plain, source))
    if type(source) is not Source:
        return source
    key = source.key
    if source.kind == "const":
        key = f"{given(key)!r:.60}", id(given(key))
    return source.kind, plain(source.base), type(key), key


def equal_facts(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(
        key[0] in _ABOUT or key[0].startswith("no_") or _same(one[key], other[key]) for key in one
    )


def _same(one: Any, other: Any) -> bool:
    one, other = given(one), given(other)
    if one is other or same_constant(one, other):
        return True
    if type(one) is not type(other):
        return False
    if type(one) is tuple and len(one) == len(other):
        return all(_same(a, b) for a, b in zip(one, other, strict=True))
    comparable = type(one).__module__.startswith("graftjit") or type(one) is frozenset
    return comparable and one == other


def check(case: Case) -> str | None:
    """What is wrong with one case, or None."""
    roots, text = case.build()
    function = function_of(roots, text)
    run = jit(function, config=CONFIG)
    seen = ["as made"]
    for number in (-1, *case.changes):
        if number >= 0:
            seen.append(change(random.Random(f"{case.seed} change {number}"), roots))
        found = _one_call(run, function, roots)
        if found is not None:
            return "\n".join([text, *seen, found])
    return None


def _one_call(run: Any, function: Any, roots: Roots) -> str | None:
    wanted = outcome(function, roots)
    before, known = captures(run), entries_of(run)
    got = outcome(run, roots)
    where = difference(wanted, got)
    if where is not None:
        return f"a wrong result: {where}\n{run.report()}"
    fresh = make_callable(function, CONFIG)
    where = difference(wanted, outcome(fresh, roots))
    if where is not None:
        return f"a wrong result of a fresh capture: {where}"
    made = entries_of(fresh)
    if not made or any(entry.kind == "plain" for entry in [*made, *known]):
        return None  # frames without tensors are guarded by types alone
    rows = facts(made[0])
    expected = any(equal_facts(rows, facts(entry)) for entry in known)
    accepted = captures(run) == before
    if expected == accepted or run.report().break_count:
        return None
    word = "accepted" if accepted else "refused"
    return f"the guards {word} a call: {_parting(rows, known)}"


def _parting(rows: Any, known: list[Any]) -> str:
    """How the rows of a fresh capture differ from those of the entries."""
    lines = []
    for entry in known[-2:]:
        old = facts(entry)
        lines += [f"  only fresh: {key}" for key in rows.keys() - old.keys()]
        lines += [f"  only known: {key}" for key in old.keys() - rows.keys()]
        lines += [
            f"  {key}: now {rows[key]!r}, before {old[key]!r}"
            for key in rows.keys() & old.keys()
            if key[0] not in _ABOUT and not _same(rows[key], old[key])
        ]
    return "\n".join(lines)


def minimise(case: Case) -> Case:
    """The case without the reads and changes that the failure does not need."""
    for field in ("changes", "reads"):
        for number in getattr(case, field):
            rest = tuple(one for one in getattr(case, field) if one != number)
            values = {"reads": case.reads, "changes": case.changes, field: rest}
            smaller = Case(case.seed, **values)
            if check(smaller) is not None:
                case = smaller
    return case


def main(arguments: list[str] | None = None) -> int:
    read = argparse.ArgumentParser(prog="tests.fuzz.guards", description=__doc__)
    read.add_argument("--seed", type=int, default=0)
    read.add_argument("--count", type=int, default=1, help="0: until something is found")
    read.add_argument("--show", action="store_true")
    options = read.parse_args(arguments)
    seed, found = options.seed, 0
    while not options.count or seed < options.seed + options.count:
        if options.show:
            print(Case(seed).build()[1])
        elif check(Case(seed)) is not None:
            small = minimise(Case(seed))
            print(f"{small}\n{check(small)}\n", flush=True)
            found += 1
            if not options.count:
                break
        seed += 1
    print(f"{seed - options.seed} seeds, {found} findings, {len(CHANGES)} kinds of change")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
