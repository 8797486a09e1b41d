"""What a report says is so: its numbers agree wherever they are told, sources have names, cures fit the program."""

from __future__ import annotations

import gc
import json
import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import graftjit
from graftjit.runtime import codes
from graftjit.runtime.events import events
from graftjit.runtime.report.html.head import head_of
from graftjit.runtime.report.recompiles import settled_count
from graftjit.runtime.report.report import Report

# Its generator is the operating system's.
SYSTEM = random.SystemRandom()


def drawn(x: Any) -> Any:
    return x * SYSTEM.uniform(-1, 1) + SYSTEM.randint(3, 90)


def in_a_loop(x: Any) -> Any:
    for _ in range(4):
        gc.get_threshold()
        x = x * 0.5
    return x


def two_on_a_line(x: Any) -> Any:
    return x * float(x.sum()) + float(x.max())


def helper(x: Any) -> Any:
    return x * (2 if x.sum() > 0 else 3)


def met_twice(x: Any) -> Any:
    return helper(helper(x) + 1)


def with_option(x: Any, *rest: Any) -> Any:
    return x * len(rest)


def run(f: Any, calls: int = 40) -> Report:
    jitted = graftjit.jit(f)
    random.seed(0)
    for number in range(calls):
        if f is with_option:
            jitted(torch.randn(6), *([1] if number % 2 else []))
        else:
            jitted(torch.randn(6 + number % 3))
    return jitted.report()  # type: ignore[no-any-return]


PROGRAMS: list[Callable[..., Any]] = [
    drawn, in_a_loop, two_on_a_line, met_twice, with_option, lambda x: x * 2
]  # fmt: skip


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_told_twice_agree(program: Callable[..., Any]) -> None:
    graftjit.reset()
    report = run(program)
    emitted = " ".join(report.text().split())
    first = emitted.split("settled:")[-1].split("not clean:")[-1].split(";")[0]
    figures = {figure.title: figure.value for figure in head_of(report).figures}
    data = json.loads(report.json())
    again = Report.from_json(report.json())
    settled = _number(r"(\d+) recompiles? for sizes", first)
    open_ = _number(r"(\d+) recompiles?\b(?! for)", first)
    breaks = _number(r"(\d+) graph break", first)
    assert breaks == report.break_count == again.break_count
    assert int(figures.get("graph breaks", figures.get("graph break", 0))) == breaks
    assert open_ + settled == report.recompile_count == len(data["recompiles"])
    assert int(figures.get("recompiles", figures.get("recompile", 0))) == open_ + settled
    assert settled == settled_count(report)
    assert int(figures.get("graphs", figures.get("graph", 0))) == report.graph_count
    assert report.graph_count == sum(frame["graphs"] for frame in data["frames"])
    held = head_of(report).held
    assert _number(r"(\d+) graph break", held) == breaks
    assert _number(r"(\d+) recompile", held) in (open_, settled)
    assert f"{report.graph_count} graphs" in repr(report)
    assert all(frame.samples >= 2 for frame in report.frames if frame.seconds_a_call)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_internal_names(program: Callable[..., Any]) -> None:
    graftjit.reset()
    with warnings.catch_warnings(record=True):
        report = run(program)
    for text in (report.text(verbosity=2), report.json(), report.html()):
        assert not re.search(r"\.stack\d", text)


def test_a_drawn_number_has_the_name_of_its_expression() -> None:
    graftjit.reset()
    text = " ".join(run(drawn).text().split())
    assert "the result of SYSTEM.uniform(-1, 1)" in text
    assert "fix the break that makes it a Python value" not in text


def test_a_loop_whose_body_breaks() -> None:
    """Not "an iterator from outside": the range is the function's own."""
    graftjit.reset()
    (loop,) = (record for record in run(in_a_loop).breaks if record.code == "GB120")
    line = in_a_loop.__code__.co_firstlineno + 2
    assert loop.reason == f"the remaining steps of a loop whose body breaks (line {line})"
    assert loop.cure.startswith("fix the break in its body")


def listed(x: Any, steps: Any) -> Any:
    return [x * step for step in steps]


def looped(x: Any, steps: Any) -> Any:
    found = []
    for step in steps:
        found.append(x * step)
    return found


@pytest.mark.parametrize("program", [listed, looped])
def test_a_loop_over_an_iterator_from_outside(program: Callable[..., Any]) -> None:
    """Its body does not break, whatever resumes it, a comprehension's neither."""
    graftjit.reset()
    outside = graftjit.jit(program)
    for _ in range(3):
        outside(torch.ones(3), iter({1.0, 2.0}))
    (record,) = outside.report().breaks
    assert record.reason == "a loop over an iterator from outside"
    assert "fix the break in its body" not in record.cure


