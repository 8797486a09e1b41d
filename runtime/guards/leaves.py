"""Gradient and hooks of an autograd leaf, as guards read them.

In: a plain tensor. The C fields of its class are read, so no user code runs. The mirror and capture
use this module; the native guard program reads the same fields.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _native

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_FIELDS = vars(torch._C.TensorBase)
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def gradient(tensor: Any) -> Any:
    """`.grad` of a leaf: a tensor or None."""
    return _field(tensor, "grad")


def hooked(tensor: Any) -> bool:
    """Whether the tensor has hooks that run when its gradient is computed."""
    if _native.hooked_natively(tensor):
        return True
    return any(bool(_field(tensor, name)) for name in _HOOKS)


def _field(tensor: Any, name: str) -> Any:
    with torch._C.DisableTorchFunction():
        return _FIELDS[name].__get__(tensor)
