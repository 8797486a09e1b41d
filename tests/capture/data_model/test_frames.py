"""Programs that look at frames: their own, those of their callers, the stack; and debuggers that stop in them.

Each program is called from one and the same line in plain Python and jitted, and all that it returns, prints and
warns of must be equal: names, line numbers, locals with their order, the chain of callers. A function that finds
more than names and lines in a frame must find the frame as it is written, so those run in plain Python (GB132).
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import io
import logging
import pdb
import sys
import traceback
import types
import typing
import warnings
from collections.abc import Callable
from inspect import currentframe
from typing import Any

import pytest
import torch

from graftjit import JitConfig, graft_break, jit
from graftjit.dispatch import frame_policy as hook
from graftjit.runtime.process.options import number_of

X = torch.linspace(-1, 1, 4)
HERE = __file__
FACTOR = 3

PROGRAMS: list[Any] = []


def looks(*codes: str) -> Callable[[Any], Any]:
    """A program of the table; the report must have these codes, of breaks and plain frames, among its own."""

    def add(program: Any) -> Any:
        PROGRAMS.append(pytest.param(program, codes, id=program.__name__))
        return program

    return add


# -- comparing ---------------------------------------------------------------------------------------------
def plain(value: Any) -> Any:
    """Tensors as numbers, so that what a program returns can be compared."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.tolist())
    if isinstance(value, dict) or type(value).__name__ == "FrameLocalsProxy":  # f_locals of 3.13
        return [(key, plain(item)) for key, item in value.items()]
    if type(value) in (list, tuple):
        return [plain(item) for item in value]
    return value.__qualname__ if isinstance(value, types.FunctionType) else value


def outcome(function: Any) -> Any:
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            result: Any = plain(function(X))
        except Exception as error:
            lines = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__)][1:]
            result = ("raised", type(error), str(error), lines)
    emitted = [(str(w.message), w.category, w.filename, w.lineno) for w in warned]
    return result, printed.getvalue(), emitted


@pytest.mark.parametrize(("program", "codes"), PROGRAMS)
def test_programs(program: Any, codes: tuple[str, ...]) -> None:
    function, outcomes = jit(program), []
    for call in (program, function, function, function):
        outcomes.append(outcome(call))
    report = function.report()
    for found in outcomes[1:]:
        assert found == outcomes[0], report
    emitted = {row.code: row for row in [*report.breaks, *report.notes]}
    assert "PL205" not in emitted
    first, count = inspect.getsourcelines(program)[1], len(inspect.getsourcelines(program)[0])
    for code in codes:
        assert code in emitted, report
        assert emitted[code].line is not None and emitted[code].file == HERE


def callers(frame: Any) -> list[tuple[Any, ...]]:
    """The frame and those above it, up to the comparison."""
    found = []
    while frame.f_code is not outcome.__code__:
        code = frame.f_code
        mine = frame.f_globals is globals()
        found.append((code.co_name, code.co_qualname, code.co_firstlineno, frame.f_lineno, mine))
        frame = frame.f_back
    return found


def caller(depth: int = 1) -> list[tuple[Any, ...]]:
    return callers(sys._getframe(depth))


def locals_of_caller() -> Any:
    return plain(currentframe().f_back.f_locals)


# -- locals, vars, dir, globals ----------------------------------------------------------------------------
@looks("GB132")
def its_locals(x, a=2):
    y = x + 1
    b = a * 2
    return locals(), y * b


@looks("GB132")
def locals_after_a_break(x):
    y = x + 1
    unused = 3
    print("a break before")
    return locals(), y


@looks("GB132")
def locals_by_another_name(x, look=locals):
    y = x + 1
    unused = 3
    print("a break before")
    return look(), y


@looks("GB132")
def locals_of_the_module_of_builtins(x):
    y = x + 1
    unused = 3
    return builtins.locals(), y


@looks("GB132")
def locals_found_in_a_dict(x):
    y = x + 1
    unused = 3
    look = vars(builtins)["locals"]
    return look(), y


@looks("GB132")
def locals_in_a_comprehension(x):
    y = x + 1
    return [sorted(locals()) for _ in range(2)], y


@looks("GB132")
def locals_of_a_function_made_here(x):
    y = x + 1

    def inner():
        z = y * 2
        return sorted(locals())

    return inner(), y.sum()


