"""Attribute stores: `setattr` and `delattr` as the language defines them, over Values.

In: a Value, a name and a Value to store (None deletes). Out: an entry in the machine's overlay,
which later reads see, and for pre-existing objects an effect, replayed in order after the graph.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from ...runtime import safe_access
from ...runtime.guards.sources import Source
from ..breaks import Break, Thrown
from ..exact_type import is_kind
from ..values import containers
from ..values.effects import SetAttr
from ..values.frames import Scope
from ..values.registry import model_of, set_data
from ..values.value import Cell, Const, Dict, Function, Instance, Obj, Tensor, Value
from ..values.wrap import freeze
from . import function_attributes
from .attributes import (
    DESCRIPTORS,
    MISSING,
    MODULE_DELATTR,
    MODULE_SETATTR,
    MODULE_TABLES,
    NoAttribute,
    bind_raw,
    class_attribute,
    class_source,
    generic_attr,
    in_instance_dict,
    instance_dict,
    is_data,
    is_property,
    load_attr,
    mro_lookup,
    property_part,
    real_class,
    special,
    state_of,
)

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


_GENERIC_STORES: tuple[Any, ...] = (
    object.__setattr__,
    object.__delattr__,
    BaseException.__setattr__,
    BaseException.__delattr__,
    SimpleNamespace.__setattr__,
    SimpleNamespace.__delattr__,
)


# 0: objects of the class have no __dict__.
_DICT_OFFSET: Any = vars(type)["__dictoffset__"].__get__


def _refusal(known: bool, deleted: bool) -> str:
    """Python's message for a store without a `__dict__`; `known`: the class has the name."""
    probe = type("{owner}", (), {"__slots__": (), **({"{name}": 0} if known else {})})()
    try:
        delattr(probe, "{name}") if deleted else setattr(probe, "{name}", 0)
    except AttributeError as error:
        return str(error)
    raise AssertionError("objects without a __dict__ take no attributes")


_REFUSALS = {
    (known, gone): _refusal(known, gone) for known in (True, False) for gone in (True, False)
}


def _store_data(m: Machine, value: Tensor, name: str, item: Value | None) -> None:
    """value.data = item, as `Module.to` does it for each parameter."""
    # A tensor of the wanted dtype and device is its own conversion: torch changes nothing then.
    model = model_of(set_data)
    if item is not value and item is not None and model is not None:
        model(m, [value, item], {})
    elif item is not value:
        raise Break("GB115", "attribute 'data' of a tensor is set")


Store = Callable[["Machine", Any, str, "Value | None"], None]
# (kind of value, name of the attribute, or None for all names) -> how it is stored. Models add
# rows.
STORES: dict[tuple[type[Value], str | None], Store] = {
    (Function, None): function_attributes.store,
    (Cell, "cell_contents"): lambda m, cell, name, item: m.store_cell(cell, item),
    (Tensor, "data"): _store_data,
}


def store_attr(m: Machine, value: Value, name: str, item: Value | None) -> None:
    """value.name = item; None deletes."""
    own = STORES.get((type(value), name)) or STORES.get((type(value), None))
    if own is not None:
        own(m, value, name, item)
        return
    if isinstance(value, Tensor) and not m.inner and item is not None:
        _store_on_tensor(m, value, name, item)
        return
    if not isinstance(value, (Obj, Instance)):
        raise Break("GB115", f"attribute {name!r} of this value is set")
    real = value.value if isinstance(value, Obj) else None
    if isinstance(value, Obj) and is_kind(real, types.ModuleType):
        _store_in_module(m, value, name, item)
        return
    if is_kind(real, (type, types.FunctionType, torch.Tensor)):
        raise Break("GB115", f"attribute {name!r} of a {type(real).__name__} is set")
    slot = "__setattr__" if item is not None else "__delattr__"
    raw = class_attribute(m, value, slot)
    if raw in _GENERIC_STORES:
        plain_store(m, value, name, item)
    elif raw in (MODULE_SETATTR, MODULE_DELATTR):
        _module_store(m, value, name, item)
    elif is_kind(raw, types.FunctionType):
        args = [Const(name)] + ([item] if item is not None else [])
        m.call(bind_raw(m, value, slot, raw), args, {})
    else:
        raise Break("GB112", f"{slot} of {real_class(value)}")


