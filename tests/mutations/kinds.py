"""Kinds of change between two calls, as a table: each a small world in which one thing changes and changes back.

A world is a generator function. Its first `yield` gives the program and its arguments; at each `yield` the program
is called twice; between two of them the world changes something. A later `yield` may give other arguments as a
tuple. `yield SAME` says besides that nothing which the program depends on is new: no call may capture anything.
Each run of a world has globals of its own; what else it changes it puts back in a `finally`.

`play` runs a world, plain or through a compiler, and describes all that could be seen of each call. The table is
read by tests/capture/test_mutations.py and by `python -m benchmarks.mutations`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

World = Callable[[], Iterator[Any]]
Wrap = Callable[[Any], Any]
SAME = "nothing new"


@dataclass(frozen=True, slots=True)
class Kind:
    """One row. `settles` is False where the change itself lasts through the calls of a step (a counter that the
    program advances, say), so that a second call may well capture again."""

    name: str
    world: World
    settles: bool = True


KINDS: dict[str, Kind] = {}


def kind(world: World) -> World:
    """Put a world into the table under its own name."""
    return _add(world, True)


def unsettled(world: World) -> World:
    """As `kind`, for worlds whose second call of a step may capture."""
    return _add(world, False)


def _add(world: World, settles: bool) -> World:
    name = world.__name__.strip("_").replace("_", " ")
    assert name not in KINDS, f"two worlds named {name}"
    KINDS[name] = Kind(name, world, settles)
    return world


@dataclass(frozen=True, slots=True)
class Step:
    """What two calls after one change did: a description of each, whether nothing was new, and how many captures
    there had been before, after the first and after the second."""

    calls: tuple[Any, Any]
    same: bool
    captures: tuple[int, int, int]


def play(
    world: World, wrap: Wrap, call: Callable[..., Any], captures: Callable[[Any], int]
) -> list[Step]:
    """Run one world. `wrap` compiles the program; `call(run, fn, args)` describes one call."""
    scope = dict(world.__globals__)  # type: ignore[attr-defined]
    steps: list[Step] = []
    torch.manual_seed(0)
    RemovableHandle.next_id = 0  # hooks are called by numbers, which can be seen
    running = types.FunctionType(world.__code__, scope)()  # type: ignore[attr-defined]
    try:
        fn, args = next(running)
        run, given = wrap(fn), None
        while True:
            torch.manual_seed(0)
            counts, seen = [captures(run)], []
            for _ in range(2):
                seen.append(call(run, fn, args))
                counts.append(captures(run))
            steps.append(Step(tuple(seen), given == SAME, tuple(counts)))  # type: ignore[arg-type]
            given = next(running)
            if type(given) is tuple:
                args = given
    except StopIteration:
        return steps
    finally:
        running.close()