def helper_with_locals(t):
    k = 5
    doubled = t * k
    return locals()


@looks("GB132")
def locals_of_a_callee(x):
    y = x + 1
    found = helper_with_locals(y)
    return found, found["doubled"] * 2


@looks("GB132")
def vars_without_argument(x):
    y = x + 1
    unused = 3
    return vars(), y * 2


@looks("GB132")
def vars_after_a_break(x):
    y = x + 1
    unused = 3
    print("a break before")
    return sorted(vars()), y * 2


@looks("GB132")
def dir_without_argument(x):
    y = x + 1
    unused = 3
    return dir(), y * 2


def helper_with_dir(t):
    unused = 1
    return dir(), sorted(vars())


@looks("GB132")
def dir_of_a_callee(x):
    y = x * 2
    return helper_with_dir(y), y + 1


@looks("GB132")
def its_globals(x):
    y = x + 1
    found = globals()
    return found["FACTOR"], found is globals(), found["X"] is X, y * found["FACTOR"]


@looks("GB132")
def globals_written_through_the_dict(x):
    y = x + 1
    globals()["FACTOR"] = 4
    z = y * FACTOR
    globals()["FACTOR"] = 3
    return z, FACTOR


# -- exec and eval -----------------------------------------------------------------------------------------
@looks("GB131")
def text_over_its_locals(x):
    y = x + 1
    unused = 3
    exec("made = y * unused")
    return eval("y + unused"), y


@looks("GB131")
def text_after_a_break(x):
    y = x + 1
    unused = 3
    print("a break before")
    return eval("y * unused")


@looks("GB131")
def text_over_names_of_its_own(x):
    y = x + 1
    names = {"y": y}
    exec("z = y * 2\ndef made(a): return a + z", names)
    return names["made"](y) + eval("z", names)


def helper_with_eval(t):
    u = t * 2
    return eval("u + t")


@looks("GB131")
def text_in_a_callee(x):
    y = x + 1
    return helper_with_eval(y) * 2


@looks("GB131")
def eval_by_another_name(x):
    run = eval
    y = x + 1
    unused = 2
    return run("y * unused")


# -- frames ------------------------------------------------------------------------------------------------
@looks("GB132")
def its_frame(x):
    y = x + 1
    frame = sys._getframe()
    return callers(frame), sorted(frame.f_locals), y * 2


@looks("GB132")
def its_current_frame(x):
    y = x + 1
    frame = inspect.currentframe()
    here = frame.f_lineno
    return here, frame.f_code.co_name, frame.f_lineno, y * 2


@looks("GB132")
def current_frame_imported_by_name(x):
    y = x + 1
    unused = 2
    print("a break before")
    return plain(currentframe().f_locals), y


@looks("GB132")
def its_frame_kept_over_lines(x):
    frame = handed_out()
    y = x + 1
    first = frame.f_lineno
    z = y * 2
    return first, frame.f_lineno, sorted(frame.f_locals), z


def handed_out():
    return sys._getframe(1)


@looks("GB132")
def its_frame_is_that_of_its_code(x):
    y = x + 1
    return sys._getframe().f_code is its_frame_is_that_of_its_code.__code__, y


@looks()
def lines_and_names_of_callers(x):
    y = x + 1
    first = caller()
    z = y * 2
    second, u = through(z)
    return first, second, u + z


def through(t):
    u = t * 2
    return caller(), u


@looks()
def callers_after_a_break(x):
    y = x + 1
    print("a break before")
    z = y * 2
    return caller(), through(z)


@looks()
def callers_in_a_loop(x):
    found = []
    for step in range(3):
        x = x + step
        found.append(caller())
    return found, x


@looks()
def callers_of_a_lambda_and_a_comprehension(x):
    y = x + 1
    inner = lambda: caller()
    return inner(), [caller() for _ in range(2)], y


@looks("GB132")
def locals_seen_by_a_callee(x):
    y = x + 1
    unused = 7
    text = "q"
    return locals_of_caller(), y * 2


@looks("GB132")
def locals_seen_after_a_break(x):
    y = x + 1
    unused = 7
    items = [1, 2]
    print("a break before")
    z = y * 2
    return locals_of_caller(), z * 2