def _store_on_tensor(m: Machine, value: Tensor, name: str, item: Value) -> None:
    """Store an attribute that tensors do not have."""
    usual = class_attribute(m, value, "__setattr__") in _GENERIC_STORES
    if not usual or class_attribute(m, value, name) is not MISSING:
        raise Break("GB115", f"attribute {name!r} of a tensor is set")
    if value.source is not None:
        if type(value.origin) not in (torch.Tensor, torch.nn.Parameter):
            raise Break("GB115", f"attribute {name!r} of a {type(value.origin).__name__} is set")
        held = in_instance_dict(instance_dict(value.origin), name)
        if held is not MISSING:
            m.unhook(held)
    m.activity += 1
    m.heap.overlay.setdefault(value, {})[name] = item
    m.journal.effects.append(SetAttr(value, name, item))


def _store_in_module(m: Machine, value: Obj, name: str, item: Value | None) -> None:
    """Store a module's attribute, which is also a global of its functions."""
    if type(value.value) is not types.ModuleType or value.source is None:
        raise Break("GB115", f"attribute {name!r} of a {type(value.value).__name__} is set")
    if hasattr(types.ModuleType, name):
        raise Break("GB115", f"attribute {name!r} of a module is set")
    if item is None:
        load_attr(m, value, name)  # deleting a missing name raises
    names = value.value.__dict__
    if callable(names.get(name)) and str(names.get("__name__")).partition(".")[0] == "torch":
        # Other torch functions may call it, and are recorded whole: they must find the replacement.
        raise Break("GB115", f"{names['__name__']}.{name} is replaced")
    root = m.root_scope
    own = root if names is root.names else Scope(names, {}, Source("dict", value.source, None))
    m.store_global(own, name, item, value)


def plain_store(m: Machine, value: Any, name: str, item: Value | None, raw: bool = False) -> None:
    """object.__setattr__ / object.__delattr__."""
    if name in ("__class__", "__dict__"):
        raise Break("GB115", f"{name} is set")
    found = class_attribute(m, value, name)
    own = state_of(real_class(value)) if isinstance(value, Instance) else None
    if own is not None and own[1](m, value, name, item):
        return
    if found is not MISSING and is_data(m, found):
        if is_property(found):
            which = "fset" if item is not None else "fdel"
            if getattr(found, which) is None:
                raise containers.raises(f"AttributeError: can't set {name!r}")
            setter = property_part(m, found, class_source(value, name), which)
            m.call(setter, [value, item] if item is not None else [value], {})
            return
        if not is_kind(found, types.MemberDescriptorType):
            _by_descriptor(m, value, name, item, found)
            return
        if not _is_own_slot(value, found):
            raise Break("GB115", f"{name!r} of a {real_class(value)} is set, a member in C")
    elif not _DICT_OFFSET(real_class(value)):
        raise _no_place(value, name, found is MISSING, deleted=item is None)
    if item is None and is_kind(found, types.MemberDescriptorType):
        _holds(m, value, name, found)
    elif item is None:
        _its_own(m, value, name)
    set_in_overlay(m, value, name, item, raw)


def _holds(m: Machine, value: Any, name: str, member: Any) -> None:
    """Check that the object's slot is filled, before its deletion; `__getattr__` is not asked."""
    try:
        bind_raw(m, value, name, member)
    except NoAttribute:  # the text of a deletion is another
        cls = real_class(value)
        raise NoAttribute(name, cls.__name__ if cls else "?") from None


def _its_own(m: Machine, value: Any, name: str) -> None:
    """Check that the object's own attribute exists, before its deletion; its class is not read."""
    stored = m.heap.overlay.get(value, {}).get(name, MISSING)
    if stored is MISSING and isinstance(value, Obj) and value.source is not None:
        held = in_instance_dict(instance_dict(value.value), name)
        if held is not MISSING:
            m.wrap(held, Source("attr", value.source, name))
            return
        m.guard("no_attr", value.source, name)
    if stored is MISSING or stored is None:
        cls = real_class(value)
        raise NoAttribute(name, cls.__name__ if cls else "?")


def _is_own_slot(value: Any, member: Any) -> bool:
    """Whether a member belongs to `__slots__` of this object's classes; others may be read-only."""
    owner = member.__objclass__
    cls = real_class(value)
    assert cls is not None
    return "__slots__" in vars(owner) and any(base is owner for base in safe_access.mro_of(cls))


def _no_place(value: Any, name: str, absent: bool, deleted: bool) -> Thrown:
    cls = real_class(value)
    assert cls is not None
    text = _REFUSALS[not absent, deleted].format(owner=cls.__name__, name=name)
    return Thrown(AttributeError, (text,), f"AttributeError: {text}")


