"""Weight casts that outlive a graph: `graftjit::cached_cast`, over autocast's cache.

With autocast on around a compiled part, eager casts a weight once and keeps the cast until the
outermost block ends, even if the weight's memory is written meanwhile. This operator does the same:
it reads the cache where eager would, and later operators in plain Python find what it stored. The
native executor calls `at::autocast::cached_cast` (runtime/native/executor/autocast_cache.cpp); the
Python body here runs without it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..graph.nodes import Meta
from ..graph.opdef import OPS, OpDef
from .ghost import Ghost

_MM = torch.ops.aten.mm.default
# The operators live as long as this object.
_LIBRARY = torch.library.Library("graftjit", "FRAGMENT")
_LIBRARY.define("cached_cast(Tensor self, ScalarType dtype, Device device) -> Tensor")

AUTOCAST_DEVICES = ("cpu", "cuda")  # the types of devices that graphs compute on
Casts = tuple[tuple[str, torch.dtype], ...]  # autocast: (device type, dtype) where it is on
Kept = dict[str, torch.dtype]  # type of device -> dtype of the weight casts that autocast caches
# Functions that cast explicitly, besides calls with a dtype argument: autocast does not cache
# these.
_BY_HAND = frozenset(
    {"half", "bfloat16", "float", "double", "type", "type_as", "to", "_to_copy", "copy_", "copy"}
)


def outliving() -> Kept:
    """The cached weight casts that outlive a graph that begins here."""
    if is_nested() or any(map(torch.is_autocast_enabled, AUTOCAST_DEVICES)):
        return {name: torch.get_autocast_dtype(name) for name in AUTOCAST_DEVICES}
    return {}


def casts_now() -> Casts:
    """The autocast of this thread."""
    kinds = filter(torch.is_autocast_enabled, AUTOCAST_DEVICES)
    return tuple([(kind, torch.get_autocast_dtype(kind)) for kind in kinds])


def is_nested() -> bool:
    """Whether an autocast block is open on this thread, including one that disables autocast."""
    try:
        return torch.autocast_increment_nesting() > 1
    finally:
        torch.autocast_decrement_nesting()


def by_hand(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call casts explicitly; the dispatcher does not distinguish autocast's."""
    name = fn._opname if isinstance(fn, torch._ops.OpOverload) else getattr(fn, "__name__", "")
    return name in _BY_HAND or any(type(v) is torch.dtype for v in (*args, *kwargs.values()))


def is_kept(ghost: Ghost, dtype: Any, kept: Kept) -> bool:
    """Whether autocast caches this cast: of an outside float32 weight, to its dtype."""
    name = ghost.device.type
    if kept.get(name) is not dtype or torch.get_autocast_dtype(name) is not dtype:
        return False
    if not ghost.requires_grad or ghost.dtype is not torch.float32:
        return False
    return ghost._node.op in ("input", "constant")


def is_cached(ghost: Ghost, dtype: Any) -> bool:
    """Whether autocast, if it casts here, caches the cast itself. torch does not tell: it disables
    autocast while it casts."""
    return torch.is_autocast_cache_enabled() and is_kept(ghost, dtype, {ghost.device.type: dtype})


class _Taker(TorchDispatchMode):
    """A mode that lets casts run and keeps the first operand of a product."""

    taken: torch.Tensor

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True makes torch import torch._dynamo.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not _MM:
            return func(*args, **(kwargs or {}))
        self.taken = args[0]
        return args[0]


def _in_python(tensor: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The tensor that autocast passes to a product.

    If the weight's sizes changed since the cast was cached, cast anew: the kernels expect the new
    sizes.
    """
    taker = _Taker()
    before = torch.is_autocast_enabled(device.type)
    torch.set_autocast_enabled(device.type, True)
    try:
        with taker:
            torch.mm(tensor, tensor)
    finally:
        torch.set_autocast_enabled(device.type, before)
    taken = taker.taken
    same = taken.shape == tensor.shape and taken.stride() == tensor.stride()
    return taken if same and taken.dtype is dtype else tensor.to(dtype)


def _rule(op: Any, self: Meta, dtype: torch.dtype, device: torch.device) -> Any:
    return OPS["aten._to_copy.default"].rule(op, self, dtype=dtype)


_LIBRARY.impl("cached_cast", _in_python, "CompositeExplicitAutograd")
cached_cast = torch.ops.graftjit.cached_cast.default
OPS[str(cached_cast)] = OpDef(str(cached_cast), "copy", _rule)
