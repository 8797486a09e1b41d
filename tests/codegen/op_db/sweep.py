"""Sweeps torch's operator database, compiled against eager.

    python -m tests.codegen.op_db.sweep --dtype float32            every sample, in every way it can be met
    python -m tests.codegen.op_db.sweep --dtype int64 --ops '^add' --ways plain,chain --many
    python -m tests.codegen.op_db.sweep --jit --dtype float32      through `graftjit.jit`
    python -m tests.codegen.op_db.sweep --seed 3 --part 2/8        other values; a part of the operators
    python -m tests.codegen.op_db.sweep --dtype int8 --part 2/8 --tally tests/codegen/op_db/tally.txt

The last keeps the counts in the file that the table at the head of docs/operators.md is made of (coverage.py).
Ends with 1 where a case differs that is not in left_out.txt.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from . import cases, run, tally


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--ops", default="", help="a regular expression")
    parser.add_argument("--ways", default=",".join(cases.WAYS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=None, help="samples of an operator")
    parser.add_argument("--many", action="store_true", help="the reference samples, too")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--jit", action="store_true")
    parser.add_argument("--dynamic", action="store_true", help="jit(dynamic=True)")
    parser.add_argument("--tally", type=Path, help="a file to keep the counts in")
    parser.add_argument("--slow", type=float, default=5.0, help="tell of operators beyond that")
    return parser.parse_args()


def swept(given: argparse.Namespace, info: Any, dtype: torch.dtype, seen: Counter[Any]) -> int:
    """The cases of an operator, compared and counted by way; how many differ."""
    batch, failed = run.Batch(), 0
    ways = given.ways.split(",")
    for case in cases.cases_of(info, dtype, ways, given.most, given.many, given.seed):
        batch.add(case)
    for outcome in batch.run():
        row = run.entry(outcome.case.name, dtype)
        listed = row is not None and row.what == "skip" and outcome.state == "differs"
        seen[outcome.case.way, "listed" if listed else outcome.state] += 1
        if outcome.state == "differs" and not listed:
            print(f"{outcome.case.where}: {outcome.said}", flush=True)
            failed += 1
    return failed


def swept_through_jit(
    given: argparse.Namespace, info: Any, dtype: torch.dtype, seen: Counter[Any]
) -> int:
    extra, failed = {"dynamic": True} if given.dynamic else {}, 0
    for where, said in run.through_jit(info, dtype, given.most or 20, **extra):
        print(f"{where}: {said}", flush=True)
        failed += 1
    seen["jit", "operators"] += 1
    return failed


def main() -> int:
    given = options()
    dtype = cases.DTYPES[given.dtype]
    part, parts = map(int, given.part.split("/"))
    chosen = [info for i, info in enumerate(cases.infos()) if i % parts == part - 1]
    seen: Counter[Any] = Counter()
    failed = 0
    for info in chosen:
        named = re.search(given.ops, cases.name_of(info))
        if not named or dtype not in info.supported_dtypes("cpu"):
            continue
        start = time.perf_counter()
        failed += (swept_through_jit if given.jit else swept)(given, info, dtype, seen)
        spent = time.perf_counter() - start
        if spent > given.slow:
            print(f"  ({cases.name_of(info)}: {spent:.0f} s)", flush=True)
    print({f"{way} {state}": count for (way, state), count in seen.items()})
    if given.tally:
        which = f"{given.most or 'all'}{'-reference' * given.many}"
        tally.keep(given.tally, given.dtype, given.seed, f"{given.part}:{which}", seen)
    return bool(failed)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
