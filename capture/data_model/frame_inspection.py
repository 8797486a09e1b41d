"""Frame inspection: code whose frame is read by itself or by functions that it calls.

In: a frame's code, globals, closure and arguments. Out: what reads the frame, or None. A frame of
replacement code has the user's name, lines and callers, but only those locals that are still
needed. So code that reads a frame's locals (`locals()`, `f_locals`, a debugger) needs the frame as
written. So does a tracer or profiler that is set while the frame runs, which sees calls and
returns. Callees are followed by name, through globals, cells, modules and classes; only dicts are
read. `capture.capture` calls it before the walk, and again before it splits a frame at a break.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...ir.location import Location
from ...runtime import _native, safe_access
from ..bytecode.decoder import decode
from ..exact_type import is_kind
from ..values.value import Const, Tensor, Value

# Names that inspect as a global, unless the program defines the global. `vars`, `dir`, `eval` and
# `exec` do not always inspect: the walk decides at the call, and liveness keeps all locals of code
# that names them.
OWN_BUILTINS = frozenset({"locals", "breakpoint"})
# Names that inspect as an attribute of any object: functions that return frames, and attributes of
# frames.
OWN_ATTRIBUTES = frozenset(
    {
        "locals",
        "_getframe",
        "_current_frames",
        "currentframe",
        "set_trace",
        "f_locals",
        "f_back",
        "f_code",
        "f_lineno",
        "f_lasti",
        "f_trace",
        "f_trace_lines",
        "f_trace_opcodes",
        "tb_frame",
        "gi_frame",
        "getargvalues",
        "settrace",
        "setprofile",
        "set_events",
        "set_local_events",
        "walk_stack",
    }
)
# The same callables, under any other name of the program or as arguments.
OWN_CALLABLES = (
    locals,
    vars,
    dir,
    eval,
    exec,
    breakpoint,
    sys._getframe,
    sys._current_frames,
    inspect.currentframe,
    sys.settrace,
    sys.setprofile,
    traceback.walk_stack,
)
# Names in a callee that read the locals of frames above it. Names and lines are right in
# replacement code, as is what a traceback shows of the code. To a tracer or profiler set by a
# callee, a resume function would be an extra call.
READS_CALLERS = frozenset(
    {
        "f_locals",
        "f_trace",
        "set_trace",
        "getargvalues",
        "breakpoint",
        "settrace",
        "setprofile",
        "set_events",
        "set_local_events",
        "walk_stack",
        "StackSummary",
        "TracebackException",
    }
)
SHOWN_OF_CODE = frozenset(
    {
        "co_name",
        "co_qualname",
        "co_filename",
        "co_firstlineno",
        "co_flags",
        "co_argcount",
        "co_kwonlyargcount",
        "co_posonlyargcount",
    }
)

# Functions of these modules read no locals of their callers, or are named in the tables above.
_TRUSTED = sys.stdlib_module_names | {"torch", "numpy", "graftjit"}
# Methods that are called implicitly.
_UNNAMED = frozenset(
    {
        *(name for kind in (int, list, dict) for name in vars(kind) if name.startswith("__")),
        "__call__",
        "__enter__",
        "__exit__",
        "__del__",
        "__getattr__",
        "__setattr__",
        "__delattr__",
        "__missing__",
        "__next__",
        "__get__",
        "__set__",
        "__str__",
        "forward",
    }
)
# Functions inspected at most, in a few milliseconds.
_MOST = 500


def looks_at_itself(
    code: types.CodeType, scope: dict[str, Any], held: Iterable[Any]
) -> tuple[str, Location] | None:
    """The name by which a frame of this code reads itself, with its location, or None.

    `held`: its arguments and the contents of its cells.
    """
    instrs = decode(code).instrs
    for instr in instrs:
        name = instr.arg[0] if instr.op == "LOAD_METHOD" else instr.arg
        if instr.op in ("LOAD_ATTR", "LOAD_METHOD") and name in OWN_ATTRIBUTES:
            return name, instr.where
        if instr.op == "LOAD_GLOBAL" and _is_own_global(name, scope):
            return name, instr.where
    first = next((instr.where for instr in instrs if instr.where.line), instrs[0].where)
    return next(((value.__name__, first) for value in held if _is_own(value)), None)


def _is_own_global(name: str, scope: dict[str, Any]) -> bool:
    if name not in scope:
        return name in OWN_BUILTINS
    return name in OWN_ATTRIBUTES or _is_own(scope[name])


def _is_own(value: Any) -> bool:
    return any(value is one for one in OWN_CALLABLES)


def called_that_looks(
    code: types.CodeType, scope: dict[str, Any], held: Iterable[Any]
) -> str | None:
    """The name of a function that this code may call at any depth and that reads its locals."""
    inside = next((inner for inner in _codes(code) if reads_callers(inner, scope)), None)
    return _Search(code, scope, held).run() if inside is None else inside.co_qualname


def is_shown(value: Value) -> bool:
    """Whether a frame that ends in an exception keeps this local: it need not be built."""
    return isinstance(value, (Const, Tensor)) or value.source is not None


def contents(closure: tuple[Any, ...] | None) -> list[Any]:
    """The contents of a closure's cells, without empty ones."""
    found = []
    for cell in closure or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            continue
    return found


