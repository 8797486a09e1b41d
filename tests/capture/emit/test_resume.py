"""Resume functions: a function split at any instruction, or at all of them, does what it does whole."""

from __future__ import annotations

import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest

from graftjit.capture.bytecode.decoder import decode
from graftjit.capture.emit.resume import can_resume

from ..bytecode import programs
from ..bytecode.programs import PROGRAMS, Point
from ..bytecode.stepping import Stepper


def outcome(run: Callable[[list], Any]) -> tuple[Any, ...]:
    """Result or exception (with the user's line it came from), effects, and module globals."""
    log: list[Any] = []
    programs.counter = 0
    try:
        result = ("returned", plain(run(log)))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        last = [(f.name, f.lineno) for f in frames if f.filename == programs.__file__][-1]
        chain = (repr(error.__cause__), repr(error.__context__))
        result = ("raised", type(error), str(error), chain, last)
    return result, plain(log), programs.counter


def plain(value: Any) -> Any:
    """A value in a form that compares by content, types included."""
    if isinstance(value, (list, tuple)):
        return type(value), [plain(item) for item in value]
    if isinstance(value, dict):
        return [(plain(k), plain(v)) for k, v in value.items()]
    if isinstance(value, Point):
        return type(value), plain(vars(value))
    if isinstance(value, types.FunctionType):
        return value.__qualname__
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, BaseException):
        return repr(value)
    return type(value), repr(value)


@pytest.fixture(autouse=True)
def _deep() -> Any:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_split_at_every_instruction(program: types.FunctionType) -> None:
    expected = outcome(program)
    tried = 0
    for instr in decode(program.__code__).instrs:
        if can_resume(program.__code__, instr.index) is None:
            stepper = Stepper(program, only=instr.index)
            assert outcome(stepper) == expected, f"split after {instr}"
            tried += stepper.steps
    assert tried > 1


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_every_instruction_in_its_own_frame(program: types.FunctionType) -> None:
    stepper = Stepper(program)
    assert outcome(stepper) == outcome(program)
    assert stepper.steps > 1
