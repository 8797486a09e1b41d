"""Handlers of the normal-form instructions: stack, names, operators, containers, jumps, calls.

Each reads like the language reference: pop, compute, push. The meaning of an operation is elsewhere
(`builtins`, `attributes`, `calls`, `containers`). The import of this module registers the handlers.
"""

from __future__ import annotations

import abc
import types
from collections.abc import Callable
from typing import Any

from ...runtime.guards.sources import Source
from ..breaks import Break
from ..bytecode.decoder import Instr
from ..data_model import attribute_stores, attributes, conditional, iteration, outside_iterators
from ..operations import calls, operators, truth
from ..torch_models import context_managers
from ..types import container_methods, container_subclasses
from ..values import containers, wrap
from ..values.containers import raises
from ..values.frames import Frame, Loop
from ..values.symbolic_numbers import SymbolicNumber
from ..values.value import (
    LOADED,
    NULL,
    Cell,
    Const,
    Dict,
    Function,
    Instance,
    Iterator,
    Null,
    Obj,
    Sequence,
    Slice,
    Super,
    Tensor,
    Value,
    is_none,
)
from . import handlers_containers
from .machine import LIBRARY, Machine, handles

# -- stack and constants ---------------------------------------------------------------------------
BROKEN_LOOP = "the remaining steps of a loop whose body breaks"


@handles("NOP")
def _nop(m: Machine, f: Frame, i: Instr) -> None:
    pass


@handles("POP_TOP")
def _pop_top(m: Machine, f: Frame, i: Instr) -> None:
    f.stack.pop()


@handles("PUSH_NULL")
def _push_null(m: Machine, f: Frame, i: Instr) -> None:
    f.push(NULL)


@handles("COPY")
def _copy(m: Machine, f: Frame, i: Instr) -> None:
    f.push(f.stack[-i.arg])


@handles("SWAP")
def _swap(m: Machine, f: Frame, i: Instr) -> None:
    f.stack[-1], f.stack[-i.arg] = f.stack[-i.arg], f.stack[-1]


@handles("LOAD_CONST")
def _load_const(m: Machine, f: Frame, i: Instr) -> None:
    f.push(_constant(m, i.arg))


def _constant(m: Machine, value: Any) -> Value:
    if isinstance(value, types.CodeType):
        return Obj(value)
    if type(value) not in (tuple, frozenset):
        return Const(value)
    known = m.heap.known.get(id(value))  # a constant is one object for all its loads
    if known is None:
        known = containers.from_constant(value) if type(value) is frozenset else _tuple(m, value)
        known.source = Source("const", None, value)
        known.origin = value  # type: ignore[attr-defined]
        m.heap.known[id(value)] = known
        m.heap.keep.append(value)
    return known


def _tuple(m: Machine, value: tuple[Any, ...]) -> Sequence:
    return Sequence([_constant(m, item) for item in value], tuple)


@handles("LOAD_ASSERTION_ERROR")
def _load_assertion_error(m: Machine, f: Frame, i: Instr) -> None:
    f.push(Obj(AssertionError))


# -- names -----------------------------------------------------------------------------------------
@handles("LOAD_FAST")
def _load_fast(m: Machine, f: Frame, i: Instr) -> None:
    found = dict.get(f.locals, i.arg)  # an unread argument stays unread
    if found is None:
        if i.arg in f.cells and i.arg in f.code.co_cellvars:
            f.push(f.cells[i.arg])
            return
        raise raises(f"UnboundLocalError: local variable {i.arg!r}")
    f.push(found)


@handles("LOAD_FAST_CLEAR")
def _load_fast_clear(m: Machine, f: Frame, i: Instr) -> None:
    value = dict.pop(f.locals, i.arg, NULL)
    if value is NULL and i.arg in f.cells and i.arg not in f.without_cell:
        f.swapped.append(i.arg)
        f.without_cell.add(i.arg)
        f.push(f.cells[i.arg])
        return
    # what a break left on the stack: the instruction that takes it may drop it
    if len(m.frames) == 1 and value is not NULL:
        m.let_go(value)
    f.push(value)


@handles("MAKE_CELL")
def _make_cell(m: Machine, f: Frame, i: Instr) -> None:
    f.without_cell.discard(i.arg)
    f.cells[i.arg] = Cell(dict.pop(f.locals, i.arg, None))