def looks_far():
    return plain(sys._getframe(2).f_locals)


def between(t):
    k = t + 1
    return looks_far(), locals_of_caller(), k


@looks("GB132")
def locals_seen_from_two_calls_below(x):
    y = x + 1
    unused = 7
    return between(y)


class Looker:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def look(self) -> None:
        frame = sys._getframe(2)
        self.seen.append((frame.f_code.co_name, frame.f_lineno, plain({**frame.f_locals, "o": 0})))

    def __repr__(self) -> str:
        self.look()
        return "looker"

    def __enter__(self) -> Any:
        self.look()
        return self

    def __exit__(self, *_: Any) -> None:
        self.look()

    def __call__(self, t: Any) -> Any:
        self.look()
        return t + 1


@looks("GB132")
def locals_seen_by_special_methods(x):
    y = x + 1
    unused = 3
    o = Looker()
    text = repr(o)
    with o:
        z = y * 2
    print(o)
    return o.seen, o(z)


LOOKERS: list[Any] = [Looker()]


@looks("GB132")
def locals_seen_by_an_object_in_a_list(x):
    LOOKERS[0].seen.clear()
    print("a break before")
    y = x + 1
    unused = 4
    for o in LOOKERS:
        y = o(y)
    return LOOKERS[0].seen, y


class Template:
    def fill(self, text):
        return self._fill(text, 3)

    def _fill(self, text, depth):
        return text.format(**frame_at(depth).f_locals)


def frame_at(depth):
    return sys._getframe(depth)


@looks("GB132")
def locals_seen_through_methods_of_an_argument(x, template=Template()):
    y = x + 1
    name = "in the text"
    print("a break before")
    return template.fill("{name}"), y


def decorated(function):
    def call(*args):
        return function(*args), sorted(sys._getframe(1).f_locals)

    return call


@decorated
def looks_when_called(t):
    return t * 2


@looks("GB132")
def locals_seen_by_a_decorator(x):
    y = x + 1
    name = "in the text"
    print("a break before")
    return looks_when_called(y)


@looks("GB132")
def vars_in_the_middle_of_a_display(x):
    y = x + 1
    return [print("a break before"), sorted(vars()), y * 2]


@looks("GB132")
def vars_in_a_loop(x):
    found = []
    for step in range(3):
        x = x + step
        print("a break before")
        found.append(sorted(vars()))
    return found, x


@looks("GB132")
def vars_in_a_handler(x):
    y = x + 1
    try:
        y.view(7)
    except RuntimeError as error:
        print("a break before")
        z = y * 2
        return sorted(vars()), z


@looks("GB132")
def vars_of_cells(x):
    y = x + 1
    n = 3

    def inner():
        nonlocal n
        n = n + 1
        return y

    print("a break before")
    inner()
    return sorted(vars()), vars()["n"], y


@looks("GB132")
def a_local_is_set_through_the_frame(x):
    y = x + 1
    frame = sys._getframe()
    before = frame.f_locals["y"]
    return before, y * 2


def parts_of_the_callers_code():
    code = sys._getframe(1).f_code
    return code.co_varnames, code.co_consts[1:], code.co_names


@looks("GB132")
def its_code_seen_by_a_callee(x):
    y = x + 1
    return parts_of_the_callers_code(), y * 2


@looks("GB132")
def locals_of_a_traceback(x):
    y = x + 1
    unused = 1
    try:
        y[7]
    except IndexError as error:
        trace = error.__traceback__
        return trace.tb_lineno, plain({**trace.tb_frame.f_locals, "error": 0, "trace": 0})


def raised_inside(x):
    inside = 12
    try:
        return x + inside / 0
    except ZeroDivisionError as error:
        return error


@looks()
def what_a_traceback_shows_of_locals(x):
    shown = traceback.TracebackException.from_exception(raised_inside(x), capture_locals=True)
    return x + 1, [sorted(frame.locals) for frame in shown.stack]


def shown_with_locals(k, v):
    a, b = k, v
    return traceback.StackSummary.extract(traceback.walk_stack(None), capture_locals=True, limit=1)


@looks()
def what_a_stack_shows_of_locals(x):
    return x + 1, [frame.locals for frame in shown_with_locals(3, 4)]


