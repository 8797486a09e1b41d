"""Handlers of the instructions that build and unpack containers.

In: the parts on the stack. Out: a container Value. A container that a break interrupted returns on
the stack of a resume function, which fills it without reading it.
"""

from __future__ import annotations

import itertools
from typing import Any

from ..breaks import Break
from ..bytecode.decoder import Instr
from ..data_model import iteration
from ..types import container_methods, sets
from ..values import containers, texts
from ..values.containers import raises
from ..values.effects import Filled
from ..values.frames import Frame
from ..values.value import Const, Dict, Sequence, Set, Slice, Tensor, Unread, Value
from ..values.wrap import freeze
from .machine import Machine, handles


@handles("BUILD_TUPLE")
def _build_tuple(m: Machine, f: Frame, i: Instr) -> None:
    returned = f.decoded.instrs[i.index + 1].op == "RETURN_VALUE" and f is m.frames[0]
    f.push(Sequence(f.leave(i.arg) if returned else f.popn(i.arg), tuple))


@handles("BUILD_LIST")
def _build_list(m: Machine, f: Frame, i: Instr) -> None:
    f.push(Sequence(f.popn(i.arg), list))


@handles("BUILD_SET")
def _build_set(m: Machine, f: Frame, i: Instr) -> None:
    f.push(sets.make(m, f.popn(i.arg)))


@handles("BUILD_MAP")
def _build_map(m: Machine, f: Frame, i: Instr) -> None:
    parts, made = f.popn(2 * i.arg), Dict({})
    for key, item in zip(parts[::2], parts[1::2], strict=True):
        containers.dict_set(m, made, key, item)
    f.push(made)


@handles("BUILD_CONST_KEY_MAP")
def _build_const_key_map(m: Machine, f: Frame, i: Instr) -> None:
    keys = iteration.drain(m, f.pop())
    made = Dict({})
    for key, item in zip(keys, f.popn(i.arg), strict=True):
        containers.dict_set(m, made, key, item)
    f.push(made)


@handles("BUILD_STRING")
def _build_string(m: Machine, f: Frame, i: Instr) -> None:
    parts = f.popn(i.arg)
    if any(map(texts.is_open, parts)):
        f.push(texts.made(m, texts.joined, *parts))
        return
    f.push(Const("".join(string_of(part) for part in parts)))


def string_of(value: Value) -> str:
    if isinstance(value, Const) and isinstance(value.value, str):
        return value.value
    raise Break("GB121", "a part of a string that is not a constant")


@handles("BUILD_SLICE")
def _build_slice(m: Machine, f: Frame, i: Instr) -> None:
    parts = f.popn(i.arg)
    f.push(Slice(parts[0], parts[1], parts[2] if i.arg == 3 else Const(None)))


# A display or comprehension that a break interrupted returns on the stack. Nothing else refers to
# it: it is filled unread, without guards.
def _fill(m: Machine, f: Frame, depth: int, step: Any, items: list[Value]) -> bool:
    target = f.stack[-depth]
    if type(target) is not Unread:
        return False
    for item in items if step is not list.append else ():
        freeze(containers.read_key(m, item))  # Python runs a hash with code of its own
        break
    m.journal.effects.append(Filled(target, step, tuple(items)))
    m.activity += 1
    target.read = _half_full
    return True


def _half_full() -> Value:
    raise Break("GB122", "a container that was filled across a break is read")


def _target(f: Frame, depth: int, kind: type) -> Any:
    target = f.peek(depth)
    if not isinstance(target, kind):
        raise Break("GB122", "a container of this kind is filled")
    return target


@handles("LIST_APPEND")
def _list_append(m: Machine, f: Frame, i: Instr) -> None:
    item = f.pop()
    if not _fill(m, f, i.arg, list.append, [item]):
        containers.append(m, _target(f, i.arg, Sequence), [item])


@handles("SET_ADD")
def _set_add(m: Machine, f: Frame, i: Instr) -> None:
    item = f.pop()
    if not _fill(m, f, i.arg, set.add, [item]):
        sets.add(m, containers.writable(m, _target(f, i.arg, Set)), item)


@handles("MAP_ADD")
def _map_add(m: Machine, f: Frame, i: Instr) -> None:
    item, key = f.pop(), f.pop()
    if not _fill(m, f, i.arg, dict.__setitem__, [key, item]):
        containers.dict_set(m, _target(f, i.arg, Dict), key, item)


@handles("LIST_EXTEND")
def _list_extend(m: Machine, f: Frame, i: Instr) -> None:
    other = f.pop()
    container_methods.extend(m, _target(f, i.arg, Sequence), other)


@handles("SET_UPDATE")
def _set_update(m: Machine, f: Frame, i: Instr) -> None:
    other = f.pop()
    sets.update(m, containers.writable(m, _target(f, i.arg, Set)), other)


@handles("DICT_UPDATE")
def _dict_update(m: Machine, f: Frame, i: Instr) -> None:
    target, pairs = _target(f, i.arg + 1, Dict), container_methods.mapping_pairs(m, f.pop())
    if pairs is None:
        raise raises("TypeError: object is not a mapping")
    for key, item in pairs:
        containers.dict_set(m, target, key, item)


@handles("DICT_MERGE")
def _dict_merge(m: Machine, f: Frame, i: Instr) -> None:
    other = f.pop()
    target = _target(f, i.arg, Dict)
    pairs = container_methods.mapping_pairs(m, other)
    if pairs is None:
        raise raises("TypeError: argument after ** must be a mapping")
    for key, item in pairs:
        if container_methods.contains(m, target, key):
            raise raises("TypeError: multiple values for a keyword argument")
        containers.dict_set(m, target, key, item)


@handles("LIST_TO_TUPLE")
def _list_to_tuple(m: Machine, f: Frame, i: Instr) -> None:
    f.push(Sequence(iteration.drain(m, f.pop()), tuple))


@handles("UNPACK_SEQUENCE")
def _unpack_sequence(m: Machine, f: Frame, i: Instr) -> None:
    value = f.pop()
    if isinstance(value, Tensor) and value.ghost.dim() and value.ghost.shape[0] != i.arg:
        raise raises("ValueError: unpacking a tensor of another length")
    if isinstance(value, Sequence):
        items = containers.sequence_items(m, value)
    else:
        # Ask for one item more than needed, and no more.
        items = list(itertools.islice(iteration.each(m, value), i.arg + 1))
    if len(items) != i.arg:
        raise raises("ValueError: wrong number of values to unpack")
    f.stack.extend(reversed(items))


@handles("UNPACK_EX")
def _unpack_ex(m: Machine, f: Frame, i: Instr) -> None:
    before, after = i.arg
    items = iteration.drain(m, iteration.iterate(m, f.pop()))
    if len(items) < before + after:
        raise raises("ValueError: not enough values to unpack")
    end = len(items) - after
    parts = [*items[:before], Sequence(items[before:end], list), *items[end:]]
    f.stack.extend(reversed(parts))
