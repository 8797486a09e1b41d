"""Operators whose kernels the program registered in Python.

Such a kernel is code of the program; a composite one would run during the trace. `torch.library`
keeps a list of registered kernels, and the rules by which operators run on tensors without data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch._library import custom_ops, simple_registry

from ..graph.schema import OURS, SENDING, is_torchs

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


def in_python(op: Any, *places: str) -> bool:
    """Whether an operator (or packet of overloads) that is not torch's own has a kernel in Python.

    `places`: for one of these dispatch keys; else any but the one for tensors without data (Meta).
    """
    name = getattr(op, "_qualified_op_name", None) or op._name
    space, _, rest = name.partition("::")
    if is_torchs(space):
        return False
    base = rest.partition(".")[0]
    start = f"{space}/{base}"
    return any(
        key.startswith(start)
        and key[len(start)] in "./"
        and (key.endswith(places) if places else not key.endswith("/Meta"))
        for key in _registered()
    )


def registrations(op: Any) -> tuple[Any, ...]:
    """What the trace of an operator depends on: its rule for tensors without data, and its formula
    for the gradient."""
    entry = simple_registry.singleton._data.get(op._name)
    fake = entry.fake_impl.kernel if entry is not None else None
    defined = custom_ops.OPDEFS.get(op._name)
    parts = ("_abstract_fn", "_setup_context_fn", "_backward_fn", "_vmap_fn")
    return (fake, *(getattr(defined, part, None) for part in parts))


def fake_rule(op: Any) -> Callable[..., Any] | None:
    """The operator as a function of tensors without data, as the program registered it."""
    kernel, of_definition, *_ = registrations(op)
    if kernel is not None and (op._name not in custom_ops.OPDEFS or of_definition is not None):
        return kernel  # type: ignore[no-any-return]
    return _nothing if op._schema.is_mutable and not op._schema.returns else None


def has_rule(op: Any) -> bool:
    """Whether torch can say what the results of an operator look like."""
    if op._name in custom_ops.OPDEFS or fake_rule(op) is not None:
        return fake_rule(op) is not None
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return not in_python(op) or has_kernel(op._name, "Meta")


# Operator -> (a rule that a run has found to be untrue, how).
_untrue: dict[str, tuple[Any, str]] = {}


def note_untrue(op: Any, how: str) -> None:
    """Note that the results of an operator do not look as its rule says."""
    _untrue[op._name] = fake_rule(op), how


def untrue(op: Any) -> str | None:
    """How the operator's rule is untrue, if a run has found that."""
    rule, how = _untrue.get(op._name, (None, None))
    return how if rule is not None and rule is fake_rule(op) else None


def _nothing(*_: Any, **__: Any) -> None:
    """The rule of an operator that only writes."""


def refusal(op: Any) -> str:
    """Why an operator of torch's is not recorded, or ""."""
    if op.namespace in SENDING:
        return "which sends messages to other processes"
    return "for which the program has its own kernel" if _overridden(op) else ""


def _overridden(op: Any) -> bool:
    """Whether the program replaced a kernel of one of torch's operators with its own."""
    if op.namespace == OURS or not is_torchs(op.namespace):
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
