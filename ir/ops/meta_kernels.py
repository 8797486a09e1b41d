"""Metadata from torch itself: dtypes of pointwise operators, and operators without a rule of ours.

`result_dtype` runs the operator on one-element tensors of the same dtypes, for ATen's own type
promotion and its own refusals; results are cached by signature. `run_sample` runs an operator on
zero-filled tensors of the same sizes and strides, once per process for equal arguments: any on the
CPU, and on a GPU those whose kernels do not look at data. `run_meta` asks torch's meta kernels,
which import heavy modules and do not know all strides (of what cuDNN chooses, for example). All of
it runs below autograd and autocast, and never reads the random state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..graph.nodes import Meta, meta_of
from ..symbolic.expr import Expr, hints, mapped, pinned
from .may_raise import looks_at_no_data

SAMPLE_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}

SAMPLES = 4096  # limit on cached results

_dtypes: dict[Any, torch.dtype] = {}
_samples: dict[Any, Any] = {}
_META = torch.device("meta")


def forget() -> None:
    """Ask torch anew for all that is cached: it has warned, and shall do so again."""
    _dtypes.clear()
    _samples.clear()


def map_metas(value: Any, change: Callable[[Meta], Any]) -> Any:
    """The same structure with `change(meta)` for each Meta in it."""
    if isinstance(value, Meta):
        return change(value)
    if isinstance(value, (list, tuple)):
        return tuple(map_metas(item, change) for item in value)
    return value


def _signature(value: Any) -> Any:
    kind = type(value)
    if kind is Meta:
        return (value.dtype, not value.shape)
    if kind is tuple:
        return tuple([_signature(item) for item in value])
    if isinstance(value, Expr):
        return ("symbolic", value.kind)
    return (type(value), value)


def _one(meta: Meta) -> torch.Tensor:
    return torch.ones((1,) if meta.shape else (), dtype=meta.dtype)


def result_dtype(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype:
    """The dtype of a pointwise result; raises what ATen raises for the dtypes and numbers."""
    key = (
        id(op),  # operators live as long as torch; their hash runs Python code
        tuple([_signature(arg) for arg in args]),
        tuple([(name, _signature(value)) for name, value in kwargs.items()]),
        torch.get_default_dtype(),
    )
    found = _dtypes.get(key)
    if found is None:
        with torch._C._AutoDispatchBelowAutograd():
            result = op(
                *(hints(map_metas(arg, _one)) for arg in args),
                **{name: hints(map_metas(value, _one)) for name, value in kwargs.items()},
            )
        found = _dtypes[key] = result.dtype
    return found


def pinned_all(value: Any) -> Any:
    """The same arguments with plain numbers; the trace is bound to them from now on."""
    return mapped(value, pinned)


def _extent(meta: Meta) -> int:
    if 0 in meta.shape:
        return meta.offset
    reach = sum((size - 1) * step for size, step in zip(meta.shape, meta.stride, strict=True))
    return meta.offset + reach + 1


def _sample(meta: Meta, device: torch.device) -> torch.Tensor:
    memory = torch.zeros(_extent(meta), dtype=meta.dtype, device=device)
    return memory.as_strided(meta.shape, meta.stride, meta.offset)


def _all_metas(value: Any) -> list[Meta]:
    found: list[Meta] = []
    map_metas(value, found.append)
    return found


def _may_point_at_nothing(metas: list[Meta]) -> bool:
    """Whether zeros might index an empty tensor, where some backwards read unchecked."""
    whole = any(
        not (m.dtype.is_floating_point or m.dtype.is_complex) for m in metas if 0 not in m.shape
    )
    return whole and any(0 in meta.shape for meta in metas)


def can_sample(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether to run an operator on samples: it is torch's own, and tensors are small.

    A custom operator may have effects. On a GPU, an index out of range would destroy the context,
    and a CUDA graph that is being recorded would replay the sample.
    """
    metas = _all_metas((args, tuple(kwargs.values())))
    devices = {meta.device for meta in metas} or {torch.device("cpu")}
    (device,) = devices if len(devices) == 1 else (_META,)
    asked = kwargs.get("device")
    return (
        op.namespace == "aten"
        and device.type in SAMPLE_BYTES
        and (asked is None or torch.device(asked) == device)
        and not _may_point_at_nothing(metas)
        and sum(_extent(meta) * meta.dtype.itemsize for meta in metas) <= SAMPLE_BYTES[device.type]
        and (
            device.type == "cpu"
            or (
                looks_at_no_data(op)
                and torch.cuda.is_initialized()
                and not torch.cuda.is_current_stream_capturing()
            )
        )
    )