def _by_descriptor(m: Machine, value: Any, name: str, item: Value | None, found: Any) -> None:
    """The `__set__` or `__delete__` of a user's descriptor."""
    method = "__delete__" if item is None else "__set__"
    if not isinstance(mro_lookup(type(found), method), types.FunctionType):
        raise Break("GB112", f"descriptor {type(found).__name__} is set")
    setter = special(m, m.wrap(found, class_source(value, name)), method)
    assert setter is not None
    m.call(setter, [value] if item is None else [value, item], {})


def set_in_overlay(
    m: Machine, value: Any, name: str, item: Value | None, raw: bool = False
) -> None:
    if isinstance(value, Obj) and id(instance_dict(value.value)) in m.heap.known:
        raise Break("GB112", "an attribute is set while its __dict__ is in use")
    m.activity += 1
    if isinstance(value, Obj):
        held = in_instance_dict(instance_dict(value.value), name)
        if held is not MISSING:
            m.unhook(held)
    names = m.heap.overlay.setdefault(value, {})
    if value in m.heap.dicts and (item is None or name not in names):
        containers.moved(m, m.heap.dicts[value])
    if item is None and isinstance(value, Instance):
        names.pop(name, None)  # a new store puts it last
    else:
        names[name] = item
    if isinstance(value, Obj):
        m.journal.effects.append(SetAttr(value, name, item, raw))


def _module_store(m: Machine, value: Any, name: str, item: Value | None) -> None:
    """torch.nn.Module.__setattr__: a plain store unless for a parameter, module or buffer."""
    special_value = _is_registered(item)
    tables = _tables(m, value)
    if tables is None:
        if isinstance(value, Instance):
            _walk_module_store(m, value, name, item)
            return
        raise containers.raises("AttributeError: before Module.__init__() call")
    for table, content in tables.items():
        held = containers.has_key(m, content, Const(name))
        if held and isinstance(value, Instance):
            _walk_module_store(m, value, name, item)
            return
        if held and table == "_buffers" and isinstance(item, Tensor) and not special_value:
            content.items[freeze(Const(name))] = (Const(name), item)
            m.activity += 1
            m.journal.effects.append(SetAttr(value, name, item))
            return
        if held and content.items[freeze(Const(name))][1] is item:
            return  # `self.weight -= step` stores the same object
        if held:
            raise Break("GB115", f"{table[1:]} {name!r} of a module is replaced")
    if special_value and isinstance(value, Instance):
        _walk_module_store(m, value, name, item)
    elif special_value:
        raise Break("GB115", f"a parameter or submodule {name!r} is set on a module")
    else:
        plain_store(m, value, name, item)


def _is_registered(item: Value | None) -> bool:
    """Whether a module keeps this in one of its tables."""
    if isinstance(item, Tensor):
        return item.cls is not torch.Tensor
    return isinstance(item, (Obj, Instance)) and issubclass(
        real_class(item) or object, torch.nn.Module
    )


def _tables(m: Machine, value: Any) -> dict[str, Dict] | None:
    """The tables of a module, None before its `__init__`."""
    cls = real_class(value)
    assert cls is not None
    tables = {}
    for table in MODULE_TABLES:
        try:
            found = generic_attr(m, value, table, cls, hook=False)
        except NoAttribute:
            return None
        if not isinstance(found, Dict):
            raise Break("GB115", f"an attribute is set on a module whose {table} is no dict")
        tables[table] = found
    return tables


def _walk_module_store(m: Machine, value: Instance, name: str, item: Value | None) -> None:
    """The store by torch's own code, on a module that the frame has made."""
    hook = MODULE_SETATTR if item is not None else MODULE_DELATTR
    slot = "__setattr__" if item is not None else "__delattr__"
    args = [Const(name)] + ([item] if item is not None else [])
    m.call(bind_raw(m, value, slot, hook), args, {})


def _cached_property(
    m: Machine, value: Any, name: str, raw: functools.cached_property[Any], source: Source
) -> Value:
    """The first look-up: the function's result, which the instance's dict keeps from here on."""
    if raw.attrname is None or not getattr(real_class(value), "__dictoffset__", 0):
        raise Break("GB112", f"cached_property {name!r} of an object without a __dict__")
    m.guard("is", source, raw)
    found = m.call(m.wrap(raw.func, Source("const", None, raw.func)), [value], {})
    plain_store(m, value, raw.attrname, found, raw=True)
    return found


DESCRIPTORS[functools.cached_property] = _cached_property