@handles("STORE_FAST")
def _store_fast(m: Machine, f: Frame, i: Instr) -> None:
    value = f.stack.pop()
    if len(m.frames) == 1:
        m.let_go(dict.get(f.locals, i.arg))
    # The program's own cells are values like others.
    own = i.arg in f.swapped and (i.arg not in f.without_cell or value is f.cells[i.arg])
    if own and isinstance(value, Cell):
        f.swapped.remove(i.arg)
        f.without_cell.discard(i.arg)
        f.locals.pop(i.arg, None)
        f.cells[i.arg] = value
    elif isinstance(value, Null):
        f.locals.pop(i.arg, None)
    else:
        f.locals[i.arg] = value


@handles("DELETE_FAST")
def _delete_fast(m: Machine, f: Frame, i: Instr) -> None:
    value = dict.pop(f.locals, i.arg, None)
    if value is None:
        raise raises(f"UnboundLocalError: local variable {i.arg!r}")
    if len(m.frames) == 1:
        m.let_go(value)


@handles("LOAD_GLOBAL")
def _load_global(m: Machine, f: Frame, i: Instr) -> None:
    f.push(m.load_global(f.scope, i.arg))


@handles("STORE_GLOBAL")
def _store_global(m: Machine, f: Frame, i: Instr) -> None:
    m.store_global(f.scope, i.arg, f.pop())


@handles("DELETE_GLOBAL")
def _delete_global(m: Machine, f: Frame, i: Instr) -> None:
    m.load_global(f.scope, i.arg)
    m.store_global(f.scope, i.arg, None)


@handles("LOAD_DEREF")
def _load_deref(m: Machine, f: Frame, i: Instr) -> None:
    f.push(_read_cell(m, f, i.arg))


def _read_cell(m: Machine, f: Frame, name: str) -> Value:
    if f.cells[name].content is None:
        own = name in f.code.co_cellvars
        raise raises(f"{'UnboundLocalError' if own else 'NameError'}: {name} is not bound")
    return m.load_cell(f.cells[name])


@handles("STORE_DEREF")
def _store_deref(m: Machine, f: Frame, i: Instr) -> None:
    m.store_cell(f.cells[i.arg], f.pop())


@handles("DELETE_DEREF")
def _delete_deref(m: Machine, f: Frame, i: Instr) -> None:
    _read_cell(m, f, i.arg)
    m.store_cell(f.cells[i.arg], None)


@handles("LOAD_CLOSURE")
def _load_closure(m: Machine, f: Frame, i: Instr) -> None:
    # In 3.12 a comprehension may keep a plain value where the cell was.
    held = dict.get(f.locals, i.arg)
    f.push(f.cells[i.arg] if held is None else held)


@handles("LOAD_ATTR")
def _load_attr(m: Machine, f: Frame, i: Instr) -> None:
    f.push(attributes.load_attr(m, f.pop(), i.arg))


@handles("LOAD_METHOD")
def _load_method(m: Machine, f: Frame, i: Instr) -> None:
    name, null_first = i.arg
    owner = f.pop()
    null = NULL if isinstance(owner, Super) else LOADED
    _push_callable(f, attributes.load_attr(m, owner, name), null, null_first)


def _push_callable(f: Frame, value: Value, null: Null, null_first: bool) -> None:
    for item in (null, value) if null_first else (value, null):
        f.push(item)


@handles("LOAD_SUPER_ATTR")
def _load_super_attr(m: Machine, f: Frame, i: Instr) -> None:
    name, is_method, _two_arg, null_first = i.arg
    fn, cls, receiver = f.popn(3)
    found = attributes.load_attr(m, m.call(fn, [cls, receiver], {}), name)
    if is_method:
        _push_callable(f, found, LOADED, null_first)
    else:
        f.push(found)


@handles("STORE_ATTR")
def _store_attr(m: Machine, f: Frame, i: Instr) -> None:
    owner = f.pop()
    attribute_stores.store_attr(m, owner, i.arg, f.pop())


@handles("DELETE_ATTR")
def _delete_attr(m: Machine, f: Frame, i: Instr) -> None:
    attribute_stores.store_attr(m, f.pop(), i.arg, None)


# -- operators -------------------------------------------------------------------------------------
@handles("UNARY")
def _unary(m: Machine, f: Frame, i: Instr) -> None:
    f.push(operators.unary(m, i.arg, f.pop()))


