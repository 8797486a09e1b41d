"""Labels for profilers inside a frame: `torch.profiler.record_function`, as a block or a decorator.

In: a label's `__enter__` and `__exit__`. Out: nothing in the graph while no profiler is active,
which a guard says; a label is a break while one is. The label is an object of its class in any
case. Its record, an object of C, is made where the label leaves the frame, as at a break inside the
block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.profiler import record_function
from torch.optim import optimizer as of_torch

from ...runtime.guards.sources import Source
from ..breaks import Break
from ..data_model import attributes
from ..data_model.polyfills import stands_for
from ..values.registry import Args, Kwargs, models
from ..values.value import Instance, Obj, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB103"


class Record:
    """Replaces the record that torch makes when a label is entered."""

    __slots__ = ("args", "name")


attributes.STAND_INS[Record] = (_CODE, "the record of a profiler's label is looked at")
attributes.BUILT_BY_CALL[Record] = (
    torch.ops.profiler._record_function_enter_new,
    ("name", "args"),
)
# Newer versions of torch have one more attribute.
_MONITOR = "_cupti_monitor_external_id" in record_function.__init__.__code__.co_names


@stands_for(record_function.__init__)
def _init(self: Any, name: Any, args: Any = None) -> None:
    """Torch's own code makes a type for TorchScript, which is Python code of `typing`."""
    self.name = name
    self.args = args
    self.run_callbacks_on_exit = True
    self.record = None
    if _MONITOR:
        self._cupti_monitor_external_id = None


def _record(label: Any) -> Any:
    return Record()


@models(_record)
def _model_record(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    active = torch._C._autograd._profiler_enabled()
    # An active profiler now does not predict later calls: an optimizer's own label is dropped in
    # any case. The frames above it are `__enter__` and the label's user.
    if m.frames[-2].code.co_filename != of_torch.__file__:
        m.guard("equals", Source("context", None, torch._C._autograd._profiler_enabled), active)
        if active:
            raise Break(_CODE, "a label for profilers")
    made = Instance(Obj(Record))
    m.heap.overlay[made] = {
        name: attributes.load_attr(m, args[0], name) for name in ("name", "args")
    }
    return made


@stands_for(record_function.__enter__)
def _enter(self: Any) -> Any:
    self.record = _record(self)
    return self


@stands_for(record_function.__exit__)
def _exit(self: Any, exc_type: Any, exc_value: Any, traceback: Any) -> None:
    if self.run_callbacks_on_exit and self.record is None:
        raise AssertionError("Expected record to be set")
