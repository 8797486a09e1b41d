"""The systems of the comparison: each takes a module and its inputs, and gives a callable over
tensors.

eager, graftjit and torch.compile are those of `benchmarks.systems`. `NEEDS` are the modules that
a system imports: `missing` says which of them are not there, without importing any.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from torch import nn

from .. import systems
from . import onnx_runtime, open_vino

Run = Callable[..., Any]
Prepare = Callable[[nn.Module, tuple[Any, ...]], Run]

OURS = ("graftjit", "graftjit O2")
TUNED = "torch.compile tuned"


def _of(name: str) -> Prepare:
    """A system that needs no example of its inputs."""
    return lambda module, inputs: systems.under(name, module)


def _tuned(module: nn.Module, inputs: tuple[Any, ...]) -> Run:
    """Weights are constants, products are chosen by measurement, and the wrapper is C++."""
    import torch
    from torch._inductor import config

    # Of the whole process, as Dynamo asks too whether weights are constants.
    for name in ("freezing", "max_autotune", "cpp_wrapper"):
        setattr(config, name, True)
    return torch.compile(module)


SYSTEMS: dict[str, Prepare] = {
    **{name: _of(name) for name in ("eager", *OURS, "torch.compile")},
    TUNED: _tuned,
    "onnxruntime": onnx_runtime.prepare,
    "openvino": open_vino.prepare,
}

NEEDS: dict[str, tuple[str, ...]] = {
    "onnxruntime": ("onnx", "onnxruntime"),
    "openvino": ("openvino",),
}


def missing(system: str) -> str:
    """What the table says of a system that cannot be imported; nothing if it can."""
    absent = [name for name in NEEDS.get(system, ()) if importlib.util.find_spec(name) is None]
    return f"{', '.join(absent)} not installed" if absent else ""
