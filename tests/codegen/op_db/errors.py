"""What raises in eager raises compiled: torch's operator database, each operator's error inputs and samples.

    python -m tests.codegen.op_db.errors                      every operator
    python -m tests.codegen.op_db.errors gather index_select  those operators
    python -m tests.codegen.op_db.errors --part 2/8           a part of them
    python -m tests.codegen.op_db.errors --spoiled            the samples with values that some operators refuse

Each error input goes through `jit` with its result returned, with its result dropped, and as the in-place variant. The
exception has eager's class and text. Each sample's result is dropped, too: what eager takes does not raise. Spoiled
samples have numbers far away, zeros, nan and negative numbers in place of theirs, and raise or not as eager does.
Ends with 1 where an operator differs.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from graftjit import jit, reset

from .cases import SEED, infos, name_of, samples_of, short, swap
from .run import entry, fresh, function

MOST = 4  # samples of an operator and a dtype
USED = "def call(op, args, kwargs):\n    return op(*args, **kwargs)\n"
DROPPED = "def call(op, args, kwargs):\n    op(*args, **kwargs)\n    return 7\n"
ALL_DROPPED = "def call(op, cases):\n    for args, kwargs in cases:\n        op(*args, **kwargs)\n    return 7\n"
# What takes the place of the numbers in a spoiled sample, by turns along a tensor.
SPOILS = {
    "far": lambda x: torch.full_like(x, 100 if x.dtype in (torch.int8, torch.uint8) else 12345),
    "zero": torch.zeros_like,
    "below": lambda x: torch.full_like(x, -3) if x.dtype.is_signed else torch.full_like(x, 200),
    "nan": lambda x: torch.full_like(x, float("nan")) if x.dtype.is_floating_point else x,
}


# What eager itself does not survive: LAPACK follows pivots wherever they lead, and on some processors a matrix of nan.
DEADLY = {("linalg.eigvals", "nan"), *(("linalg.ldl_solve", name) for name in SPOILS)}


def raised(call: Callable[[], Any]) -> str:
    """Class and text of what a call raises, "nothing" if it does not."""
    torch.manual_seed(SEED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except Exception as error:  # that is what is compared
        return f"{type(error).__name__}: {error}"
    return "nothing"


def beside_eager(op: Any, args: Any, kwargs: Any, forms: Any = (USED, DROPPED)) -> Iterator[str]:
    """What differs where one call is made, its result used and dropped."""
    plain = raised(lambda: op(*fresh(args), **fresh(kwargs)))
    for form in forms:
        call = jit(function(form))
        ours = raised(lambda call=call: call(op, fresh(args), fresh(kwargs)))
        if ours != plain:
            yield f"{'used' if form is USED else 'dropped'}: {ours[:300]} IN PLACE OF {plain[:300]}"


def refusals(info: Any) -> Iterator[tuple[str, str]]:
    """(which, what differs) of an operator's error inputs."""
    for number, given in enumerate(info.error_inputs("cpu")):
        sample = given.sample_input
        args = (sample.input, *sample.args)
        for said in beside_eager(info.op, args, sample.kwargs):
            yield f"error {number}", said
        if info.inplace_variant and isinstance(sample.input, torch.Tensor):
            for said in beside_eager(info.inplace_variant, args, sample.kwargs, (DROPPED,)):
                yield f"error {number} inplace", said


def dtypes_of(info: Any) -> list[torch.dtype]:
    """float32 and int64, where they are supported."""
    row = entry(name_of(info), torch.float32)
    skipped = row is not None and row.what == "skip" and "seconds" in row.reason
    supported = info.supported_dtypes("cpu")
    return [] if skipped else [d for d in (torch.float32, torch.int64) if d in supported]


def samples(info: Any, most: int) -> Iterator[tuple[str, str]]:
    """(which, what differs) of an operator's samples, their results dropped, all of them in one jitted call."""
    for dtype in dtypes_of(info):
        cases = [
            ((sample.input, *sample.args), sample.kwargs)
            for sample in itertools.islice(samples_of(info, dtype), most)
        ]
        plain = [raised(lambda c=c: info.op(*fresh(c[0]), **fresh(c[1]))) for c in cases]
        good = [c for c, said in zip(cases, plain, strict=True) if said == "nothing"]
        ours = raised(lambda good=good: jit(function(ALL_DROPPED))(info.op, fresh(good)))
        if ours != "nothing":
            yield short(dtype), f"dropped: {ours[:300]} IN PLACE OF nothing"
        for number, (case, said) in enumerate(zip(cases, plain, strict=True)):
            if said != "nothing":
                for emitted in beside_eager(info.op, *case):
                    yield f"{short(dtype)} {number}", emitted


def spoiled(info: Any, most: int) -> Iterator[tuple[str, str]]:
    """(which, what differs) of samples one of whose tensors has other numbers."""
    for dtype in dtypes_of(info):
        for number, sample in enumerate(itertools.islice(samples_of(info, dtype), most)):
            given = ((sample.input, *sample.args), sample.kwargs)
            count = [0]
            swap(given, lambda x, count=count: count.__setitem__(0, count[0] + 1))
            for which, (name, spoil) in itertools.product(range(count[0]), SPOILS.items()):
                if (name_of(info), name) in DEADLY:
                    continue
                place = itertools.count()
                try:
                    case = swap(
                        given,
                        lambda x, w=which, s=spoil, p=place: s(x) if next(p) == w else x,
                    )
                except (RuntimeError, NotImplementedError):
                    continue
                for emitted in beside_eager(info.op, *case):
                    yield f"{short(dtype)} {number} {name} in {which}", emitted


def differences(info: Any, most: int = MOST, spoil: bool = False) -> Iterator[tuple[str, str]]:
    """All of an operator's."""
    if spoil:
        yield from spoiled(info, most)
        return
    if info.error_inputs_func:
        yield from refusals(info)
    yield from samples(info, most)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operators", nargs="*", help="names; none: all")
    parser.add_argument("--most", type=int, default=MOST, help="samples of an operator")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--spoiled", action="store_true")
    parser.add_argument("--names", action="store_true", help="say which operator is next")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    seen: Counter[str] = Counter()
    for number, info in enumerate(infos()):
        name = name_of(info)
        if (given.operators and name not in given.operators) or number % parts != part - 1:
            continue
        if given.names:
            print(name, flush=True)
        found = list(differences(info, given.most, given.spoiled))
        reset()
        seen["operators"] += 1
        seen["with error inputs"] += bool(info.error_inputs_func)
        seen["differ"] += bool(found)
        for where, said in found:
            print(f"| {name} | {where} | {said} |".replace("\n", " "), flush=True)
    print(dict(seen))
    return int(seen["differ"] > 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
