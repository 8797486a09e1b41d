"""`import torchvision`, also beside a build of torch that its library of C++ operators was not made for (a CPU build, say).

Of those operators, models need `nms` alone, which has no other form there: `load` gives it a kernel in Python.
"""

from __future__ import annotations

import importlib.util

import torch


def load() -> None:
    """Raises ImportError where there is none."""
    if importlib.util.find_spec("torchvision") is None:
        raise ImportError("torchvision is not installed")
    try:
        import torchvision
    except RuntimeError:  # its fake operators are registered although there are none
        _define_operators()
        import torchvision
    if not torchvision.extension._has_ops():
        torchvision.ops.boxes._assert_has_ops = lambda: None


_OPERATORS: list[torch.library.Library] = []


def _define_operators() -> None:
    """The operators that `_meta_registrations` expects; models call the first one, whose kernel is in Python here."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", _nms, "CPU")
    _OPERATORS.append(library)  # it ends with the object


def _nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Boxes by descending score, each kept if it overlaps no kept one by more than the threshold."""
    order = scores.argsort(descending=True, stable=True)
    boxes = boxes[order]
    low = torch.maximum(boxes[:, None, :2], boxes[:, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[:, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    over = (shared / (areas[:, None] + areas - shared) > threshold).tolist()
    kept: list[int] = []
    for number, row in enumerate(over):
        if not any(row[other] for other in kept):
            kept.append(number)
    return order[torch.tensor(kept, dtype=torch.long)]
