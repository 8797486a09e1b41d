"""Parameters that the frame makes: `nn.Parameter(t)`, in its modules' `__init__` as well.

In: a call of the class with a plain tensor. Out: the Value of a tensor of that class, which has the
memory and the version of the tensor, and is a leaf. If the parameter, or a view of it, leaves the
frame, Python makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import Parameter

from ..breaks import Break
from ..torch_models import backward, calls
from ..values.registry import Args, Kwargs, models
from ..values.value import Const, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB126"


def leaf_over(data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """A leaf with the memory and version of `data`. Graphs record calls of this function."""
    # With grad mode, since a view made without it is tied to its base.
    with torch.enable_grad():
        return data.detach().requires_grad_(requires_grad)


@models(Parameter)
def _parameter(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("data", "requires_grad"), args, strict=False)) | kwargs
    asks = given.pop("requires_grad", Const(True))
    plain = isinstance(asks, Const) and type(asks.value) is bool
    if len(args) + len(kwargs) > 2 or given.keys() - {"data"} or not plain:
        raise Break(_CODE, "Parameter is built with these arguments")
    if m.inner or m.modes:
        raise Break(_CODE, "Parameter is built in a transform or under a mode")
    data = given.get("data", Const(None))
    if isinstance(data, Const) and data.value is None:
        data = calls.call_torch(m, torch.empty, [Const(0)], {})
    if not isinstance(data, Tensor) or data.cls not in (torch.Tensor, Parameter):
        raise Break(_CODE, "Parameter is built of this value")
    made = calls.record(m, leaf_over, (data.ghost, asks.value), {})  # type: ignore[attr-defined]
    assert isinstance(made, Tensor)
    made.cls = Parameter
    made.ghost._is_param = True
    backward.note_own(m, made)
    return made
