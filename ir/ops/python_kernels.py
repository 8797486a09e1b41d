"""Operators whose kernels the program has registered in Python.

Such a kernel is code of the user's, with effects that no schema tells of; one that is composite would even run while
the operator is traced. `torch.library` remembers who has registered what.
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
_OVERRIDES = ("CPU", "CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "Autograd",
              "AutogradCPU", "AutogradCUDA")  # fmt: skip
_NATIVE = os.path.join(os.path.dirname(torch.__file__), "_native") + os.sep
"""Where torch keeps kernels of its own in Python, which builds for a GPU register when they are imported."""


def _registered() -> set[str]:
    """ "namespace/operator.overload/dispatch key" of each kernel in Python."""
    found: set[str] = torch.library._impls  # type: ignore[attr-defined]
    return found


def in_python(op: Any) -> bool:
    """Whether an operator (or packet of overloads) that is not torch's own has a kernel in Python; what answers
    on tensors without data alone does not count."""
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
    """Whether the program has put a kernel of its own in place of an ATen operator's."""
    if op.namespace == OURS:
        return False
    name = op._name.replace("::", "/", 1)
    registered = _registered()
    return any(
        f"{name}/{place}" in registered and not _by_torch(op._name, place) for place in _OVERRIDES
    )


def _by_torch(name: str, place: str) -> bool:
    """Whether the kernel in force for a dispatch key was put there by torch itself, as the dispatcher tells."""
    text: str = torch._C._dispatch_dump(name)
    return f"\n{place}: registered at {_NATIVE}" in text
