"""Every opcode of the running version, walked from `dis.opmap`: decoded, of CPython's stack effect, and either
handled by the machine or assigned to a named break.

Opcodes that no code object shows have no part in this; `NEVER_SEEN` says of each group why.
"""

from __future__ import annotations

import dis
import inspect
import opcode
import types
from collections.abc import Callable
from typing import Any

import pytest

from graftjit.capture import capture as _capture  # noqa: F401  (fills the table of handlers)
from graftjit.capture.bytecode import opcodes as optable
from graftjit.capture.bytecode.decoder import Instr, stack_effect
from graftjit.capture.bytecode.opcodes import NAME_SHIFT, NEVER, ROWS, VERSION, Micro, Raw
from graftjit.capture.interpreter.machine import HANDLERS
from graftjit.capture.interpreter.unmodelled import INTRINSICS, UNMODELLED
from graftjit.ir.location import Location
from graftjit.runtime.codes import CODES

# Why an opcode has no row: no code object that Python hands out shows it.
NEVER_SEEN: dict[str, Callable[[str], bool]] = {
    # `co_code` de-instruments: under sys.monitoring the instruction that an INSTRUMENTED_ one stands for is shown
    "instrumented": lambda name: name.startswith("INSTRUMENTED_") or name == "ENTER_EXECUTOR",
    # numbers above a byte: instructions of the compiler that assembly resolves
    "pseudo": lambda name: dis.opmap[name] > 255,
    # laid between the instructions; part of the instruction before or after
    "padding": lambda name: name in ("CACHE", "EXTENDED_ARG", "RESERVED"),
    # of the shim frames of the interpreter itself, which are nobody's code object
    "shim": lambda name: name in ("INTERPRETER_EXIT", "EXIT_INIT_CHECK"),
}
SEEN = [name for name in dis.opmap if not any(why(name) for why in NEVER_SEEN.values())]


def test_an_opcode_has_a_row_or_is_never_seen() -> None:
    assert [name for name in SEEN if name not in ROWS] == []
    assert [name for name in dis.opmap if name in NEVER and name in SEEN] == []


def test_specialised_instructions_are_not_in_the_map() -> None:
    """The adaptive forms (BINARY_OP_ADD_INT) come and go with each run of a function; `co_code` shows what they
    were made from. `opmap` does not name them either, so the walk above misses nothing."""
    adaptive = getattr(opcode, "_specialized_instructions", None) or opcode._specialized_opmap
    assert len(adaptive) > 30 and not set(adaptive) & set(dis.opmap)

    def hot(n: int) -> int:
        total = 0
        for i in range(n):
            total = total + i
        return total

    before = hot.__code__.co_code
    for _ in range(50):
        hot(50)
    shown = {i.opname for i in dis.get_instructions(hot, adaptive=True)}
    assert shown & set(adaptive), "the function was not specialised, so this shows nothing"
    assert hot.__code__.co_code == before


@pytest.mark.skipif(VERSION < (3, 12), reason="instrumented instructions are new in 3.12")
def test_instrumented_instructions_are_not_shown() -> None:
    import sys

    def watched() -> int:
        return len(())

    monitoring, before = sys.monitoring, watched.__code__.co_code
    monitoring.use_tool_id(5, "test")
    try:
        monitoring.set_local_events(5, watched.__code__, monitoring.events.INSTRUCTION)
        assert watched.__code__.co_code == before
        names = {i.opname for i in dis.get_instructions(watched)}
        assert not any(name.startswith("INSTRUMENTED_") for name in names)
    finally:
        monitoring.set_local_events(5, watched.__code__, 0)
        monitoring.free_tool_id(5)


# -- arguments ---------------------------------------------------------------------------------------------
NAMED = frozenset(optable.NAME_OPS | optable.SLOT_OPS | optable.CONST_OPS)
PAIRS = ("LOAD_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST")

# The arguments to try where the plain 0, 1, 2, 3 have no meaning or say too little.
ARGUMENTS: dict[str, tuple[int, ...]] = {
    "BINARY_OP": tuple(range(len(optable.BINARY_TEXT))),
    "COMPARE_OP": tuple(n << optable.COMPARE_SHIFT for n in range(len(optable.COMPARE_TEXT))),
    "IS_OP": (0, 1),
    "CONTAINS_OP": (0, 1),
    "COPY": (1, 2, 3),
    "SWAP": (2, 3),
    "UNPACK_EX": (0, 1, 2 + (3 << 8)),
    "FORMAT_VALUE": tuple(range(8)),
    "CONVERT_VALUE": (1, 2, 3),
    "CALL_FUNCTION_EX": (0, 1),
    "MAKE_FUNCTION": tuple(range(16)) if VERSION < (3, 13) else (0,),
    "SET_FUNCTION_ATTRIBUTE": (1, 2, 4, 8),
    "BUILD_SLICE": (2, 3),
    "RAISE_VARARGS": (0, 1, 2),
    "RERAISE": (0, 1),
    "RESUME": (0, 1, 2, 3),
    "LIST_APPEND": (1, 2), "SET_ADD": (1, 2), "MAP_ADD": (1, 2), "LIST_EXTEND": (1, 2),
    "SET_UPDATE": (1, 2), "DICT_UPDATE": (1, 2), "DICT_MERGE": (1, 2),
}  # fmt: skip


def has_argument(name: str) -> bool:
    number = dis.opmap[name]
    return number in dis.hasarg if VERSION >= (3, 12) else number >= dis.HAVE_ARGUMENT


