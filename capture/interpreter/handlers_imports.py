"""Import statements inside functions: modules that are loaded are looked up, as in Python.

In: the operands of IMPORT_NAME and IMPORT_FROM. Out: a module's Value or an attribute of it, with
guards on sys.modules. The first import of a module runs its code, so it is a break.
"""

from __future__ import annotations

import builtins
import importlib.util
import sys
import types
from typing import Any

from ...runtime.guards.sources import Source
from ..breaks import Break
from ..bytecode.decoder import Instr
from ..data_model import attributes
from ..values import containers
from ..values.frames import Frame
from ..values.value import Const, Dict, Obj, Value
from .machine import Machine, handles

_IMPORT = builtins.__import__


@handles("IMPORT_NAME")
def _import_name(m: Machine, f: Frame, i: Instr) -> None:
    names, level = f.pop(), f.pop()
    wanted = containers.as_constant(m, names)
    hook = m.builtin(f.scope, "__import__")
    if not isinstance(hook, Obj) or hook.value is not _IMPORT:
        raise Break("GB111", f"import of {i.arg}, by the program's own __import__")
    name = _absolute(m, f, i.arg, containers.as_constant(m, level))
    module = _loaded(m, name)
    if wanted is None:
        f.push(_loaded(m, i.arg.partition(".")[0]) if name == i.arg else module)
        return
    held = vars(module.value)
    if wanted and "__path__" not in held and _answers(module.value):
        raise Break("GB111", f"import from {name}, whose own code computes its __path__")
    for part in wanted:
        if part == "*":
            raise Break("GB111", f"import of all names of {name}")
        if part not in held and ("__path__" in held or _answers(module.value)):
            raise Break("GB111", f"import of {name}.{part}")
    f.push(module)


@handles("IMPORT_FROM")
def _import_from(m: Machine, f: Frame, i: Instr) -> None:
    try:
        f.push(attributes.load_attr(m, f.peek(1), i.arg))
    except attributes.NoAttribute:
        module = f.peek(1)
        assert isinstance(module, Obj)
        f.push(_loaded(m, f"{module.value.__name__}.{i.arg}"))


def _absolute(m: Machine, f: Frame, name: str, level: int) -> str:
    """The full name of a relative import, from the globals that Python reads."""
    if not level:
        return name
    package: Value | None = None
    if f.scope.names.get("__package__") is not None:
        package = m.load_global(f.scope, "__package__")
    if not isinstance(package, Const) or not isinstance(package.value, str):
        raise Break("GB111", f"relative import of {name}, in a module without __package__")
    try:
        return importlib.util.resolve_name("." * level + name, package.value)
    except ImportError as error:
        raise containers.raises(f"ImportError: {error}") from error


def _loaded(m: Machine, name: str) -> Any:
    """sys.modules[name], if its code has run to the end; else a break."""
    held = m.heap.known.get(id(sys.modules))
    if isinstance(held, Dict) and held.changed:
        raise Break("GB111", f"import of {name}, after a change of sys.modules")
    module = sys.modules.get(name)
    if not isinstance(module, types.ModuleType):
        raise Break("GB111", f"import of {name}")
    spec = vars(module).get("__spec__")
    own = type(module).__getattribute__ is not types.ModuleType.__getattribute__
    if own or (spec is None and "__spec__" not in vars(module) and _answers(module)):
        raise Break("GB111", f"import of {name}, whose own code computes its attributes")
    if getattr(spec, "_initializing", False):
        raise Break("GB111", f"import of {name}")
    return m.wrap(module, Source("item", Source("const", None, sys.modules), name))


def _answers(module: types.ModuleType) -> bool:
    """Whether the module's code computes missing attributes: imports run it, capture cannot."""
    return "__getattr__" in vars(module) or hasattr(type(module), "__getattr__")
