"""Functions that Python runs because of their module, and the code of the break.

In: a callable without a model. Out: the code of its break. Modules here have effects, keep state,
or inspect frames; a Python function of any other module is inlined. `calls` uses it.
"""

from __future__ import annotations

import types
from typing import Any

from ..exact_type import is_kind

_MODULES: dict[str, str | None] = {
    "logging": "GB103",
    "warnings": "GB103",
    "traceback": "GB132",
    "inspect": "GB132",
    "io": "GB103",
    "_io": "GB103",
    "_warnings": "GB103",
    "posix": "GB103",
    "_thread": "GB103",
    "select": "GB103",
    "_socket": "GB103",
    "random": "GB119",
    "_random": "GB119",
    "numpy.random": "GB119",
    "threading": "GB102",
    "subprocess": "GB103",
    "os": "GB103",
    "sys": "GB132",
    "importlib": "GB111",
    "importlib._bootstrap": "GB111",
    "abc": "GB137",
    "pdb": "GB132",
    "time": "GB103",
    "numpy": "GB123",
    "pickle": "GB103",
    "dis": "GB132",
    "ast": "GB131",
    "torch.autograd": "GB114",
    "torch.autograd.function": "GB134",
    "torch.autograd.functional": None,
    "torch.autograd.variable": None,
    "torch.utils.checkpoint": "GB114",
    "torch._tensor_str": "GB103",
    "torch.random": "GB118",
    "torch.serialization": "GB103",
    "torch.autograd.graph": "GB114",
    "torch.autograd.profiler": "GB103",
    "torch.profiler": "GB103",
    "torch.jit": "GB102",
    "torch.cuda": "GB118",
    "torch.distributed": "GB102",
    "torch.distributed.algorithms._checkpoint": None,
    "torch.compiler": "GB102",
    "torch._functorch": "GB124",
    "torch.func": "GB124",
    "torch._higher_order_ops": "GB124",
    "graftjit.runtime": "GB135",
    "graftjit.runtime.autograd.differentiate": None,
    "graftjit.runtime.autograd.transformed": None,
    "graftjit.dispatch.unit": "GB135",
    "graftjit.jit": "GB135",
    "graftjit.context": "GB118",
    "graftjit.compiled": "GB135",
    "torch.optim": "GB115",
    "copy": "GB102",
    **dict.fromkeys(
        f"torch.optim.{name}"
        for name in (
            "optimizer",
            "sgd",
            "adam",
            "adamw",
            "rmsprop",
            "adadelta",
            "adagrad",
            "nadam",
            "radam",
            "adamax",
            "asgd",
            "rprop",
            "_adafactor",
            "_muon",
            "lr_scheduler",
            "swa_utils",
        )
    ),
}


def _of_module(name: Any) -> str | None:
    module = name if isinstance(name, str) else ""
    while module:
        if module in _MODULES:
            return _MODULES[module]
        module = module.rpartition(".")[0]
    return None


def of_function(real: types.FunctionType) -> str | None:
    """The break code of a Python function that must not be inlined, or None."""
    return _of_module(real.__module__)


def of_class(cls: type) -> str:
    """The break code of a C method of this class."""
    return _of_module(cls.__module__) or "GB102"


def of_builtin(real: Any) -> str:
    """The break code of a C function, or of a C method bound to an object or a class."""
    owner = real.__self__
    if is_kind(owner, types.ModuleType) or owner is None:
        return _of_module(real.__module__) or "GB102"
    return of_class(owner if is_kind(owner, type) else type(owner))


def of_object(real: Any) -> str:
    """The break code of a callable object of C code."""
    if type(real).__name__ == "cython_function_or_method":
        return _of_module(real.__module__) or "GB102"
    return of_class(type(real))


def of_descriptor(raw: Any) -> str:
    """The break code of a C descriptor that is not a method."""
    if type(raw).__name__ == "cython_function_or_method":
        return _of_module(raw.__module__) or "GB112"
    owner = getattr(raw, "__objclass__", None) if is_kind(raw, _FIELDS) else None
    return _of_module(getattr(owner, "__module__", None)) or "GB112"


_FIELDS = (types.GetSetDescriptorType, types.MemberDescriptorType)
