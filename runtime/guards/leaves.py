"""What a guard reads of a leaf of autograd's graph: its gradient, and whether anybody has hung a hook on it.

In: a plain tensor. The C code of its class answers; no code of the user's runs. Read by the mirror and by capture; the
native guard program reads the same fields.
"""

from __future__ import annotations

from typing import Any

import torch

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_FIELDS = vars(torch._C.TensorBase)
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def gradient(tensor: Any) -> Any:
    """`.grad` of a leaf, a tensor or None."""
    return _field(tensor, "grad")


def hooked(tensor: Any) -> bool:
    """Whether something is called when the tensor's gradient is there."""
    return any(bool(_field(tensor, name)) for name in _HOOKS)


def _field(tensor: Any, name: str) -> Any:
    with torch._C.DisableTorchFunction():
        return _FIELDS[name].__get__(tensor)