# -- stacks ------------------------------------------------------------------------------------------------
def rows(stack: Any) -> list[tuple[Any, ...]]:
    return [(row.function, row.lineno, row.code_context, row.index) for row in stack]


@looks("GB132")
def its_stack(x):
    y = x + 1
    found = rows(inspect.stack()[:3])
    return found, y * 2


def stack_of_callers():
    return rows(inspect.stack()[1:4])


@looks("GB132")
def stack_seen_by_a_callee(x):
    y = x + 1
    first = stack_of_callers()
    z = y * 2
    return first, stack_of_callers(), z


def extracted():
    return [(f.name, f.lineno, f.line) for f in traceback.extract_stack(limit=4)]


@looks("GB132")
def stack_as_text(x):
    y = x + 1
    first = extracted()
    z = y * 2
    traceback.print_stack(limit=2, file=sys.stdout)
    return first, extracted(), z


@looks("GB132")
def frame_info(x):
    y = x + 1
    info = inspect.getframeinfo(handed_out())
    return info.function, info.lineno, info.code_context, y * 2


@looks()
def signature_of_a_function(x):
    found = inspect.signature(its_locals)
    return str(found), list(found.parameters), x + 1


@looks("GB132")
def source_of_a_function(x):
    return inspect.getsource(handed_out), x + 1


# -- warnings ----------------------------------------------------------------------------------------------
def warns(level):
    warnings.warn("from the helper", stacklevel=level)


@looks()
def warnings_with_a_level(x):
    y = x + 1
    warnings.warn("direct")
    z = y * 2
    warns(1)
    warns(2)
    u = z + 1
    warns(3)
    warnings.warn("of the caller", DeprecationWarning, stacklevel=2)
    return u


@looks("GB103")
def a_warning_is_told_once_a_line(x):
    with warnings.catch_warnings(record=True) as emitted:
        warnings.simplefilter("default")
        for step in range(3):
            warnings.warn("again")
            x = x + step
    return [(str(w.message), w.lineno) for w in emitted], x


# -- the library looks at names and lines --------------------------------------------------------------------
LOG = logging.getLogger(__name__)
LOGGED: list[Any] = []


