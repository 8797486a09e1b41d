"""`torch.compile(..., backend="graftjit")`: Dynamo's graphs in graftjit's kernels."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import graftjit
from graftjit import dynamo_backend, dynamo_lines
from graftjit.runtime.errors import GraftError

NAME = "graftjit"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    graftjit.reset()
    yield
    torch.compiler.reset()


def compiled(target: Any, **options: Any) -> Any:
    return torch.compile(target, backend=NAME, **options)


def graphs() -> int:
    """How many graphs have been compiled since the last reset; other tests have left frames."""
    return sum(frame.graphs for frame in graftjit.report().frames)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 16), nn.BatchNorm1d(16)
        self.last = nn.Linear(16, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        h = torch.relu(self.norm(self.first(x)))
        if x.sum() > 1e6:  # a break of Dynamo
            h = h * 2
        return self.last(h).log_softmax(-1)


def test_dynamo_knows_the_name() -> None:
    assert NAME in torch._dynamo.list_backends()


def test_graphs_are_compiled_here() -> None:
    f = compiled(lambda x: torch.tanh(x) * 2 + x.sum())
    x = torch.randn(4, 5)
    for _ in range(3):
        assert torch.allclose(f(x), torch.tanh(x) * 2 + x.sum())
    assert graphs() == 1
    assert not graftjit.report().breaks


def test_steps_of_training() -> None:
    torch.manual_seed(0)
    there = Net()
    here = copy.deepcopy(there)
    run = compiled(here)
    steps = [torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9) for one in (there, here)]
    for _ in range(5):
        x, y = torch.randn(6, 8), torch.randint(0, 3, (6,))
        losses = []
        for model, step in zip((there, run), steps, strict=True):
            step.zero_grad()
            loss = nn.functional.nll_loss(model(x), y)
            loss.backward()
            step.step()
            losses.append(loss)
        assert torch.allclose(*losses, atol=1e-6)
    for one, other in zip(there.state_dict().values(), here.state_dict().values(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert here.calls == 5


def test_sizes_that_vary() -> None:
    f = compiled(lambda x, w: torch.softmax(x @ w, -1).sum(0))
    w = torch.randn(6, 6)
    inputs = [torch.randn(n, 6) for n in (3, 4, 5, 9, 12)]
    for x in inputs:
        assert torch.allclose(f(x, w), torch.softmax(x @ w, -1).sum(0), atol=1e-6)
        assert not x.__dict__
    # one graph of Dynamo for the first size and one for all others, each compiled once
    assert graphs() == 2


def test_numbers_that_vary() -> None:
    f = compiled(lambda x, n: x.view(n, -1).sum(1) * n, dynamic=True)
    for n in (2, 3, 4, 6):
        x = torch.randn(12)
        assert torch.allclose(f(x, n), x.view(n, -1).sum(1) * n, atol=1e-6)


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs", "reduce-overhead"])
def test_modes(mode: str) -> None:
    f = compiled(lambda x: torch.exp(x).mean(-1), mode=mode)
    x = torch.randn(7, 9)
    assert torch.allclose(f(x), torch.exp(x).mean(-1))


def test_options() -> None:
    f = compiled(lambda x: torch.exp(x).mean(-1), options={"jit_level": "O0"})
    x = torch.randn(7, 9)
    assert torch.equal(f(x), torch.exp(x).mean(-1))
    with pytest.raises(Exception, match="max_autotun.*has no meaning here"):
        compiled(lambda x: x + 1, options={"max_autotun": True})(x)


class Scaled(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(x)) * 2


def test_a_module_compiled_in_place() -> None:
    net = Scaled()
    x = torch.randn(2, 4)
    wanted = net(x)
    net.compile(backend=NAME, fullgraph=True)
    assert torch.allclose(net(x), wanted, atol=1e-6)
    assert graphs() == 1


Program = Callable[..., Any]


def written(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)[0] = 7
    return x.t()


def viewed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x, x[1:], (x + 1).view(-1)


def dropped(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5)


def cast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def nothing(x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.parametrize("program", [written, viewed, dropped, cast, nothing])
@pytest.mark.parametrize("grad", [False, True])
def test_programs(program: Program, grad: bool) -> None:
    run = compiled(program)
    for seed in range(3):
        outcomes = []
        for f in (program, run):
            torch.manual_seed(seed)
            leaf = torch.randn(4, 4, requires_grad=grad)
            x = leaf * 1
            made = f(x)
            tensors = made if isinstance(made, tuple) else (made,)
            if grad:
                sum(one.sum() for one in tensors).backward()  # type: ignore[union-attr]
            same = [one is x for one in tensors]
            outcomes.append(([one.detach() for one in tensors], x.detach(), leaf.grad, same))
        torch.testing.assert_close(outcomes[0], outcomes[1])


def test_errors_are_those_of_torch() -> None:
    f = compiled(lambda x, y: torch.relu(x) @ y)
    f(torch.ones(2, 3), torch.ones(3, 2))
    with pytest.raises(Exception, match="shape|size|inner") as caught:
        f(torch.ones(2, 3), torch.ones(4, 2))
    assert not isinstance(caught.value, GraftError)


def scaled(x: torch.Tensor) -> torch.Tensor:
    twice = x * 2
    return torch.softmax(
        twice, -1
    ).sum(0) + helped(x)  # fmt: skip


def helped(x: torch.Tensor) -> torch.Tensor:
    return x.exp().sum(0)


def test_reports_have_the_lines_of_the_user() -> None:
    run = compiled(scaled)
    for _ in range(40):
        run(torch.randn(3, 4))
    assert __file__ in [one.file for one in graftjit.report().frames if one.frame == "scaled"]
    text = graftjit.report().text(verbosity=2)
    assert "eval_with_key" not in text
    assert any(line in text for line in ("twice = x * 2", "return torch.softmax("))


def test_code_of_a_graph_has_the_places_of_the_program() -> None:
    seen: list[Any] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append(graph)
        return dynamo_backend.backend(graph, inputs)

    torch.compile(scaled, backend=keep)(torch.randn(3, 4))
    code = dynamo_lines.with_users_lines(seen[0]).__func__.__code__  # type: ignore[attr-defined]
    begin = scaled.__code__.co_firstlineno
    lines = {at[0] for at in code.co_positions() if at[0] is not None}
    assert lines - {begin} == {begin + 1, begin + 2, begin + 4}
    columns = {at[2:] for at in code.co_positions() if at[0] == begin + 1}
    # x * 2; torch 2.11 gives no columns
    assert columns & {(12, 17), (None, None)}
    assert code.co_firstlineno in (begin, begin + 1)


def test_our_import_leaves_dynamo_alone() -> None:
    program = "import sys, graftjit; print('torch._dynamo' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
