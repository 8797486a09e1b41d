"""Functions that `torch.compiler.disable` has wrapped: torch.compile leaves them alone; for us they are what they wrap.

Once a program has used torch.compile, torch wraps the optimizers' own methods so. The wrapper switches torch.compile off
for as long as the function runs, which says nothing to a frame that we compile. In: a frame about to be walked. Out: the
value of the wrapped function's call, walked in its place. The wrapper is known by its code, which takes no import.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from .values import Obj, Value

if TYPE_CHECKING:
    from .machine import Frame, Machine

_FILE = os.path.join(os.path.dirname(torch.__file__), "_dynamo", "eval_frame.py")
_WRAPPER = "DisableContext.__call__.<locals>._fn"


def _wrapped(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def in_place_of(m: Machine, frame: Frame) -> Value | None:
    """What the frame of a wrapper gives, by walking the function it wraps; None for any other frame."""
    code = frame.code
    if code.co_qualname != _WRAPPER or code.co_filename != _FILE or "fn" not in frame.cells:
        return None
    fn, args, kwargs = (m.variable(frame, name) for name in ("fn", "args", "kwargs"))
    assert fn is not None
    assert args is not None
    assert kwargs is not None
    return m.call(Obj(_wrapped), [fn, args, kwargs], {})