class Keeps(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        LOGGED.append((record.getMessage(), record.funcName, record.lineno, record.pathname))


def logs(level, text):
    LOG.warning(text, stacklevel=level)


@looks("GB103")
def log_records(x):
    LOGGED.clear()
    keeps = Keeps()
    LOG.addHandler(keeps)
    y = x + 1
    LOG.warning("here")
    z = y * 2
    logs(1, "in the helper")
    logs(2, "from here")
    try:
        z.view(7)
    except RuntimeError:
        LOG.exception("an error")
    LOG.removeHandler(keeps)
    return list(LOGGED), z


@looks()
def classes_made_inside_know_their_module(x):
    y = x + 1
    pair = collections.namedtuple("pair", "a b")
    color = enum.Enum("color", "red green")
    made = dataclasses.make_dataclass("made", ["n"])

    class Local:
        def method(self):
            return caller(2)

    variable = typing.TypeVar("variable")
    found = [pair.__module__, color.__module__, Local.__module__, Local.__qualname__]
    return found, made(3).n, variable.__module__, Local().method(), *pair(y, x)


@looks()
def names_of_functions_made_inside(x):
    def inner(t):
        return caller(), t + 1

    inner.__name__ = "renamed"
    first, y = inner(x)
    return first, inner.__name__, inner.__qualname__, inner.__code__.co_name, y


@looks("GB132")
def a_traceback_of_the_frames_above(x):
    y = x + 1
    try:
        y.view(7)
    except RuntimeError as error:
        rows = traceback.extract_tb(error.__traceback__)
    return [(row.name, row.lineno, row.line) for row in rows if row.filename == HERE], y


# -- debuggers ---------------------------------------------------------------------------------------------
STOPS: list[Any] = []


def stop(*_: Any, **__: Any) -> None:
    """What `breakpoint()` calls: every frame above, with its line and locals."""
    frame, seen = sys._getframe(1), []
    while frame.f_code is not stopping.__code__:
        seen.append((frame.f_code.co_name, frame.f_lineno, plain({**frame.f_locals, "self": 0})))
        frame = frame.f_back
    STOPS.append(seen)


def stopping(function: Any) -> Any:
    STOPS.clear()
    before, sys.breakpointhook = sys.breakpointhook, stop
    try:
        return plain(function(X)), list(STOPS)
    finally:
        sys.breakpointhook = before


def stops_here(x):
    y = x + 1
    unused = 3
    breakpoint()
    return y * 2


def stops_after_a_break(x):
    y = x + 1
    unused = 3
    print(end="")
    t = y * 3
    breakpoint()
    return t


def helper_that_stops(q):
    w = q + 1
    unused = 2
    breakpoint()
    return w * 2


def stops_in_a_callee(x):
    y = x + 1
    unused = 3
    print(end="")
    r = helper_that_stops(y)
    return r + 1


def stops_two_calls_below(x):
    def middle(k):
        u = k * 2
        return helper_that_stops(u) + u

    y = x + 1
    return middle(y) * 2


def stops_on_a_condition(x, often=2):
    y = x + 1
    if y.sum() > 0:
        breakpoint()
    return y * often


def stops_in_a_loop(x):
    y = x
    for step in range(3):
        y = y + step
        breakpoint()
    return y


def stops_in_a_try(x):
    y = x + 1
    try:
        breakpoint()
        z = y * 2
    finally:
        k = 1
    return z


def stops_by_another_name(x):
    halt = breakpoint
    y = x + 1
    unused = 2
    halt()
    return y


class Layer(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        y = x * 2
        breakpoint()
        return y + 1


LAYER = Layer()
LAYERS = torch.nn.ModuleList([torch.nn.ReLU(), LAYER])


def stops_in_a_module(x):
    a = x + 1
    unused = 2
    return LAYER(a) * 2


def stops_in_a_list_of_modules(x):
    a = x + 1
    unused = 2
    print(end="")
    for layer in LAYERS:
        a = layer(a)
    return a


def stops_in_a_generator(x):
    def steps(t):
        for n in range(2):
            breakpoint()
            yield t * n

    return sum(steps(x + 1))


@pytest.mark.parametrize(
    "program",
    [stops_here, stops_after_a_break, stops_in_a_callee, stops_two_calls_below, stops_on_a_condition,
     stops_in_a_loop, stops_in_a_try, stops_by_another_name, stops_in_a_module, stops_in_a_list_of_modules,
     stops_in_a_generator],
)  # fmt: skip
def test_breakpoint_stops_where_it_is_written(program: Any) -> None:
    function, found = jit(program), []
    for call in (program, function, function, function):
        found.append(stopping(call))
    assert found[0][1], "it never stopped"
    assert found[1:] == found[:1] * 3
    assert "GB132" in [row.code for row in function.report().notes]


DEBUGGER: list[pdb.Pdb] = []


def in_pdb(x):
    y = x + 1
    unused = 5
    DEBUGGER[0].set_trace()
    z = y * 2
    return z


def helper_in_pdb(t):
    DEBUGGER[0].set_trace()
    return t * 2


def above_pdb(x):
    y = x + 1
    unused = 5
    print(end="")
    return helper_in_pdb(y)


@pytest.mark.parametrize(
    ("program", "typed"),
    [
        (in_pdb, "p y\np sorted(locals())\nn\nn\np z\nc\n"),
        (above_pdb, "up\np sorted(locals())\np unused\ndown\nn\nc\n"),
    ],
    ids=["its own frame", "the frame above"],
)
def test_pdb_steps_through_the_lines_as_written(program: Any, typed: str) -> None:
    function, found = jit(program), []
    before = sys.gettrace()
    for call in (program, function, function):
        printed = io.StringIO()
        debugger = pdb.Pdb(stdin=io.StringIO(typed), stdout=printed, nosigint=True, readrc=False)
        DEBUGGER[:] = [debugger]
        try:
            result = plain(call(X))
        finally:
            sys.settrace(before)
        found.append((result, printed.getvalue()))
    assert f"{program.__name__}()" in found[0][1] and "'unused'" in found[0][1]
    assert found[1:] == found[:1] * 2


# -- after an exception ------------------------------------------------------------------------------------
def ends(x):
    y = x + 1
    unused = 3
    name = f"n{unused}"
    z = y * 2
    return z.view(unused + 4)


def ends_by_raise(x):
    y = x + 1
    unused = y * 3
    size = 7
    if y.shape[0] != size:
        raise ValueError(size)
    return y


def ends_in_a_callee(x):
    y = x + 1
    unused = 2
    return fails(y)


def fails(t):
    doubled = t * 2
    word = "no number"
    return int(word) * doubled


@pytest.mark.parametrize("program", [ends, ends_by_raise, ends_in_a_callee])
def test_the_frames_of_an_exception_have_their_locals(program: Any) -> None:
    """As a debugger shows them after the fact."""
    function, found = jit(program), []
    for call in (program, function, function):
        with pytest.raises(Exception) as caught:
            call(X)
        trace, frames = caught.value.__traceback__.tb_next, []
        while trace is not None:
            frame = trace.tb_frame
            frames.append((frame.f_code.co_name, trace.tb_lineno, plain(frame.f_locals)))
            trace = trace.tb_next
        found.append(frames)
    assert [name for name, _, _ in found[0]][0] == program.__name__
    assert found[1:] == found[:1] * 2


# -- the jitted function itself ------------------------------------------------------------------------------
def documented(x: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
    """What it is for."""
    return x * scale


documented.note = "put on it"  # type: ignore[attr-defined]


def test_a_jitted_function_looks_like_the_function() -> None:
    function = jit(documented)
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__code__", "__defaults__",
                 "__kwdefaults__", "__globals__", "__closure__", "__annotations__", "note"):  # fmt: skip
        assert getattr(function, name) is getattr(documented, name), name
    assert function.__wrapped__ is documented and inspect.unwrap(function) is documented
    assert inspect.signature(function) == inspect.signature(documented)
    assert inspect.getsource(function) == inspect.getsource(documented)
    assert inspect.getsourcelines(function) == inspect.getsourcelines(documented)
    assert inspect.getsourcefile(inspect.unwrap(function)) == HERE
    assert inspect.getdoc(function) == "What it is for."
    assert inspect.getmodule(function) is inspect.getmodule(documented)
    assert inspect.getfullargspec(function) == inspect.getfullargspec(documented)
    assert inspect.get_annotations(function) == inspect.get_annotations(documented)
    for ask in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, typing.get_type_hints):
        assert ask(function) == ask(documented)
    assert copy.copy(function) is function and copy.deepcopy(function) is function
    assert callable(function) and isinstance(function, types.FunctionType)
    assert type(function) is not types.FunctionType


def test_wraps_of_and_over_a_jitted_function() -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        """The one inside."""
        return x + 1

    function = jit(plain)
    function.mark = "both"
    assert plain.mark == "both" and vars(function) is vars(plain)  # type: ignore[attr-defined]
    over = functools.wraps(function)(lambda x: function(x))
    assert vars(over) == {"mark": "both", "__wrapped__": function}
    made = functools.wraps(documented)(function)
    assert made is function and function.__doc__ == plain.__doc__ == "What it is for."
    assert function.__wrapped__ is plain and inspect.unwrap(function) is documented
    assert inspect.signature(function) == inspect.signature(documented)
    assert function.note == "put on it" and torch.equal(
        function(torch.ones(2)), torch.full((2,), 2.0)
    )
    del function.mark
    assert not hasattr(plain, "mark")


@looks()
def a_jitted_function_looked_at_inside(x):
    return JITTED.__name__, JITTED.__doc__, JITTED(x)


JITTED = jit(documented)


def test_frames_below_are_compiled_as_their_own_callable_says() -> None:
    """Whichever callable met them first."""

    def below(x):
        graft_break("so that this frame is one of its own")
        return x + 1 if torch.compiler.is_compiling() else x - 1

    def f(x):
        try:
            raise KeyError
        except KeyError:
            return below(x) * 2  # no break inside is resumed where an exception is being handled

    x = torch.ones(2)
    configs = (JitConfig(claims_compiling=True), JitConfig(), JitConfig(jit_level="O0"))
    functions = [jit(f, config=config) for config in configs]
    for _ in range(3):
        assert [fn(x)[0].item() for fn in functions] == [4, 0, 0]
    met = [
        state.config
        for unit in hook.units()
        for state in unit.states
        if state.code is below.__code__
    ]
    assert sorted(met) == sorted(map(number_of, configs))
