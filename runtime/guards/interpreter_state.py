"""The interpreter and torch state that decides the meaning of a captured program.

`snapshot()` reads it in plain Python. A "state" guard row expects such a snapshot, the guard mirror
compares with it, and reports print it. The native part compares the same facts as one packed image
(runtime/native/tensors/interpreter_state.cpp) and falls back to this reading. Settings that ATen
reads itself at run time (thread count, matmul precision, cuDNN benchmarking) are not part of it.
"""

from __future__ import annotations

import dataclasses

import torch
from torch.autograd import forward_ad

from ...ir.dataclass import dataclass
from ...ir.trace.autocast_cache import AUTOCAST_DEVICES, is_nested

_PYTHON = torch._C.DispatchKeySet(  # type: ignore[attr-defined]
    torch._C.DispatchKey.Python  # type: ignore[attr-defined]
).raw_repr()

# Context flags that choose between operators during tracing: name, getter. interpreter_state.cpp
# reads the same flags in this order.
FLAGS = (
    ("deterministic", torch._C._get_deterministic_algorithms),
    ("deterministic (warn only)", torch._C._get_deterministic_algorithms_warn_only),
    ("mkldnn", torch._C._get_mkldnn_enabled),
    ("flash attention", torch._C._get_flash_sdp_enabled),
    ("memory-efficient attention", torch._C._get_mem_efficient_sdp_enabled),
    ("math attention", torch._C._get_math_sdp_enabled),
    ("cuDNN attention", torch._C._get_cudnn_sdp_enabled),
)


@dataclass(frozen=True, slots=True)
class State:
    """One reading. A program captured under one reading may run under an equal one.

    autocast    (device type, enabled, dtype) for each device type with autocast
    autocast_nested   an autocast block is open (enabled or not), so casts of weights are cached
                until the outermost block exits
    modes       names of the active torch-function modes, innermost last, with the device of a
                default-device mode
    dispatch    names of the active dispatch modes
    functorch   (kind, level) of the active transform, or ("", -1)
    watched     anomaly mode is active: it observes each autograd node
    flags       names of the context flags that are set
    include, exclude   the raw dispatch key sets of this thread
    """

    grad_mode: bool
    inference_mode: bool
    forward_grad: bool
    forward_level: int
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    autocast_cache: bool
    autocast_nested: bool
    default_dtype: torch.dtype
    modes: tuple[str, ...]
    torch_function: str
    dispatch: tuple[str, ...]
    functorch: tuple[str, int]
    tracing: bool
    watched: bool
    flags: tuple[str, ...]
    include: int
    exclude: int

    @property
    def plain(self) -> bool:
        """Whether no mode, transform or tracer is active: graftjit captures only then."""
        return not (
            self.modes
            or self.dispatch
            or self.functorch[0]
            or self.tracing
            or (self.watched and self.grad_mode)
            or self.forward_level >= 0
            or self.torch_function
            or self.unheard
        )

    @property
    def unheard(self) -> bool:
        """Whether dispatch to Python is off, as within some kernels written in Python.

        A trace would then record nothing, and its tensors have no memory that a kernel could read.
        """
        return bool(self.exclude & _PYTHON)

    def difference(self, other: State) -> str:
        """How another reading differs, for error texts: "grad_mode: True, before False"."""
        pairs = (
            (field.name, getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
        )
        found = [f"{name}: {now}, before {before}" for name, before, now in pairs if now != before]
        return "; ".join(found)


def snapshot() -> State:
    """The current state of this thread."""
    return State(
        grad_mode=torch._C.is_grad_enabled(),
        inference_mode=torch._C.is_inference_mode_enabled(),
        forward_grad=torch._C._is_fwd_grad_enabled(),
        forward_level=forward_ad._current_level,
        autocast=tuple(
            (name, torch._C.is_autocast_enabled(name), torch._C.get_autocast_dtype(name))
            for name in AUTOCAST_DEVICES
        ),
        autocast_cache=torch._C.is_autocast_cache_enabled(),
        autocast_nested=is_nested(),
        default_dtype=torch.get_default_dtype(),
        modes=_function_modes(),
        torch_function=_torch_function(),
        dispatch=tuple(
            type(torch._C._get_dispatch_stack_at(i)).__qualname__
            for i in range(torch._C._len_torch_dispatch_stack())
        ),
        functorch=_functorch(),
        tracing=torch._C._is_tracing(),
        watched=autograd_watched(),
        flags=tuple(name for name, asked in FLAGS if asked()),
        include=torch._C._dispatch_tls_local_include_set().raw_repr(),
        exclude=torch._C._dispatch_tls_local_exclude_set().raw_repr(),
    )


def current_device() -> int:
    """The current CUDA device of this thread; -1 before CUDA is initialised."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else -1


def autograd_watched() -> bool:
    """Whether anomaly mode is active."""
    return torch.is_anomaly_enabled()


def _function_modes() -> tuple[str, ...]:
    depth = torch._C._len_torch_function_stack()
    if depth == 0:
        return ()
    modes = (torch._C._get_function_stack_at(i) for i in range(depth))
    return tuple(
        f"{type(mode).__qualname__} {getattr(mode, 'device', '')}".rstrip() for mode in modes
    )


def _torch_function() -> str:
    """ "" by default; else which part of `__torch_function__` is disabled."""
    if torch._C._is_torch_function_all_disabled():
        return "all disabled"
    return "" if torch._C._is_torch_function_enabled() else "subclasses disabled"


def _functorch() -> tuple[str, int]:
    top = torch._C._functorch.peek_interpreter_stack()
    return ("", -1) if top is None else (str(top.key()), top.level())