@handles("BINARY")
def _binary(m: Machine, f: Frame, i: Instr) -> None:
    right, left = f.pop(), f.pop()
    f.push(operators.binary(m, i.arg, left, right))


@handles("COMPARE")
def _compare(m: Machine, f: Frame, i: Instr) -> None:
    right, left = f.pop(), f.pop()
    f.push(operators.compare(m, i.arg, left, right))


@handles("TO_BOOL")
def _to_bool(m: Machine, f: Frame, i: Instr) -> None:
    follower, value = f.decoded.instrs[i.index + 1], f.pop()
    if follower.op == "POP_JUMP_IF":
        f.push(Const(_decides(m, f, follower, value)))
    else:  # `not`, which may be a number of the graph
        f.push(truth.value_of(m, value))


@handles("IS")
def _is(m: Machine, f: Frame, i: Instr) -> None:
    right, left = f.pop(), f.pop()
    f.push(Const(m.identical(left, right) != bool(i.arg)))


@handles("CONTAINS")
def _contains(m: Machine, f: Frame, i: Instr) -> None:
    container, item = f.pop(), f.pop()
    f.push(Const(operators.contains(m, container, item) != bool(i.arg)))


@handles("BINARY_SUBSCR")
def _binary_subscr(m: Machine, f: Frame, i: Instr) -> None:
    index, owner = f.pop(), f.pop()
    f.push(operators.get_item(m, owner, index))


@handles("STORE_SUBSCR")
def _store_subscr(m: Machine, f: Frame, i: Instr) -> None:
    index, owner, item = f.pop(), f.pop(), f.pop()
    operators.set_item(m, owner, index, item)


@handles("DELETE_SUBSCR")
def _delete_subscr(m: Machine, f: Frame, i: Instr) -> None:
    index, owner = f.pop(), f.pop()
    operators.delete_item(m, owner, index)


@handles("BINARY_SLICE")
def _binary_slice(m: Machine, f: Frame, i: Instr) -> None:
    stop, start, owner = f.pop(), f.pop(), f.pop()
    f.push(operators.get_item(m, owner, Slice(start, stop, Const(None))))


@handles("STORE_SLICE")
def _store_slice(m: Machine, f: Frame, i: Instr) -> None:
    stop, start, owner, item = f.pop(), f.pop(), f.pop(), f.pop()
    operators.set_item(m, owner, Slice(start, stop, Const(None)), item)


# -- f-strings -------------------------------------------------------------------------------------
_CONVERSIONS: dict[str | None, Callable[[Any], Any]] = {"s": str, "r": repr, "a": ascii}


@handles("FORMAT_VALUE")
def _format_value(m: Machine, f: Frame, i: Instr) -> None:
    conversion, has_spec = i.arg
    spec = f.pop() if has_spec else Const("")
    value = f.pop()
    if conversion is not None:
        value = m.call(Obj(_CONVERSIONS[conversion]), [value], {})
    f.push(m.call(Obj(format), [value, spec], {}))


@handles("CONVERT_VALUE")
def _convert_value(m: Machine, f: Frame, i: Instr) -> None:
    f.push(m.call(Obj(_CONVERSIONS[i.arg]), [f.pop()], {}))


# -- jumps and loops -------------------------------------------------------------------------------
@handles("JUMP")
def _jump(m: Machine, f: Frame, i: Instr) -> None:
    f.pc = i.target  # type: ignore[assignment]


@handles("POP_JUMP_IF")
def _pop_jump_if(m: Machine, f: Frame, i: Instr) -> None:
    value = f.pop()
    if i.arg in ("none", "not_none"):
        taken = is_none(value) == (i.arg == "none")
    else:
        taken = _decides(m, f, i, value) == (i.arg == "true")
    if taken:
        f.pc = i.target  # type: ignore[assignment]


def _decides(m: Machine, f: Frame, jump: Instr, value: Value) -> bool:
    """The truth of a value that a jump tests."""
    if isinstance(value, (Tensor, SymbolicNumber)):
        # few programs branch on tensor data
        from ..data_model import raising_checks

        found = raising_checks.outcome(m, f, jump, value)
        if found is not None:
            return found
    return m.truth(value)


