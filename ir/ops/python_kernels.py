"""Operators whose kernels the program registered in Python.

Such a kernel is code of the program, with effects that no schema declares; a composite one would
even run during the trace. `torch.library` keeps a list of registered kernels.
"""

from __future__ import annotations

import os
from typing import Any

import torch

_OF_TORCH = frozenset(
    [
        "aten",
        "prims",
        "prim",
        "rngprims",
        "debugprims",
        "c10d",
        "c10d_functional",
        "_c10d_functional",
        "onednn",
        "mkldnn",
        "mkl",
        "quantized",
        "_quantized",
        "quantized_decomposed",
        "export",
        "debug_mode_ops",
        "inductor",
        "higher_order",
        "profiler",
        "_native",
    ]
)
"""Namespaces of operators that torch itself defines, partly in Python, without effects."""

OURS = "graftjit"  # the namespace of checks.py
_OVERRIDES = (
    "CPU",
    "CUDA",
    "CompositeExplicitAutograd",
    "CompositeImplicitAutograd",
    "Autograd",
    "AutogradCPU",
    "AutogradCUDA",
)
_NATIVE = os.path.join(os.path.dirname(torch.__file__), "_native") + os.sep
"""The folder of torch's own kernels in Python; GPU builds register them on import."""


def _registered() -> set[str]:
    """ "namespace/operator.overload/dispatch key" of each kernel registered in Python."""
    found: set[str] = torch.library._impls  # type: ignore[attr-defined]
    return found


def in_python(op: Any) -> bool:
    """Whether an operator (or packet of overloads) that is not torch's own has a kernel in Python.

    Kernels for tensors without data (dispatch key Meta) do not count.
    """
    name = getattr(op, "_qualified_op_name", None) or op._name
    space, _, rest = name.partition("::")
    if space in _OF_TORCH or space == OURS:
        return False
    base = rest.partition(".")[0]
    start = f"{space}/{base}"
    return any(
        key.startswith(start) and key[len(start)] in "./" and not key.endswith("/Meta")
        for key in _registered()
    )


def overridden(op: Any) -> bool:
    """Whether the program replaced a kernel of an ATen operator with its own."""
    if op.namespace == OURS:
        return False
    name = op._name.replace("::", "/", 1)
    registered = _registered()
    return any(
        f"{name}/{place}" in registered and not _by_torch(op._name, place) for place in _OVERRIDES
    )


def _by_torch(name: str, place: str) -> bool:
    """Whether torch registered the active kernel of a dispatch key (dispatcher's dump)."""
    text: str = torch._C._dispatch_dump(name)
    return f"\n{place}: registered at {_NATIVE}" in text
