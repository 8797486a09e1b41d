"""GRAFTJIT_CHECK compares what it says: a program that is made wrong on purpose raises, a right one gives what it gives without."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import graftjit
from graftjit.codegen import backend
from graftjit.codegen.programs import shadow
from graftjit.ir.trace.tracer import Tracer
from graftjit.runtime.errors import CheckError
from graftjit.runtime.process.session import SESSION

needs_check = pytest.mark.skipif(not SESSION.options.check, reason="GRAFTJIT_CHECK is not set")
Made = tuple[Callable[..., Any], tuple[Any, ...]]


def pure() -> Made:
    return lambda x: torch.tanh(x) * 2, (torch.randn(8),)


def mutates() -> Made:
    def f(x: Any, y: Any) -> Any:
        x.mul_(2).add_(y)
        return y.sin()

    return f, (torch.randn(8), torch.randn(8))


def draws() -> Made:
    return lambda x: torch.nn.functional.dropout(x + torch.rand(64), 0.5) * 3, (torch.ones(64),)


def cache() -> Made:
    memory = torch.zeros(2, 16, 4)

    def f(keys: Any, new: Any) -> Any:
        keys[:, 3:5] = new * 2
        return keys.sum(1)

    return f, (memory[:, 2:12], torch.randn(2, 2, 4))


def forward() -> Made:
    return lambda x, w: torch.tanh(x @ w), (torch.randn(4, 4), torch.randn(4, 4).requires_grad_())


def step() -> Made:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def f(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), [p.detach().clone() for p in net.parameters()]

    return f, (torch.randn(4, 4),)


WORLDS = [pure, mutates, draws, cache, forward, step]


def flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def wrongly(
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Any, tuple[Any, ...], Any], Any],
    part: str = "",
) -> None:
    """Programs run `spoil(graph, inputs, results)` behind them."""
    finish = backend._finish

    def finished(compiled: Any, graph: Any, *rest: Any) -> None:
        program = compiled.program
        if not part or compiled.part == part:
            compiled.program = lambda *inputs: spoil(graph, inputs, program(*inputs))
        finish(compiled, graph, *rest)

    monkeypatch.setattr(backend, "_finish", finished)


@needs_check
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__)
def test_a_wrong_result(world: Callable[[], Made], monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(_graph: Any, _inputs: Any, results: Any) -> Any:
        return tuple([one + 1 if one.is_floating_point() else one for one in results])

    f, given = world()
    wrongly(monkeypatch, spoil)
    with pytest.raises(CheckError, match="is not what eager gives"):
        graftjit.jit(f)(*given)


@needs_check
def test_a_result_that_eager_does_not_know_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sums of the same numbers differ by rounding alone: neither sign of the difference is wrong. What is beside it in the
    same graph is."""

    def f(x: Any) -> Any:
        rest = x.sum() - (x * 0.1).flip(0).cumsum(0)[-1] * 10
        return rest / (rest.abs() + 1e-30), x * 2

    def spoil(which: int) -> Any:
        return lambda _graph, _inputs, results: tuple(
            [-one if at == which else one for at, one in enumerate(results)]
        )

    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    wrongly(monkeypatch, spoil(0))
    graftjit.jit(f)(x)
    wrongly(monkeypatch, spoil(1))
    with pytest.raises(CheckError, match="result 1 of"):
        graftjit.jit(lambda x: f(x))(x)


@needs_check
@pytest.mark.parametrize("world", [mutates, cache, step], ids=lambda world: world.__name__)
def test_a_wrong_write(world: Callable[[], Made], monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(graph: Any, inputs: Any, results: Any) -> Any:
        with torch.no_grad():
            inputs[graph.written[-1]].select(0, -1).add_(1)
        return results

    f, given = world()
    wrongly(monkeypatch, spoil)
    with pytest.raises(CheckError, match="which is written to by a call"):
        graftjit.jit(f)(*given)


@needs_check
def test_a_wrong_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(_graph: Any, _inputs: Any, results: Any) -> Any:
        torch.rand(1)
        return results

    f, given = draws()
    wrongly(monkeypatch, spoil)
    with pytest.raises(CheckError, match="random numbers"):
        graftjit.jit(f)(*given)


@needs_check
def test_a_wrong_result_without_a_gradient_beside_one_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any, w: Any) -> Any:
        return torch.tanh(x @ w), x.exp(), (x > 0), torch.empty(3)

    given = (torch.randn(4, 4), torch.randn(4, 4).requires_grad_())
    graftjit.jit(f)(*given)

    def spoil(graph: Any, _inputs: Any, results: Any) -> Any:
        wrong = torch.randn(4, 4).exp() + 1
        return tuple([wrong if one.shape == (4, 4) and (one > 0).all() and one.dtype.is_floating_point
                      else one for one in results])  # fmt: skip

    wrongly(monkeypatch, spoil, "forward")
    with pytest.raises(CheckError, match="result 1, which has no gradient, of"):
        graftjit.jit(lambda x, w: f(x, w))(*given)