@handles("JUMP_IF_OR_POP")
def _jump_if_or_pop(m: Machine, f: Frame, i: Instr) -> None:
    if m.truth(f.peek(1)) == (i.arg == "true"):
        f.pc = i.target  # type: ignore[assignment]
    else:
        f.pop()


@handles("GET_ITER")
def _get_iter(m: Machine, f: Frame, i: Instr) -> None:
    value = f.pop()
    if m.rows_of and (found := conditional.rows(m, f, value)) is not None:
        f.push(found)
        return
    f.push(value if iteration.iterates_itself(value) else iteration.iterate(m, value))


@handles("FOR_ITER")
def _for_iter(m: Machine, f: Frame, i: Instr) -> None:
    iterator = f.peek(1)
    found = iterator if isinstance(iterator, Iterator) else outside_iterators.modelled(m, iterator)
    if found is None:
        begun = str(getattr(iterator, "source", "")).startswith(".stack")
        raise Break("GB120", BROKEN_LOOP if begun else "a loop over an iterator from outside")
    f.stack[-1] = found
    _count_step(m, f, i, found)
    item = iteration.take(m, found)
    if item is None:
        f.loops.pop(i.index, None)
        f.pop()
        f.pc = i.target  # type: ignore[assignment]
    else:
        f.push(item)
        if found.kind == "rows":
            conditional.begin_step(m, f, i, found)


MAX_UNROLLED = 64
# Instructions of a loop of the program without a tensor operator.
MAX_IDLE = 200_000


def _count_step(m: Machine, f: Frame, i: Instr, iterator: Iterator) -> None:
    """Count one step of a loop; break where it should not be unrolled further."""
    loop = f.loops.get(i.index)
    if loop is None or loop.over is not iterator:
        loop = f.loops[i.index] = Loop(iterator, m.tracer.recorded, m.count)
    recorded = m.tracer.recorded - loop.operators
    idle = not recorded and m.count - loop.instructions > MAX_IDLE
    if idle and not f.code.co_filename.startswith(LIBRARY):
        raise Break("GB116", f"a loop without a tensor operator in its first {loop.steps} steps")
    if loop.steps >= MAX_UNROLLED and recorded >= loop.steps and _repeats(f, i):
        raise Break(
            "GB116",
            f"a loop of more than {MAX_UNROLLED} equal steps: its body is a frame of its own",
        )
    loop.steps += 1


def _repeats(f: Frame, i: Instr) -> bool:
    """Whether every step of a loop is the same program: nothing reads the loop variable."""
    assert i.target is not None
    store, *body = f.decoded.instrs[i.index + 1 : i.target]
    return store.op == "STORE_FAST" and not any(
        instr.arg == store.arg for instr in body if instr.op in ("LOAD_FAST", "LOAD_FAST_CLEAR")
    )


# -- functions and calls ---------------------------------------------------------------------------
def _callee(f: Frame) -> tuple[Value, list[Value]]:
    """The callable and its bound receiver, for either position of the NULL."""
    second, first = f.pop(), f.pop()
    if isinstance(first, Null):
        return second, []
    if isinstance(second, Null):
        return first, []
    return first, [second]


@handles("CALL")
def _call(m: Machine, f: Frame, i: Instr) -> None:
    count, names = i.arg
    args = f.popn(count)
    kwargs = dict(zip(names, args[count - len(names) :], strict=True))
    positional = args[: count - len(names)]
    fn, receiver = _callee(f)
    f.push(calls.call_by_instruction(m, fn, receiver + positional, kwargs))


@handles("CALL_FUNCTION_EX")
def _call_function_ex(m: Machine, f: Frame, i: Instr) -> None:
    named = f.pop() if i.arg else None
    args = iteration.drain(m, f.pop())
    kwargs: dict[str, Value] = {}
    if named is not None:
        pairs = container_methods.mapping_pairs(m, named)
        if pairs is None:
            raise raises("TypeError: argument after ** must be a mapping")
        for key, item in pairs:
            kwargs[handlers_containers.string_of(key)] = item
    fn, receiver = _callee(f)
    f.push(calls.call_by_instruction(m, fn, receiver + args, kwargs))


