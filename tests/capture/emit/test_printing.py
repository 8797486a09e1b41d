"""Replacement code as text: Python takes it, and made into code again it does what the replacement code does."""

from __future__ import annotations

import ast
import contextlib
import io
import runpy
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import graftjit
from graftjit.capture.bytecode.assembler import Assembler
from graftjit.capture.bytecode.decoder import decode
from graftjit.capture.bytecode.stack_shape import stack_shape
from graftjit.capture.emit.break_state import shape_after
from graftjit.capture.emit.printing import printed
from graftjit.capture.emit.resume import ResumeSpec, break_tail, can_resume, resume_code
from graftjit.context import reset_context
from graftjit.lowered.bytecode_text import code_text
from graftjit.runtime.events import observers as watching

from ..bytecode.programs import PROGRAMS
from ..harness import Describer, reads_as_python

counted = 0


class Box:
    def __init__(self) -> None:
        self.seen: Any = None


def effects(x: torch.Tensor, box: Box, items: list[Any]) -> Any:
    global counted
    counted = len(items)
    box.seen = (x.exp(), -1)
    items[0] = {"a": x + 1, 2: [True, None]}
    items.append({3, "four"})
    return items, x.shape[0], slice(1, None), 2.5


def prints(x: torch.Tensor, box: Box, items: list[Any]) -> Any:
    y = x.relu()
    items.append("before")
    print("out loud", len(items), end="!\n")
    y += 1
    return y, items


def branches(x: torch.Tensor, box: Box, items: list[Any]) -> Any:
    y = x.sum()
    if y > 3:
        items.append("big")
    box.seen = y
    return items[-1]


def handles(x: torch.Tensor, box: Box, items: list[Any]) -> Any:
    y = x.cos()
    try:
        print(y.nosuch)
        int("no number" if box is not None else "1")
    except (ValueError, AttributeError) as error:
        items.append(type(error))
    finally:
        y = y + 1
    return y


def loops(x: torch.Tensor, box: Box, items: list[Any]) -> Any:
    total = x * 2
    for row in x:
        if row.item() > 1:
            items.append(row)
        total = total + row
    return total


def spreads(x: torch.Tensor, box: Box, items: list[Any]) -> Any:
    y = x.tanh()
    given, more = (y, items), {"sep": "-"}
    print(*given, **more)
    with torch.no_grad():
        y = y * 3
        print("in", y.requires_grad)
    return y, given


def raises(x: torch.Tensor, box: Box, items: list[Any]) -> Any:
    y = x + 1
    items.append(y)
    print("then")
    raise ValueError(y.shape, box)


def inner(*given: Any, **more: Any) -> Any:
    print(len(given), more)
    return given[0] + 1


def calls(x: torch.Tensor, box: Box, items: list[Any]) -> Any:
    try:
        items += [inner(*(x.neg(), items), **{"k": x.shape[0]})]
        items[5] = x
    except IndexError as error:
        box.seen = [error.args, len]
    return items, box.seen[0]


def stores(x: torch.Tensor, box: Box, items: list[Any]) -> Any:
    found = {**vars(box), "y": x.exp()}
    a, *b = (print("inside"), found["y"], *items) if x.sum() > 2 else (1,)
    box.seen = f"{a!r:>6}{len(b)}"
    del items[0:1]
    return {"a": a, **found}, not b, -x, b is not None and 2 in items


def outcome(function: Any, scope: dict[str, Any]) -> Any:
    """All that is seen of a call: its result or exception, its output, and what it changed."""
    scope["counted"], box, items = -1, Box(), ["first", 2]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            found = function(torch.arange(3.0), box, items)
        except Exception as error:
            found = type(error), error.args
    seen = (found, box.seen, items, scope["counted"], said.getvalue())
    return Describer().describe(seen)


FUNCTIONS = [effects, prints, branches, handles, loops, spreads, raises, calls, stores]


