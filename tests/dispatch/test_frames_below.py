"""Frames that the hook meets below a callable are compiled as the callable says below which they are first met."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from graftjit import JitConfig, jit

SOURCE = """
def below(x):
    return torch.relu(x * 2 + 1)

def inspected(x):
    line = sys._getframe().f_lineno
    return below(x), line
"""


def program() -> Any:
    """With code of its own: what is met below one callable is known below the next."""
    scope: dict[str, Any] = {"torch": torch, "sys": sys}
    exec(compile(SOURCE, "below.py", "exec"), scope)
    return scope["inspected"]


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_the_level_is_the_callables(level):
    plain, made = program(), jit(program(), config=JitConfig(jit_level=level))
    x = torch.arange(-2.0, 4.0)
    for _ in range(3):
        assert torch.equal(made(x)[0], plain(x)[0])
    report = made.report()
    assert [record.frame for record in report.frames if record.graphs] == ["below"]
    assert ("FB311" in {note.code for note in report.notes}) == (level == "O0")


def test_sizes_are_as_dynamic_as_the_callables():
    made = jit(program(), config=JitConfig(dynamic=True))
    for size in (3, 4, 5, 6):
        assert made(torch.ones(size))[0].shape == (size,)
    assert made.report().graph_count == 1


def test_modules_are_imported_in_plain_python(tmp_path, monkeypatch):
    """What a module calls as it is imported, or its own functions by a decorator, runs once."""
    text = f"import sys, torch\n{SOURCE}\nfound = below(torch.ones(2))\n"
    (tmp_path / "imported_late.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def lately(x):
        line = sys._getframe().f_lineno
        import imported_late

        return imported_late.found + x + line * 0

    made = jit(lambda x: lately(x) * 2)
    try:
        assert torch.equal(made(torch.ones(2)), torch.full((2,), 8.0))
        assert "below" not in [record.frame for record in made.report().frames]
    finally:
        sys.modules.pop("imported_late", None)


DIFFERENTIATED = """
def below(x, w):
    return torch.stack([(x.exp() * w).sum(), (x * w).sin().sum()])

def twice(x, w):
    line = sys._getframe().f_lineno
    rows = torch.eye(2)
    (first,) = torch.autograd.grad(
        below(x, w), x, rows, is_grads_batched=True, create_graph=True, retain_graph=True
    )
    return torch.autograd.grad(first.sum(), x)[0]
"""


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_generated_code_is_not_a_frame_below(level):
    """A node of autograd that runs its calls again runs a function of graftjit's own. Compiled as a
    frame, it would make such a node, which runs its calls again."""
    scope: dict[str, Any] = {"torch": torch, "sys": sys}
    exec(compile(DIFFERENTIATED, "twice.py", "exec"), scope)
    plain = scope["twice"]
    made = jit(plain, config=JitConfig(jit_level=level))
    for _ in range(2):
        x, w = torch.rand(4, requires_grad=True), torch.rand(4)
        assert torch.equal(made(x, w), plain(x, w))
    report = made.report()
    assert {record.frame for record in report.frames} == {"twice", "below"}
    assert all(note.count < 5 for note in report.notes)


ANNOTATED = """
def made_late(x, Kind):
    line = sys._getframe().f_lineno
    typing.Callable[[Kind], typing.Optional[Kind]]
    return x + 1
"""


def test_the_librarys_backports_are_not_compiled():
    """typing_extensions puts functions of its own into `typing`, which makes types with them."""
    import typing

    import typing_extensions  # noqa: F401 (its import is what replaces them)

    scope: dict[str, Any] = {"torch": torch, "sys": sys, "typing": typing}
    exec(compile(ANNOTATED, "annotated.py", "exec"), scope)
    made = jit(scope["made_late"])
    for kind in (typing.TypeVar("First"), typing.TypeVar("Second")):
        assert torch.equal(made(torch.ones(2), kind), torch.full((2,), 2.0))
    assert {record.frame for record in made.report().frames} == {"made_late"}


BATCHED = """
def below(arriving):
    return arriving * 2 + 1

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, arriving):
        return below(arriving)

def rows(x, arriving, batched):
    line = sys._getframe().f_lineno
    return torch.autograd.grad(Doubled.apply(x), x, arriving, is_grads_batched=batched)[0]
"""


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_a_batched_gradient_is_no_tensor_of_a_graph(order):
    """It has no memory; a compiled function that met a gradient first does not take it."""
    scope: dict[str, Any] = {"torch": torch, "sys": sys}
    exec(compile(BATCHED, "batched.py", "exec"), scope)
    plain = scope["rows"]
    made = jit(plain)
    for batched in (*order, *order):
        x = torch.rand(4, requires_grad=True)
        arriving = torch.rand(3, 4) if batched else torch.rand(4)
        assert torch.equal(made(x, arriving, batched), plain(x, arriving, batched))
    assert "PL205" not in {note.code for note in made.report().notes}


def shared_frame(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def looks_first(x: torch.Tensor) -> torch.Tensor:
    assert locals()
    return shared_frame(x)


def looks_second(x: torch.Tensor) -> torch.Tensor:
    assert locals()
    return shared_frame(x) * 2


def test_each_report_has_a_frame_that_two_callables_run() -> None:
    x = torch.ones(3)
    runs = [jit(looks_first), jit(looks_second)]
    for _ in range(2):
        for run in runs:
            run(x)
    for run in runs:
        assert {"shared_frame"} <= {frame.frame for frame in run.report().frames}
