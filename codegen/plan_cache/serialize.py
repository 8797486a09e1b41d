"""Serialization: a plan as bytes, and back.

A plan is a pickle of steps, kernels of GPUs, operators and values of Python and torch; `dumps`
raises NotKept for any other value. Addresses of kernels are names in it (`At`), and constants are
left out: `bound` inserts both. The store is as private as the libraries that are loaded from it, so
its pickles are trusted as these are.
"""

from __future__ import annotations

import io
import operator
import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch._ops import OpOverload

from ...ir.dataclass import dataclass, field

# The two files below define operators of graftjit that a plan may name.
from ...ir.passes import defer_writes  # noqa: F401
from ...ir.trace import autocast_cache  # noqa: F401
from ...runtime.process import hardware
from ...runtime.program import fallback_tape, program
from ...runtime.program.program import DeviceLaunch, Launch, ProgramSpec
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


@dataclass(frozen=True, slots=True)
class Unbound:
    """The placeholder of a loaded GPU kernel (`cubins.Loaded`) in a plan that is written."""

    function: At
    threads: int = 0
    shared: int = 0
    hidden: int = 0
    keep: Any = None


# --- bytes ---

_RENDERER = f"{__package__.rpartition('.')[0]}.triton.renderer"  # not imported without a GPU
# The files whose dataclasses are parts of plans.
_PARTS = frozenset((program.__name__, fallback_tape.__name__, _RENDERER, __name__))
_BY_NAME = (torch.dtype, torch.layout, torch.memory_format)


def dumps(plan: Any) -> bytes:
    """The plan as bytes. Raises NotKept."""
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(plan)
    return file.getvalue()


loads = pickle.loads


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """The call that makes the value. Numbers, texts and containers do not come here."""
        kind = type(value)
        if kind.__module__ in _PARTS:
            return kind, tuple([getattr(value, name) for name in kind.__match_args__])
        if kind in _BY_NAME:
            return _of_torch, (str(value).removeprefix("torch."),)
        if kind is torch.device:
            return torch.device, (str(value),)
        if kind is OpOverload and value.namespace in OPERATORS:
            return _of_torch, (f"ops.{value}",)
        if kind is type or value is _of_torch:  # the first element of a pair above
            return NotImplemented
        raise NotKept(f"a {kind.__name__}")


def _of_torch(path: str) -> Any:
    return operator.attrgetter(path)(torch)


# --- programs ---


def unbound(spec: ProgramSpec) -> ProgramSpec:
    """The program without its name and its constants. Raises NotKept."""
    if spec.symbols or spec.n_numbers:
        raise NotKept("numbers")
    return replace(spec, name="", constants={})


def bound(spec: ProgramSpec, name: str, constants: dict[int, Any], to: Bound) -> ProgramSpec:
    """The program with its name, its constants, and the addresses of its kernels."""
    steps = tuple(
        [_BIND[type(step)](step, to) if type(step) in _BIND else step for step in spec.steps]
    )
    return replace(spec, name=name, steps=steps, constants=constants)


def _launch(step: Launch, to: Bound) -> Launch:
    numbers = tuple([to.addresses[one.name] if type(one) is At else one for one in step.numbers])
    address = to.addresses[step.address.name]  # type: ignore[attr-defined]
    return Launch(step.kernel, address, step.slots, to.keep, step.writes, numbers)


def _device_launch(step: DeviceLaunch, to: Bound) -> DeviceLaunch:
    loaded = to.gpu[step.function.name]  # type: ignore[attr-defined]
    return replace(
        step,
        function=loaded.function,
        threads=loaded.threads,
        shared=loaded.shared,
        hidden=loaded.hidden,
        keep=loaded.keep,
    )


_BIND: dict[type, Any] = {Launch: _launch, DeviceLaunch: _device_launch}


# --- kernels of GPUs ---


@dataclass(frozen=True, slots=True)
class General:
    """Makes the kernel for pointers that are not multiples of 16 bytes (`DeviceLaunch.general`):
    that of `text` without the promise for the pointers at these positions.
    """

    text: Any
    aligned: tuple[int, ...]
    device: torch.device

    def __call__(self) -> tuple[int, int]:
        # loaded already, by the launch that asks for the kernel
        from ...runtime.cuda import driver

        found = hardware.gpu(self.device).capability
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
    # loaded for plans with kernels on GPUs only
    from ..triton import cubins

    found: dict[str, Any] = {}
    for capability in sorted(set(capabilities.values())):
        keys = [key for key in texts if capabilities[key] == capability]
        here = cubins.load([texts[key] for key in keys], capability, name, covers, stored=stored)
        found |= {key: here[texts[key].name] for key in keys}
    return found
