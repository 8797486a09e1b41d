"""The decoder: the normal form of real code says what CPython does. Opcode by opcode: test_opcodes."""

from __future__ import annotations

import dis
import gc
import types
from typing import Any

import pytest

from graftjit.capture.bytecode import decoder as bytecodes
from graftjit.capture.bytecode import opcodes as optable
from graftjit.capture.bytecode.decoder import decode, stack_effect
from graftjit.capture.bytecode.liveness import live_locals
from graftjit.capture.bytecode.opcodes import FINAL, VERSION
from graftjit.capture.bytecode.stack_shape import stack_shapes

from . import programs, stepping
from .module_codes import module_codes
from .programs import PROGRAMS

CODES = [
    code
    for module in (programs, stepping, bytecodes, dis, pytest.importorskip("asyncio.queues"))
    for code in module_codes(module)
]


def test_texts_of_operators_are_cpythons() -> None:
    import opcode

    assert tuple(text for _, text in opcode._nb_ops) == optable.BINARY_TEXT
    assert tuple(dis.cmp_op)[:6] == optable.COMPARE_TEXT
    if VERSION >= (3, 12):
        names = [name.removeprefix("INTRINSIC_") for name in opcode._intrinsic_1_descs]
        names[0] = "INVALID"
        assert tuple(names) == optable.INTRINSICS_1[: len(names)]
        names = [name.removeprefix("INTRINSIC_") for name in opcode._intrinsic_2_descs]
        names[0] = "INVALID"
        assert tuple(names) == optable.INTRINSICS_2[: len(names)]


def test_every_normal_instruction_has_an_effect() -> None:
    for code in CODES:
        for instr in decode(code).instrs:
            popped, pushed = stack_effect(instr)
            assert popped >= 0 and pushed >= 0
            assert instr.op in optable.EFFECTS


def real_effect(instr: bytecodes.Instr) -> int | None:
    """CPython's own stack effect of the real instructions behind a normal one (calls and jumps left out)."""
    total = 0
    for raw in instr.raw:
        number = dis.opmap.get(raw.op, 256)
        if number > 255 or instr.op in (
            "JUMP",
            "POP_JUMP_IF",
            "FOR_ITER",
            "JUMP_IF_OR_POP",
            "SEND",
        ):
            return None
        arg = raw.arg if isinstance(raw.arg, int) and raw.op not in ("LOAD_CONST",) else 0
        has_arg = number in dis.hasarg if VERSION >= (3, 12) else number >= dis.HAVE_ARGUMENT
        if raw.op in ("LOAD_ATTR", "LOAD_SUPER_ATTR", "LOAD_GLOBAL"):
            arg = raw.low
        total += dis.stack_effect(number, arg if has_arg else None)
    return total


# Where the compiler's figure is for its own bookkeeping, or a raising instruction ends the count.
UNLIKE = frozenset(
    {"RERAISE", "RAISE", "RETURN_VALUE", "END_ASYNC_FOR", "RETURN_GENERATOR", "END_FOR"}
)


def test_effects_are_cpythons() -> None:
    seen = set()
    for code in CODES:
        for instr in decode(code).instrs:
            real = real_effect(instr)
            if real is not None and instr.raw and instr.op not in UNLIKE:
                popped, pushed = stack_effect(instr)
                assert pushed - popped == real, (instr, instr.raw)
                seen.add(instr.op)
    assert len(seen) > 60


def test_stack_shapes_agree_with_the_stack_size() -> None:
    for code in CODES:
        shapes = [shape for shape in stack_shapes(code) if shape is not None]
        # RETURN_CONST (3.12) never had its constant on the stack
        assert max(map(len, shapes)) <= code.co_stacksize + (VERSION >= (3, 12))
        reached = [i for i, shape in enumerate(stack_shapes(code)) if shape is not None]
        assert len(reached) >= len(shapes) and shapes[0] == ()


