"""A break in the middle of every kind of block, however it is left, and of every block inside another.

Each program of `blocks` runs in plain Python and jitted, three times; the same must be seen: results, what is
printed and logged (the chains of exceptions among it), the text of a traceback to the last caret, the grad mode.
And every place with a tensor operation must have been compiled: before the break, behind it, and behind the
blocks. The tests take a share of the programs; `python -m tests.capture.emit.test_break_everywhere 2 0.1` takes
a tenth of all pairs.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from graftjit import JitConfig, jit

from ..harness import Describer, difference
from .blocks import BLOCKS, LEAVES, STOPS, Block, Program, program

CALLS = ((1, 1), (-5, 2), (1, 1))
FINAL = ("raises", "torch raises")  # nothing comes after these


def called(run: Any, shift: int, n: int) -> tuple[Any, list[tuple[str, bool]]]:
    """All that is seen of a call, and its marks."""
    printed, log, marks = io.StringIO(), [], []
    torch.set_grad_enabled(True)
    with contextlib.redirect_stdout(printed):
        try:
            outcome: Any = run(torch.arange(4.0) + shift, n, log, marks)
        except Exception as error:
            own = error.__traceback__.tb_next if error.__traceback__ else None
            outcome = "".join(traceback.format_exception(type(error), error, own))
    handled = sys.exc_info()[0]
    seen = (outcome, printed.getvalue(), log, torch.is_grad_enabled(), str(handled))
    torch.set_grad_enabled(True)
    return Describer().describe(seen), marks


def faults(one: Program) -> list[str]:
    """What is wrong with the jitted program. Its marks ask `is_compiling()`, hence `claims_compiling`."""
    config = JitConfig(jit_level="O0", claims_compiling=True)
    plain, run = one.build(), jit(one.build(), config=config)
    found = []
    within = ("in", "on") if any(block.plain for block in one.blocks) else ()
    for number, (shift, n) in enumerate(CALLS):
        wanted, _ = called(plain, shift, n)
        got, marks = called(run, shift, n)
        where = difference(wanted, got, 0.0)
        if where is not None:
            found.append(f"call {number}: plain {where}")
        slow = [place for place, compiled in marks if not compiled and place not in within]
        if slow:
            found.append(f"call {number}: not compiled {slow}")
    report = run.report()
    left = [row for row in [*report.breaks, *report.notes] if row.code in ("PL203", "PL205")]
    return found + [f"{row.code} {row.reason}" for row in left]


def all_programs(depth: int) -> Iterator[Program]:
    for blocks in itertools.product(BLOCKS, repeat=depth):
        yield from programs_of(blocks)


def programs_of(blocks: tuple[Block, ...]) -> list[Program]:
    return [
        made
        for stop in STOPS
        for leave in LEAVES
        if (stop not in FINAL or leave == "falls")
        and (made := program(blocks, stop, leave)) is not None
    ]


def share(programs: list[Program], count: int) -> list[Program]:
    """Some of them, always the same ones."""
    return random.Random(programs[0].name).sample(programs, min(count, len(programs)))


def complain(programs: list[Program]) -> None:
    found = {one.name: (faults(one), one.source) for one in programs}
    for name, (what, source) in found.items():
        assert not what, "\n".join((name, *what, source[source.index("def f(") :]))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_every_block(block: Block) -> None:
    complain(share(programs_of((block,)), 5))


@pytest.mark.parametrize("outer", BLOCKS, ids=lambda block: block.name)
def test_every_block_in_every_other(outer: Block) -> None:
    inners = random.Random(outer.name).sample(BLOCKS, 6)
    complain([share(programs_of((outer, inner)), 1)[0] for inner in inners])


def test_three_deep() -> None:
    rng = random.Random(3)
    complain([share(programs_of(tuple(rng.choices(BLOCKS, k=3))), 1)[0] for _ in range(12)])


@pytest.mark.parametrize("stop", STOPS)
def test_every_stop(stop: str) -> None:
    made = (program((block,), stop, "falls") for block in BLOCKS[::8])
    complain([one for one in made if one is not None])


def main(depth: int, part: float) -> None:
    """All programs of blocks nested so deeply, or a part of them; the faults are printed."""
    count = 0
    for one in all_programs(depth):
        if random.random() < part:
            count += 1
            for what in faults(one):
                print(one.name, what, sep="\n    ", flush=True)
    print(count, "programs")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
