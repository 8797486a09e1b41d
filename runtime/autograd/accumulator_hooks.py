"""Hooks on the nodes that accumulate gradients, made visible on their tensors.

torch shows such a node through `p.expand_as(p).grad_fn.next_functions[0][0]`, and what is hung on it cannot be asked for. A
backward inside of a graph adds gradients without the node, so it must know: a tensor whose node gets a hook from Python
gets one of its own as well, which does nothing, and which guards see like any other. Hooks that C++ hangs on nodes (the
reducer of DistributedDataParallel) and those from before the import of graftjit are not seen.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from typing import Any

import torch

_METHODS = ("register_hook", "register_prehook")


def watch() -> bool:
    """Begin to see them; whether that can be had. Called once, at import."""
    kind = getattr(torch._C._functions, "AccumulateGrad", None)
    if kind is None or not all(name in vars(kind) for name in _METHODS):
        return False
    (methods,) = gc.get_referents(vars(kind))  # a type made by C does not let its attributes be set
    for name in _METHODS:
        if not hasattr(methods[name], "__wrapped__"):
            methods[name] = _noted(methods[name])
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    return True


def _noted(method: Any) -> Any:
    @functools.wraps(method)
    def register(self: Any, *args: Any, **kwargs: Any) -> Any:
        handle = method(self, *args, **kwargs)
        tensor = self.variable
        hooks = tensor._post_accumulate_grad_hooks or {}
        if _told not in hooks.values():
            tensor.register_post_accumulate_grad_hook(_told)
        return handle

    return register


def _told(_tensor: Any) -> None:
    """The hook that does nothing."""