def test_an_optional_argument_does_not_grow() -> None:
    graftjit.reset()
    cures = {record.cure for record in run(with_option).recompiles}
    assert not any("grows" in cure for cure in cures)


def test_what_grows_is_told_so() -> None:
    graftjit.reset()
    f = graftjit.jit(lambda x, seen: x * len(seen))
    for length in (1, 2, 3):
        f(torch.ones(2), list(range(length)))
    assert "grows with each call" in f.report().recompiles[-1].cure
    assert f.report().recompiles[-1].code in codes.CODES


def test_a_size_that_stays_plain_is_told_with_the_operator() -> None:
    """Not "as expected", nor an input of the graph."""
    graftjit.reset()
    g = graftjit.jit(lambda x: x.unfold(0, 3, 3).clone() + torch.unfold_copy(x, 0, 3, 3))
    for length in (7, 9, 11, 14):
        g(torch.randn(length))
    report = g.report()
    text = " ".join(report.text().split())
    assert report.graph_count == 4
    assert "constant, because aten.unfold_copy.default takes no symbolic number" in text
    assert "as expected" not in text
    assert "aten.unfold_copy.default takes no symbolic number" in report.recompiles[-1].cure


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (lambda x: torch.stack(x.unbind(0)), "torch.Tensor.unbind"),
        (lambda x: torch.vander(x), "torch.vander"),
        (
            lambda x: torch.linalg.multi_dot([x[None], x[:, None], x[None]]),
            "torch.linalg.multi_dot",
        ),
    ],
)
def test_a_function_that_asks_for_a_plain_size_is_named(
    program: Callable[..., Any], name: str
) -> None:
    graftjit.reset()
    jitted = graftjit.jit(program)
    for length in (7, 9, 11, 14):
        jitted(torch.randn(length))
    last = jitted.report().recompiles[-1]
    assert last.code == "RC411" and f"{name} takes no symbolic number" in last.cure


def test_a_function_that_fails_over_open_sizes_is_named() -> None:
    graftjit.reset()
    model = graftjit.compile(torch.nn.LSTM(4, 5))
    with torch.no_grad():
        for rows in (3, 4, 5, 6):
            model(torch.randn(2, rows, 4))
    text = " ".join(model.report().text().split())
    assert model.report().graph_count == 4
    assert "lstm() takes no symbolic number" in model.report().recompiles[-1].cure
    assert "as expected" not in text


def test_several_sizes_that_are_compared() -> None:
    """Each by its name; what another operator asks of another size is not said of these."""
    graftjit.reset()
    jitted = graftjit.jit(lambda x, y: x * 2 if x.shape[0] * x.shape[1] == 42 else y.unbind()[0])
    for size in (6, 7, 8):
        jitted(torch.ones(size, size - 1), torch.ones(size + 3))
    for record in jitted.report().recompiles:
        assert "x.shape[0] = " not in record.cure
        assert ("unbind" in record.cure) <= ("y" in record.source + record.now + record.before)


def _with_times(hits: int, call: float, plain: float) -> Report:
    """A frame of which calls through entries and calls as written were timed."""
    captured = events.Captured(frame="f", seconds=(("capture", 0.1),))
    counted = events.Counted(
        frame="f",
        hits=hits,
        misses=1,
        samples=4,
        seconds=4 * call,
        plain_samples=4,
        plain_seconds=4 * plain,
    )
    return Report("f", (captured, counted))


def test_a_callable_that_is_slower_than_plain_python_is_told_so() -> None:
    slow = _with_times(100, 300e-6, 100e-6)
    emitted = (
        "slower than plain Python: a compiled call of f takes 300 us, a call in plain Python 100 us"
    )
    assert emitted in " ".join(slow.text().split())
    assert emitted[1:] in head_of(slow).verdict
    assert slow.frames[0].plain_seconds == pytest.approx(100e-6)
    for report in (_with_times(100, 50e-6, 100e-6), _with_times(100, 101e-6, 100e-6)):
        assert "slower than plain" not in report.text()
        assert "slower than plain" not in head_of(report).verdict


def test_compiling_again_and_again_is_told_to_be_slower() -> None:
    """From the limit on most calls run as written, and are timed."""
    graftjit.reset()
    jitted = graftjit.jit(lambda x, name: (x * len(name), name.upper()))
    for number in range(400):
        jitted(torch.ones(8), f"name {number}")
    text = " ".join(jitted.report().text().split())
    assert re.search(
        r"slower than plain Python so far: [\d.]+ m?s to compile for 400 calls of", text
    )
    assert jitted.report().text().splitlines()[1].strip().startswith("not clean")
