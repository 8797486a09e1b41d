"""Decompiled bytecode: text that Python takes, says no more than is right, and where it claims to be exact gives, made into
code again, what the function gives."""

from __future__ import annotations

import ast
import calendar
import contextlib
import copy
import difflib
import fractions
import heapq
import io
import runpy
import shlex
import statistics
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graftjit
from graftjit.capture.bytecode.opcodes import EFFECTS, FINAL, JUMPS
from graftjit.capture.decompile.operators import OPS
from graftjit.capture.decompile.writer import Decompiled, decompile, listed
from graftjit.context import reset_context
from graftjit.lowered.bytecode_text import code_text
from graftjit.runtime.events import observers as watching
from tests.capture.harness import reads_as_python
from tests.capture.programs import PROGRAMS


def again(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function made of its decompiled text."""
    found = decompile(function.__code__)
    assert found.doubts == (), found.text
    scope = {**function.__globals__, **found.objects}
    exec(compile(found.text, "<decompiled>", "exec"), scope)
    made = scope[function.__code__.co_name]
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return made


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """(result, what was appended to the list that comes last), or the exception's type and text."""
    log: list[Any] = []
    try:
        return "gives", function(*args, log), log
    except Exception as error:
        return "raises", type(error), str(error), log


# -- straight lines ----------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")


def expressions() -> st.SearchStrategy[str]:
    leaves = st.sampled_from([*NAMES, "1", "2.5", "-3", "'t'", "(1, 2)", "log", "None", "-0.0"])

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        two, one = st.tuples(inner, inner), inner
        return st.one_of(
            two.map(lambda p: f"({p[0]} + {p[1]})"),
            two.map(lambda p: f"({p[0]} * {p[1]})"),
            two.map(lambda p: f"({p[0]} == {p[1]})"),
            two.map(lambda p: f"({p[0]} is not tick({p[1]}, log))"),
            two.map(lambda p: f"tick({p[0]}, log, k={p[1]})"),
            two.map(lambda p: f"[{p[0]}, *tick(({p[1]},), log)]"),
            two.map(lambda p: f"{{'x': {p[0]}, **{{'y': {p[1]}}}}}"),
            two.map(lambda p: f"({p[0]} if {p[1]} else tick(0, log))"),
            two.map(lambda p: f"({p[0]} and {p[1]})"),
            two.map(lambda p: f"({p[0]} < {p[1]} < tick(9, log))"),
            one.map(lambda e: f"(not {e})"),
            one.map(lambda e: f"[{e}, 7, 8][0:2]"),
            one.map(lambda e: f"tick({e}, log)"),
            one.map(lambda e: f"str({e}).join(['-', '+'])"),
        )

    return st.recursive(leaves, grown, max_leaves=8)


def statements() -> st.SearchStrategy[str]:
    name, value = st.sampled_from(NAMES), expressions()
    return st.one_of(
        st.tuples(name, value).map(lambda p: f"{p[0]} = {p[1]}"),
        st.tuples(name, value).map(lambda p: f"{p[0]} += {p[1]}"),
        st.tuples(name, name, value).map(lambda p: f"{p[0]} = {p[1]} = {p[2]}"),
        st.tuples(name, name, value, value).map(lambda p: f"{p[0]}, {p[1]} = {p[2]}, {p[3]}"),
        st.tuples(value, value).map(lambda p: f"box[str({p[0]})] = {p[1]}"),
        value,
    )


def tick(value: Any, log: list[Any], k: Any = None) -> Any:
    log.append((repr(value), repr(k)))
    return value


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(statements(), min_size=1, max_size=5), expressions())
def test_a_line_of_statements_gives_the_same_in_the_same_order(body: list[str], end: str) -> None:
    lines = "\n".join(f"    {line}" for line in body)
    scope = {"tick": tick}
    exec(f"def f(a, b, c, log):\n    box = {{}}\n{lines}\n    return {end}, a, b, c, box", scope)
    function: Any = scope["f"]
    made = again(function)
    for args in ((1, 2, 3), ("s", 0, (1,)), ([1], [2], 2.0)):
        found, expected = (outcome(one, *copy.deepcopy(args)) for one in (made, function))
        assert repr(found) == repr(expected), decompile(function.__code__).text


