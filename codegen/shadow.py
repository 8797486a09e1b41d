"""Under GRAFTJIT_CHECK: each run of a compiled graph beside the replay of its torch-level calls.

`shadowed(program, replay, ...)` is a program that runs both and raises CheckError, naming the graph's kernels, where
they differ by more than `TOLERANCE` allows. Used by `codegen.backend` for graphs that neither write nor draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.graph import Graph, Meta
from ..runtime.errors import CheckError

# dtype -> (relative, absolute by the largest element) error allowed; fused sums run in another order than eager's
TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-9, 1e-12),
    torch.float32: (3e-4, 3e-5),
    torch.bfloat16: (5e-2, 2e-2),
    torch.float16: (1e-2, 4e-3),
}
# integers and bools may hang on a comparison of floats: this part of the elements may differ
FLIPS = 1e-3


def shadowed(
    program: Callable[..., Any], replay: Callable[..., Any], graph: Graph, kernels: Sequence[str]
) -> Callable[..., Any]:
    """The program with the comparison after it."""
    allowed = tolerance(graph)

    def checked(*inputs: Any) -> Any:
        found = program(*inputs)
        with torch.set_grad_enabled(graph.spends):
            expected = replay(*inputs)
        for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            difference = differs(ours, theirs, allowed)
            if difference:
                raise CheckError(
                    f"result {number} of the compiled graph {graph.name} is not what eager gives",
                    expected=_short(theirs),
                    found=f"{_short(ours)}; {difference}; kernels: {', '.join(kernels) or 'none'}",
                )
        return found

    return checked


def tolerance(graph: Graph) -> tuple[float, float]:
    """What the narrowest float on the way allows: a float64 result may be the sum of float32 values, each with
    the error of a float32 function."""
    found = (0.0, 0.0)
    for node in (*graph.inputs, *graph.nodes):
        metas = node.meta if isinstance(node.meta, tuple) else (node.meta,)
        for meta in metas:
            if isinstance(meta, Meta):
                found = max(found, TOLERANCE.get(meta.dtype, found))
    return found


def differs(
    ours: torch.Tensor,
    theirs: torch.Tensor,
    allowed: tuple[float, float] = (0.0, 0.0),
    scale: float = 0.0,
) -> str:
    """What is different, in words; empty if nothing is. `allowed` is the least error to be let pass, the absolute one in
    units of the largest element, or of `scale` if that is larger."""
    for name in ("shape", "dtype", "device"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{name} {getattr(ours, name)} in place of {getattr(theirs, name)}"
    if ours.numel() == 0:
        return ""
    strides = [
        (a, b) for a, b, n in zip(ours.stride(), theirs.stride(), ours.shape, strict=True) if n > 1
    ]
    if any(a != b for a, b in strides):
        return f"strides {ours.stride()} in place of {theirs.stride()}"
    if ours.dtype not in TOLERANCE:
        if ours.is_complex():
            return "" if torch.allclose(ours, theirs, 1e-4, 1e-4, equal_nan=True) else "values"
        wrong = int((ours != theirs).sum())
        return f"{wrong} elements differ" if wrong > max(1, FLIPS * ours.numel()) else ""
    relative, absolute = max(allowed, TOLERANCE[ours.dtype])
    return _float_difference(ours.double(), theirs.double(), relative, absolute, scale)


def _float_difference(
    ours: Any, theirs: Any, relative: float, absolute: float, scale: float
) -> str:
    finite = theirs.isfinite()
    same_kind = (ours.isnan() == theirs.isnan()) & ((ours == theirs) | finite | theirs.isnan())
    if not bool(same_kind.all()):
        return f"{int((~same_kind).sum())} elements are nan or infinite in one of them only"
    if not bool(finite.any()):
        return ""
    scale = max(scale, float(theirs[finite].abs().max()))
    error = (ours - theirs).abs()
    wrong = finite & ~(error <= relative * theirs.abs() + absolute * max(scale, 1e-30))
    if not bool(wrong.any()):
        return ""
    return f"{int(wrong.sum())} elements differ, by up to {float(error[wrong].max()):.3g}"


def _short(tensor: torch.Tensor) -> str:
    values = tensor.detach().flatten()[:4].tolist()
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} {values}"
