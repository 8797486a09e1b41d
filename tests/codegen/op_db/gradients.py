"""Gradients of torch's operator database in float64: each operator's samples, jitted, beside plain autograd.

    python -m tests.codegen.op_db.gradients --most 3
    python -m tests.codegen.op_db.gradients --only softmax

The samples of an operator run in one jitted call; gradients of a sum of all their results with fixed weights are eager's up to rounding,
and None where eager's are. What eager refuses is not asked.
"""

from __future__ import annotations

import argparse
import sys
import warnings
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


def _gradients(call: Any, op: Any, samples: list[Any]) -> list[Any]:
    """Of the leaves, in order. Raises what torch raises."""
    cases, given = _given(samples)
    torch.manual_seed(SEED)
    outs = [x for x in leaves(call(op, cases)) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not outs:
        return [None] * len(given)
    generator = torch.Generator().manual_seed(SEED)
    weights = [torch.randn(o.shape, generator=generator, dtype=DTYPE).to(o.dtype) for o in outs]
    return list(torch.autograd.grad(outs, given, weights, allow_unused=True))


def _good(info: Any, most: int) -> Iterator[Any]:
    """Samples that eager takes and differentiates."""
    plain = fresh_caller()
    for number, sample in enumerate(samples_of(info, DTYPE)):
        if number == most:
            return
        one = ((sample.input, *sample.args), sample.kwargs)
        try:
            if any(x is not None for x in _gradients(plain, info.op, [one])):
                yield one
        except REFUSALS:
            continue


def difference(info: Any, most: int) -> str:
    """What differs from eager; empty if nothing does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        good = list(_good(info, most))
        if not good:
            return ""
        expected = _gradients(fresh_caller(), info.op, good)
        again = _gradients(fresh_caller(), info.op, good)
        try:
            found = _gradients(jit(fresh_caller()), info.op, good)
        except Exception as error:  # any failure is the outcome
            return f"{type(error).__name__}: {str(error)[:300]}"
    for number, (a, b, c) in enumerate(zip(found, expected, again, strict=True)):
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
    parser.add_argument("--part", default="0/1", help="K/N: each Nth operator from the Kth")
    given = parser.parse_args()
    first, step = map(int, given.part.split("/"))
    chosen = [info for info in differentiable() if given.only in name_of(info)][first::step]
    failed = 0
    for info in chosen:
        said = difference(info, given.most)
        reset()
        if said:
            failed += 1
            print(f"{name_of(info)}: {said}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} operators agree")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
