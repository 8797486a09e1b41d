"""Whether two outputs of a model are the same: tensors within rounding, everything else exactly.

In: what two systems gave, of any classes. Out: what differs first, as text. Called by `looks`.
"""

from __future__ import annotations

from typing import Any

import torch

# In float32 some models, their norms over a few elements, make rounding grow without bound: what differs is looked at in float64 once more.
TOLERANCES = {torch.float32: (1e-3, 2e-5), torch.float64: (1e-4, 1e-6)}


def difference(ours: Any, theirs: Any) -> str:
    """What differs first beyond rounding, or nothing."""
    ours, theirs = flat(ours), flat(theirs)
    if len(ours) != len(theirs):
        return f"{len(ours)} values for {len(theirs)}"
    found = (_unequal(a, b) for a, b in zip(ours, theirs, strict=True))
    return next((f"value {number}: {text}" for number, text in enumerate(found) if text), "")


def _unequal(a: Any, b: Any) -> str:
    if type(a) is not type(b):
        return f"{type(a).__name__} for {type(b).__name__}"
    if isinstance(a, float):
        near = abs(a - b) <= 1e-5 + 1e-4 * abs(b) or (a != a and b != b)
        return "" if near else f"{a} for {b}"
    if not isinstance(a, torch.Tensor):
        return "" if a == b else f"{a!r} for {b!r}"[:300]
    kinds = [(x.dtype, tuple(x.shape), x.stride(), x.requires_grad) for x in (a, b)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} for {kinds[1]}"
    if not a.is_floating_point() and not a.is_complex():
        return "" if torch.equal(a, b) else f"{tuple(a.shape)} of {a.dtype} differs"
    relative, absolute = TOLERANCES.get(a.dtype, TOLERANCES[torch.float32])
    largest = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 0.0
    if torch.allclose(a, b, relative, absolute * max(1.0, largest), equal_nan=True):
        return ""
    return f"{tuple(a.shape)} is off by {(a - b).abs().max():.3g}"


def flat(value: Any, depth: int = 0) -> list[Any]:
    """The tensors and plain values of an output, caches included, with the classes of what holds them."""
    if isinstance(value, torch.Tensor | int | float | str | None):
        return [value]
    parts: Any = ()
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        parts = value
    elif hasattr(value, "__dict__") and depth < 8:
        parts = vars(value).values()
    return [type(value).__name__, *[leaf for part in parts for leaf in flat(part, depth + 1)]]
