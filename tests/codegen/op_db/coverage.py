"""What becomes of each operator of torch's database at level O1: the table of docs/operators.md.

    python -m tests.codegen.op_db.coverage > docs/operators.md

The first samples of an operator are traced and planned; nothing is built. tests/codegen/op_db/test_sweep.py keeps the table true.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections import Counter
from typing import Any

import torch

from graftjit.codegen.schedule import plan as schedule
from graftjit.ir.errors import CannotTrace, TraceError
from graftjit.ir.ops.may_raise import RAISES
from graftjit.ir.passes.pipeline import optimize

from . import tally
from .cases import DTYPES, case, infos, name_of, samples_of, short
from .run import REFUSALS, graph_of, library_of

SAMPLES = 3
HEAD = """\
# Operators

What level O1 makes of the operators of torch's own database (`torch.testing`, torch 2.13), on the CPU, by their first
samples; `python -m tests.codegen.op_db.coverage` writes this table, and a test keeps it true.

- *kernel*: loops of our own, fused with what is around; *view*: no work at all;
- *ATen*: torch's own operator, called from the native program; *kernel + ATen*: some of each;
- *break*: the graph ends there, and Python runs the operator. More than one word: it depends on the arguments.

"""
RAISED = """\
## Operators that raise by value

These ATen operators look at what is in their operands and raise on some of it, in eager and compiled alike, whether somebody reads
the result or not; they cost nothing where they cannot raise (an index made by `arange`, a division of floats or by a number that is not
zero). Beside them an operator raises for its metadata and options only, when a call is traced. ATen operators of which no one has
said that they raise on nothing count as ones that raise. The table is that of [ir/ops/may_raise.py](../ir/ops/may_raise.py);
`python -m tests.codegen.op_db.errors` holds it against eager: the database's error inputs, its samples (`--spoiled`: with numbers
that some operators refuse), results used and dropped.

| raises on | operators |
|---|---|
"""
SWEPT = """\
## Compared with eager

The samples of the database at level O1, beside eager, by `python -m tests.codegen.op_db.sweep --dtype D --ways W` (`--part 2/8`: a
part of the operators; `--most 3`: the first samples of each; `--many`: its reference samples, which have special values; `--seed S`:
other values; `--tally tests/codegen/op_db/tally.txt` keeps the counts, as they were when that piece was swept: most of
what differed has been fixed, is judged as the sum that it is, or is listed since). *same*: metadata, integers, bools, nan and infinities are equal, and the error against float64 is
at most twice eager's; *listed*: in [left_out.txt](../tests/codegen/op_db/left_out.txt) with the reason; *break*: Python runs
the operator, nothing is compiled; *refused*: by eager, too. Ways: *chain* meets an operator inside of a kernel; *turned*, *gaps*, *spread* and *channels* are operands
that are transposed, strided, expanded, channels-last; *open*: sizes are symbols. Most pieces leave out
what takes minutes (`--ops '^(?!nn.functional.(multi_head|linear_cross))'`).

"""


def kind_of(one: Any) -> tuple[str, tuple[str, ...]]:
    """What a case is compiled to, and the ATen operators in it."""
    try:
        graph, _ = graph_of(one)
    except (CannotTrace, TraceError) as error:
        return f"break {getattr(error, 'code', '')}".strip(), ()
    except REFUSALS:
        return "refused", ()
    plan = schedule.plan(optimize(graph))
    library = library_of(plan)
    if plan.kernels:
        return ("kernel + ATen" if library else "kernel"), library
    return ("ATen" if library else "view"), library


def row(info: Any) -> str:
    """The table's line for an operator."""
    supported = info.supported_dtypes("cpu")
    dtype = next((d for d in (torch.float32, *DTYPES.values()) if d in supported), None)
    if dtype is None:
        return f"| {name_of(info)} | | not on the CPU | |"
    kinds, left = Counter[str](), dict[str, None]()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sample in enumerate(itertools.islice(samples_of(info, dtype), SAMPLES)):
            one = case(info, dtype, number, sample, "plain")
            if one is not None:
                kind, library = kind_of(one)
                kinds[kind] += 1
                left.update(dict.fromkeys(name.removeprefix("aten.") for name in library))
    names = ", ".join(left)
    seen = "" if dtype == torch.float32 else short(dtype)
    return f"| {name_of(info)} | {seen} | {', '.join(sorted(kinds)) or 'no sample'} | {names} |"


def table() -> str:
    rows = sorted(row(info) for info in infos())
    counts = Counter(line.split("|")[3].strip() for line in rows)
    summary = "; ".join(f"{kind}: {count}" for kind, count in counts.most_common())
    head = "| operator | of | becomes | ATen operators left |\n|---|---|---|---|\n"
    seen = f"{len(rows)} operators. {summary}."
    parts = (
        HEAD + seen,
        raising(),
        SWEPT + tally.table(),
        "## By operator\n\n" + head + "\n".join(rows),
    )
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def raising() -> str:
    """The section on what raises."""
    lines = [
        f"| {reason} | {', '.join(name for name, of in RAISES.items() if of == reason)} |"
        for reason in dict.fromkeys(RAISES.values())
    ]
    return RAISED + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