def _outcome(result: Any, device: torch.device | None) -> Any:
    """Metas of a real result; other values stay as they are."""
    if isinstance(result, torch.Tensor):
        if result.layout is not torch.strided or result.is_conj() or result.is_neg():
            raise NotImplementedError("a result with no plain strided layout")
        meta = meta_of(result)
        if device is None:
            return meta
        return Meta(meta.shape, meta.stride, meta.dtype, device, meta.offset)
    if isinstance(result, (list, tuple)):
        return tuple(_outcome(item, device) for item in result)
    return result


def _exact(value: Any) -> Any:
    """What a sample's result depends on: all metadata, or a number and its type."""
    if isinstance(value, Meta):
        return value
    if isinstance(value, (list, tuple)):
        return tuple([_exact(item) for item in value])
    return (type(value), str(value) if isinstance(value, (float, complex)) else value)


def run_sample(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], pure: bool) -> Any:
    """Metas of the operator's result on zeros. `pure`: check that it shares no memory.

    Equal calls run once: layers of one kind repeat their operators, and those of a backward cost
    most. Strides of results may also depend on the enabled libraries, so those are part of the key.
    """
    key = (
        id(op),
        _exact(args),
        tuple([(name, _exact(value)) for name, value in kwargs.items()]),
        torch.get_default_dtype(),
        torch._C._get_mkldnn_enabled(),  # type: ignore[attr-defined]
        torch._C._get_cudnn_enabled(),  # type: ignore[attr-defined]
        torch.are_deterministic_algorithms_enabled(),
    )
    if key not in _samples:
        if len(_samples) >= SAMPLES:
            _samples.clear()
        _samples[key] = _run_sample(op, args, kwargs, pure)
    return _samples[key]


def _run_sample(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], pure: bool) -> Any:
    memory: set[int] = set()
    # The device of the results, where the sample's results may be on another one.
    device: torch.device | None = None

    def make(meta: Meta) -> torch.Tensor:
        nonlocal device
        tensor = _sample(meta, meta.device)
        # While a CUDA graph is recorded, the seeds of attention are on another device.
        if meta.device.type != "cpu":
            device = meta.device
        memory.add(tensor.untyped_storage()._cdata)
        return tensor

    with torch._C._AutoDispatchBelowAutograd():
        result = op(
            *(map_metas(arg, make) for arg in args),
            **{name: map_metas(value, make) for name, value in kwargs.items()},
        )
    if pure and any(tensor.untyped_storage()._cdata in memory for tensor in _tensors(result)):
        raise NotImplementedError("a result that shares memory in silence")
    return _outcome(result, device)


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, (list, tuple)):
        return [tensor for item in result for tensor in _tensors(item)]
    return [result] if isinstance(result, torch.Tensor) else []


def run_meta(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Metas by torch's meta kernels, on `device`, else on that of the first tensor."""
    metas = _all_metas((args, tuple(kwargs.values())))
    device = kwargs.get("device") or next((meta.device for meta in metas), torch.device("cpu"))

    def make(meta: Meta) -> torch.Tensor:
        return _sample(meta, _META)

    asked = {name: map_metas(value, make) for name, value in kwargs.items()}
    if "device" in asked:
        asked["device"] = _META
    with torch._C._AutoDispatchBelowAutograd():
        result = op(*(map_metas(arg, make) for arg in args), **asked)
    return _outcome(result, torch.device(device))
