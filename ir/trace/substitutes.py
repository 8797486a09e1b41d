"""Substitutes for torch functions that take another branch for ghosts.

torch checks for a subclass or asks for plain numbers there. In: the function of a traced call. Out:
its substitute over ghosts. The recorded call is the program's own; at replay it takes torch's
branch for plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..ops.checks import one_hot
from .ghost import Ghost
from .open_sizes import OPEN

aten = torch.ops.aten


def _max_pool1d(real: Callable[..., Any]) -> Callable[..., Any]:
    """On the CPU without a gradient, torch uses a kernel with a contiguous result, no view."""

    def pooled(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = real(input, *args, **kwargs)
        follows = torch.is_grad_enabled() and input.requires_grad
        plain = isinstance(result, torch.Tensor) and not follows and input.device.type == "cpu"
        if not plain:
            return result
        return aten._unsafe_view(result.contiguous().unsqueeze(0), result.shape)

    return pooled


# (mode, rank) -> the operator, and the number of arguments between the sizes and the scales.
_RESAMPLED: dict[tuple[str, int], tuple[Any, int]] = {
    ("nearest", 3): (aten.upsample_nearest1d, 0),
    ("nearest", 4): (aten.upsample_nearest2d, 0),
    ("nearest", 5): (aten.upsample_nearest3d, 0),
    ("nearest-exact", 3): (aten._upsample_nearest_exact1d, 0),
    ("nearest-exact", 4): (aten._upsample_nearest_exact2d, 0),
    ("nearest-exact", 5): (aten._upsample_nearest_exact3d, 0),
    ("linear", 3): (aten.upsample_linear1d, 1),
    ("bilinear", 4): (aten.upsample_bilinear2d, 1),
    ("trilinear", 5): (aten.upsample_trilinear3d, 1),
    ("bicubic", 4): (aten.upsample_bicubic2d, 1),
}
_ANTIALIASED: dict[tuple[str, int], tuple[Any, int]] = {
    ("bilinear", 4): (aten._upsample_bilinear2d_aa, 1),
    ("bicubic", 4): (aten._upsample_bicubic2d_aa, 1),
}


def _interpolate(real: Callable[..., Any]) -> Callable[..., Any]:
    """F.interpolate over symbolic sizes.

    torch's C++ needs plain sizes if there is a scale factor. The sizes of the result are computed
    here in the same way, in double precision.
    """

    def resampled(
        input: Any,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: Any = None,
        recompute_scale_factor: Any = None,
        antialias: bool = False,
    ) -> Any:
        options = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
        table = _ANTIALIASED if antialias else _RESAMPLED
        known = table.get((mode, input.dim())) if isinstance(input, torch.Tensor) else None
        if (
            known is None
            or not _numbers(scale_factor if size is None else size, input.dim() - 2)
            or (size is not None and (scale_factor is not None or recompute_scale_factor))
            or (align_corners is not None and mode.startswith("nearest"))
            or all(type(extent) is int for extent in input.shape)
            or input.device.type != "cpu"
            or torch.is_autocast_enabled("cpu")
        ):
            # Raises for invalid arguments.
            return real(input, *options)
        operator, flags = known
        rank = input.dim() - 2
        given = _each(scale_factor if size is None else size, rank)
        scales: list[Any] = [None] * rank
        if size is None:
            sizes = [_times(e, scale) for e, scale in zip(input.shape[2:], given, strict=True)]
            scales = scales if recompute_scale_factor else [float(scale) for scale in given]
        else:
            sizes = given
        return operator.default(input, sizes, *(bool(align_corners),) * flags, *scales)

    return resampled


def _each(given: Any, rank: int) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given] * rank


def _numbers(given: Any, rank: int) -> bool:
    """Whether these are sizes or scale factors for `rank` dimensions."""
    each = _each(given, rank)
    return len(each) == rank and all(type(one) in (int, float, torch.SymInt) for one in each)


def _times(extent: Any, scale: Any) -> Any:
    """The size of the result along one dimension."""
    return extent * int(scale) if scale == int(scale) else torch.sym_int(extent * scale)


def _tensor(real: Callable[..., Any]) -> Callable[..., Any]:
    """torch.tensor of numbers of which some are symbolic: torch would need plain ones."""

    def made(data: Any, **options: Any) -> Any:
        shape, flat = _flattened(data)
        kinds = {type(item) for item in flat}
        if (
            not kinds & {torch.SymFloat, torch.SymInt}
            or not kinds <= {int, float, torch.SymFloat, torch.SymInt}
            or not options.keys() <= {"dtype"}
            or torch.get_default_device().type != "cpu"
        ):
            return real(data, **options)
        floats = kinds & {float, torch.SymFloat}
        dtype = options.get("dtype") or (torch.get_default_dtype() if floats else torch.int64)
        if dtype not in (torch.float32, torch.float64, torch.int64) or (
            floats and not dtype.is_floating_point
        ):
            return real(data, **options)
        parts = [aten.scalar_tensor.default(item, dtype=dtype, device="cpu") for item in flat]
        return aten.stack.default(parts).view(shape)

    return made


def _flattened(data: Any) -> tuple[list[int], list[Any]]:
    """(shape, items) of nested lists; no items if the lists are ragged."""
    if not isinstance(data, (list, tuple)):
        return [], [data]
    parts = [_flattened(item) for item in data]
    if not parts or any(shape != parts[0][0] for shape, _ in parts):
        return [], []
    return [len(parts), *parts[0][0]], [item for _, items in parts for item in items]


def _is_index(input: Any) -> bool:
    return type(input) is Ghost and input.dtype == torch.int64 and input.device.type == "cpu"


def _one_hot(real: Callable[..., Any]) -> Callable[..., Any]:
    """For plain CPU tensors torch checks the classes, and the result is contiguous."""

    def encoded(input: torch.Tensor, num_classes: Any = -1) -> Any:
        if not (type(num_classes) is torch.SymInt and _is_index(input)):
            # Raises the errors that metadata alone shows.
            result = real(input, num_classes)
            if type(input) is not Ghost or input.device.type != "cpu":
                return result
        return one_hot(input, num_classes)

    return encoded


AS_PLAIN: dict[Callable[..., Any], Callable[..., Any]] = {
    **OPEN,
    F.interpolate: _interpolate(F.interpolate),
    **{real: _one_hot(real) for real in (F.one_hot, aten.one_hot, aten.one_hot.default)},
    torch.tensor: _tensor(torch.tensor),
    **{real: _max_pool1d(real) for real in (torch.max_pool1d, F.max_pool1d)},
}
