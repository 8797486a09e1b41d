"""Objects with observable finalisers: Python must drop them at their place among the effects.

In: the arguments of a frame, and objects that it removes from places outside. Out: after each
instruction, whether the frame dropped one that may end with it; at the frame's end, the order in
which they are dropped. A resume function owns its arguments: with `Loud().name` on its stack, the
object dies where the name is read, and its `__del__` writes before the rest of the function.
`capture.capture` breaks there. Other references to the object are unknown; if there are some, it
does not end, and the break was unnecessary.
"""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from ..runtime.guards.weak_ref import Weak
from ..runtime.safe_access import MISSING, in_classes
from .bytecode.decoder import Decoded, decode
from .emit.ahead import dropped_ahead
from .emit.break_state import reachable
from .exact_type import is_kind
from .interpreter.machine import Machine
from .operations.generators import closing_is_seen
from .values.frames import Frame
from .values.registry import NONE
from .values.value import Method, Value
from .values.wrap import CONST_TYPES

# The most objects inspected below one argument.
_MOST = 100
# Their parts are not inspected: they are shared, or end with the interpreter.
_CLOSED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    torch.Tensor,
    torch.nn.Module,
)
# Of these a weak reference with a callback may be made, and the program may drop them itself.
_WATCHED = (types.FunctionType, torch.Tensor)
# Classes of torch's own, whose tensors say where their memory is.
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Ends:
    """Objects that may end visibly before the code does.

    They are arguments that the code drops, and objects that it removed from places outside.
    """

    def __init__(self, decoded: Decoded, frame: Frame, arguments: dict[str, Any]) -> None:
        dropped = dropped_ahead(decoded)
        self.arguments: dict[str, tuple[Value, Any]] = {
            name: (dict.__getitem__(frame.locals, name), real)
            for name, real in arguments.items()
            if name in frame.locals
        }
        self.held = [
            pair
            for name, pair in self.arguments.items()
            if name in dropped and _may_be_seen(pair[1])
        ]
        self.looked_at = 0  # how many of `m.unhooked` were inspected

    def let_go(self) -> None:
        self.held, self.arguments = [], {}

    def just_dropped(self, m: Machine, frame: Frame) -> Any:
        """An object that is no longer on the stack, among the locals or being handled, or None."""
        while self.looked_at < len(m.journal.unhooked):
            real = m.journal.unhooked[self.looked_at]
            self.looked_at += 1
            if _may_be_seen(real):
                self.held.append((NONE, real))
        for unread, real in self.held:
            value = m.heap.known.get(id(real))
            names = dict.values(frame.locals)
            if not any(
                _holds(one, unread, value) for one in (*frame.stack, *names, *m.handling.stack)
            ):
                return real
        return None

    def at_the_end(self, m: Machine, frame: Frame, order: Sequence[str]) -> list[str]:
        """The arguments with visible ends, in the order of plain Python at the frame's end.

        That is the order of the locals that hold them last. Empty if it equals the order of the
        arguments.
        """
        seen = {name: pair for name, pair in self.arguments.items() if _may_be_seen(pair[1])}
        last: dict[str, int] = {}
        for place, local in enumerate(order if len(seen) > 1 else ()):
            if dict.__contains__(frame.locals, local):
                held = reachable(m, [dict.__getitem__(frame.locals, local)])
                for name, (unread, real) in seen.items():
                    if unread in held or m.heap.known.get(id(real)) in held:
                        last[name] = place
        if len(last) < len(seen):
            # One of them is held in a way unknown here, or there are fewer than two.
            return []
        wanted = sorted(seen, key=last.__getitem__)
        return [] if wanted == [*seen] else wanted


def _holds(one: Value, unread: Value, value: Value | None) -> bool:
    if isinstance(one, Method):
        one = one.receiver
    return one is unread or (one is value and value is not None)


def _may_be_seen(real: Any) -> bool:
    """Whether code runs when this object, or an object that only it may hold, ends.

    An exception holds the frames that it passed, and they hold their locals.
    """
    todo = [real]
    seen: set[int] = set()
    running: set[int] = set()
    while todo and len(seen) < _MOST:
        one = todo.pop()
        kind = type(one)
        if kind is types.FrameType:
            running = running or _running()
            if id(one) not in seen and id(one) not in running:
                seen.add(id(one))
                todo += gc.get_referents(one)
            continue
        constant = type(kind) is type and kind in CONST_TYPES  # a metaclass may define its own hash
        if id(one) in seen or constant:
            continue
        if is_kind(one, _CLOSED):
            if one is real and is_kind(one, _WATCHED) and _seen_itself(one):
                return True
            if is_kind(one, torch.Tensor):
                todo += _parts(one)
            continue
        seen.add(id(one))
        if _seen_itself(one):
            return True
        todo += gc.get_referents(one)
    return False


def _parts(tensor: torch.Tensor) -> list[Any]:
    """What may end with a tensor: its attributes and hooks, and a storage object of the program's.

    Tensors of the same memory have one storage object, which has attributes and may have a class.
    """
    parts = [part for part in gc.get_referents(tensor) if not isinstance(part, type)]
    if type(tensor) not in _PLAIN or tensor.layout is not torch.strided:
        return parts
    try:
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        # A tensor of a transform, which has no memory of its own.
        return parts
    ordinary = type(storage) is torch.UntypedStorage and not vars(storage)
    if not ordinary or weakref.getweakrefcount(storage):
        parts.append(storage)
    return parts


def _running() -> set[int]:
    """The ids of the frames of all threads, which do not end with an exception.

    Ids, because a list of frames would hold its own frame.
    """
    found: set[int] = set()
    for frame in sys._current_frames().values():
        while frame is not None:
            found.add(id(frame))
            frame = frame.f_back  # type: ignore[assignment]
    return found


def _seen_itself(one: Any) -> bool:
    if in_classes(type(one), "__del__") is not MISSING:
        return True
    if type(one) is types.GeneratorType:
        return one.gi_frame is not None and closing_is_seen(decode(one.gi_code))
    if type(one).__weakrefoffset__:
        # Rows of guards refer weakly to an object as well: their callbacks are graftjit's.
        refs = [ref for ref in weakref.getweakrefs(one) if type(ref) is not Weak]
        return any(is_kind(ref, weakref.ref) and _CALLBACK(ref) for ref in refs)
    return False


_CALLBACK: Any = vars(weakref.ref)["__callback__"].__get__  # also for the library's subclasses
