"""`torch.utils.checkpoint.checkpoint` in a frame: capture walks the function; its operators are a
region of the trace (`ir.trace.regions`), which the backward computes again.

In: a call of `checkpoint` with `use_reentrant=False`. Out: the function's result. A policy of
`create_selective_checkpoint_contexts` is asked once for each operator; what it saves is not
computed again. In eager mode the function runs a second time during the backward, so whatever it
does beside its result happens twice: a function with effects that can be seen is a break, and so
are the other forms of checkpoints, which torch itself then runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from ...ir.graph.nodes import Graph
from ...ir.trace.joint_graph import Joint
from ...ir.trace.regions import Region, Regions
from ..breaks import Break, MustBePython
from ..data_model import attributes
from ..data_model.polyfills import walk_as_written
from ..values.containers import NotConstant, as_constant, sequence_items
from ..values.registry import BUILTINS, Args, Kwargs, models
from ..values.value import (
    Cell,
    Const,
    Dict,
    Function,
    Instance,
    Iterator,
    Method,
    Obj,
    Partial,
    Sequence,
    Set,
    Tensor,
    Unread,
    Value,
)
from ..values.wrap import pin
from .reentrant import reentrant_results

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB114"
_NO_INPUT = "a warning: no argument of a checkpoint with use_reentrant=True requires a gradient"
_CHECKS = tuple(torch_checkpoint._allowed_determinism_checks_to_fns)


class Selective:
    """A context of `create_selective_checkpoint_contexts`, with its policy."""


attributes.STAND_INS[Selective] = (
    _CODE,
    "a context for selective checkpoints is looked at or kept",
)


@models(torch_checkpoint.checkpoint)
def _checkpoint(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    given = dict(kwargs)
    if not args:
        raise Break(_CODE, "a checkpoint without a function as its first argument")
    options = _options(m, given)
    context_fn = given.pop("context_fn", None)
    reentrant = options["use_reentrant"]
    policy = None if reentrant else _policy(m, context_fn)
    function, *rest = args
    if reentrant:
        _require_reentrant(m, rest, {**given, "context_fn": context_fn}, options)
    if not torch.is_grad_enabled():
        return m.call(function, rest, given)
    if m.inner or m.modes:
        raise Break(_CODE, "a checkpoint inside of a transform or a mode")
    regions = Regions.of(m.tracer)
    if reentrant and regions.without_history():
        raise Break("GB103", _NO_INPUT)
    before = _Seen(m, [function, *args, *given.values()])
    read, m.heap.read = m.heap.read, set()
    region = regions.begin([one.ghost for one in rest if isinstance(one, Tensor)], reentrant)
    try:
        result = m.call(function, rest, given)
        if policy is not None:
            regions.save(region, _saves(m, policy, regions.operators(region)))
    finally:
        regions.end(region)
        inside, m.heap.read = m.heap.read, m.heap.read | read
    _require_no_effects(m, before, region, regions, options)
    seen = _Seen(m, before.given, frames=False, read=inside)
    region.check = partial(_check, m.root_index, seen)
    if not reentrant:
        return result
    return reentrant_results(m, region, rest, _Seen(m, [function], frames=False).values, result)


def _require_no_effects(
    m: Machine, before: _Seen, region: Region, regions: Regions, options: dict[str, Any]
) -> None:
    """Break for a function whose effects happen twice in eager mode, or that draws other random
    numbers the second time."""
    changed = before.effects()
    if regions.writes_outside(region):
        changed = changed or "a tensor from outside"
    if changed:
        raise Break(
            _CODE, f"a checkpointed function with effects, which happen twice: it changes {changed}"
        )
    if not options["preserve_rng_state"] and regions.draws(region):
        raise Break(_CODE, "a checkpointed function draws random numbers, with"
                    " preserve_rng_state=False")  # fmt: skip


def _check(index: int, read: _Seen, graph: Graph) -> None:
    """Let Python run the checkpoint at instruction `index` if what its function reads has changed
    since, or if the graph has no backward of its own: its calls would run as without a
    checkpoint."""
    changed = read.changed(tensors=False)
    if changed:
        raise MustBePython(index, _CODE, f"what a checkpointed function reads changes: {changed}")
    if graph.needs_grad and not isinstance(graph.joint, Joint):
        reason = graph.joint.reason if graph.joint else "a gradient is needed"
        raise MustBePython(index, _CODE, f"a checkpoint in a graph without a backward: {reason}")


# The settings set a global of torch around a block. What they change is not seen in a region.
_SETTINGS: tuple[Any, ...] = (
    torch_checkpoint.set_checkpoint_early_stop,
    torch_checkpoint.set_checkpoint_debug_enabled,
)
walk_as_written(
    torch_checkpoint.checkpoint_sequential,
    *_SETTINGS,
    *(one.__wrapped__ for one in _SETTINGS),
)


def _options(m: Machine, given: Kwargs) -> dict[str, Any]:
    """Take checkpoint's own options, and break for those that are not modelled."""
    options = {
        "use_reentrant": None,
        "determinism_check": "default",
        "debug": False,
        "early_stop": True,
        "preserve_rng_state": True,
    }
    found = {
        name: _constant(m, name, given.pop(name)) if name in given else value
        for name, value in options.items()
    }
    if found["use_reentrant"] is None:
        raise Break("GB103", "a warning: a checkpoint without use_reentrant")
    if found["determinism_check"] not in _CHECKS:
        raise Break("GB108", "a checkpoint with an unknown determinism_check")
    return found


