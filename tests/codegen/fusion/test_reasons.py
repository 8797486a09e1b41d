"""Why steps are not one: each reason is that for which fusion decided so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import graftjit
from graftjit.codegen import pipeline as planned
from graftjit.codegen.backend import compile_graph
from graftjit.codegen.fusion import reasons as apart
from graftjit.codegen.schedule import plan as schedule
from graftjit.ir.passes.pipeline import optimize
from graftjit.runtime.codes import CODES, NOT_FUSED
from graftjit.runtime.process.session import SESSION

from ..harness import normal, trace


def a_call(x: Any) -> Any:
    return torch.sort(x)[0].exp() * 2


def many_operators(x: Any) -> Any:
    for _ in range(130):
        x = x.sin() + 0.5
    return x


def other_places(x: Any) -> Any:
    down = x.exp().sum(0)
    return (x * down).sum(1)


def a_way_around(x: Any) -> Any:
    y = x.exp()
    return y + y @ y


def into_an_input(x: Any, table: Any, at: Any) -> Any:
    y = table[at] * 3
    x.mul_(y)
    return y.exp()


PROGRAMS: list[tuple[str, Callable[..., Any], tuple[str, str]]] = [
    ("NF701", a_call, ("c0_sort", "k0_mul")),
    ("NF702", many_operators, ("k0_add", "k1_add")),
    ("NF703", other_places, ("k0_sum", "k1_sum")),
    ("NF704", a_way_around, ("k0_exp", "k1_add")),
]


@pytest.mark.parametrize(("code", "program", "pair"), PROGRAMS, ids=[row[0] for row in PROGRAMS])
def test_the_reason_is_told(code: str, program: Any, pair: tuple[str, str]) -> None:
    compiled = compile_graph(trace(program, normal(256, 256)))
    seen = {(step.name, one.neighbour): one for step in compiled.steps for one in step.unfused}
    assert seen[pair].code == code, str(seen)
    assert seen[pair].why == NOT_FUSED[code] and seen[pair].why.startswith(CODES[code].title)


def test_memory_is_a_reason() -> None:
    """NF705: the way that reaches less far says that it does."""

    def f(x: Any) -> Any:
        y = x.exp() + 1
        z = (x @ x).sin()
        return y * 2 + z.sum()

    graph = optimize(trace(f, normal(256, 256)))
    made = schedule.drafted(schedule.Task(graph, {}, frozenset(("cpu",))), near=True)
    assert "NF705" in {code for rows in apart.reasons(made).values() for _, _, code in rows}


def test_what_may_raise_and_what_writes_are_apart() -> None:
    """NF706: an index that may be out of range, beside a write into an input."""
    fast = graftjit.jit(into_an_input)
    fast(torch.randn(3, 64), torch.randn(64, 64), torch.tensor([1, 2, 3]))
    seen = [one for kernel in graftjit.report(fast).kernels for one in kernel.unfused]
    assert "NF706" in {one.code for one in seen}, str(graftjit.report(fast).kernels)


def test_steps_that_are_one_say_nothing() -> None:
    compiled = compile_graph(trace(lambda x: torch.softmax(x.exp() * 2, -1) + 1, normal(64, 64)))
    (step,) = compiled.steps
    assert step.unfused == ()


def test_reasons_are_kept_with_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SESSION.override(cache_dir=tmp_path, check=False):
        cold = compile_graph(trace(a_call, normal(64, 64)))
        monkeypatch.setattr(planned, "programmed", lambda *_: pytest.fail("planned anew"))
        warm = compile_graph(trace(a_call, normal(64, 64)))
    assert [step.unfused for step in warm.steps] == [step.unfused for step in cold.steps]
    assert any(step.unfused for step in cold.steps)
