"""Operators of the CUDA key, each run by the CPU over the same memory: what torch's dispatcher calls here.

One boxed function stands behind every operator that has no kernel of a composite kind (`fallback`). Arguments
become CPU tensors over the memory of the cuda ones; results are wrapped again, results that are views of an
argument as views of it, and what the operator writes it wrote in place. A few operators have composite kernels
that ask for CUDA's own code (`copy_`, convolutions): those are named in `install`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from . import attention, native
from .memory import memory

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_CPU, _CUDA = 1, 2  # DLPack's numbers

ANYWHERE = (
    "index.",
    "index_put",
    "_index_put",
    "_to_copy",
    "set_",
    "_copy_from",
    "empty_like",
)  # operands of any device

GENERATORS = (torch.Generator(), torch.Generator())  # of the devices; of the CPU's kind


def to_device(host: torch.Tensor, index: int, filled: bool = True) -> torch.Tensor:
    """A tensor of `cuda:index` with what is in a CPU tensor, in memory of the device."""
    with torch._C._DisableTorchDispatch():
        capsule = torch._C._to_dlpack(_in_memory(host.detach(), index, filled))
        head = _pointer(capsule, b"dltensor")
        # struct DLTensor {void *data; struct {int32 type, index}; int32 ndim; ...; int64 *shape, *strides}
        ctypes.c_int32.from_address(head + 8).value = _CUDA
        ctypes.c_int32.from_address(head + 12).value = index
        strides = ctypes.c_void_p.from_address(head + 32).value
        for place, stride in enumerate(host.stride()):
            ctypes.c_int64.from_address(strides + 8 * place).value = stride
        return torch._C._from_dlpack(capsule)


def _in_memory(host: torch.Tensor, index: int, filled: bool) -> torch.Tensor:
    size = host.untyped_storage().nbytes()
    if not size:
        return host
    base = torch.frombuffer(memory().allocate(size, index), dtype=torch.uint8).untyped_storage()
    if filled:
        base.copy_(host.untyped_storage())
    placed = torch.empty(0, dtype=host.dtype)
    return placed.set_(base, host.storage_offset(), host.size(), host.stride())


def to_host(tensor: torch.Tensor, bases: dict[int, Any] | None = None) -> torch.Tensor:
    """A CPU tensor over the memory of a cuda one, which must outlive it. `bases`: the storages of one call, by address."""
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    host = torch.empty(0, dtype=tensor.dtype)
    if size:
        base = None if bases is None else bases.get(storage.data_ptr())
        if base is None:
            held = (ctypes.c_char * size).from_address(storage.data_ptr())
            base = torch.frombuffer(held, dtype=torch.uint8).untyped_storage()
            if bases is not None:
                bases[storage.data_ptr()] = base
        host.set_(base, tensor.storage_offset(), tensor.size(), tensor.stride())
    else:
        host = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    host = torch._conj(host) if tensor.is_conj() else host
    return torch._neg_view(host) if tensor.is_neg() else host


# While a graph is recorded: what is called in place of an operator, with the way to compute it (see `graphs`).
RECORDER: list[Callable[..., Any]] = []


class _Call:
    """One call of an operator: its tensors on the host, and which cuda tensor each of them stands for."""

    def __init__(self, filled: bool = True) -> None:
        self.filled = filled  # is there anything in results?
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []  # (cuda, host)
        self.index: int | None = None
        self.bases: dict[
            int, Any
        ] = {}  # what lies in one memory here does there: torch looks for overlaps
        self.beside = False  # is a tensor of the processor, and no number, among the operands?

    def lower(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.beside |= not value.is_cuda and value.dim() > 0
            return self._tensor(value) if value.is_cuda else value
        if isinstance(value, torch.device):
            if value.type != "cuda":
                return value
            self.index = native.guard().fake_cuda_device() if value.index is None else value.index
            return torch.device("cpu")
        if isinstance(value, (list, tuple)):
            return type(value)(self.lower(item) for item in value)
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.index is None:
            self.index = tensor.device.index
        elif self.index != tensor.device.index and tensor.dim():
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:{self.index} and cuda:{tensor.device.index}!"
            )
        host = to_host(tensor, self.bases)
        self.pairs.append((tensor, host))
        return host

    def lift(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._lift_tensor(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.lift(item) for item in value)
        return value

    def _lift_tensor(self, host: torch.Tensor) -> torch.Tensor:
        for tensor, argument in self.pairs:
            if argument is host:
                return tensor
        for tensor, argument in self.pairs:
            if host.numel() and _same_memory(host, argument):
                return _view_of(tensor, host)
        assert self.index is not None
        filled = self.filled or host.dtype == torch.bool
        return to_device(host.resolve_conj().resolve_neg(), self.index, filled)

    def resized(self) -> None:
        """What an `out=` operator gave another size lies in memory of the host's by now."""
        for tensor, host in self.pairs:
            if host.size() != tensor.size() or host.stride() != tensor.stride():
                tensor.data = to_device(host, tensor.device.index)


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    first, second = one.untyped_storage(), other.untyped_storage()
    return second.nbytes() > 0 and first.data_ptr() == second.data_ptr()