def intrinsics(name: str) -> tuple[int, ...]:
    known = {"CALL_INTRINSIC_1": "_intrinsic_1_descs", "CALL_INTRINSIC_2": "_intrinsic_2_descs"}
    return tuple(range(1, len(getattr(opcode, known[name])))) if name in known else ()


def samples(name: str) -> list[tuple[Raw, int | None]]:
    """(the instruction as rows read it, the integer that CPython reads)"""
    if not has_argument(name):
        return [(Raw(name), None)]
    if name in PAIRS:
        return [(Raw(name, ("a", "b")), 1)]
    if name in NAMED:
        lows = range(1 << NAME_SHIFT.get(name, 0))
        return [(Raw(name, "name", low), low) for low in lows]
    numbers = ARGUMENTS.get(name) or intrinsics(name) or (0, 1, 2, 3)
    return [(Raw(name, number), number) for number in numbers]


def micros(raw: Raw) -> tuple[Micro, ...]:
    """As the decoder has it: a call with what stands before it."""
    if raw.op == "CALL_KW":
        return (("CALL", (raw.arg, ("a",)[: raw.arg]), (Raw("LOAD_CONST", ("a",)), raw)),)
    return ROWS[raw.op](raw)


ALL = [(raw, number) for name in SEEN for raw, number in samples(name)]


def normal(op: str, arg: Any) -> Instr:
    return Instr(0, op, arg, None, Location("", 1), None, 0, False, True, ())


# -- decoded -----------------------------------------------------------------------------------------------
def test_every_opcode_becomes_normal_instructions() -> None:
    for raw, _ in ALL:
        for op, arg, raws in micros(raw):
            assert op in optable.EFFECTS, (raw, op)
            popped, pushed = stack_effect(normal(op, arg))
            assert popped >= 0 and pushed >= 0
            assert all(isinstance(one, Raw) for one in raws)


# Where CPython's figure is another count than "what lies on the stack when control goes on".
UNLIKE: dict[str, str] = {
    "RETURN_GENERATOR": "pushes what the generator's first resumption drops",
    "RETURN_VALUE": "control does not go on",
    "RAISE_VARARGS": "control does not go on",
    "RERAISE": "control does not go on",
    "RETURN_CONST": "control does not go on",
    "KW_NAMES": "a part of the call after it",
    "PRECALL": "a part of the call after it",
    "END_FOR": "skipped: a loop's exit is taken to be after it",
    "FOR_ITER": "its jump is tested below, with the instructions that it skips",
    "END_ASYNC_FOR": "an exception's way",
    "SEND": "its jump is tested below",
}


def test_effects_are_cpythons() -> None:
    differ = []
    for raw, number in ALL:
        if raw.op in UNLIKE:
            continue
        effects = [stack_effect(normal(op, arg)) for op, arg, _ in micros(raw)]
        ours = sum(pushed - popped for popped, pushed in effects)
        extra = 0
        if raw.op == "CALL" and VERSION < (3, 12):
            extra = dis.stack_effect(dis.opmap["PRECALL"], raw.arg)
        theirs = dis.stack_effect(dis.opmap[raw.op], number, jump=False) + extra
        if raw.op == "CALL_KW":
            theirs += 1  # the constant with the names, which stands before it
        if ours != theirs:
            differ.append((raw, ours, theirs))
    assert differ == []


JUMPS = [name for name in SEEN if dis.opmap[name] in (*dis.hasjrel, *dis.hasjabs)]


def test_effects_of_jumps_are_cpythons() -> None:
    assert len(JUMPS) > 5
    for name in JUMPS:
        (op, arg, _), *rest = micros(Raw(name, 1))
        assert not rest and op in optable.JUMPS
        theirs = dis.stack_effect(dis.opmap[name], 1, jump=True)
        if name == "FOR_ITER":  # our jump goes past what CPython's finds at its target
            theirs = skipped_by_the_exit(theirs)
        popped, pushed = stack_effect(normal(op, arg), jump=True)
        assert pushed - popped == theirs, name


def skipped_by_the_exit(effect: int) -> int:
    """3.11 drops the iterator itself; later versions leave it and the item to END_FOR."""
    for name in optable.LOOP_EXIT:
        effect += dis.stack_effect(dis.opmap[name])
    return effect


# -- handled, or a named break --------------------------------------------------------------------------------
NORMAL = {op for raw, _ in ALL for op, _, _ in micros(raw)}


def test_every_instruction_is_handled_or_a_named_break() -> None:
    assert NORMAL - HANDLERS.keys() - UNMODELLED.keys() == set(), "in neither table"
    assert HANDLERS.keys() & UNMODELLED.keys() == set(), "handled by now: take the row away"


def test_every_intrinsic_is_handled_or_a_named_break() -> None:
    asked = {arg for raw, _ in ALL for op, arg, _ in micros(raw) if op == "CALL_INTRINSIC_1"}
    assert asked - INTRINSICS.keys() == ({"STOPITERATION_ERROR"} if VERSION >= (3, 12) else set())


def test_handlers_and_breaks_are_of_instructions_that_exist() -> None:
    """Of whichever version: a name in none of them is a slip of the pen."""
    assert (HANDLERS.keys() | UNMODELLED.keys()) - optable.EFFECTS.keys() == set()


def test_the_breaks_have_codes() -> None:
    for code, reason in [*UNMODELLED.values(), *INTRINSICS.values()]:
        assert code in CODES and reason


def test_handlers_take_what_they_are_given() -> None:
    for name, handler in HANDLERS.items():
        assert isinstance(handler, types.FunctionType) and name
        assert len(inspect.signature(handler).parameters) == 3