@handles("MAKE_FUNCTION")
def _make_function(m: Machine, f: Frame, i: Instr) -> None:
    code = f.pop()
    assert isinstance(code, Obj)
    qualname = code.value.co_qualname
    made = Function(code.value, f.scope, code.value.co_name, qualname)
    for name in reversed(i.arg):
        _function_part(m, made, name, f.pop())
    f.push(made)


@handles("SET_FUNCTION_ATTRIBUTE")
def _set_function_attribute(m: Machine, f: Frame, i: Instr) -> None:
    fn = f.pop()
    assert isinstance(fn, Function)
    _function_part(m, fn, i.arg, f.pop())
    f.push(fn)


def _function_part(m: Machine, fn: Function, name: str, value: Value) -> None:
    if name == "defaults":
        fn.defaults = tuple(iteration.drain(m, value))
        if value.source is not None:
            # The tuple of the code's constants is the same at each call.
            fn.fields["__defaults__"] = value
    elif name == "kwdefaults":
        assert isinstance(value, Dict)
        fn.kwdefaults = {
            k.value: v  # type: ignore[attr-defined]
            for k, v in containers.dict_items(m, value)
        }
    elif name == "closure":
        cells = iteration.drain(m, value)
        fn.closure = tuple(cell for cell in cells if isinstance(cell, Cell))
    else:
        fn.annotations = value


@handles("RETURN_VALUE")
def _return_value(m: Machine, f: Frame, i: Instr) -> None:
    f.result = f.leave(1)[0] if f is m.frames[0] else f.pop()


@handles("LOAD_BUILD_CLASS")
def _load_build_class(m: Machine, f: Frame, i: Instr) -> None:
    # The call of the function is the break: see `types.classes`.
    found = m.builtin(f.scope, "__build_class__")
    if found is None:
        raise Break("GB126", "a class is defined without the builtin function")
    f.push(found)


# -- with ------------------------------------------------------------------------------------------
@handles("BEFORE_WITH")
def _before_with(m: Machine, f: Frame, i: Instr) -> None:
    value = f.pop()
    f.stack.extend(context_managers.enter(m, value) or context_managers.enter_object(m, value))


# -- match -----------------------------------------------------------------------------------------
@handles("GET_LEN")
def _get_len(m: Machine, f: Frame, i: Instr) -> None:
    f.push(m.call(Obj(len), [f.peek(1)], {}))


@handles("MATCH_SEQUENCE")
def _match_sequence(m: Machine, f: Frame, i: Instr) -> None:
    f.push(Const(_flagged(m, f.peek(1), _SEQUENCE)))


_SEQUENCE, _MAPPING = 1 << 5, 1 << 6  # Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING


def _flagged(m: Machine, value: Value, flag: int) -> bool:
    """Whether sequence (or mapping) patterns match objects of this class, by an inherited flag."""
    cls = attributes.real_class(value)
    if cls is None or cls.__flags__ & flag:
        return cls is not None
    if isinstance(value, (Obj, Instance)) and cls.__flags__ & attributes.HEAP_TYPE:
        m.guard("abc", None, abc.get_cache_token())  # a class may be registered as one
    return False


@handles("MATCH_MAPPING")
def _match_mapping(m: Machine, f: Frame, i: Instr) -> None:
    f.push(Const(_flagged(m, f.peek(1), _MAPPING)))


@handles("MATCH_KEYS")
def _match_keys(m: Machine, f: Frame, i: Instr) -> None:
    keys, subject = f.peek(1), container_subclasses.as_container(m, f.peek(2), ("get",))
    wanted = iteration.drain(m, keys)
    if len({wrap.freeze(containers.read_key(m, key)) for key in wanted}) < len(wanted):
        raise Break("GB101", "a mapping pattern that has a key twice")
    f.push(_looked_up(m, subject, wanted) or Const(None))


def _looked_up(m: Machine, subject: Value, wanted: list[Value]) -> Value | None:
    """A mapping's values under these keys, by its `get`; None if it lacks one."""
    found: list[Value] = []
    if isinstance(subject, Dict):
        for key in wanted:
            if not container_methods.contains(m, subject, key):
                return None
            found.append(operators.get_item(m, subject, key))
        return Sequence(found, tuple)
    get = attributes.load_attr(m, subject, "get")
    nothing = Instance(Obj(object))
    for key in wanted:
        item = m.call(get, [key, nothing], {})
        if item is nothing:
            return None
        found.append(item)
    return Sequence(found, tuple)
