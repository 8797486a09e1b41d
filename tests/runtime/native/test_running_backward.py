"""What the native part reads of autograd's plan of a backward, beside torch's own answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graftjit.runtime import _native
from graftjit.runtime.autograd import passing


class Asking(torch.autograd.Function):
    """Keeps the answers about the leaves behind it."""

    answers: list[tuple[Any, Any]]

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:
        return sum(tensors)  # type: ignore[return-value]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        for function, _ in ctx.next_functions:
            try:
                wanted = torch._C._will_engine_execute_node(function)  # type: ignore[attr-defined]
            # torch raises for a leaf whose gradient was requested by name
            except RuntimeError:
                wanted = True
            Asking.answers.append((_native.engine_runs(function), wanted))
        return (gradient,) * len(ctx.next_functions)


Backward = Callable[[torch.Tensor, list[torch.Tensor]], Any]


@pytest.mark.parametrize(
    "backward",
    [
        lambda y, leaves: torch.autograd.grad(y, leaves[1]),
        lambda y, leaves: torch.autograd.grad(y, leaves[:2], create_graph=True),
        lambda y, leaves: y.backward(inputs=leaves[2:]),
    ],
)
def test_leaves_that_are_asked_for(backward: Backward) -> None:
    Asking.answers = []
    leaves = [torch.ones(2, requires_grad=True) for _ in range(3)]
    backward(Asking.apply(*leaves).sum(), leaves)
    assert len(Asking.answers) == 3
    assert all(found is wanted for found, wanted in Asking.answers)
    assert {wanted for _, wanted in Asking.answers} == {True, False}


def test_without_an_answer() -> None:
    leaf = torch.ones(2, requires_grad=True)
    assert _native.engine_runs((leaf * 2).grad_fn) is None
    Asking.answers = []
    Asking.apply(leaf).sum().backward()
    assert Asking.answers == [(None, True)]


@pytest.mark.parametrize("wrong", [lambda _: True, lambda _: False, lambda _: None])
def test_an_answer_that_torch_contradicts_is_not_used(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any], Any]
) -> None:
    monkeypatch.setattr(_native, "engine_runs", wrong)
    runs = passing._LeafRuns()
    monkeypatch.setattr(passing, "_will_run", lambda leaf: leaf == "asked for")
    for _ in range(5):
        assert runs("asked for") and not runs("other")
