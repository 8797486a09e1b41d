"""`lower`: the stages of a call's compilation, of every face, without running the program."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit
from graftjit.lowered.lowered import Lowered
from graftjit.runtime.errors import BreakError, UserError
from graftjit.runtime.process import hardware

ran: list[str] = []


def program(x: torch.Tensor, w: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
    h = F.layer_norm(x @ w, (64,))
    return torch.softmax(h, -1) * scale


def breaking(x: torch.Tensor) -> torch.Tensor:
    y = x.relu()
    ran.append("side")
    print("out loud")
    return y.exp()


X, W = torch.full((8, 96), 0.5), torch.full((96, 64), 0.25)
ORDER = ["captured", "aten", "passes", "nests", "kernels", "program", "bytecode", "guards"]


def names(lowered: Lowered) -> list[str]:
    return [stage.name for stage in lowered]


def test_the_stages_come_in_order_and_print() -> None:
    lowered = graftjit.jit(program).lower(X, W)
    assert [name for name in names(lowered) if name in ORDER] == ORDER
    for stage in lowered:
        assert stage.text() and str(stage) == stage.text() and stage.seconds >= 0
        assert stage.name in str(lowered) and stage.name in lowered
        assert lowered[stage.name] is stage and lowered[0][stage.name] is stage
        assert lowered.text(stage.name) == stage.text()
        assert stage.text() in lowered.text()
    assert lowered.seconds > 0


@pytest.mark.usefixtures("our_products")
def test_each_text_shows_what_it_is_of() -> None:
    lowered = graftjit.jit(program).lower(X, W)
    captured, aten = lowered["captured"].text(), lowered["aten"].text()
    assert "torch.nn.functional.layer_norm(" in captured and "# f32[8, 64]" in captured
    assert "h = F.layer_norm(x @ w, (64,))" in captured and "test_lower.py:" in captured
    assert "x1,  # f32[8, 96]  x\n" in aten and "aten.native_layer_norm(" in aten
    assert "reduce" in lowered["nests"].text() and 'extern "C" void' in lowered["kernels"].text()
    assert "return (" in lowered["program"].text()
    product = "empty([8, 64], f32)" if hardware.slow_mkl() else "aten.mm(x1, x0)"
    assert product in lowered["program"].text()
    assert "x: cpu f32[8, 96]" in lowered["guards"].text()
    with pytest.raises(KeyError, match="there are: captured"):
        lowered["cpatured"]


def test_nothing_runs_and_nothing_is_left_behind(capsys: pytest.CaptureFixture[str]) -> None:
    jitted = graftjit.jit(breaking)
    ran.clear()
    lowered = jitted.lower(X)
    assert ran == [] and capsys.readouterr().out == ""
    assert jitted.report().graph_count == 0 and jitted.report().break_count == 0
    assert len(lowered.parts) == 1 and "GB103" in str(lowered) and ".run()" in str(lowered)
    everything = lowered.run()
    assert ran == ["side"] and capsys.readouterr().out == "out loud\n"
    assert len(everything.parts) == 2 and ".run()" not in str(everything)
    assert everything[1].name.startswith("breaking, from line ")
    assert "aten.exp" in everything[1]["aten"].text()
    assert everything.text("aten").count("===") == 2
    assert everything.run() is everything


def test_what_is_stored_is_lowered_with_all_stages_again() -> None:
    jitted = graftjit.jit(program)
    first = jitted.lower(X, W)
    jitted(X, W)
    again = jitted.lower(X, W)
    assert names(again) == names(first)
    assert again["kernels"].text() == first["kernels"].text()


def test_training_shows_both_halves() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.LayerNorm(64))
    lowered = graftjit.compile(net).lower(torch.full((4, 32), 0.5))
    assert {"joint", "forward", "backward"} <= set(names(lowered))
    assert "def " in lowered["forward"].text() and lowered["backward"].graph is not None
    for name in ("nests", "kernels", "program"):
        text = lowered[name].text()
        assert text.index("# forward") < text.index("# backward")
    assert all(p.grad is None for p in net.parameters())
    with torch.no_grad():
        plain = graftjit.compile(net).lower(torch.full((4, 32), 0.5))
    assert "backward" not in plain


def test_passes_are_steps_with_a_diff() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).train()
    with torch.no_grad():
        passes = graftjit.lower(net, torch.full((2, 3, 8, 8), 0.5))["passes"]
    found = {step.name: step for step in passes}
    step = found["split_norms"]
    assert passes["split_norms"] is step and "native_batch_norm" in passes.text()
    assert "\n-" in step.diff() and "\n+" in step.diff() and "->" in step.size
    with pytest.raises(UserError):
        passes.diff()


def test_a_stage_gives_its_graph_to_torch_fx() -> None:
    lowered = graftjit.lower(program, X, W)
    graph = lowered["aten"].graph
    module = graph.to_fx()
    sources = [str(source) for source in graph.sources]
    given = [{"x": X, "w": W}[name] for name in sources]
    torch.testing.assert_close(module(*given)[0], program(X, W))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()

    def lower(self, word: str) -> str:
        return word.lower()


class Owner:
    @graftjit.jit
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    def __call__(self, x: torch.Tensor, *more: torch.Tensor, **named: Any) -> torch.Tensor:
        return x.cos() + len(more) + len(named)


class Construct(graftjit.nn.Cell):
    def construct(self, x: torch.Tensor) -> torch.Tensor:
        return x.tan()


@pytest.mark.parametrize(
    "target, args, kwargs, expected",
    [
        (Owner().method, (X,), {}, "aten.sin"),
        (Owner(), (X, X), {"word": 1}, "aten.cos"),
        (Construct(), (X,), {}, "aten.tan"),
        (Net(), (torch.ones(4, 32),), {}, "aten.relu"),
        (functools.partial(program, X), (W,), {"scale": 3.0}, "aten._softmax"),
        (torch.nn.functional.silu, (X,), {}, "aten.silu"),
        (lambda *a, k=1, **kw: a[0] * k + kw["z"], (X,), {"z": X}, "aten.add"),
    ],
)
def test_every_face(target: Any, args: Any, kwargs: Any, expected: str) -> None:
    assert expected in graftjit.lower(target, *args, **kwargs)["aten"].text()


def test_a_compiled_module_has_the_method_unless_the_model_has_one() -> None:
    assert "captured" in graftjit.compile(torch.nn.ReLU()).lower(X)
    own = graftjit.compile(Net())
    assert own.lower("ABC") == "abc"
    assert "captured" in graftjit.lower(own, torch.ones(4, 32))


def test_arguments_that_a_call_would_refuse() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'w'"):
        graftjit.jit(program).lower(X)
    with pytest.raises(UserError):
        graftjit.lower(3)


def test_a_strict_function_raises_as_its_call_would() -> None:
    with pytest.raises(BreakError):
        graftjit.jit(breaking, fullgraph=True).lower(X)


def test_what_has_no_graph_says_so() -> None:
    def counts(n: int) -> int:
        return n + 1

    def yields(x: torch.Tensor) -> Any:
        yield x + 1

    assert "PL204" in str(graftjit.lower(counts, 1))
    assert "PL201" in str(graftjit.lower(yields, X))
    with torch.device("meta"), torch.overrides.TorchFunctionMode():
        assert "PL209" in str(graftjit.lower(counts, 1))


def test_level_o0_shows_the_calls() -> None:
    config = graftjit.JitConfig(jit_level="O0")
    lowered = graftjit.jit(program, config=config).lower(X, W)
    assert "nests" not in lowered and "torch.softmax" in lowered["program"].text()
    assert "FB311" in str(lowered) or "level O0" in str(lowered)


def test_sizes_that_are_not_known_are_shown() -> None:
    text = graftjit.jit(program, dynamic=True).lower(X, W)["aten"].text()
    assert "f32[s" in text


def test_it_shows_itself_in_a_notebook() -> None:
    lowered = graftjit.lower(program, X, W)
    page = lowered._repr_html_()
    assert page.count("<details>") == len(names(lowered)) and "&lt;" not in lowered["aten"].name
    assert lowered["aten"]._repr_html_().startswith("<details open>")


def test_costs_are_sums_over_kernels_calls_and_lines() -> None:
    lowered = graftjit.lower(program, X, W)
    cost = lowered.cost()
    assert cost.flops == sum(row.flops for row in cost.steps) >= 2 * 8 * 96 * 64
    assert cost.flops == sum(row.flops for row in cost.lines)
    assert cost.moved == cost.reads + cost.writes >= 4 * (8 * 96 + 96 * 64 + 8 * 64)
    assert cost.peak > 0 and cost.intensity == cost.flops / cost.moved
    assert "test_lower.py:" in str(cost) and "FLOP per byte" in str(cost)
    assert all(row.name in str(cost) for row in cost.steps)


def test_the_costs_of_training_are_of_both_halves() -> None:
    net = torch.nn.Linear(64, 32)
    cost = graftjit.lower(net, torch.full((16, 64), 0.5)).cost()
    parts = {row.part for row in cost.steps}
    assert parts == {"forward", "backward"}
    product = 2 * 16 * 64 * 32
    assert cost.flops >= 2 * product  # the product, and the gradient of the weight


def test_what_has_no_program_costs_nothing() -> None:
    cost = graftjit.lower(lambda n: n + 1, 1).cost()
    assert cost.flops == cost.moved == cost.peak == 0
