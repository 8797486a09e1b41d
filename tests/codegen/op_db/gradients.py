"""Gradients of torch's operator database in float64: each operator's samples, jitted, beside plain autograd.

    python -m tests.codegen.op_db.gradients --most 3
    python -m tests.codegen.op_db.gradients --only softmax
    python -m tests.codegen.op_db.gradients --order 2
    python -m tests.codegen.op_db.gradients --order 2 --inside

The samples of an operator run in one jitted call; gradients of a sum of all their results with fixed weights are eager's up to rounding,
and None where eager's are. What eager refuses is not asked. `--order 2` adds the gradients of these gradients; `--inside` computes all of
them inside the jitted function. The codes of the report are counted.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from graftjit import jit, reset

from .cases import SEED, infos, leaves, name_of, samples_of, swap
from .run import REFUSALS, fresh_caller

DTYPE = torch.float64


def differentiable() -> list[Any]:
    """The operators that have gradients in float64 and give the same for the same numbers."""
    return [
        info for info in infos() if info.supports_autograd and DTYPE in info.supported_dtypes("cpu")
    ]


def _given(samples: list[Any]) -> tuple[list[Any], list[torch.Tensor]]:
    """Fresh copies of the samples, and the leaves among them."""
    found: list[torch.Tensor] = []

    def fresh(x: torch.Tensor) -> torch.Tensor:
        made = x.detach().clone(memory_format=torch.preserve_format)
        if made.dtype is DTYPE:
            found.append(made.requires_grad_())
        return made

    return [swap(sample, fresh) for sample in samples], found


def _differentiated(call: Any, op: Any, cases: Any, given: list[Any], order: int) -> list[Any]:
    """The gradients of all orders up to this one."""
    outs, found = call(op, cases), []
    for number in range(order):
        outs = [x for x in leaves(outs) if isinstance(x, torch.Tensor) and x.requires_grad]
        if not outs:
            return found + [None] * len(given) * (order - number)
        weights = [
            torch.linspace(-0.7, 1.3, o.numel(), dtype=DTYPE).view(o.shape).to(o.dtype)
            for o in outs
        ]
        outs = torch.autograd.grad(
            outs, given, weights, allow_unused=True, create_graph=number + 1 < order
        )
        found += outs
    return found


def _gradients(
    call: Any, op: Any, samples: list[Any], order: int, by: Any = _differentiated
) -> list[Any]:
    """Of the leaves, in order. Raises what torch raises."""
    cases, given = _given(samples)
    torch.manual_seed(SEED)
    return list(by(call, op, cases, given, order))


def _good(info: Any, most: int, order: int) -> Iterator[Any]:
    """Samples that eager takes and differentiates."""
    plain = fresh_caller()
    for number, sample in enumerate(samples_of(info, DTYPE)):
        if number == most:
            return
        one = ((sample.input, *sample.args), sample.kwargs)
        try:
            if any(x is not None for x in _gradients(plain, info.op, [one], order)):
                yield one
        except REFUSALS:
            continue


def difference(info: Any, most: int, order: int = 1, inside: bool = False) -> tuple[str, list[str]]:
    """(what differs from eager, empty if nothing does; the codes of the report)"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        good = list(_good(info, most, order))
        if not good:
            return "", []
        expected = _gradients(fresh_caller(), info.op, good, order)
        again = _gradients(fresh_caller(), info.op, good, order)
        call, by = fresh_caller(), _differentiated
        jitted = by = jit(_differentiated) if inside else by  # type: ignore[assignment]
        if not inside:
            call = jitted = jit(call)
        try:
            found = _gradients(call, info.op, good, order, by)
        except Exception as error:  # any failure is the outcome
            return f"{type(error).__name__}: {str(error)[:300]}", []
    codes = sorted(set(re.findall(r"\b(?:GB|FB|PL|WN)\d+", str(jitted.report()))))
    return _compared(found, expected, again), codes


def _compared(found: list[Any], expected: list[Any], again: list[Any]) -> str:
    for number, (a, b, c) in enumerate(zip(found, expected, again, strict=True)):
        a, b, c = (one if one is None else one.detach() for one in (a, b, c))
        if (a is None) != (b is None):
            return f"gradient {number}: {'None' if a is None else 'one'} in place of the other"
        if (
            a is None
            or not torch.equal(b.isnan(), c.isnan())
            or not torch.allclose(b, c, equal_nan=True)
        ):
            continue  # eager itself gives another one each time
        scale = float(b[b.isfinite()].abs().max()) if bool(b.isfinite().any()) else 0.0
        if not torch.allclose(a, b, rtol=1e-7, atol=1e-9 * (1 + scale), equal_nan=True):
            return f"gradient {number} by {float((a - b).abs().max()):.3g} (of {scale:.3g})"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, default=3, help="samples of an operator")
    parser.add_argument("--only", default="", help="operators whose name contains this")
    parser.add_argument("--order", type=int, default=1, help="2: gradients of gradients as well")
    parser.add_argument("--inside", action="store_true", help="computed inside the jitted function")
    parser.add_argument("--part", default="0/1", help="K/N: each Nth operator from the Kth")
    given = parser.parse_args()
    first, step = map(int, given.part.split("/"))
    chosen = [info for info in differentiable() if given.only in name_of(info)][first::step]
    failed, told = 0, Counter[str]()
    for info in chosen:
        said, codes = difference(info, given.most, given.order, given.inside)
        reset()
        told.update(codes)
        if given.order > 1 and codes:
            print(f"{name_of(info)}: {' '.join(codes)}", flush=True)
        if said:
            failed += 1
            print(f"{name_of(info)}: {said}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} operators agree; codes: {dict(told)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