def _require_reentrant(
    m: Machine, rest: Args, given: dict[str, Value | None], options: dict[str, Any]
) -> None:
    """Break where a checkpoint with use_reentrant=True raises or warns."""
    plain = _is_plain(given.pop("context_fn"))
    if given or not plain or options["debug"] is not False:
        raise Break("GB108", "a checkpoint with use_reentrant=True and other options")
    if not any(isinstance(one, Tensor) and one.ghost.requires_grad for one in rest):
        raise Break("GB103", _NO_INPUT)


# -- selective checkpoints -------------------------------------------------------------------------
@models(torch_checkpoint.create_selective_checkpoint_contexts)
def _contexts(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        raise Break(_CODE, "selective checkpoints with these arguments")
    if not _is_policy(m, args[0]):
        raise Break(_CODE, "selective checkpoints whose policy torch refuses")
    made = Instance(Obj(Selective))
    m.heap.overlay[made] = {"policy": args[0]}
    return Sequence([made, made], tuple)


def _is_policy(m: Machine, value: Value) -> bool:
    """Whether torch takes this policy: a list of operators, or anything that can be called."""
    if isinstance(value, Sequence) and value.cls is list:
        kinds = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
        items = sequence_items(m, value)
        return all(isinstance(one, Obj) and isinstance(one.value, kinds) for one in items)
    return bool(m.truth(BUILTINS[callable](m, [value], {})))


def _policy(m: Machine, function: Value | None) -> Value | None:
    """The policy of a checkpoint's `context_fn`, None without one."""
    if function is None or _is_plain(function):
        return None
    found = m.call(function, [], {})
    first = found._items[0] if isinstance(found, Sequence) and found._items else found
    cls = first.cls if isinstance(first, Instance) else None
    if not (isinstance(cls, Obj) and cls.value is Selective):
        raise Break(_CODE, "a checkpoint with a context_fn that is not for selective checkpoints")
    policy = m.heap.overlay[first]["policy"]
    assert policy is not None
    return policy


def _is_plain(function: Value | None) -> bool:
    """Whether this is the `context_fn` of a checkpoint without one."""
    return function is None or (
        isinstance(function, Obj) and function.value is torch_checkpoint.noop_context_fn
    )


def _saves(m: Machine, policy: Value, operators: Iterable[Any]) -> set[Any]:
    """The operators whose results the policy saves."""
    policies = torch_checkpoint.CheckpointPolicy
    context = Unread(_unread)
    found = set()
    for op in operators:
        if isinstance(policy, Sequence):
            given = any(_object(one) is op for one in sequence_items(m, policy))
        else:
            given = _object(m.call(policy, [context, Obj(op), Unread(_unread)], {}))
        if given in (policies.MUST_CPU_OFFLOAD, policies.PREFER_CPU_OFFLOAD):
            raise Break(_CODE, "a selective checkpoint that offloads")
        if given is True or given in (policies.MUST_SAVE, policies.PREFER_SAVE):
            found.add(op)
    return found


def _object(value: Value) -> Any:
    """The object of a value from outside, which is guarded."""
    if isinstance(value, Const):
        return value.value
    if not isinstance(value, Obj):
        raise Break(_CODE, "a selective checkpoint whose policy is not known")
    pin(value)
    return value.value


def _unread() -> Value:
    raise Break(_CODE, "a policy for checkpoints that looks at more than the operator")


def _constant(m: Machine, name: str, value: Value) -> Any:
    try:
        return as_constant(m, value)
    except NotConstant:
        raise Break(_CODE, f"a checkpoint whose {name} is not a constant") from None


# -- effects ---------------------------------------------------------------------------------------
class _Seen:
    """What a function can change: effects, and the content of all that exists before its call."""

    def __init__(
        self,
        m: Machine,
        given: Iterable[Value],
        frames: bool = True,
        read: set[Any] | None = None,
    ) -> None:
        """`frames`: what the frames and the objects made in them hold, too. `read`: the globals and
        context variables that count; None: all."""
        self._m, self.given = m, list(given)
        self._effects = list(m.journal.effects)
        self._read = read
        self._variables = self._stored()
        self._contents: list[tuple[Value, Any]] = []
        seen: set[Value] = set()
        pending = [*self.given, *(m.heap.overlay if frames else ())]
        for frame in m.frames if frames else ():
            pending += [*frame.locals.values(), *frame.cells.values(), *frame.stack]
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            content = _content(m, value)
            self._contents.append((value, content))
            pending += [one for one in content if isinstance(one, Value)]

    @property
    def values(self) -> list[Value]:
        """All that exists before the call."""
        return [value for value, _ in self._contents]

    def _stored(self) -> dict[Any, Any]:
        """What the frame has stored in globals and context variables."""
        heap = self._m.heap
        stored: dict[Any, Any] = {**heap.globals, **heap.variables}
        if self._read is None:
            return stored
        return {key: value for key, value in stored.items() if key in self._read}

    def effects(self) -> str:
        """Effects since, or changes; empty if there are none."""
        if not _same(self._effects, self._m.journal.effects):
            return "what exists outside of it"
        return self.changed()

    def changed(self, tensors: bool = True) -> str:
        """What has changed since; empty if nothing."""
        m = self._m
        if self._variables != self._stored():
            return "a global"
        for value, before in self._contents:
            if isinstance(value, Tensor) and not tensors:
                continue
            if not _same(before, _content(m, value)):
                return f"a {type(value).__name__.lower()} made before its call"
        return ""


def _same(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _content(m: Machine, value: Value) -> list[Any]:
    """The parts of a value, by identity: those that the frame itself has put there."""
    found: list[Any] = []
    stored = m.heap.overlay.get(value)
    if stored:
        found += [part for pair in stored.items() for part in pair]
    if isinstance(value, Tensor):
        found.append(value.ghost._node)
    elif isinstance(value, Sequence):
        # what exists outside is read when it is needed: only a write is a change
        found += value._items if value.source is None or value.changed else []
    elif isinstance(value, Dict):
        pairs = value.items.values() if value.source is None or value.changed else ()
        found += [part for pair in pairs for part in pair]
    elif isinstance(value, Set):
        found += value._items.values() if value.source is None or value.changed else []
    elif isinstance(value, Cell):
        found += [value.content] if value.source is None or value.changed else []
    elif isinstance(value, Iterator):
        found += [*value.parts, value.over]
    elif isinstance(value, (Function, Method, Partial, Instance)):
        found += _referred(value)
    return found


def _referred(value: Any) -> list[Any]:
    if isinstance(value, Function):
        return [*value.closure, *value.defaults, *value.kwdefaults.values()]
    if isinstance(value, Method):
        return [value.func, value.receiver]
    if isinstance(value, Partial):
        return [value.func, *value.args, *value.kwargs.values()]
    return [value.cls, *([value.storage] if isinstance(value.storage, Value) else [])]