def test_instructions_point_into_the_code() -> None:
    for code in CODES:
        decoded = decode(code)
        assert decoded.instrs[-1].op in FINAL | {"END_FOR"}
        for position, instr in enumerate(decoded.instrs):
            assert instr.index == position
            for to in (instr.target, instr.handler):
                assert to is None or 0 <= to < len(decoded.instrs)
            assert instr.where.file == code.co_filename
            assert instr.where.function == code.co_qualname


def test_handlers_are_those_of_the_exception_table() -> None:
    for code in CODES:
        decoded = decode(code)
        for entry in dis._parse_exception_table(code):
            for index, unit in enumerate(decoded.units):
                if entry.start <= 2 * unit < entry.end:
                    instr = decoded.instrs[index]
                    assert decoded.units[instr.handler] * 2 == entry.target
                    assert instr.handler_depth == entry.depth
                    assert instr.handler_lasti == entry.lasti


def ops(function: Any) -> list[tuple[str, Any]]:
    return [(i.op, i.arg) for i in decode(function.__code__).instrs]


def test_calls_have_their_keyword_names() -> None:
    found = [arg for op, arg in ops(lambda f, x: f(x, 1, a=x, b=x if x else 2)) if op == "CALL"]
    assert set(found) == {(4, ("a", "b"))}


def test_null_stands_where_the_version_has_it() -> None:
    found = [op for op, _ in ops(lambda: len(())) if op in ("PUSH_NULL", "LOAD_GLOBAL")]
    first = ["PUSH_NULL", "LOAD_GLOBAL"]
    assert found == (first if VERSION < (3, 13) else first[::-1])


def test_formats_and_unpacking() -> None:
    def function(x: Any) -> Any:
        a, *b, c = x
        return f"{a!r:>4}{b}{c!s}"

    found = ops(function)
    assert ("UNPACK_EX", (1, 1)) in found
    assert ("BUILD_STRING", 3) in found
    formats = [arg for op, arg in found if op == "FORMAT_VALUE"]
    if VERSION < (3, 13):
        assert formats == [("r", True), (None, False), ("s", False)]
    else:
        assert formats == [(None, True), (None, False), (None, False)]
        assert [arg for op, arg in found if op == "CONVERT_VALUE"] == ["r", "s"]


def test_loops_leave_to_where_the_iterator_is_gone() -> None:
    def function(x: Any) -> Any:
        for _ in x:
            pass
        return 1

    decoded = decode(function.__code__)
    loop = next(i for i in decoded.instrs if i.op == "FOR_ITER")
    assert loop.target is not None
    assert (decoded.instrs[loop.target].op, decoded.instrs[loop.target].arg) == ("LOAD_CONST", 1)
    assert stack_shapes(function.__code__)[loop.target] == ()


def test_decoding_is_kept_with_the_code_and_no_longer() -> None:
    def make() -> types.CodeType:
        return compile("def f(a): return a", "somewhere", "exec").co_consts[0]

    code = make()
    assert decode(code) is decode(code)
    twin = make().replace(co_filename="elsewhere")
    assert decode(twin).instrs[-1].where.file == "elsewhere"
    assert decode(code).instrs[-1].where.file == "somewhere"
    key = id(code)
    assert key in decode._made
    del code
    gc.collect()
    assert key not in decode._made


def test_live_locals() -> None:
    def function(a: Any, b: Any, c: Any) -> Any:
        d = a + 1
        try:
            d = d(b)
        except ValueError:
            return d
        return 1

    decoded = decode(function.__code__)
    assert live_locals(decoded, 0) == {"a", "b"}
    call = next(i.index for i in decoded.instrs if i.op == "CALL")
    assert live_locals(decoded, call) == {"d"}
    assert live_locals(decoded, call + 2) == set()


def test_code_that_looks_at_its_locals_keeps_them() -> None:
    def function(a: Any, b: Any) -> Any:
        c = 1
        return sorted(locals())

    decoded = decode(function.__code__)
    assert live_locals(decoded, len(decoded.instrs) - 1) == {"a", "b", "c"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_live_locals_cover_what_is_read(program: types.FunctionType) -> None:
    decoded = decode(program.__code__)
    for instr in decoded.instrs:
        if instr.op == "LOAD_FAST":
            assert instr.arg in live_locals(decoded, instr.index)
