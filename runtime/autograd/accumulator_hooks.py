"""Makes hooks on AccumulateGrad nodes visible on their tensors.

A program reaches such a node by `p.expand_as(p).grad_fn.next_functions[0][0]`, and torch has no way
to list its hooks. A backward inside a graph accumulates gradients without the node, so graftjit
must know of these hooks. When Python code registers a hook on the node, its tensor gets an empty
hook of its own, which guards see like any other hook. Hooks registered before the import of
graftjit are not detected, nor those that C++ code adds, except the hooks of reducers
(`runtime.autograd.reducers`).
"""

from __future__ import annotations

import ctypes
import functools
import gc
from typing import Any

import torch

from ...ir.own_hooks import put_on

_METHODS = ("register_hook", "register_prehook")


def watch() -> bool:
    """Wrap the registration methods of the node; False if torch lacks them. Called once, at
    import."""
    kind = getattr(torch._C._functions, "AccumulateGrad", None)
    if kind is None or not all(name in vars(kind) for name in _METHODS):
        return False
    # Attributes of this C type cannot be set, so its dict is changed.
    (methods,) = gc.get_referents(vars(kind))
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
        if _nothing not in hooks.values():
            put_on(tensor.register_post_accumulate_grad_hook, _nothing)
        return handle

    return register


def _nothing(_tensor: Any) -> None:
    """A hook that does nothing."""
