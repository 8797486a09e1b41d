"""Functions wrapped by torch.compile or `torch.compiler.disable`: calls of them are breaks.

In: a frame about to be walked. Out: a break, if it is the frame of such a wrapper. A function that
the program disabled runs in plain Python, and torch.compile runs its own compiled code:
`graftjit.dispatch.frame_policy` skips the frames below. One case is walked as if there were no
wrapper: after a program used torch.compile, torch disables methods of its optimizers for it,
without the program's request. The code object identifies the wrapper, without an import.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ...runtime.process import wrappers
from ..breaks import Break
from ..exact_type import is_kind
from ..values.value import Obj, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine
    from ..values.frames import Frame


def _wrapped(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def in_place_of(m: Machine, frame: Frame) -> Value | None:
    """The result of a wrapper's frame around a function of torch's; None for other frames."""
    kind = wrappers.kind_of(frame.code)
    if kind is None:
        return None
    name = "its module"
    if "fn" in frame.cells:
        fn = m.variable(frame, "fn")
        assert fn is not None
        if kind == wrappers.DISABLED and _is_torchs(fn):
            args, kwargs = m.variable(frame, "args"), m.variable(frame, "kwargs")
            assert args is not None
            assert kwargs is not None
            return m.call(Obj(_wrapped), [fn, args, kwargs], {})
        real = getattr(fn, "value", None)
        name = real.__qualname__ if is_kind(real, types.FunctionType) else "a callable"
    raise Break("GB142", f"{name} under {kind}")


def _is_torchs(fn: Value) -> bool:
    """Whether this function is defined in a file of torch's."""
    real = getattr(fn, "value", None)
    real = real.__func__ if is_kind(real, types.MethodType) else real
    code = real.__code__ if is_kind(real, types.FunctionType) else None
    return is_kind(code, type(_wrapped.__code__)) and code.co_filename.startswith(
        wrappers.TORCH_FOLDER
    )