def resume(code: types.CodeType, way: Any, cells: Any, *state: Any) -> Any:
    """The rest of a function after a break, uncompiled."""
    return types.FunctionType(resume_code(code, *way), globals(), closure=cells)(*state)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_the_text_runs_and_does_the_same(function: Any) -> None:
    jitted = graftjit.jit(function)  # it holds what the resume functions need
    with watching.watch() as emitted:
        wanted = outcome(jitted, globals())
    assert wanted == outcome(function, globals())
    first = next(one for one in emitted if isinstance(one, watching.Published))
    assert first.code is function.__code__ and first.made.kind == "code"
    resumed = {id(tail): (of or function.__code__, way[:3]) for of, way, tail in first.resumes}

    def named(value: Any) -> tuple[str, str] | None:
        way = resumed.get(id(value))
        return None if way is None else (f"resumed_{list(resumed.values()).index(way)}", "")

    found = printed(first.made.assembler, function.__name__, named)
    scope = {**globals(), **found.objects}
    for number, (code, way) in enumerate(resumed.values()):
        scope[f"resumed_{number}"] = partial(resume, code, way)
    exec(compile(found.text, "<printed>", "exec"), scope)
    assert outcome(scope[function.__name__], scope) == wanted, found.text


def shapes(code: types.CodeType) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The instructions at which a function can break, with the kinds of their stacks."""
    for instr in decode(code).instrs:
        if instr.op != "NOP" and instr.head and can_resume(code, instr.index) is None:
            shape = stack_shape(code, instr.index)
            assert shape is not None
            yield instr.index, tuple("null" if kind == "maybe" else kind for kind in shape)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_break_at_any_instruction_reads_as_python(program: Any) -> None:
    code = program.__code__
    for index, shape in shapes(code):
        asm = Assembler(code)
        for depth, kind in enumerate(shape):
            asm.push_null() if kind == "null" else asm.load_const(f"item {depth}")

        def resume_for(target: int, path: Path, shape: Any = shape) -> ResumeSpec:
            return ResumeSpec(print, shape_after(path, shape), ())

        break_tail(asm, code, index, resume_for)
        reads_as_python(printed(asm, program.__name__, line_of=str).text)


FACES = sorted((Path(__file__).parents[2] / "faces" / "programs").glob("*.py"))


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.stem)
def test_replacement_code_of_the_documents_programs(path: Path) -> None:
    """And of the frames below them."""
    try:
        with watching.watch() as emitted, contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(
                str(path), init_globals={"MODE": graftjit.GRAPH_MODE}, run_name="program"
            )
    finally:
        reset_context()
    for one in emitted:
        if isinstance(one, watching.Published):
            text = code_text(one)
            reads_as_python(text.replace("# in place of", "#"))
            assert (one.made.kind == "plain") == (text == "")


def breaking(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
    y = x.relu()
    log.append("seen")
    print("out loud")
    return y + 1


def test_replacement_code_shows_graph_effects_break_and_resume_function() -> None:
    text = graftjit.lower(breaking, torch.ones(4), [])["bytecode"].text()
    order = ["# in place of breaking", "v0 = x", "graph_breaking(v0)", "# the graph: f32[4] -> f32[4]",
             "change_list(", "# test_printing.py:", 'print("out loud")', "return breaking_from_line_",
             "# continues at", "as_written_from_line_"]  # fmt: skip
    places = [text.index(word) for word in order]
    assert places == sorted(places), text


def test_a_frame_that_is_one_graph_shows_what_the_native_callable_does() -> None:
    def f(x: torch.Tensor) -> Any:
        return {"a": x.sin(), "b": [x, 1]}

    text = graftjit.lower(f, torch.ones(4))["bytecode"].text()
    ast.parse(text)
    assert "(out0,) = graph(x)" in text and "return {'a': out0, 'b': [x, 1]}" in text
    text = graftjit.lower(lambda x: x.sin(), torch.ones(4))["bytecode"].text()
    ast.parse(text)
    assert "def _lambda_(x):" in text


def test_objects_have_descriptive_names_and_values_stay_in_order() -> None:
    asm = Assembler(breaking.__code__)
    marker = object()
    asm.call_const(len, lambda: asm.load_const(marker))
    asm.load_global("x")
    asm.call_const(max, lambda: asm.load_const(-1))
    asm.swap(2)
    asm.load_attr("seen")
    asm.build_tuple(3)
    asm.copy(1)
    asm.store_fast("log")
    asm.return_value()
    found = printed(asm, "class")
    assert found.objects == {"len": len, "a_object": marker, "max": max}
    assert found.text.splitlines() == [
        "def class_(x, log):",
        "    t0 = len(a_object)",
        "    t1 = globals()['x']",
        "    t2 = max(-1)",
        "    log = (t0, t2, t1.seen)",
        "    return log",
    ]