@needs_check
def test_values_of_memory_that_nothing_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any, out: Any) -> Any:
        blank = torch.empty(3)
        out.copy_(blank)
        return blank.half().reshape(3, 1) + 1, x.exp(), torch.zeros(3).add_(blank)

    def spoil(at: int) -> Any:
        def spoiled(_graph: Any, inputs: Any, results: Any) -> Any:
            inputs[1].fill_(5)
            return [torch.full_like(one, 7) if n == at else one for n, one in enumerate(results)]

        return spoiled

    for at in (0, 2):
        wrongly(monkeypatch, spoil(at))
        graftjit.jit(lambda x, out: f(x, out))(torch.randn(3), torch.zeros(3))
    wrongly(monkeypatch, spoil(1))
    with pytest.raises(CheckError, match="result 1 of"):
        graftjit.jit(lambda x, out: f(x, out))(torch.randn(3), torch.zeros(3))


@needs_check
def test_a_wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(_graph: Any, _inputs: Any, results: Any) -> Any:
        return tuple([None if one is None else one * 1.5 for one in results])

    f, given = forward()
    wrongly(monkeypatch, spoil, "backward")
    with pytest.raises(CheckError, match="gradient of input"):
        graftjit.jit(f)(*given).sum().backward()


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__)
def test_a_right_run_is_as_without(world: Callable[[], Made]) -> None:
    """Values, inputs, versions, gradients and the generator's state, over three calls."""
    emitted = []
    for make in (lambda f: f, graftjit.jit):
        torch.manual_seed(0)
        f, given = world()
        run = make(f)
        seen: list[Any] = []
        for _ in range(3):
            seen += [one.detach().clone() for one in flat(run(*given))]
            seen += [one.detach().clone() for one in given]
            seen += [one._version for one in given] + [one.grad is None for one in given]
            seen.append(torch.get_rng_state())
        emitted.append(seen)
    for ours, theirs in zip(*emitted, strict=True):
        torch.testing.assert_close(ours, theirs)


# -- what is not compared is named, once a graph -------------------------------------------------------


def baked() -> None:
    """No frame bakes a tensor that it writes to; a graph that is traced by hand does."""
    memory, tracer = torch.zeros(4), Tracer("baked")
    given = tracer.input(torch.ones(4))
    graph = tracer.finish([tracer.run(torch.Tensor.add_, [memory, given])])
    assert not shadow.can_compare(graph)
    assert not shadow.can_compare(graph)


def cast_of_a_weight() -> None:
    weight = torch.nn.Parameter(torch.eye(2))

    def cast_and_written(x: Any) -> Any:
        before = torch.mm(x, weight)
        weight.mul_(2)
        return before, torch.mm(x, weight)

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        compiled = graftjit.jit(cast_and_written)
        for _ in range(2):
            compiled(torch.ones(2, 2))


def drawn_beside_a_thread() -> None:
    def drawn(x: Any) -> Any:
        return torch.nn.functional.dropout(x + torch.rand(4), 0.5) * 3

    compiled, end = graftjit.jit(drawn), threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    try:
        for _ in range(2):
            compiled(torch.ones(4))
    finally:
        end.set()
        other.join()


def written_unseen() -> None:
    x = torch.ones(3, requires_grad=True)
    result = graftjit.jit(lambda x: x.exp())(x)
    result.data.mul_(3)
    result.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3).exp() * 3)


@needs_check
@pytest.mark.parametrize(
    ("run", "why"),
    [
        (baked, "baked: it writes to a tensor that is baked into it"),
        (cast_of_a_weight, "cast_and_written: it writes to a weight whose cast autocast keeps"),
        (
            drawn_beside_a_thread,
            "drawn: it draws random numbers, and other threads may draw in between",
        ),
        (written_unseen, "<lambda>: a result was written to, and autograd has not seen it"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_what_is_not_compared_is_named_once(
    run: Callable[[], None],
    why: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shadow, "_SAID", set())
    with caplog.at_level(logging.WARNING, "graftjit.codegen"):
        run()
    said = [one.getMessage() for one in caplog.records if "does not compare" in one.getMessage()]
    assert [one.endswith(why) for one in said] == [True], said


@needs_check
def test_what_comes_from_memory_without_content_is_not_compared() -> None:
    def f(x: Any) -> Any:
        blank, filled, later = torch.empty(3, 4), torch.empty(2), torch.empty(2)
        before = later.clone()
        later.copy_(x)
        wide = torch.empty(1, 1).expand(3, 4)
        filled.fill_(3)
        return (
            blank.clone(),
            wide.clone(),
            blank[0] + 1,
            filled * 2,
            torch.zeros_like(blank),
            before,
            later,
        )

    for _ in range(2):
        *_, filled, zeros, _, y = graftjit.jit(f)(torch.ones(2))
        assert filled.tolist() == [6, 6] and y.tolist() == [1, 1] and not zeros.any()
