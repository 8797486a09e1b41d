"""What of the interpreter's state decides what a captured program means, read in plain Python.

`snapshot()` is what a "state" guard row expects, what the guard mirror compares with, and what a report
names. The native part compares the same facts as one packed image (runtime/native/tensors/interpreter_state.cpp) and falls back
to this reading. What ATen asks for at run time by itself (thread count, matmul precision, cuDNN benchmarking)
is not part of it.
"""

from __future__ import annotations

import dataclasses

import torch
from torch.autograd import forward_ad

from ...ir.dataclass import dataclass
from ...ir.trace.autocast_cache import is_nested

_AUTOCAST_DEVICES = ("cpu", "cuda")
_PYTHON = torch._C.DispatchKeySet(torch._C.DispatchKey.Python).raw_repr()  # type: ignore[attr-defined]
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks

# Context flags that choose between operators while a program is traced: name, question. torch_state.cpp asks the
# same ones, in this order.
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
    """One reading; equal readings mean that a program captured under one may run under the other.

    autocast    (device type, enabled, dtype) for each device type that has autocast here
    autocast_nested   a block of autocast is open, be it one that switches autocast off: casts of weights are kept
                until it is left
    modes       names of the torch-function modes in force, innermost last, with the device of a default device
    dispatch    names of the dispatch modes in force
    functorch   (kind, level) of the transform in force, "" and -1 if there is none
    watched     saved-tensor hooks or anomaly mode are in force: autograd is looked at operator by operator
    flags       names of the context flags that are set
    include, exclude   this thread's dispatch key sets, raw
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
        """No mode, transform or tracer is in force: graftjit captures only then."""
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
        """Dispatch to Python is off, as within some kernels in Python: a trace would hear of nothing, and its tensors have
        no memory for a kernel to read."""
        return bool(self.exclude & _PYTHON)

    def difference(self, other: State) -> str:
        """What another reading has different, for error texts: "grad_mode: True, before False"."""
        pairs = (
            (field.name, getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
        )
        found = [f"{name}: {now}, before {before}" for name, before, now in pairs if now != before]
        return "; ".join(found)


def snapshot() -> State:
    """The state in force on this thread now."""
    return State(
        grad_mode=torch._C.is_grad_enabled(),
        inference_mode=torch._C.is_inference_mode_enabled(),
        forward_grad=torch._C._is_fwd_grad_enabled(),
        forward_level=forward_ad._current_level,
        autocast=tuple(
            (name, torch._C.is_autocast_enabled(name), torch._C.get_autocast_dtype(name))
            for name in _AUTOCAST_DEVICES
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
    """The CUDA device that "cuda" without a number means on this thread; -1 while CUDA has not begun."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else -1


def autograd_watched() -> bool:
    """Whether saved-tensor hooks or anomaly mode are in force."""
    return torch.is_anomaly_enabled() or _top_hooks(True) is not None


def _function_modes() -> tuple[str, ...]:
    depth = torch._C._len_torch_function_stack()
    if depth == 0:
        return ()
    modes = (torch._C._get_function_stack_at(i) for i in range(depth))
    return tuple(
        f"{type(mode).__qualname__} {getattr(mode, 'device', '')}".rstrip() for mode in modes
    )


def _torch_function() -> str:
    """ "" as usual; else which part of `__torch_function__` is switched off."""
    if torch._C._is_torch_function_all_disabled():
        return "all disabled"
    return "" if torch._C._is_torch_function_enabled() else "subclasses disabled"


def _functorch() -> tuple[str, int]:
    top = torch._C._functorch.peek_interpreter_stack()
    return ("", -1) if top is None else (str(top.key()), top.level())
