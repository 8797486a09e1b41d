"""Serialization: a program as plain values of JSON, and back.

Addresses of kernels are names in it (`At`). Constants are left out: the loader inserts them. Raises
NotKept for values without a plain form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch._ops import OpOverload

from ...ir.dataclass import dataclass, field

# The two files below define operators of graftjit that a plan may name.
from ...ir.passes import defer_writes  # noqa: F401
from ...ir.trace import autocast_cache  # noqa: F401
from ...runtime.program.fallback_tape import Tape
from ...runtime.program.program import (
    Alloc,
    Aten,
    DeviceLaunch,
    Free,
    Launch,
    Otherwise,
    ProgramSpec,
    Scratch,
    Slot,
    Step,
    View,
)
from .key import OPERATORS, NotKept


@dataclass(frozen=True, slots=True)
class At:
    """The address of the kernel with this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The values that a program is bound to when it is loaded: addresses by name, the owners of
    these, and kernels of GPUs by key.
    """

    addresses: Mapping[str, int]
    keep: Any
    gpu: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, Any] = field(default_factory=dict)  # of these kernels


@dataclass(frozen=True, slots=True)
class Unbound:
    """The placeholder of a loaded GPU kernel (`cubins.Loaded`) in a plan that is written."""

    function: At
    threads: int = 0
    shared: int = 0
    hidden: int = 0
    keep: Any = None


def written(spec: ProgramSpec) -> dict[str, Any]:
    """The program without its name and its constants."""
    if spec.symbols or spec.n_numbers:
        raise NotKept("numbers")
    return {
        "inputs": spec.n_inputs,
        "slots": spec.n_slots,
        "steps": [_WRITE[type(step)](step) for step in spec.steps],
        "outputs": list(spec.outputs),
        "arena": _written(spec.arena),
        "joined": sorted(spec.joined),
        "names": list(spec.names),
    }


def read(plain: Mapping[str, Any], name: str, constants: dict[int, Any], to: Bound) -> ProgramSpec:
    """The program that was written."""
    return ProgramSpec(
        name,
        plain["inputs"],
        plain["slots"],
        tuple([_READ[kind](to, *rest) for kind, *rest in plain["steps"]]),
        tuple(plain["outputs"]),
        plain["arena"],
        constants,
        joined=frozenset(plain["joined"]),
        names=tuple(plain["names"]),
    )


# --- steps ---

_WRITE: dict[type, Callable[[Any], list[Any]]] = {
    Alloc: lambda s: [
        "alloc",
        s.slot,
        _all(s.shape),
        _all(s.stride),
        *map(_written, (s.dtype, s.device)),
    ],
    Scratch: lambda s: ["scratch", s.slot, _written(s.offset), _written(s.nbytes), s.base],
    Launch: lambda s: [
        "launch",
        s.kernel,
        _written(s.address),
        list(s.slots),
        list(s.writes),
        _all(s.numbers),
    ],
    DeviceLaunch: lambda s: [
        "device",
        s.kernel,
        s.function.name,
        list(s.slots),
        str(s.device),
        _written(s.programs),
        _all(s.numbers),
        s.kinds,
        list(s.writes),
        list(s.aligned),
    ],
    Otherwise: lambda s: ["otherwise", _tape(s.call), list(s.slots), _all(s.numbers)],
    Aten: lambda s: [
        "aten",
        _written(s.op),
        _written(s.args),
        _written(s.kwargs),
        list(s.results),
    ],
    View: lambda s: [
        "view",
        s.slot,
        s.base,
        _all(s.shape),
        _all(s.stride),
        _written(s.offset),
        s.absolute,
    ],
    Free: lambda s: ["free", list(s.slots)],
}

_READ: dict[str, Callable[..., Step]] = {
    "alloc": lambda _, slot, shape, stride, dtype, device: Alloc(
        slot, tuple(shape), tuple(stride), _read(dtype), _read(device)
    ),
    "scratch": lambda _, slot, offset, nbytes, base: Scratch(slot, offset, nbytes, base),
    "launch": lambda to, kernel, address, slots, writes, numbers: Launch(
        kernel,
        _bound(to, address),
        tuple(slots),
        to.keep,
        tuple(writes),
        tuple([_bound(to, one) for one in numbers]),
    ),
    "device": lambda to, kernel, key, slots, device, programs, numbers, kinds, writes, aligned: (
        _device_launch(
            to,
            key,
            kernel,
            tuple(slots),
            torch.device(device),
            programs,
            tuple(numbers),
            kinds,
            tuple(writes),
            tuple(aligned),
        )
    ),
    "otherwise": lambda _, tape, slots, numbers: Otherwise(
        _tape_of(*tape), tuple(slots), tuple(numbers)
    ),
    "aten": lambda _, op, args, kwargs, results: Aten(
        _read(op), _read(args), _read(kwargs), tuple(results)
    ),
    "view": lambda _, slot, base, shape, stride, offset, absolute: View(
        slot, base, tuple(shape), tuple(stride), offset, absolute
    ),
    "free": lambda _, slots: Free(tuple(slots)),
}


def _device_launch(
    to: Bound, key: str, kernel: str, slots: tuple[int, ...], device: torch.device, programs: int,
    numbers: tuple[Any, ...], kinds: str, writes: tuple[int, ...], aligned: tuple[int, ...],
) -> DeviceLaunch:  # fmt: skip
    loaded = to.gpu[key]
    return DeviceLaunch(
        kernel, loaded.function, slots, device, programs, loaded.threads, loaded.shared,
        loaded.hidden, numbers, kinds,
        loaded.keep, writes, aligned, General(to.texts[key], aligned, device) if aligned else None,
    )  # fmt: skip


def _tape(tape: Any) -> list[Any]:
    if type(tape) is not Tape or tape.names:
        raise NotKept(f"{tape!r}")
    return [tape.kernel, tape.given, _written(tape.entries)]


def _tape_of(kernel: str, given: int, entries: Any) -> Tape:
    return Tape(kernel, given, (), _read(entries))


# --- values ---

_PLAIN = (int, float, bool, str, type(None))
_BY_NAME = (torch.dtype, torch.layout, torch.memory_format)


def _all(values: Any) -> list[Any]:
    return [_written(one) for one in values]


def _written(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return _all(value)
    if kind is tuple:
        return {"tuple": _all(value)}
    if kind is Slot:
        return {"slot": value.index}
    if kind is At:
        return {"at": value.name}
    if kind in _BY_NAME:
        return {"torch": str(value).removeprefix("torch.")}
    if kind is torch.device:
        return {"device": str(value)}
    if kind is dict:
        return {"dict": [[key, _written(one)] for key, one in value.items()]}
    if kind is OpOverload and value.namespace in OPERATORS:
        return {"op": [value.namespace, value._schema.name.split("::")[1], value._overloadname]}
    raise NotKept(f"a {kind.__name__}")


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda items: tuple([_read(one) for one in items]),
    "slot": Slot,
    "torch": lambda name: getattr(torch, name),
    "device": torch.device,
    "dict": lambda items: {key: _read(one) for key, one in items},
    "op": lambda name: getattr(getattr(getattr(torch.ops, name[0]), name[1]), name[2]),
}


def _read(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return [_read(one) for one in value]
    if kind is dict:
        ((name, inner),) = value.items()
        return _SPECIAL[name](inner)
    return value


def _bound(to: Bound, value: Any) -> Any:
    """A number, or the address of the named kernel."""
    return to.addresses[value["at"]] if type(value) is dict else value


# --- kernels of GPUs ---


def written_kernel(kernel: Any) -> dict[str, Any]:
    """A Triton kernel whose sizes are known, as plain values."""
    if kernel.numbers or type(kernel.programs) is not int:
        raise NotKept("numbers")
    return {
        "name": kernel.name,
        "source": kernel.source,
        "arguments": [list(one) for one in kernel.arguments],
        "constants": dict(kernel.constants),
        "programs": kernel.programs,
        "aligned": list(kernel.aligned),
        "warps": kernel.warps,
        "fp_fusion": kernel.fp_fusion,
        "stages": kernel.stages,
        "debug": kernel.debug,
    }


def kernel_of(plain: Mapping[str, Any]) -> Any:
    """The Triton kernel that was written."""
    from ..triton.renderer import TritonKernel

    arguments = tuple([(name, kind) for name, kind in plain["arguments"]])
    return TritonKernel(**{**plain, "arguments": arguments, "aligned": tuple(plain["aligned"])})


@dataclass(frozen=True, slots=True)
class General:
    """Makes the kernel for pointers that are not multiples of 16 bytes (`DeviceLaunch.general`):
    that of `text` without the promise for the pointers at these positions.
    """

    text: Any
    aligned: tuple[int, ...]
    device: torch.device

    def __call__(self) -> tuple[int, int]:
        from ...runtime.cuda import driver
        from ...runtime.process import hardware as device

        found = device.gpu(self.device).capability
        left = tuple([at for at in self.text.aligned if at not in self.aligned])
        kernel = replace(self.text, aligned=left)
        made = load_kernels({"": kernel}, {"": 10 * found[0] + found[1]}, kernel.name, (), False)[
            ""
        ]
        driver.prepare(made.function, kernel.name, made.shared, self.device.index or 0)
        driver.captured(made.keep)  # a recorder of a CUDA graph knows only the first kernel
        return made.function, made.shared


def load_kernels(
    texts: Mapping[str, Any],
    capabilities: Mapping[str, int],
    name: str,
    covers: tuple[str, ...],
    stored: bool,
) -> dict[str, Any]:
    """The kernels of a graph, built or found, by key; `capabilities`: key -> that of its device.

    Raises BuildError, or NotBuilt if a kernel would have to be built and `stored` forbids it.
    """
    from ..triton import cubins  # lazy: it starts compilers

    found: dict[str, Any] = {}
    for capability in sorted(set(capabilities.values())):
        keys = [key for key in texts if capabilities[key] == capability]
        here = cubins.load([texts[key] for key in keys], capability, name, covers, stored=stored)
        found |= {key: here[texts[key].name] for key in keys}
    return found
