"""Names of static-graph programs: `ms_function`, `jit_class`, `mutable`.

In: programs that import them. Out: `jit` under its old name, and two markers, of which `jit_class`
does nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

from .dynamic import mark_all
from .jit import jit
from .runtime.process.options import JitConfig
from .runtime.process.session import SESSION

_Any = TypeVar("_Any")
_Class = TypeVar("_Class", bound=type)


def ms_function(
    fn: Any = None,
    input_signature: Any = None,
    hash_args: Any = None,
    jit_config: JitConfig | None = None,
) -> Any:
    """`jit` under its old name, as a decorator with or without arguments.

    input_signature and hash_args are accepted and ignored, since guards detect the inputs of a
    program.
    """
    for name, value in (("input_signature", input_signature), ("hash_args", hash_args)):
        if value is not None:
            SESSION.warn_once("WN605", f"ms_function({name}=...) has no effect in graftjit")
    if fn is None:
        return lambda function: jit(function, config=jit_config)
    return jit(fn, config=jit_config)


def mutable(value: _Any, dynamic_len: bool = False) -> _Any:
    """The value itself; its tensors are marked as having varying sizes (see `mark_dynamic`).

    A number needs no mark: it becomes an input of the compiled program after it has varied.
    """
    mark_all(value)
    return value


def jit_class(cls: _Class) -> _Class:
    """The class itself: classes need no mark for use in compiled code.

    Raises TypeError if the argument is not a class.
    """
    if not isinstance(cls, type):
        raise TypeError(
            f"jit_class marks a class, not {type(cls).__name__}; for a function use jit"
        )
    return cls
