"""Sources: the origin of a value, as provenance, guard path and reload code in one object.

A source is a path from a root of the frame (an argument, a global, a closure cell) through steps
that run no user code. Capture makes sources; guard rows, graph inputs and reports name them.
`runtime.guards.mirror` evaluates them in Python and the native guard program in C.
`capture.bytecode.assembler` emits bytecode that loads them again.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch

from ...ir.dataclass import dataclass, field
from ..safe_access import is_constant
from .weak_ref import Gone, Weak, given


@dataclass(frozen=True, slots=True)
class Source:
    """One step of a path. `kind` is a key of `KINDS`; `base` is None for roots.

    Equality compares kind, base and key. Keys are compared by type and value (1 is not True), and
    objects that are no constants by identity. Equal sources share one guard register.
    """

    kind: str
    base: Source | None = None
    key: Any = None
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Source) or self.kind != other.kind:
            return False
        if self._is_by_identity():
            same = _meant(self) is _meant(other)
        else:
            same = type(self.key) is type(other.key) and self.key == other.key
        return same and self.base == other.base

    def __hash__(self) -> int:
        # Cached: paths are long, and many tables look them up.
        found = self._hash
        if found is None:
            key = id(_meant(self)) if self._is_by_identity() else self.key
            found = hash((self.kind, key, self.base))
            object.__setattr__(self, "_hash", found)
        return found

    def _is_by_identity(self) -> bool:
        """Whether the key is an object, held weakly or not, and no constant."""
        key = self.key
        if self.kind == "const" or type(key) is Weak or isinstance(key, torch.Tensor):
            return True
        if self.kind != "item" or type(key) in (int, str):
            return False
        return bool(type(key).__weakrefoffset__) and not is_constant(key)

    @property
    def leads_somewhere(self) -> bool:
        """Whether the fixed object at the root of the path, if there is one, still exists."""
        root = self
        while root.base is not None:
            root = root.base
        return root.kind != "const" or given(root.key) is not Gone

    def __str__(self) -> str:
        return self.text({})

    def text(self, known: dict[int, str]) -> str:
        """The text of `str`. `known` caches texts by id: many paths have a common prefix."""
        found = known.get(id(self))
        if found is None:
            base = "" if self.base is None else self.base.text(known)
            key = given(_WORDS.get(self.kind, _itself)(self.key))
            if isinstance(key, torch.Tensor):
                key = _Named(type(key).__name__)
            found = known[id(self)] = KINDS[self.kind].text.format(base=base, key=key)
        return found


def steps(
    source: Source, paths: dict[int, tuple[str, ...]], known: dict[int, str]
) -> tuple[str, ...]:
    """The path as the texts of its steps: ("self", ".layers", "[0]").

    `paths` caches results by id; `known` is that of `Source.text`.
    """
    found = paths.get(id(source))
    if found is None:
        text, base = source.text(known), source.base
        before: tuple[str, ...] = ()
        if base is not None:
            before, of = steps(base, paths, known), base.text(known)
            at_end = text.startswith(of)
            text = text[len(of) :] if at_end else Source(source.kind, None, source.key).text({})
        found = paths[id(source)] = (*before, text) if text else before
    return found


class _Named:
    """An object that a text shows by its type only."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"a {self.name}"


def _meant(source: Source) -> Any:
    """The object that a constant refers to, weakly or not."""
    found = given(source.key)
    return source.key if found is Gone else found


def _fixed(value: Any) -> str:
    """A short text for a fixed object, made without running user code."""
    value = given(value)
    if value is sys.modules:
        return "sys.modules"
    if isinstance(value, type):
        return type.__repr__(value)
    name = getattr(value, "__name__", None) if isinstance(value, types.ModuleType) else None
    return name if isinstance(name, str) else f"a {type(value).__name__}"


def _question(key: Any) -> str:
    """The text of the call that a "context" root makes."""
    return f"{key.name}.get" if type(key) is ContextVar else str(key.__name__)


def _itself(key: Any) -> Any:
    return key


_WORDS: dict[str, Callable[[Any], Any]] = {"const": _fixed, "context": _question}


@dataclass(frozen=True, slots=True)
class SourceKind:
    """The text of one kind of source in reports, and the definition of its meaning."""

    text: str
    law: str


KINDS: dict[str, SourceKind] = {
    # roots
    "local": SourceKind("{key}", "the frame's argument of that name, as bound (co_varnames order)"),
    "global": SourceKind(
        "{key}", "f_globals[key]; missing there is a failed guard, builtins are not asked"
    ),
    "globals": SourceKind("globals()", "the frame's f_globals dict itself"),
    "builtin": SourceKind("{key}", "f_builtins[key]"),
    "cell": SourceKind("{key}", "the closure cell object of that free variable"),
    "const": SourceKind(
        "{key}", "a fixed object, held by the entry (a torch module, a type): no load"
    ),
    "context": SourceKind(
        "{key}()",
        "what a ContextVar holds in the context of the call, or what a C function without"
        " arguments says of the thread; an error is a failed guard",
    ),
    # steps; none of them runs user code
    "contents": SourceKind("{base}", "cell_contents of a cell; empty is a failed guard"),
    "referent": SourceKind("{base}()", "what an exact weakref.ref refers to; None when it is gone"),
    "type": SourceKind("type({base})", "type(base)"),
    "attr": SourceKind(
        "{base}.{key}", "the instance dict of base holds key (no descriptor, no __getattr__)"
    ),
    "dict": SourceKind("{base}.__dict__", "the instance dict of base"),
    "class_attr": SourceKind(
        "type({base}).{key}", "first hit along type(base).__mro__'s dicts, raw (no binding)"
    ),
    "mro_attr": SourceKind(
        "{base}.{key}", "base is a class: first hit along its __mro__'s dicts, raw"
    ),
    "slot": SourceKind("{base}.{key}", "value of a __slots__ member descriptor, by getattr"),
    "grad": SourceKind(
        "{base}.grad", "the gradient of a leaf, a tensor or None; base is a plain tensor"
    ),
    "iterated": SourceKind(
        "{base}",
        "the key-th object that an exact iterator of a list, tuple or dict, an enumerate or a zip"
        " goes over",
    ),
    "item": SourceKind(
        "{base}[{key!r}]",
        "exact or subclassed builtin dict/list/tuple item by constant key,"
        " read with the builtin's own method; a negative index is not used",
    ),
    "key": SourceKind("list({base})[{key}]", "the key-th key of a dict in order"),
    "member": SourceKind(
        "{base}.{key}",
        "a C-level field of an exact function, method, partial, property, classmethod or"
        " staticmethod: __code__ __defaults__ __kwdefaults__ __closure__ __globals__ __dict__"
        " __name__ __qualname__ __module__ __doc__ __annotations__ __type_params__ __func__"
        " __self__ __wrapped__ func args keywords fget fset; of a builtin: __self__ __name__; of a"
        " deque: maxlen; of a class: __name__ __qualname__, by `type` itself",
    ),
}
