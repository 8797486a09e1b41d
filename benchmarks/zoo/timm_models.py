"""The image models of timm with random weights: the smallest of each of its module files, on the smallest pictures that it takes.

Needs `pip install timm`, and torchvision with it (see `torchvision_import`).
"""

from __future__ import annotations

from typing import Any

import torch

from .case import Case, Given, Size, disturbed, fitting, without_dropout
from .torchvision_import import load as load_torchvision

NEEDS = "timm"
SIDES = (64, 96, 128, 192, 224, 256)
BATCHES = (2, 3)
# The words for small in its names, the smallest first.
SMALL = ("test", "zepto", "atto", "femto", "pico", "nano", "xxt", "xxs", "xt", "xs", "micro", "tiny", "t0", "m0", "b0", "lite",
         "mini", "small", "s0", "s1")  # fmt: skip
CANDIDATES = 3


def load() -> None:
    load_torchvision()
    import timm  # noqa: F401


def names() -> list[str]:
    """One of each module file."""
    from timm.models import _registry

    old = _registry._deprecated_models
    files = sorted(_registry._module_to_models.items())
    return [_smallest(sorted(found - set(old))) for _file, found in files if found - set(old)]


def _smallest(found: list[str]) -> str:
    """Of the first few by `SMALL`, the one with the fewest parameters."""
    import timm

    def rank(name: str) -> tuple[int, int, str]:
        word = next((place for place, word in enumerate(SMALL) if word in name), len(SMALL))
        return word, len(name), name

    sizes = {}
    for name in sorted(found, key=rank)[:CANDIDATES]:
        try:
            with torch.device("meta"):
                sizes[name] = sum(x.numel() for x in timm.create_model(name).parameters())
        except Exception:  # it needs values while it is built
            continue
    return min(sizes, key=lambda name: sizes[name]) if sizes else min(found, key=rank)


def prepared(name: str) -> Case:
    return fitting(lambda choice: _case(name, *choice), [(side, fixed) for side in SIDES for fixed in (True, False)])  # fmt: skip


def _case(name: str, side: int, fixed: bool) -> Case:
    """`fixed`: the model is built for this side."""
    import timm

    torch.manual_seed(0)
    options: dict[str, Any] = {"img_size": side} if fixed else {}
    model = timm.create_model(name, pretrained=False, **options)
    channels = model.default_cfg.get("input_size", (3,))[0]

    def make(size: Size, masked: bool) -> Given:
        return (torch.randn(size[0], channels, side, side),), {}

    sizes = tuple((batch, side) for batch in BATCHES)
    return Case(disturbed(without_dropout(model)), make, sizes)  # type: ignore[arg-type]