def _view_of(tensor: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
    found = torch.ops.aten.alias(tensor)
    if host.dtype != tensor.dtype:
        found = found.view(host.dtype)
    return found.as_strided_(host.size(), host.stride(), host.storage_offset())


def _with_generator(op: Any, index: int, kwargs: dict[str, Any]) -> Iterator[None]:
    """Random operators draw from the device's own generator; some have no argument for it."""
    names = {argument.name for argument in op._schema.arguments}
    if "generator" in names:
        if kwargs.get("generator") is None:
            kwargs["generator"] = GENERATORS[index]
        yield
        return
    default = torch.default_generator
    before = default.get_state()
    default.set_state(GENERATORS[index].get_state())
    yield
    GENERATORS[index].set_state(default.get_state())
    default.set_state(before)


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operator on cuda tensors."""
    if RECORDER:
        return RECORDER[-1](compute, op, args, kwargs)
    return compute(op, *args, **kwargs)


def compute(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator by the CPU, now."""
    call = _Call(filled=not op.__name__.startswith("empty"))
    with torch._C._AutoDispatchBelowAutograd(), torch._C._DisableTorchDispatch():
        lowered = [call.lower(value) for value in args]
        named = {name: call.lower(value) for name, value in kwargs.items()}
        if call.index is not None and call.beside and not op.__name__.startswith(ANYWHERE):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:{call.index} and cpu!"
            )
        if call.index is None or torch.Tag.nondeterministic_seeded not in op.tags:
            result = op(*lowered, **named)
        else:
            names = {argument.name for argument in op._schema.arguments}
            positional = [argument.name for argument in op._schema.arguments[: len(lowered)]]
            named = {**dict(zip(positional, lowered, strict=True)), **named}
            assert names >= set(named)
            around = _with_generator(op, call.index, named)
            next(around)
            result = op(**named)
            next(around, None)
        call.resized()
        return call.lift(result)


def _copy(self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Between any two devices."""
    if RECORDER:
        recorded = RECORDER[-1](_copied, torch.ops.aten.copy_.default, (self, source), {})
        return cast(torch.Tensor, recorded)
    return _copied(torch.ops.aten.copy_.default, self, source)


def _copied(op: Any, self: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    with torch._C._AutoDispatchBelowAutograd(), torch._C._DisableTorchDispatch():
        bases: dict[int, Any] = {}
        target = to_host(self, bases) if self.is_cuda else self
        origin = to_host(source, bases) if source.is_cuda else source
        target.copy_(origin)
    return self


def _through_host(op: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: fallback(op, *args, **kwargs)


def _softmax(op: Any) -> Callable[..., Any]:
    """Of half precision with a result in single precision, which the CPU lacks."""

    def run(x: torch.Tensor, dim: int, to_float: bool) -> Any:
        x = x.float() if to_float else x
        return fallback(op, x, dim, False)

    return run


def _softmax_backward(op: Any) -> Callable[..., Any]:
    def run(grad: torch.Tensor, output: torch.Tensor, dim: int, dtype: torch.dtype) -> Any:
        return fallback(op, grad, output, dim, grad.dtype).to(dtype)

    return run


def _operators() -> Iterator[Any]:
    """Those of ATen that have a kernel for the CPU."""
    names = {
        name
        for key in ("CPU", "CompositeExplicitAutogradNonFunctional")
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(key)
    }
    for name in sorted(names):
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if space == "aten" and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU"):
            yield getattr(getattr(torch.ops.aten, packet), overload or "default")


def install() -> list[Any]:
    """Register all of this for as long as what comes back lives.

    By the dispatcher's own calls: `torch.library` would write down that the program has kernels of its own. Each
    operator by its name: a fallback in Python is not found under a dispatch mode. The fallback is for the rest.
    """
    everything = torch._C._dispatch_library("IMPL", "_", "CUDA", __file__, 0)
    everything.fallback("CUDA", fallback, False)
    named = torch._C._dispatch_library("IMPL", "aten", "CUDA", __file__, 0)
    aten = torch.ops.aten
    ours = {
        aten.copy_.default: _copy,
        **attention.KERNELS,
        aten.convolution.default: _through_host(aten.convolution.default),
        aten.convolution_backward.default: _through_host(aten.convolution_backward.default),
    }
    for name in ("_softmax", "_log_softmax"):
        op, backward = getattr(aten, name).default, getattr(aten, f"{name}_backward_data").default
        ours |= {op: _softmax(op), backward: _softmax_backward(backward)}
    for op in _operators():
        ours.setdefault(op, _through_host(op))
    for op, function in ours.items():
        named.impl(op._name, "CUDA", function, False)
    return [everything, named]
