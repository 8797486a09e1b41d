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
    """Whether autograd does more to the tensor's gradient than compute it: hooks, or a cast."""
    if _native.hooked_natively(tensor) or recast(tensor):
        return True
    return any(bool(_field(tensor, name)) for name in _HOOKS)


def recast(tensor: Any) -> bool:
    """Whether the gradient of a leaf may have another dtype (`grad_dtype`)."""
    if "grad_dtype" not in _FIELDS or not tensor.is_leaf:
        return False
    return _field(tensor, "grad_dtype") is not _field(tensor, "dtype")


def _field(tensor: Any, name: str) -> Any:
    with torch._C.DisableTorchFunction():
        return _FIELDS[name].__get__(tensor)
