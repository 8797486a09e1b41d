"""The hooks that `torch.distributed.fsdp.fully_shard` puts around the forward of a module.

In: a call of such a hook, which gathers the module's parameters or frees them. Out: a break, since
torch disables these hooks for compilers: they run in plain Python, and the module's forward is a
graph of its own. A compiled module with such hooks does nothing around them, so its own frame runs
in plain Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

from ...runtime.process.skipped_files import skipped_file
from ..breaks import Break, PlainFrame
from ..values.registry import Args, Kwargs, models
from ..values.value import Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB142"
_HOOK = "a hook of fully_shard, which torch disables for compilers"
_ALONE = "hooks of fully_shard run in plain Python, and forward is a frame of its own"


@models(FSDPState._pre_forward)
def _pre_forward(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if all(skipped_file(frame.code.co_filename) for frame in m.frames):
        raise PlainFrame("PL216", _ALONE, m.where)
    raise Break(_CODE, _HOOK)


@models(FSDPState._post_forward)
def _post_forward(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break(_CODE, _HOOK)
