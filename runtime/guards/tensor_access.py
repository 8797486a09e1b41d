"""Setup and self-tests of the native access to tensors.

The native part reads fields of torch's C++ objects. `bind()` tells it where they are and compares
what it reads with Python's answers. It runs once, when the native part first needs a tensor guard
or a program. Tests and debugging can disable a route by name (`options.ROUTES`):
`bind(without=("wrap",))` or GRAFTJIT_WITHOUT=wrap,keys. "handle" disables every route below Python.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from ...ir.trace.autocast_cache import is_nested
from .. import _native
from ..process.session import SESSION
from . import interpreter_state

_IS_LEAF: Any = vars(torch._C.TensorBase)["is_leaf"].__get__
_SUFFIX = {"Darwin": ".dylib"}.get(os.uname().sysname, ".so")

# complex32 and quantized dtypes are missing: making such tensors warns, and no kernel supports
# them.
_DTYPES = """
    float64 float32 float16 bfloat16 complex128 complex64 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool
    float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu
"""


def bind(without: Iterable[str] = ()) -> dict[str, str]:
    """Find and test the routes. Returns the table of routes in use."""
    left_out = SESSION.left_out = frozenset(without) | SESSION.options.without
    paths = [_library(name) for name in ("torch_cpu", "c10", "torch_python")]
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        _native.tensor_bind(*paths, samples(), _dtype_samples(), left_out)
        with torch.inference_mode(False), torch.enable_grad():
            traced = "trace" not in left_out
            _native.count_swaps(getattr(torch._C, "_swap_tensor_impl", None))
            _native.trace_bind(_small(), _kinds(), _autograd_states() if traced else ())
            read = traced and "history" not in left_out
            _native.history_bind(history, _histories() if read else [])
    watched = "state" not in left_out and _tells_watchers()
    _native.state_bind(_autograd_mask() if watched else None, _context_facts())
    return _native.tensor_routes()


def samples() -> list[tuple[Any, ...]]:
    """Sample tensors of several kinds with Python's view of them, for self-tests."""
    cpu = torch.device("cpu")
    base = torch.zeros(6, device=cpu)
    tensors = [
        base,
        torch.zeros(2, 3, 4, device=cpu)[:, 1:, ::2],
        torch.zeros((), dtype=torch.int64, device=cpu),
        torch.zeros(3, 5, dtype=torch.float64, device=cpu).t(),
        torch.zeros(1, 2, 3, 4, 5, 6, 7, dtype=torch.bool, device=cpu),
        torch.zeros(0, 3, dtype=torch.bfloat16, device=cpu),
        torch.nn.Parameter(torch.zeros(4, device=cpu)),
        torch.zeros(4, requires_grad=True, device=cpu),
        torch.zeros(4, device=cpu).requires_grad_().view(2, 2),
        torch.zeros(2, dtype=torch.complex64, device=cpu).conj(),
        torch.zeros(2, layout=torch.sparse_coo, device=cpu),
    ]
    return [_sample(tensor) for tensor in tensors]


def _sample(tensor: torch.Tensor) -> tuple[Any, ...]:
    strided = tensor.layout is torch.strided
    return (
        tensor,
        tensor._cdata,
        torch._C._dispatch_keys(tensor).raw_repr(),
        tuple(tensor.shape),
        tensor.stride() if strided else (),
        tensor.storage_offset() if strided else 0,
        tensor.data_ptr() if strided else 0,
        tensor.requires_grad,
        strided,
    )


def byte_range(tensor: torch.Tensor) -> tuple[int, int] | None:
    """The addresses [begin, end) that a tensor's elements span; None if unknown."""
    if tensor.layout is not torch.strided:
        return None
    if tensor.numel() == 0 or tensor.device.type == "meta":
        return (0, 0)
    span = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return (begin, begin + (span + 1) * tensor.element_size())


def history(tensor: torch.Tensor) -> str:
    """The kind of tensor to autograd: "leaf", or "result" of an operator; of views, which have
    rules of their own for writes in place, "leaf view" or "view". A view without a history of a
    tensor that requires a gradient is a "quiet view": a gradient of it leads nowhere."""
    with torch._C.DisableTorchFunction():
        leaf = _IS_LEAF(tensor)
        if not torch._C.TensorBase._is_view(tensor):  # skips an override in a subclass
            return "leaf" if leaf else "result"
        if not leaf:
            return "view"
        base = tensor._base
        return "quiet view" if base is not None and base.requires_grad else "leaf view"


def _library(name: str) -> str:
    path = Path(torch.__file__).parent / "lib" / f"lib{name}{_SUFFIX}"
    return str(path) if path.exists() else ""


def _dtype_samples() -> dict[torch.dtype, torch.Tensor]:
    """An empty tensor of each dtype, from which the native part reads the C shim's dtype number."""
    known = (getattr(torch, name, None) for name in _DTYPES.split())
    return {
        dtype: torch.empty(0, dtype=dtype, device="cpu") for dtype in known if dtype is not None
    }


