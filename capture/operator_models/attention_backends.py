"""A model of `torch.nn.attention.sdpa_kernel`: the kernels that attention may use in a block.

In: one `SDPBackend` or a list of them. Out: a Context. The walk of the block, and each run of its
recorded calls, has torch's flags as they are in it, so torch chooses the operators. Guards hold the
flags around the frame. An order of kernels is part of no guard, so `set_priority` is a break.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.attention import SDPBackend, sdpa_kernel

from .. import helpers
from ..breaks import Break
from ..values.containers import sequence_items
from ..values.registry import Args, Kwargs, models
from ..values.value import Const, Context, Obj, Sequence, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


@models(sdpa_kernel)
def _sdpa_kernel(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("backends", "set_priority"), args, strict=False)) | kwargs
    backends = given.pop("backends", None)
    order = given.pop("set_priority", Const(False))
    if given or len(args) > 2 or not isinstance(order, Const) or order.value is not False:
        raise Break("GB110", "sdpa_kernel() with an order of backends")
    several = isinstance(backends, Sequence) and backends.cls is list
    chosen = sequence_items(m, backends) if several else [backends]  # type: ignore[arg-type]
    numbers = []
    for one in chosen:
        if not isinstance(one, Obj) or type(one.value) is not SDPBackend:
            raise Break("GB110", "sdpa_kernel() with these arguments")
        m.same_object(one)
        numbers.append(int(one.value))
    return Context(helpers.AttentionBackends, tuple(dict.fromkeys(numbers)), {})
