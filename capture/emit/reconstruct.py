"""Builders: replacement code that makes values which existed only in the walk.

In: an Emitter and a Value that is neither pre-existing nor built yet. Out: bytecode that pushes it.
`BUILDERS` is the table by class of Value. `write_back` gives a pre-existing container or cell its
final content. `emitter` uses both.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ...runtime.guards.sources import Source
from .. import helpers
from ..breaks import Break, GeneratorLeaves
from ..data_model import container_iterators
from ..data_model.attributes import BUILT_BY_CALL, STAND_INS
from ..data_model.instance_dicts import InstanceDict
from ..exact_type import is_kind
from ..torch_models import numpy_arrays
from ..torch_models.context_managers import GRAD_MODES
from ..types import deques, exceptions
from ..types.container_subclasses import base_of
from ..values.containers import is_exact
from ..values.value import (
    UNREAD,
    Array,
    Awaited,
    BuiltinMethod,
    Cell,
    Const,
    Context,
    ContextExit,
    Dict,
    DictView,
    Function,
    Getter,
    Held,
    Instance,
    Iterator,
    Method,
    Obj,
    Partial,
    Rest,
    Sequence,
    Set,
    Slice,
    Super,
    Tensor,
    Token,
    Value,
)

if TYPE_CHECKING:
    from .emitter import Emitter


def _tensor(e: Emitter, value: Tensor) -> None:
    e.outputs.append(value)
    # Only in the dry run; in the real run outputs have temporaries by now.
    e.asm.load_const(None)


def _awaited(e: Emitter, value: Awaited) -> None:
    completed = value.completed
    e.asm.call_const(value.make, lambda: e.push(value.elem), lambda: e.asm.load_const(completed))


def _obj(e: Emitter, value: Obj) -> None:
    e.asm.load_const(value.value)


def _sequence(e: Emitter, value: Sequence) -> None:
    asm = e.asm
    if value.cls is list:
        asm.build_list(0)  # remembered before it is filled: a list may contain itself
        e._remember(value)
        if value.items:
            e.push_all(value.items)
            asm.build_tuple(len(value.items))
            asm.list_extend(1)
        return
    e.push_all(value.items)
    asm.build_tuple(len(value.items))
    if value.cls is not tuple:
        name = asm.fresh("items")
        asm.store_fast(name)
        asm.call_const(
            helpers.make_record, lambda: asm.load_const(value.cls), lambda: asm.load_fast(name)
        )


def _dict(e: Emitter, value: Dict) -> None:
    if any(item is UNREAD for _, item in value.items.values()):
        raise Break("GB125", "a dict that was read only in part")
    if value.cls is types.MappingProxyType:
        raise Break("GB125", "the parameters of a signature")
    if value.cls is OrderedDict:
        e.asm.call_const(OrderedDict)
    else:
        e.asm.build_map(0)
    e._remember(value)
    if value.items:
        _write_pairs(e, value, helpers.fill_dict)


def _write_pairs(e: Emitter, value: Dict, helper: Any) -> None:
    part = value.origin is not None and not value.whole
    pairs = [value.items[frozen] for frozen in (value.placed if part else value.items)]
    for key, item in pairs:
        e.push(key)
        e.push(item)
    e.asm.build_tuple(2 * len(pairs))
    name = e.asm.fresh("pairs")
    e.asm.store_fast(name)
    e.asm.call_const(helper, lambda: e.push(value), lambda: e.asm.load_fast(name))
    e.asm.pop_top()


def _set(e: Emitter, value: Set) -> None:
    if not is_exact(value):
        raise Break("GB125", "a set whose order is not known")
    if value.made is not None:
        fn, left, right = value.made
        e.asm.call_const(fn, lambda: e.push(left), lambda: e.push(right))
        e._remember(value)
        if value.history:
            _set_steps(e, value)
        return
    if value.cls is frozenset:
        steps = value.history
        if all(step == "add" for step, _ in steps):
            e.asm.call_const(frozenset, lambda: _tuple_of(e, [item for _, item in steps]))
        else:
            e.asm.call_const(frozenset, lambda: e.push(steps[0][1]))
        return
    e.asm.build_set(0)
    e._remember(value)
    if value.history:
        _set_steps(e, value)


def _tuple_of(e: Emitter, items: list[Value]) -> None:
    e.push_all(items)
    e.asm.build_tuple(len(items))


def _set_steps(e: Emitter, value: Set) -> None:
    """Replay on the real set the operations done on this one."""
    _tuple_of(e, [item for _, item in value.history])
    name = e.asm.fresh("items")
    e.asm.store_fast(name)
    steps = tuple(step for step, _ in value.history)
    e.asm.call_const(
        helpers.replay_set,
        lambda: e.push(value),
        lambda: e.asm.load_const(steps),
        lambda: e.asm.load_fast(name),
    )
    e.asm.pop_top()


def _slice(e: Emitter, value: Slice) -> None:
    e.push_all([value.start, value.stop, value.step])
    e.asm.build_slice(3)


def _method(e: Emitter, value: Method) -> None:
    c_types = (types.WrapperDescriptorType, types.MethodDescriptorType)
    if isinstance(value.func, Obj) and is_kind(value.func.value, c_types):
        descriptor: Any = value.func.value
        e.asm.call_const(
            helpers.bound, lambda: e.asm.load_const(descriptor), lambda: e.push(value.receiver)
        )
        return
    e.asm.call_const(types.MethodType, lambda: e.push(value.func), lambda: e.push(value.receiver))


def _builtin_method(e: Emitter, value: BuiltinMethod) -> None:
    e.push(value.receiver)
    e.asm.load_attr(value.name)


def _dict_view(e: Emitter, value: DictView) -> None:
    kind = OrderedDict if value.of.cls is OrderedDict else dict
    e.asm.call_const(getattr(kind, value.kind), lambda: e.push(value.of))


def _cell(e: Emitter, value: Cell) -> None:
    name = e.root_cells.get(value)
    if name is not None:
        e.used_cells.append(name)
        e.asm.load_closure(name)
        return
    e.asm.call_const(types.CellType)
    e._remember(value)
    if value.content is not None:
        e.asm.copy(1)
        e.push(e.m.load_cell(value))
        e.asm.swap(2)
        e.asm.store_attr("cell_contents")


def _function(e: Emitter, value: Function) -> None:
    scope = value.globals.names

    def pairs(items: dict[str, Value]) -> Callable[[], None]:
        def emit() -> None:
            for name, item in items.items():
                e.asm.load_const(name)
                e.push(item)
            e.asm.build_map(len(items))

        return emit

    def defaults() -> None:
        e.push_all(list(value.defaults))
        e.asm.build_tuple(len(value.defaults))

    fields = dict(value.fields)
    closure = fields.pop("__closure__", None) or Sequence(list(value.closure), tuple)

    e.asm.call_const(
        helpers.make_function,
        lambda: e.asm.load_const(value.code),
        lambda: e.asm.load_const(scope),
        lambda: e.asm.load_const((value.name, value.qualname)),
        defaults,
        pairs(value.kwdefaults),
        lambda: e.push(closure),
        lambda: e.push(value.annotations or Const(None)),
        pairs(fields),
    )
    if value.namespace is not None and value.namespace.items:
        e._remember(value)
        _write_pairs(e, value.namespace, helpers.fill_dict)


def _rest(e: Emitter, value: Rest) -> None:
    """Its globals are loaded: code that held them would keep a module of the program alive."""
    source = value.globals.source or Source("globals", None, None)
    e.asm.call_const(
        types.FunctionType,
        lambda: e.asm.load_const(value.code),
        lambda: e.asm.load_source(source),
        lambda: e.asm.load_const(None),
        lambda: e.asm.load_const(None),
        lambda: e.push(Sequence(list(value.cells), tuple) if value.cells else Const(None)),
    )


def _held(e: Emitter, value: Held) -> None:
    raise value.stop


def _instance(e: Emitter, value: Instance) -> None:
    if issubclass(value.cls.value, BaseException):  # type: ignore[attr-defined]
        exceptions.build(e, value)
        return
    if value.cls.value in BUILT_BY_CALL:  # type: ignore[attr-defined]
        make, names = BUILT_BY_CALL[value.cls.value]  # type: ignore[attr-defined]
        given: dict[str, Any] = e.m.heap.overlay[value]
        e.asm.call_const(make, *(functools.partial(e.push, given[name]) for name in names))
        return
    if value.cls.value in STAND_INS:  # type: ignore[attr-defined]
        raise Break(*STAND_INS[value.cls.value])  # type: ignore[attr-defined]
    held = value.storage
    if deques.is_made(value):
        e.asm.call_const(
            deque, lambda: _tuple_of(e, held.items), lambda: e.push(deques.limit_of(e.m, value))
        )
        return
    base = object if held is None else base_of(value.cls.value)  # type: ignore[attr-defined]
    if issubclass(value.cls.value, SimpleNamespace):  # type: ignore[attr-defined]
        base = SimpleNamespace
    e.asm.call_const(base.__new__, lambda: e.push(value.cls))
    e._remember(value)
    if held is not None and held.items:
        e.temps[held] = e.temps[value]
        write_back(e, held)
    for name, item in e.m.heap.overlay.get(value, {}).items():
        if item is None:
            continue
        e.set_raw(value, name, item, SimpleNamespace if base is SimpleNamespace else object)


def _instance_dict(e: Emitter, value: InstanceDict) -> None:
    e.asm.call_const(helpers.attributes_of, lambda: e.push(value.owner))


def _super(e: Emitter, value: Super) -> None:
    e.asm.call_const(super, lambda: e.asm.load_const(value.cls), lambda: e.push(value.receiver))


def _partial(e: Emitter, value: Partial) -> None:
    if value.held is not None:
        raise Break("GB125", "a partial whose arguments the program has taken out of it")
    names = tuple(value.kwargs)
    parts = [value.func, *value.args, *value.kwargs.values()]
    e.asm.call_const(functools.partial, *[e._loader(part) for part in parts], kwnames=names)


def _getter(e: Emitter, value: Getter) -> None:
    parts = [*value.args, *value.kwargs.values()]
    e.asm.call_const(value.kind, *[e._loader(part) for part in parts], kwnames=tuple(value.kwargs))


def _context(e: Emitter, value: Context) -> None:
    if value.cls in GRAD_MODES:
        e.asm.call_const(
            helpers.grad_context,
            lambda: e.asm.load_const(value.cls),
            lambda: e.asm.load_const(value.before),
            lambda: e.asm.load_const(value.args),
        )
        return
    e.asm.call_const(
        helpers.make_context,
        lambda: e.asm.load_const(value.cls),
        lambda: e.asm.load_const(value.args),
        lambda: e.asm.load_const(value.kwargs),
    )


def _context_exit(e: Emitter, value: ContextExit) -> None:
    e.push(value.context)
    e.asm.load_attr("__exit__")


def _iterator(e: Emitter, value: Iterator) -> None:
    if value.kind not in _ITERATORS:
        raise GeneratorLeaves
    container_iterators.refuse_half_way(value)
    kind = container_iterators.type_of(value)
    if value.over and kind is not None:
        e.asm.call_const(helpers.spent_iterator, lambda: e.asm.load_const(kind))
        return
    _ITERATORS[value.kind](e, *value.parts)


def _at(make: Callable[..., Any]) -> Callable[[Emitter, Value, int], None]:
    """A builder by a function of an object and an index (steps taken, or a position)."""

    def emit(e: Emitter, of: Value, index: int, *_: int) -> None:
        e.asm.call_const(make, lambda: e.push(of), lambda: e.asm.load_const(index))

    return emit


def _items_iterator(e: Emitter, items: list[Value], index: int) -> None:
    e.asm.call_const(
        helpers.sequence_iterator, lambda: _tuple_of(e, items), lambda: e.asm.load_const(index)
    )


def _dict_iterator(e: Emitter, of: Dict, kind: str, index: int, since: int, backward: bool) -> None:
    parts = [partial(e.asm.load_const, one) for one in (kind, index, backward)]
    e.asm.call_const(helpers.dict_iterator, lambda: e.push(of), *parts)


def _enumerate(e: Emitter, inner: Iterator, start: int) -> None:
    e.asm.call_const(enumerate, lambda: e.push(inner), lambda: e.asm.load_const(start))


def _zip(e: Emitter, inner: list[Iterator], strict: bool) -> None:
    names = ("strict",) if strict else ()
    parts = [e._loader(one) for one in inner]
    if strict:
        parts.append(lambda: e.asm.load_const(True))
    e.asm.call_const(zip, *parts, kwnames=names)


def _map(e: Emitter, func: Value, inner: list[Iterator]) -> None:
    e.asm.call_const(map, lambda: e.push(func), *[e._loader(one) for one in inner])


def _filter(e: Emitter, func: Value, inner: Iterator) -> None:
    e.asm.call_const(filter, lambda: e.push(func), lambda: e.push(inner))


def _object_iterator(e: Emitter, of: Value) -> None:
    e.push(of)


def _called(e: Emitter, func: Value, sentinel: Value) -> None:
    e.asm.call_const(iter, lambda: e.push(func), lambda: e.push(sentinel))


_ITERATORS: dict[str, Callable[..., None]] = {
    "sequence": _at(helpers.sequence_iterator),
    "constant": _at(helpers.constant_iterator),
    "set": _at(helpers.set_iterator),
    "reversed list": _at(helpers.reversed_list),
    "reversed constant": _at(helpers.reversed_constant),
    "items": _items_iterator,
    "object": _object_iterator,
    "items of an object": _at(helpers.item_iterator),
    "dict": _dict_iterator,
    "enumerate": _enumerate,
    "zip": _zip,
    "map": _map,
    "filter": _filter,
    "called": _called,
}


def write_back(e: Emitter, target: Value) -> None:
    """Give a pre-existing container or cell its final content."""
    if isinstance(target, Cell):
        if target.content is None:
            e.push(target)
            e.asm.delete_attr("cell_contents")
        else:
            e.push(e.m.load_cell(target))
            e.push(target)
            e.asm.store_attr("cell_contents")
    elif isinstance(target, Dict):
        _write_pairs(e, target, helpers.rewrite_dict if target.whole else helpers.fill_dict)
    elif isinstance(target, Set):
        if not is_exact(target):
            raise Break("GB125", "a set whose order is not known")
        _set_steps(e, target)
    else:
        assert isinstance(target, Sequence)
        _write_list(e, target)


def _write_list(e: Emitter, target: Sequence) -> None:
    """Write a caller's list: only the changed positions and added items, or all items."""
    part = target.origin is not None and not target.whole
    kept = target.kept if part and target.shut is None else None
    places = tuple(sorted(target.placed)) if part else ()
    _tuple_of(e, [target.items[at] for at in places] + target.added if part else list(target.items))
    name = e.asm.fresh("items")
    e.asm.store_fast(name)
    parts = (lambda: e.push(target), lambda: e.asm.load_fast(name))
    if part:
        e.asm.call_const(
            helpers.change_list, *parts, *[partial(e.asm.load_const, one) for one in (places, kept)]
        )
    else:
        e.asm.call_const(helpers.rewrite_list, *parts)
    e.asm.pop_top()


def _token(e: Emitter, value: Token) -> None:
    if value.used:
        raise Break("GB125", "a used token of a context variable")
    if value.previous is not None:  # variables are set in the program's order
        e.push(value.previous)
        e.asm.pop_top()
    e.asm.call_const(ContextVar.set, lambda: e.push(value.variable), lambda: e.push(value.value))


BUILDERS: dict[type, Callable[[Emitter, Any], None]] = {
    Tensor: _tensor,
    Awaited: _awaited,
    Obj: _obj,
    Sequence: _sequence,
    Dict: _dict,
    InstanceDict: _instance_dict,
    DictView: _dict_view,
    Set: _set,
    Slice: _slice,
    Array: numpy_arrays.fresh,
    Method: _method,
    BuiltinMethod: _builtin_method,
    Cell: _cell,
    Function: _function,
    Instance: _instance,
    Rest: _rest,
    Held: _held,
    Super: _super,
    Partial: _partial,
    Getter: _getter,
    Context: _context,
    ContextExit: _context_exit,
    Token: _token,
    Iterator: _iterator,
}