def _small() -> tuple[torch.Tensor, ...]:
    """Strided tensors whose sizes fit into a TensorImpl without a separate allocation."""
    shapes: list[tuple[int, ...]] = [(), (6,), (2, 3), (2, 3, 4), (1, 2, 3, 4), (5, 4, 3, 2, 1)]
    plain = [torch.zeros(shape, device="cpu") for shape in shapes]
    return (*plain, plain[2].t(), plain[3][:, 1:, ::2])


def _kinds() -> tuple[torch.Tensor, ...]:
    """Tensors of every dtype, and some on another device."""
    meta = [torch.empty(2, dtype=d, device="meta") for d in (torch.float32, torch.int64)]
    return (*_dtype_samples().values(), *meta)


def _autograd_states() -> Iterator[tuple[list[torch.Tensor], ...]]:
    """Tensors grouped by their autograd metadata: none; a leaf; a former leaf (requires_grad
    switched off); a result; a detached result. Between two states the same tensors change their
    groups: a byte of uninitialized memory may agree with one state, but does not follow."""

    def fresh() -> list[torch.Tensor]:
        return [torch.zeros(shape, device="cpu") for shape in ((), (3,), (2, 2))]

    plain = fresh()
    leaves = [tensor.requires_grad_() for tensor in fresh()]
    leaves.append(torch.nn.Parameter(torch.zeros(4, device="cpu")))
    switched = [tensor.requires_grad_().requires_grad_(False) for tensor in fresh()]
    results = [leaf * 2 for leaf in leaves]
    view = leaves[1].view(1, 3)
    detached = [(leaf * 2).detach_() for leaf in leaves]
    kept = torch.ones((), requires_grad=True, device="cpu")
    for _ in range(3):
        yield plain, [*leaves, kept], switched, [*results, view], detached
        plain, leaves, switched, results, detached = (
            fresh(),
            [tensor.requires_grad_() for tensor in (*plain, *switched)],
            [leaf.requires_grad_(False) for leaf in leaves],
            [tensor.add_(kept) for tensor in detached],
            [result.detach_() for result in results],
        )


def _histories() -> list[tuple[torch.Tensor, str]]:
    """Tensors of each kind with the answer of `history`."""
    plain, leaves, switched, results, detached = next(_autograd_states())
    views = [one.view(-1) for one in (*plain, *leaves, *results)]
    views += [one.detach()[..., None] for one in results]
    with torch.no_grad():
        views += [one.view(-1) for one in (*leaves, *results)]
    written = [torch.zeros(3, device="cpu").add_(one.sum()) for one in results]
    tensors = [*plain, *leaves, *switched, *results, *detached, *views, *written]
    return [(one, history(one)) for one in tensors]


@contextlib.contextmanager
def _forward_grad_off() -> Iterator[None]:
    before = torch._C._is_fwd_grad_enabled()
    torch._C._set_fwd_grad_enabled(not before)
    try:
        yield
    finally:
        torch._C._set_fwd_grad_enabled(before)


def _autograd_mask() -> tuple[int, ...] | None:
    """The bits of c10::AutogradState that hold grad mode, inference mode and forward grad mode;
    None if toggling one of them changes no bit. All three are thread-local, so no other thread sees
    the toggling."""
    rest = _native.autograd_words()
    if rest is None:
        return None
    mask = [0] * len(rest)
    for toggled in (
        lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
        lambda: torch.inference_mode(not torch.is_inference_mode_enabled()),
        _forward_grad_off,
    ):
        with toggled():
            now = _native.autograd_words()
        moved = [before ^ after for before, after in zip(rest, now, strict=True)]
        if not any(moved):
            return None
        mask = [old | new for old, new in zip(mask, moved, strict=True)]
    return tuple(mask)


def _tells_watchers() -> bool:
    """Whether the native part notices when anomaly mode is turned on."""
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    seen = []
    try:
        for on in (False, True):
            torch.set_anomaly_enabled(on, before[1])
            seen.append(_native.autograd_watched())
    finally:
        torch.set_anomaly_enabled(*before)
    return seen == [False, True]


def _context_facts() -> tuple[Any, ...]:
    """Python's values of what the native part reads through torch's C++ symbols, in the order of
    runtime/native/tensors/interpreter_state.cpp."""
    return (
        torch._C._dispatch_tls_local_include_set().raw_repr(),
        torch._C._dispatch_tls_local_exclude_set().raw_repr(),
        torch.get_default_dtype(),
        torch._C.get_autocast_dtype("cpu"),
        torch._C.get_autocast_dtype("cuda"),
        torch._C.is_autocast_cache_enabled(),
        is_nested(),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        tuple(asked() for _, asked in interpreter_state.FLAGS),
    )
