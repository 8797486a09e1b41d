"""torch's operator database, compiled: a seeded part of the sweep of sweep.py, and the table of what it leaves out.

Each operator is met with float32 and one more dtype, with a sample in one of the ways, all changing with the seed
(GRAFTJIT_OP_DB_SEED); some operators go through `jit`, with sizes known and open, and with arguments that torch refuses.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from . import errors
from .cases import DTYPES, WAYS, case, cases_of, infos, name_of, samples_of
from .coverage import raising, row
from .run import Batch, entry, left_out, through_jit

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SEED = int(os.environ.get("GRAFTJIT_OP_DB_SEED", "0"))
SHARDS = 6
OTHERS = ("float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool", "int8", "int16")
REFUSING = (
    "bernoulli",
    "gather",
    "nn.functional.nll_loss",
    "remainder",
)  # by what is in their operands
SLOW = ("linalg", "signal", "fft", "masked", "sparse")  # much to trace, hardly any kernels

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(torch.__version__ < "2.13", reason="the table is that of torch 2.13"),
]


def _selected(info: Any, rng: random.Random) -> Any:
    """Some cases of an operator."""
    other = DTYPES[rng.choice(OTHERS)]
    for dtype in (torch.float32, other):
        if dtype not in info.supported_dtypes("cpu"):
            continue
        wanted = rng.randrange(6)
        for number, sample in enumerate(itertools.islice(samples_of(info, dtype, seed=SEED), 6)):
            if number == wanted:
                found = case(info, dtype, number, sample, rng.choice(WAYS))
                if found is not None:
                    yield found


@pytest.mark.parametrize("shard", range(SHARDS))
def test_samples_agree_with_eager(shard: int) -> None:
    batch, seen = Batch(), Counter[str]()
    for number, info in enumerate(infos()):
        if number % SHARDS == shard and not info.name.startswith(SLOW):
            for one in _selected(info, random.Random(f"{SEED} {name_of(info)}")):
                row = entry(one.name, one.dtype)
                if row is None or row.what != "skip":
                    batch.add(one)
    outcomes = batch.run()
    wrong = [f"{o.case.where}: {o.said}" for o in outcomes if o.state == "differs"]
    assert not wrong, "\n".join(wrong)
    for outcome in outcomes:
        seen["fused" if outcome.kernels else outcome.state] += 1
    assert seen["fused"] > 0.25 * seen.total(), seen
    assert seen["break"] + seen["refused"] < 0.15 * seen.total(), seen


@pytest.mark.parametrize("dynamic", [False, True])
def test_some_operators_through_jit(dynamic: bool) -> None:
    rng = random.Random(f"{SEED} {dynamic}")
    chosen = rng.sample([info for info in infos() if not info.name.startswith(SLOW)], 60)
    wrong = []
    for info in chosen:
        dtype = DTYPES[rng.choice(("float32", "float32", "bfloat16", "int64", "bool"))]
        if dtype in info.supported_dtypes("cpu"):
            options = {"dynamic": True} if dynamic else {}
            wrong += [f"{w}: {said}" for w, said in through_jit(info, dtype, 3, **options)]
    assert not wrong, "\n".join(wrong)


def test_what_torch_refuses_is_refused_alike() -> None:
    able = [info for info in infos() if info.error_inputs_func and not info.name.startswith(SLOW)]
    _hold(random.Random(SEED).sample(able, 16), errors.refusals)


def test_what_torch_takes_does_not_raise_where_nobody_reads_the_result() -> None:
    chosen = [info for info in infos() if not info.name.startswith(SLOW)]
    _hold(random.Random(SEED).sample(chosen, 25), lambda info: errors.samples(info, 2))


def test_numbers_that_some_operators_refuse() -> None:
    _hold(
        [info for info in infos() if name_of(info) in REFUSING],
        lambda info: errors.spoiled(info, 1),
    )


def _hold(chosen: list[Any], differences: Any) -> None:
    wrong = [
        f"{name_of(i)} {where}: {emitted}" for i in chosen for where, emitted in differences(i)
    ]
    assert not wrong, "\n".join(wrong)


def _needed(row: Any, infos_of: dict[str, Any]) -> bool:
    info = infos_of[row.name]
    names = OTHERS + ("float32",) if row.dtypes == ("*",) else row.dtypes
    batch = Batch(strict=True)
    for name in names:
        if DTYPES[name] in info.supported_dtypes("cpu"):
            for one in cases_of(info, DTYPES[name], ("plain", "gaps", "spread"), 8):
                batch.add(one)
    if any(outcome.state == "differs" for outcome in batch.run()):
        return True
    rare = Batch(strict=True)  # the reference samples have special values
    for one in cases_of(info, DTYPES[row.dtypes[0]], ("chain",), 34, many=True):
        rare.add(one)
    return any(outcome.state == "differs" for outcome in rare.run())


def test_the_table_has_what_is_needed_and_no_more() -> None:
    known = {name_of(info): info for info in infos()}
    assert {row.name for row in left_out()} <= set(known)
    assert {row.what for row in left_out()} <= {"skip", "weigh", "loose", "zeros"}
    stale = [
        row.name
        for row in left_out()
        if "nobody wrote" not in row.reason and not _needed(row, known)
    ]
    assert not stale, stale


def test_the_table_of_operators_is_true() -> None:
    lines = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8").splitlines()
    emitted = {line for line in lines if line.startswith("| ")}
    assert "\n".join(raising().splitlines()) in "\n".join(lines), "write docs/operators.md anew"
    chosen = [info for info in infos() if not info.name.startswith(SLOW)]
    rows = [row(info) for info in random.Random(SEED).sample(chosen, 120)]
    wrong = [line for line in rows if line not in emitted]
    assert not wrong, "write docs/operators.md anew:\n" + "\n".join(wrong)
