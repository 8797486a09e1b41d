"""Tensor factors where torch wants a number: `x.add_(y, alpha=rate)` and the like.

In: such a call; torch would read the number from the tensor, which a graph cannot. Out: the same
sum with the factor as an operand, with torch's rounding. A call without a rule here stays a read of
tensor data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..values.registry import Args, Kwargs
from ..values.value import Obj, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

# Kernels of these dtypes compute in float32, and do not round at the same places as separate steps.
NARROW = (torch.float16, torch.bfloat16)


def _plus(x: Any, other: Any, factor: Any) -> Any:
    """One fused multiply-add, as in the kernel of `add`."""
    return torch.addcmul(x, other, factor.to(x.dtype))


def _minus(x: Any, other: Any, factor: Any) -> Any:
    return _plus(x, other, -factor)


def _plus_product(x: Any, first: Any, second: Any, factor: Any) -> Any:
    return torch.addcmul(x, factor.to(x.dtype) * first, second)


def _plus_quotient(x: Any, above: Any, below: Any, factor: Any) -> Any:
    if x.dtype in NARROW:
        return (x.float() + factor.float() * above.float() / below.float()).to(x.dtype)
    return x + factor.to(x.dtype) * above / below


def _put(function: Any, x: Any, *others: Any) -> Any:
    return x.copy_(function(x, *others))


_WAYS = {
    "add": ("alpha", 2, _plus),
    "sub": ("alpha", 2, _minus),
    "addcmul": ("value", 3, _plus_product),
    "addcdiv": ("value", 3, _plus_quotient),
}


def by_tensor(m: Machine, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """The call's result, if one of its factors is a tensor and a rule exists, else None."""
    keyword, count, way = _WAYS.get(name.removesuffix("_"), ("", 0, None))
    factor = kwargs.get(keyword)
    if not isinstance(factor, Tensor) or len(kwargs) != 1 or len(args) != count:
        return None
    ghosts = [one.ghost for one in args if isinstance(one, Tensor)]
    kinds = {(one.dtype, one.device.type) for one in ghosts}
    if len(ghosts) != count or len(kinds) != 1 or not ghosts[0].is_floating_point():
        return None
    if ghosts[0].dtype in NARROW and way is not _plus_quotient:
        return None
    number = factor.ghost
    if number.dim() or number.requires_grad or number.is_complex() or number.dtype is torch.bool:
        return None
    if name.endswith("_"):
        return m.call(Obj(_put), [Obj(way), *args, factor], {})
    return m.call(Obj(way), [*args, factor], {})