# -- control flow ------------------------------------------------------------------------------------------


def loops(a: int, b: int, c: int, log: list[Any]) -> Any:
    for i in range(a):
        if i == b:
            log.append("skip")
            continue
        for j in range(i):
            if j > c:
                break
            log.append((i, j))
        log.append("inner")
    while a > 0:
        a -= 1
        if a == 2:
            return "early", log
    return a, i if b else c


def choices(a: Any, b: Any, c: Any, log: list[Any]) -> Any:
    x = a or b and not c
    if a is None:
        return [x]
    elif b in (1, 2):
        y = f"{a!r:>6}{b}" if c else "none"
    else:
        y = a[b:c] if isinstance(a, list) else -a
    log.append(y)
    return 1 < len(log) <= 2, x, y, *log


def unpacks(a: Any, b: Any, c: Any, log: list[Any], *rest: Any, k: int = 1, **more: Any) -> Any:
    (p, *q), r = [a, b, c], k
    p, r = r, p
    log[:] = [p, *q]
    a = b = c
    return tick(*(a, log), **{"k": b}), p, q, r, rest, more


CASES = [(1, 2, 3), (5, 1, 0), (4, 0, 2), (None, 1, 1), ([1, 2, 3], 0, 2), (0, 0, 0)]


@pytest.mark.parametrize("function", [loops, choices, unpacks])
def test_ifs_and_loops_run_again(function: Any) -> None:
    made = again(function)
    for case in CASES:
        assert outcome(made, *case) == outcome(function, *case)


def functions_of(module: types.ModuleType) -> Iterator[types.FunctionType]:
    for value in list(vars(module).values()):
        inner = vars(value).values() if isinstance(value, type) else [value]
        for one in inner:
            if isinstance(one, types.FunctionType) and one.__module__ == module.__name__:
                yield one


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from codes_in(value)


MODULES = [
    ast,
    calendar,
    difflib,
    fractions,
    heapq,
    shlex,
    statistics,
    textwrap,
    torch.nn.functional,
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_any_function_gives_text_that_python_takes(module: types.ModuleType) -> None:
    exact = 0
    for function in functions_of(module):
        for code in codes_in(function.__code__):
            found = decompile(code)
            ast.parse(found.text)
            assert "unknown instruction" not in found.text
            exact += found.doubts == ()
    assert exact


def test_each_normal_instruction_reads_like_something() -> None:
    assert EFFECTS.keys() - OPS.keys() - JUMPS - FINAL - {"CHECK_EXC_MATCH"} == set()


def test_what_cannot_be_followed_is_listed_and_what_is_not_exact_is_said() -> None:
    def opens(path: str) -> Any:
        try:
            with open(path) as file:
                return file.read()
        except OSError as error:
            return error

    assert "begin_with()" in decompile(opens.__code__).doubts
    text = listed(opens.__code__, "opens").text
    ast.parse(text)
    assert "# " in text and "LOAD_GLOBAL 'open'" in text


# -- replacement code --------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_of_all_instructions(program: Any) -> None:
    found = decompile(program.__code__)
    reads_as_python(found.text.replace("# on the stack in place of", "#"))
    if not found.doubts and not program.__code__.co_freevars:
        assert repr(outcome(again(program))) == repr(outcome(program))


FACES = sorted((Path(__file__).parent.parent / "faces" / "programs").glob("*.py"))


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.stem)
def test_replacement_code_of_the_documents_programs(path: Path) -> None:
    """And of the frames below them."""
    try:
        with watching.watch() as told, contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(
                str(path), init_globals={"MODE": graftjit.GRAPH_MODE}, run_name="program"
            )
    finally:
        reset_context()
    for one in told:
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
             "change_list(", "# test_decompile.py:", 'print("out loud")', "return breaking_from_line_",
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


def test_made_up_names_stand_for_objects() -> None:
    marker = object()

    def f() -> Any:
        return 1

    code = f.__code__.replace(co_consts=(None, marker))
    found = decompile(code)
    assert isinstance(found, Decompiled) and "return an_object" in found.text or found.objects
    assert list(found.objects.values()) == [marker]
