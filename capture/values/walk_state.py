"""What a walk knows and has done so far, in parts that the machine holds and drops as a whole.

`Heap`: the objects that values stand for, and their changes. `Journal`: effects in order, and
references that ended. `Guards`: rows. `Handling`: exceptions whose handlers are being walked.
`Later` is beside them: what code that runs after the frame reads.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from ...ir.dataclass import dataclass, field
from ...runtime.guards.rows import Row
from ...runtime.guards.sources import Source
from ..breaks import Break
from .effects import Effect
from .value import Const, Tensor, Token, Value

# Fields of a Value that hold objects of the program.
_HELD = ("value", "pin", "origin", "ghost", "parts", "step", "content", "_array")


@dataclass(slots=True, eq=False)
class Heap:
    """Objects and their state.

    known       address of an object from outside -> its value
    keep        objects whose addresses are in use
    overlay     object -> name -> what the frame has stored there; None where it has deleted
    owners      what is made in the frame -> the object that has it in its overlay
    namespaces  `__dict__` of a function made in the frame -> the function
    storages    object from outside that is a container beneath -> the container
    dicts       object made in the frame -> its `__dict__`, once asked for
    globals     (address of a globals dict, name) -> what the frame has stored
    variables   context variable that the frame has set -> the token of the last `set`
    read        keys of `globals` and `variables` that have been read
    arrays      copies of numpy arrays from outside, whose content has been read
    shared      tensors over the memory of arrays made here (see `numpy_arrays`)
    leaves      leaves of autograd that the frame has made (see `torch_models.backward`)
    cached      (address of an lru_cached function, arguments) -> its result in this frame, and
                whether the function beneath was walked
    data        a tensor that is `.data` of another -> (that one, if it is an input; what to raise
                if Python must read `.data`; its version)
    replaced    what to raise if Python must set the `.data` of an input that the frame has set
    asked       callables of guards ("context" sources), by what they ask
    recordings  lists that get warnings of the frame
    pending     id of a memory -> the stand-ins of works that write to it (see
                `models.functional_collectives`)
    arrived     ids of memory for whose messages a call before the program waits
    awaited     tensors that wait for a message where they are first read
    """

    known: dict[int, Value] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)
    overlay: dict[Value, dict[str, Value | None]] = field(default_factory=dict)
    owners: dict[Value, Value] = field(default_factory=dict)
    namespaces: dict[Value, Value] = field(default_factory=dict)
    storages: dict[Value, Value] = field(default_factory=dict)
    dicts: dict[Value, Any] = field(default_factory=dict)
    globals: dict[tuple[int, str], Value | None] = field(default_factory=dict)
    variables: dict[Value, Token] = field(default_factory=dict)
    read: set[Any] = field(default_factory=set)
    arrays: list[Any] = field(default_factory=list)
    shared: list[Any] = field(default_factory=list)
    leaves: dict[Value, Any] = field(default_factory=dict)
    cached: dict[tuple[Any, ...], tuple[Value, bool]] = field(default_factory=dict)
    data: dict[Tensor, tuple[Tensor | None, Any, int]] = field(default_factory=dict)
    replaced: list[Any] = field(default_factory=list)
    asked: dict[Any, Any] = field(default_factory=dict)
    recordings: set[Value] = field(default_factory=set)
    pending: dict[int, list[Value]] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)
    awaited: list[Value] = field(default_factory=list)

    def tensor(self, ghost: Any) -> Tensor:
        """The Value of a ghost."""
        known = self.known.get(id(ghost))
        if known is None:
            known = self.known[id(ghost)] = Tensor(ghost, torch.Tensor)
            self.keep.append(ghost)
        return known  # type: ignore[return-value]

    def question(self, kind: Any, about: Any, *more: Any) -> Source:
        """The "context" source of `kind(about, *more)`, a callable that guards call."""
        key = (kind, id(about), *more)
        if key not in self.asked:
            self.asked[key] = kind(about, *more)
            self.keep.append(about)
        return Source("context", None, self.asked[key])

    def release(self) -> None:
        """Drop the objects: capture must not make them live longer than plain Python does."""
        for value in self.known.values():
            for name in _HELD:
                if hasattr(value, name):
                    setattr(value, name, None)
        _clear(self)


@dataclass(slots=True, eq=False)
class Journal:
    """What the frame has done, in order.

    effects   writes to what outlives the frame
    cleared   leaves whose gradients the frame drops before it computes anything
    gone      objects from outside to which the frame has dropped a reference
    unhooked  those of `gone` that a place outside the frame held
    keys      objects from outside that were compared with others as keys of dicts and sets
    shown     tensors whose texts are made after the program: (ghost, its version, the root's
              instruction)
    clocks    reads of a clock after the program: (the root's instruction, operators before it)
    filters   filters of warnings that the frame has set: (function, arguments)
    blocks    open `catch_warnings` of the frame -> how many of `filters` are outside
    """

    effects: list[Effect] = field(default_factory=list)
    cleared: list[Tensor] = field(default_factory=list)
    gone: list[Any] = field(default_factory=list)
    unhooked: list[Any] = field(default_factory=list)
    keys: list[Value] = field(default_factory=list)
    shown: list[tuple[Any, int, int]] = field(default_factory=list)
    clocks: list[tuple[int, int]] = field(default_factory=list)
    filters: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    blocks: dict[Value, int] = field(default_factory=dict)

    def release(self) -> None:
        _clear(self)


@dataclass(slots=True, eq=False)
class Guards:
    """Guard rows by what they are about, and the globals dicts in use: address -> where a guard
    finds it.
    """

    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    scopes: dict[int, Source] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Handling:
    """Exceptions.

    stack      those whose handlers are being walked, innermost last
    raised_at  exception -> the root's instruction that made or raised it
    derived    part of an exception group -> the group
    outside    whether the frame's caller is handling an exception
    """

    stack: list[Value] = field(default_factory=list)
    raised_at: dict[Value, int] = field(default_factory=dict)
    derived: dict[Value, Value] = field(default_factory=dict)
    outside: bool = True

    def release(self) -> None:
        for store in (self.stack, self.raised_at, self.derived):
            store.clear()


@dataclass(slots=True, eq=False)
class Later:
    """Reads of code that runs after the frame: backwards of custom functions.

    reads    while such code is walked: (address of a globals dict, a cell or a class; name) ->
             that object, in order
    behind   places that the code read, by address and name; a write to one of them is a break
    """

    reads: dict[tuple[int, str], Any] | None = None
    behind: set[tuple[int, str]] = field(default_factory=set)

    def read(self, holder: Any, name: str) -> None:
        """Note a read of a global, or of a pre-existing cell."""
        if self.reads is not None:
            self.reads[id(holder), name] = holder

    def attribute(self, owner: Any, name: str, found: Value) -> None:
        """Note a read of a constant that a class or module holds."""
        if self.reads is None or not isinstance(found, Const):
            return
        if isinstance(owner, types.ModuleType):
            if owner.__name__.split(".")[0] not in ("torch", "math"):
                self.read(vars(owner), name)
        elif isinstance(owner, type) and owner.__module__.split(".")[0] != "torch":
            self.read(owner, name)

    def written(self, holder: Any, name: str) -> None:
        """Break for a write that the code would see."""
        if self.behind and (id(holder), name) in self.behind:
            raise Break("GB134", "a write to what the backward of a custom function reads")


def _clear(state: Heap | Journal) -> None:
    for name in state.__slots__:
        getattr(state, name).clear()
