"""The reducers of DistributedDataParallel, whose hooks on gradients are C++ code.

A reducer hooks the nodes that accumulate the gradients of its parameters, and Python cannot list
these hooks. `watch()` wraps the constructor of the class: from then on guards see the parameters of
a reducer as hooked (`runtime.guards.leaves`), so that their gradients are accumulated by autograd,
until the reducer ends. `limits_of(parameter)` gives the sizes of its buckets. `on_new(call)`: call
when a reducer is made, since programs may have been compiled for its parameters before.
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _native

# As torch's `kDefaultFirstBucketBytes` and `kDefaultBucketBytesCap`.
FIRST, OTHERS = 1 << 20, 25 << 20
Limits = tuple[int, ...]  # bytes of the first bucket and so on; the last one is repeated

# By the id of a parameter, which its reducers keep alive: their limits.
_limits: dict[int, list[Limits]] = {}
_callbacks: list[Callable[[], None]] = []


def watch() -> bool:
    """Wrap the constructor; False if torch has no distributed part. Called once, at import."""
    module = sys.modules.get("torch._C._distributed_c10d")
    kind = getattr(module, "Reducer", None)
    if kind is None:
        return False
    if not hasattr(kind.__init__, "__wrapped__"):
        kind.__init__ = _noted(kind.__init__)
        _note_existing()
    return True


def limits_of(parameter: Any) -> Limits | None:
    """The sizes of the buckets of a parameter's reducer; None if it has none."""
    found = _limits.get(id(parameter))
    return None if found is None else found[-1]


def exist() -> bool:
    """Whether there is a reducer."""
    return bool(_limits)


def on_new(call: Callable[[], None]) -> None:
    """Call this each time a reducer is made."""
    _callbacks.append(call)


def prepare(module: Any, gradients: bool) -> None:
    """What a DistributedDataParallel module does around the forward of the module inside, at this
    grad mode: its reducer expects the gradients of a backward, and rebuilds its buckets once."""
    begin(module, gradients)
    finish(module, gradients)


def begin(module: Any, gradients: bool) -> None:
    """What comes before the forward of the module inside, at this grad mode: the reducer expects
    the gradients of a backward, and the first rank sends its buffers to the others. Where plain
    Python runs the forward after all, it does not send them a second time."""
    with torch.set_grad_enabled(gradients):
        module._pre_forward()
    vars(module)["require_forward_param_sync"] = False


def finish(module: Any, gradients: bool) -> None:
    """What comes after the forward of the module inside."""
    with torch.set_grad_enabled(gradients):
        module._post_forward(None)


def _noted(make: Any) -> Any:
    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _note(self, args[0] if args else kwargs["params"], _sizes(args, kwargs))

    return made


def _note(reducer: Any, parameters: Sequence[Any], limits: Limits) -> None:
    ids = [id(one) for one in parameters]
    for one in ids:
        _native.hook_natively(one, 1)
        _limits.setdefault(one, []).append(limits)
    weakref.finalize(reducer, _ended, ids, limits).atexit = False
    for call in _callbacks:
        call()


def _ended(ids: Sequence[int], limits: Limits) -> None:
    for one in ids:
        _native.hook_natively(one, -1)
        _limits[one].remove(limits)
        if not _limits[one]:
            del _limits[one]


def _sizes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limits:
    """The limits by which the reducer rebuilds its buckets in the order of the gradients."""

    def argument(position: int, name: str, default: Any) -> Any:
        return args[position] if len(args) > position else kwargs.get(name, default)

    later = argument(12, "bucket_bytes_cap_list", ())
    if isinstance(later, (list, tuple)) and later:
        return tuple(map(int, later))
    first = argument(9, "first_bucket_bytes_cap", FIRST)
    return int(first), int(argument(5, "bucket_bytes_cap", OTHERS))


def _note_existing() -> None:
    """Note the reducers that were made before `watch`, if there can be any."""
    distributed = sys.modules.get("torch.distributed")
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    if distributed is None or parallel is None or not distributed.is_initialized():
        return
    for one in gc.get_objects():
        if issubclass(type(one), parallel.DistributedDataParallel) and "reducer" in vars(one):
            parameters = [p for p in one.module.parameters() if p.requires_grad]
            _note(one.reducer, parameters, (FIRST, getattr(one, "bucket_bytes_cap", OTHERS)))
