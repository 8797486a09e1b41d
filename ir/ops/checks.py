"""Operators of ours that check something at run time.

torch decomposes its own `one_hot` over tensors without data, which drops its check. So a trace
calls our `one_hot(index, n)` (`ir.trace.substitutes`), which arrives whole; the recorder then
records torch's own, which checks the classes at run time. `leave_unless(condition, expected)` is a
branch of the program of which one side only raises (`capture.data_model.raising_checks`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..graph.opdef import OPS, OpDef
from ..graph.schema import OURS

# The operators live as long as this object.
_LIBRARY = torch.library.Library(OURS, "FRAGMENT")
_LIBRARY.define("one_hot(Tensor index, SymInt num_classes) -> Tensor")
_LIBRARY.define("leave_unless(Tensor condition, bool expected) -> ()")
one_hot = torch.ops.graftjit.one_hot.default
leave_unless = torch.ops.graftjit.leave_unless.default


class Left(RuntimeError):
    """A condition of the program is not as its graph assumes: Python runs the frame again."""


def _leave_unless(condition: torch.Tensor, expected: bool) -> None:
    if bool(condition) != expected:
        raise Left("a condition on tensor data is not as it usually is")


def checking(expected: bool) -> Callable[[torch.Tensor], tuple[()]]:
    """The check as a step of a program, without torch's dispatcher."""

    def check(condition: torch.Tensor) -> tuple[()]:
        _leave_unless(condition, expected)
        return ()

    return check


_LIBRARY.impl("leave_unless", _leave_unless, "CompositeExplicitAutograd")


_NAME = str(leave_unless)
OPS[_NAME] = OpDef(_NAME, "check", lambda op, condition, expected: None)


def assumed(condition: torch.Tensor, expected: bool) -> None:
    """Raise `Left` unless the truth of this tensor of one element is as expected."""
    truth = condition.detach()
    leave_unless(truth if truth.dtype is torch.bool else truth != 0, expected)
