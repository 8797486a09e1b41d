"""Running a function one instruction at a time, each in a resume function of its own.

`Stepper(function)` behaves like the function, but after every instruction where `can_resume` allows (or after
one chosen) leaves the frame through `break_tail` and re-enters by `resume_code`. The stack's NULLs and the
bound locals are read off the frame at run time, so any function will do.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from graftjit.capture.bytecode.assembler import Assembler
from graftjit.capture.bytecode.decoder import decode
from graftjit.capture.bytecode.opcodes import FINAL
from graftjit.capture.bytecode.stack_shape import stack_shapes
from graftjit.capture.emit.resume import (
    PASSED,
    break_tail,
    can_resume,
    end_handling,
    load_cells,
    resume_code,
)


class Stepper:
    """Breaks at instructions of `function`: at `only` that index (each time control comes by), or at all."""

    def __init__(self, function: types.FunctionType, only: int | None = None) -> None:
        self.function = function
        self.only = only
        self.steps = 0
        self.made: dict[Any, types.CodeType] = {}

    def breaks_at(self, code: types.CodeType, index: int) -> bool:
        if self.only is not None and index != self.only:
            return False
        instrs = decode(code).instrs
        if instrs[index].op == "NOP" or can_resume(code, index) is not None:
            return False
        while not (instrs[index].op in FINAL or instrs[index + 1].head):
            index += 1
        ways = [] if instrs[index].op in FINAL else [index + 1]
        ways += [instrs[index].target] if instrs[index].target is not None else []
        return all(can_resume(code, way) is None for way in ways)

    def patched(self, code: types.CodeType, indices: range) -> types.CodeType:
        """`code` with every wanted instruction of these made a break."""
        asm = Assembler(code)
        for index in indices:
            if self.breaks_at(code, index):
                asm.patches[index] = self.patch(asm, code, index)
        asm.jump(asm.original(decode(code).entry))
        return asm.finish()

    def patch(self, asm: Assembler, code: types.CodeType, index: int) -> Callable[[], None]:
        def emit() -> None:
            break_tail(asm, code, index, lambda target, path: self.edge(code, target))

        return emit

    def edge(self, code: types.CodeType, target: int) -> Callable[[Assembler], None]:
        """Emit: go_on(cells, locals()), with the stack put into locals whose names tell the slots."""

        def emit(asm: Assembler) -> None:
            shape = stack_shapes(code)[target]
            assert shape is not None
            names = [f".slot{depth}" for depth in range(len(shape))]
            for name, kind in reversed([*zip(names, shape, strict=True)]):
                if kind == "exc":
                    end_handling(asm)
                asm.store_fast(name)

            def go_on(cells: tuple | None, found: dict[str, Any]) -> Any:
                return self.go_on(code, target, names, cells, found)

            asm.call_const(go_on, lambda: load_cells(asm), lambda: asm.call_const(locals))
            asm.return_value()

        return emit

    def go_on(
        self,
        code: types.CodeType,
        target: int,
        names: list[str],
        cells: tuple | None,
        found: dict[str, Any],
    ) -> Any:
        self.steps += 1
        kinds = stack_shapes(code)[target] or ()
        stack = tuple(
            kind if kind in ("exc", "lasti") else "value" if name in found else "null"
            for kind, name in zip(kinds, names, strict=True)
        )
        slots = [found.pop(name, None) for name in names]
        values = [slot for kind, slot in zip(stack, slots, strict=True) if kind in PASSED]
        known = set(decode(code).cells)
        bound = tuple(name for name in found if name not in known and is_local(code, name))
        values += [found[name] for name in bound]
        if can_resume(code, target) is not None:
            raise AssertionError(f"no way on at {target}: {can_resume(code, target)}")
        key = (id(code), target, stack, bound)
        if key not in self.made:
            again = resume_code(code, target, stack, bound)
            self.made[key] = again if self.only is not None else self.patched(again, body(again))
            self.made[key, "kept"] = code
        resumed = types.FunctionType(self.made[key], self.function.__globals__, closure=cells)
        return resumed(*values)

    def __call__(self, *args: Any) -> Any:
        code = self.function.__code__
        code = self.patched(code, range(len(decode(code).instrs)))
        start = types.FunctionType(
            code, self.function.__globals__, closure=self.function.__closure__
        )
        return start(*args)


def body(code: types.CodeType) -> range:
    """The instructions behind a resume function's restoring of the stack (it would be restored in turn for ever)."""
    decoded = decode(code)
    if decoded.base is not None:
        return range(decoded.entry)
    start = next(instr.index for instr in decoded.instrs if instr.op == "JUMP") + 1
    return range(start, len(decoded.instrs))


def is_local(code: types.CodeType, name: str) -> bool:
    return name in code.co_varnames
