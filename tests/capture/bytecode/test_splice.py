"""Code that carries an original's bytes runs what code that encodes the original again runs."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import logging
import time
import types
from typing import Any

import pytest
import torch

import graftjit
from graftjit.capture.bytecode.assembler import Assembler
from graftjit.capture.bytecode.decoder import decode
from graftjit.capture.bytecode.liveness import live_locals
from graftjit.capture.bytecode.stack_shape import stack_shape
from graftjit.capture.emit.resume import CannotResume, can_break, can_resume, resume_code

from .module_codes import module_codes

Listing = list[tuple[Any, ...]]


def listed(code: types.CodeType) -> Listing:
    """What is reached from the beginning, read from the bytes themselves."""
    copy = code.replace(co_name=code.co_name)
    asm = Assembler(copy)
    asm.jump(asm.original(0))
    instrs = decode(asm.finish(carry=False)).instrs
    return [
        (i.op, i.arg, i.target, i.where.line, i.where.column, i.handler, i.handler_depth, i.handler_lasti)
        for i in instrs
        if i.op != "NOP"
    ]  # fmt: skip


def ways_in(code: types.CodeType) -> list[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Where the code can be gone on with, what is on the stack there, and what is bound."""
    if can_break(code) is not None:
        return []
    decoded, found = decode(code), []
    for instr in decoded.instrs[::29]:
        if instr.head and instr.raw and can_resume(code, instr.index) is None:
            shape = stack_shape(code, instr.index) or ()
            kinds = tuple("value" if kind == "maybe" else kind for kind in shape)
            live = live_locals(decoded, instr.index)
            bound = tuple(n for n in code.co_varnames if n in live and n not in decoded.cells)
            found.append((instr.index, kinds, bound))
    return found


@pytest.mark.parametrize(
    "module", [argparse, dataclasses, inspect, logging], ids=lambda m: m.__name__
)
def test_bytes_are_the_instructions(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = 0
    for code in module_codes(module):
        for index, stack, bound in ways_in(code):
            try:
                made = resume_code(code, index, stack, bound)
            except CannotResume:
                continue
            with monkeypatch.context() as patch:
                patch.setattr(Assembler, "_tail", lambda self: None)
                plain = resume_code(code, index, stack, bound)
            carried += decode(made).base is not None
            assert made.co_varnames[: made.co_argcount] == plain.co_varnames[: plain.co_argcount]
            assert listed(made) == listed(plain), (code, index)
    assert carried > 10


def test_a_resumed_function_goes_on_in_the_same_bytes() -> None:
    """However many breaks lie before: each resume function carries the original, never another resume function."""

    def function(a: Any, b: Any) -> Any:
        c = a + b
        d = c * b
        return [c, d, a]

    code, made = function.__code__, function.__code__
    stores = [i.index for i in decode(code).instrs if i.op == "STORE_FAST"]
    made = resume_code(made, stores[0], ("value",), ("a", "b"))
    made = resume_code(made, stores[1], ("value",), ("a", "c"))
    assert decode(made).base is code
    assert types.FunctionType(made, {})(10, 1, 2) == [2, 10, 1]


def test_first_calls_cost_by_the_break_not_by_the_function() -> None:
    """Twice as many breaks take twice as long, or a little more: not four times."""

    def seconds(breaks: int) -> float:
        lines = "\n".join("    x = x + 1\n    x.tolist()" for _ in range(breaks))
        scope: dict[str, Any] = {}
        exec(f"def f(x):\n{lines}\n    return x", scope)
        begun = time.process_time()
        graftjit.jit(scope["f"])(torch.ones(2))
        return time.process_time() - begun

    seconds(10)
    short, long = min(seconds(20) for _ in range(2)), min(seconds(80) for _ in range(2))
    assert long < 9 * short
