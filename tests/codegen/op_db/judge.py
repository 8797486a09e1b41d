"""Is our result the one that eager gives? The measure of the sweep over torch's operator database.

`judge(ours, theirs, exact)` says in words what is wrong, or nothing. Metadata, integers, bools, and the places of nan
and infinity must be equal. A float may be as far from the float64 evaluation as twice eager's own error, and one
rounding more; eager's error is the worst over the result, for one element may be exact by luck.
"""

from __future__ import annotations

import torch

# Errors, in units in the last place, that are let pass however exact eager is on the few elements of a sample.
FREE = {torch.float32: 2.0, torch.float64: 4.0, torch.bfloat16: 1.0, torch.float16: 1.0}


def judge(
    ours: torch.Tensor,
    theirs: torch.Tensor,
    exact: torch.Tensor | None,
    folded: bool,
    free: float = 0.0,
) -> str:
    """folded: sums are in it, whose error is weighed against the largest element, as sums may cancel; free: what error is let
    pass in any case, in units in the last place."""
    for name in ("dtype", "shape", "device", "layout"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{name} {getattr(ours, name)} in place of {getattr(theirs, name)}"
    if ours.layout is not torch.strided:
        return ""
    if ours.stride() != theirs.stride():
        return f"strides {ours.stride()} in place of {theirs.stride()} at {tuple(ours.shape)}"
    if ours.is_complex():
        if ours.is_conj() != theirs.is_conj():
            return "a conjugate in one of them only"
        parts = [x.resolve_conj() for x in (ours, theirs)]
        known = exact is not None and exact.is_complex()
        wide = torch.view_as_real(exact.resolve_conj()) if known else None  # type: ignore[union-attr]
        return judge(*map(torch.view_as_real, parts), wide, True)
    if not ours.dtype.is_floating_point:
        wrong = int((ours != theirs).sum())
        return f"{wrong} elements differ" if wrong else ""
    same = (ours == theirs) & (torch.signbit(ours) == torch.signbit(theirs))
    if bool((same | (ours.isnan() & theirs.isnan())).all()):
        return ""
    return _by_error(ours, theirs, exact, folded, free)


def _by_error(
    ours: torch.Tensor,
    theirs: torch.Tensor,
    exact: torch.Tensor | None,
    folded: bool,
    free: float = 0.0,
) -> str:
    a, b = ours.double(), theirs.double()
    special = ~(a.isfinite() & b.isfinite())
    alike = (a == b) | (a.isnan() & b.isnan())
    if bool((special & ~alike).any()):
        return f"{int((special & ~alike).sum())} elements are nan or infinite in one of them only"
    zeros = (a == 0) & (b == 0) & (torch.signbit(a) != torch.signbit(b))
    if bool(zeros.any()):
        return f"{int(zeros.sum())} zeros have the other sign"
    known = exact is not None and exact.shape == b.shape and exact.dtype == torch.float64
    truth = torch.where(exact.isfinite(), exact, b) if known else b  # type: ignore[union-attr]
    unit = spacing(truth, ours.dtype)
    if folded and bool((~special).any()):
        unit = unit.maximum(spacing(truth[~special].abs().max(), ours.dtype))
    mine, plain = ((a - truth).abs() / unit, (b - truth).abs() / unit)
    mine, plain = mine[~special], plain[~special]
    if not mine.numel():
        return ""
    allowed = (2 * plain + 1).maximum(2 * plain.max() + 1)
    wrong = mine > allowed.clamp(min=max(FREE[ours.dtype], free))
    if not bool(wrong.any()):
        return ""
    return (
        f"{int(wrong.sum())} elements are off by up to {float(mine[wrong].max()):.3g} units in the"
        f" last place, eager by {float(plain.max()):.3g}"
    )


def worst(found: torch.Tensor, truth: torch.Tensor, folded: bool) -> float:
    """The greatest error of a float result, in units in the last place."""
    a, b = found.double(), truth.double()
    good = a.isfinite() & b.isfinite()
    if found.is_complex() or found.shape != truth.shape or not bool(good.any()):
        return 0.0
    a, b = a[good], b[good]
    return float(((a - b).abs() / spacing(b.abs().max() if folded else b, found.dtype)).max())


def spacing(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance of neighbouring numbers of dtype at x."""
    info = torch.finfo(dtype)
    least = torch.tensor(info.smallest_normal, dtype=torch.float64)
    _, exponent = torch.frexp(x.double().abs().maximum(least))
    return torch.ldexp(torch.full_like(exponent, info.eps, dtype=torch.float64), exponent - 1)
