"""The models of torchvision with random weights, on small pictures: classification, segmentation, detection, video, optical flow.

Needs `pip install torchvision` of the version that belongs to torch.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from .case import Case, Given, Size, disturbed, fitting, without_dropout
from .torchvision_import import load

__all__ = ["NEEDS", "load", "names", "pictures", "prepared"]

NEEDS = "torchvision"
LARGEST = 45_000_000  # parameters
SIDES = (64, 96, 128, 224, 299)
BATCHES = (2, 3)


def names() -> list[str]:
    """Those that are not too large, and the smallest of each file. Weights of quantized ones are no floats: they are left out."""
    import torchvision

    sizes: dict[str, dict[str, int]] = {}
    for name in torchvision.models.list_models():
        if not name.startswith("quantized"):
            known = torchvision.models.get_model_weights(name)
            file = torchvision.models.get_model_builder(name).__module__
            sizes.setdefault(file, {})[name] = min(one.meta["num_params"] for one in known)
    return [
        name
        for own in sizes.values()
        for name, size in own.items()
        if size <= max(LARGEST, min(own.values()))
    ]


def _bare(name: str) -> dict[str, Any]:
    """No weights are downloaded, those of a backbone neither."""
    import torchvision

    known = inspect.signature(torchvision.models.get_model_builder(name)).parameters
    return {key: None for key in ("weights", "weights_backbone") if key in known}


def prepared(name: str) -> Case:
    import torchvision

    kind = torchvision.models.get_model_builder(name).__module__
    if ".detection" in kind:
        return fitting(lambda side: _detection(name, side), SIDES[1:])
    channels = (3, 16) if ".video" in kind else (3,)
    pair = 2 if ".optical_flow" in kind else 1
    return fitting(lambda side: pictures(name, (*channels, side, side), pair), SIDES)


def _made(name: str, **options: Any) -> torch.nn.Module:
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.get_model(name, **_bare(name), **options)
    return disturbed(without_dropout(model))


def pictures(name: str, shape: tuple[int, ...], count: int) -> Case:
    """A model called with `count` tensors [batch, *shape]."""

    def make(size: Size, masked: bool) -> Given:
        return tuple(torch.randn(size[0], *shape) for _ in range(count)), {}

    sizes = tuple((batch, shape[-1]) for batch in BATCHES)
    try:
        model = _made(name, image_size=shape[-1])
    except (TypeError, ValueError):
        model = _made(name)
    return Case(model, make, sizes)  # type: ignore[arg-type]


def _detection(name: str, side: int) -> Case:
    """Lists of pictures, and in training what is on them."""

    def make(size: Size, masked: bool) -> Given:
        low = torch.rand(size[0], 3, 2) * side / 2
        boxes = torch.cat([low, low + side / 8 + torch.rand(size[0], 3, 2) * side / 4], -1)
        points = torch.cat([low[:, :, None].repeat(1, 1, 17, 1), torch.ones(size[0], 3, 17, 1)], -1)
        targets = [
            {"boxes": box, "labels": torch.ones(3, dtype=torch.long), "keypoints": point,
             "masks": (torch.rand(3, side, side) > 0.5).to(torch.uint8)}
            for box, point in zip(boxes, points, strict=True)
        ]  # fmt: skip
        return ([torch.rand(3, side, side) for _ in boxes], targets), {}

    model = _made(name, **({} if name.startswith("ssd") else {"min_size": side, "max_size": side}))
    return Case(model, make, tuple((batch, side) for batch in BATCHES))  # type: ignore[arg-type]