def _is_trusted(names: Any) -> bool:
    """Whether these are the names of a trusted module, or of a class in one."""
    module = names.get("__module__", names.get("__name__"))
    return type(module) is str and module.partition(".")[0] in _TRUSTED


def reads_callers(code: types.CodeType, scope: dict[str, Any]) -> bool:
    """Whether this code, or a nested function, may read the locals of frames above its own."""
    for name in READS_CALLERS.intersection(code.co_names):
        if scope.get(name, breakpoint) is breakpoint or not hasattr(builtins, name):
            return True
    parts = {name for name in code.co_names if name.startswith("co_")}
    if "f_code" in code.co_names and not (parts and parts <= SHOWN_OF_CODE):
        return True
    return any(reads_callers(inner, scope) for inner in _codes(code))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    return (const for const in code.co_consts if isinstance(const, types.CodeType))


def _names(code: types.CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(inner) for inner in _codes(code)))


class _Search:
    """Searches for callable functions by name.

    A method is callable once both its class and its name have been seen, anywhere.
    """

    def __init__(self, code: types.CodeType, scope: dict[str, Any], held: Iterable[Any]) -> None:
        self.names: set[str] = set(_UNNAMED)
        self.waiting: dict[str, list[Any]] = {}  # attributes whose name was not seen yet
        self.todo: list[Any] = list(held)
        self.seen: set[int] = {id(code)}
        self.functions = 0
        self._read(code, scope)

    def run(self) -> str | None:
        while self.todo and self.functions < _MOST:
            value = self.todo.pop()
            if id(value) in self.seen:
                continue
            self.seen.add(id(value))
            if type(value) is not types.FunctionType:
                self._meet(value)
            elif id(value.__code__) not in self.seen and not _is_trusted(value.__globals__):
                self.functions += 1
                self.seen.add(id(value.__code__))
                if reads_callers(value.__code__, value.__globals__):
                    return value.__qualname__
                self.todo += contents(value.__closure__)
                self._read(value.__code__, value.__globals__)
        return None

    def _read(self, code: types.CodeType, scope: dict[str, Any]) -> None:
        names = _names(code)
        for name in names - self.names:
            self.names.add(name)
            self.todo += self.waiting.pop(name, ())
        self.todo += [scope[name] for name in names if name in scope]

    def _meet(self, value: Any) -> None:
        kind = type(value)
        held = _HELD.get(id(kind))
        if held is not None:
            self.todo += held(value)
        elif issubclass(kind, _native.Callable):
            self.todo.append(value.__wrapped__)
        elif issubclass(kind, type):
            self._methods(value)
        elif issubclass(kind, types.ModuleType) or kind.__flags__ & HEAP_TYPE:
            own = safe_access.instance_dict(value)
            if type(own) is dict and not (issubclass(kind, types.ModuleType) and _is_trusted(own)):
                self._attributes(own)
                self.todo.append(safe_access.dict_get(own, "_modules"))  # of a torch module
            if id(kind) not in self.seen:
                self.todo.append(kind)

    def _methods(self, cls: type) -> None:
        """Add the methods of a class and its bases, without those of trusted modules."""
        for base in safe_access.mro_of(cls):
            own = safe_access.class_dict(base)
            if base is not object and not _is_trusted(own):
                self._attributes(own, _CALLED)

    def _attributes(self, own: Any, kinds: set[int] | None = None) -> None:
        """Add a dict's items with string keys; other keys may run code in their hash."""
        for name, held in own.items():
            called = kinds is None or id(type(held)) in kinds or is_kind(held, _native.Callable)
            if called and type(name) is str:
                place = self.todo if name in self.names else self.waiting.setdefault(name, [])
                place.append(held)


def _one_of_each_type(values: Iterable[Any]) -> list[Any]:
    """All functions, and of other objects one per class."""
    found = {id(v) if type(v) is types.FunctionType else id(type(v)): v for v in values}
    return list(found.values())


HEAP_TYPE = 1 << 9

_WRAPPERS: dict[type, Callable[[Any], list[Any]]] = {
    types.MethodType: lambda v: [v.__func__, v.__self__],
    staticmethod: lambda v: [v.__func__],
    classmethod: lambda v: [v.__func__],
    property: lambda v: [v.fget, v.fset, v.fdel],
    functools.partial: lambda v: [v.func],
    functools.cached_property: lambda v: [v.func],
}
_ITEMS: dict[type, Callable[[Any], list[Any]]] = {
    list: lambda v: _one_of_each_type(list.__iter__(v)),
    tuple: lambda v: _one_of_each_type(tuple.__iter__(v)),
    dict: lambda v: _one_of_each_type(dict.values(v)),
}
# By id: the hash of a class may run code of its metaclass.
_HELD = {id(kind): held for kind, held in (_WRAPPERS | _ITEMS).items()}
_CALLED = {id(kind) for kind in (types.FunctionType, *_WRAPPERS)}
