"""Sweeps torch's operator database with Triton's kernels: each sample planned, its kernels run in Triton's interpreter.

    python -m tests.codegen.op_db.triton --dtype float32 --most 3        the first samples of each operator, against eager
    python -m tests.codegen.op_db.triton --dtype int64 --ops '^index' --ways plain,chain --part 2/8

What it is compared by, and what is left out, is that of sweep.py. *declined*: Triton text cannot say a kernel of it,
and a GPU's plan leaves that to ATen. Ends with 1 where a case differs; the last lines are the counts, and what declines.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from graftjit.ir.errors import CannotTrace, TraceError

from ..triton.made import TritonMade
from ..triton.worker import Worker
from . import cases, run


class Declined(Exception):
    """A kernel of a case has no Triton text."""


class _Made(TritonMade):
    def built(self, nests: list[Any], numbers: dict[str, Any]) -> tuple[dict[str, int], Any]:
        for nest in nests:
            if nest.tiled is not None:  # an epilogue of a product of our own: none on a GPU
                raise Declined("epilogue")
        return super().built(nests, numbers)

    def _callback(self, nest: Any, numbers: dict[str, Any]) -> Any:
        found = super()._callback(nest, numbers)
        if found is None:
            raise Declined(self.declined[nest.name].splitlines()[0])
        return found


def outcome(case: cases.Case, worker: Worker) -> run.Outcome:
    """What becomes of a case. State "declined": `said` is why."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _outcome(case, worker)


def _outcome(case: cases.Case, worker: Worker) -> run.Outcome:
    try:
        expected = cases.eager(case.fn, case.inputs)
    except run.REFUSALS as error:
        return run.Outcome(case, "refused", type(error).__name__)
    try:
        graph, given = run.graph_of(case)
    except (run.NotOpen, CannotTrace, TraceError, *run.REFUSALS) as error:
        return run.Outcome(case, "break", type(error).__name__)
    try:
        made = _Made(graph, worker)
        torch.manual_seed(cases.SEED)
        with torch.no_grad():
            found = made.run(*given)
    except Declined as error:
        return run.Outcome(case, "declined", str(error))
    except Exception as error:  # any failure is the case's outcome
        said = str(error).strip().splitlines() or [""]
        emitted = next((line for line in reversed(said) if "Error" in line), said[0])
        return run.Outcome(case, "differs", f"raises {type(error).__name__}: {emitted[:300]}")
    row = run.entry(case.name, case.dtype)
    folded = not run.pointwise(made.plan) or (row is not None and row.what == "weigh")
    # libdevice is numpy in the interpreter, whose functions err by some units in the last place
    said = run.compared(case, found, expected, folded, run.LOOSE)
    return run.Outcome(case, "differs" if said else "same", said, len(made.kernels))


def sweep(some: Iterable[cases.Case], worker: Worker) -> list[run.Outcome]:
    """The outcomes of cases that are not left out."""
    kept = (
        case for case in some
        if (row := run.entry(case.name, case.dtype)) is None or row.what != "skip"
    )  # fmt: skip
    return [outcome(case, worker) for case in kept]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--ops", default="", help="a regular expression")
    parser.add_argument("--ways", default="plain,chain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=None, help="samples of an operator")
    parser.add_argument("--part", default="1/1")
    return parser.parse_args()


def main() -> int:
    given = options()
    dtype = cases.DTYPES[given.dtype]
    part, parts = map(int, given.part.split("/"))
    seen, declined = Counter[str](), Counter[str]()
    kernels = 0
    with Worker() as worker:
        for number, info in enumerate(cases.infos()):
            named = re.search(given.ops, cases.name_of(info)) and number % parts == part - 1
            if not named or dtype not in info.supported_dtypes("cpu"):
                continue
            ways = given.ways.split(",")
            some = cases.cases_of(info, dtype, ways, given.most, False, given.seed)
            for one in sweep(some, worker):
                seen[one.state] += 1
                kernels += one.kernels
                if one.state == "differs":
                    print(f"{one.case.where}: {one.said}", flush=True)
                if one.state == "declined":
                    declined[f"{one.case.name}: {one.said}"] += 1
    print(dict(seen), f"{kernels} kernels")
    for emitted, count in sorted(declined.items()):
        print(f"declined {count} of {emitted}")
    return bool(seen["differs"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
