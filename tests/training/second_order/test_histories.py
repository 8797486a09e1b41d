"""What a gradient of a backward outside the frame leads to: results that the backward has saved, their hooks, and what is freed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit
from graftjit.runtime.autograd import passing, second_order

from ..beside import tensors


def inner(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x.exp() * w
    return y, (y * y).sum()


def rewritten(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x * w
    y.exp_()
    return y


def over_a_trunk(x: torch.Tensor, w: torch.Tensor) -> Any:
    h = torch.tanh(x * w)
    return h.exp(), (h * h).sum()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "saves its result": lambda x, w: torch.exp(x * w),
    "saves what is not seen": lambda x, w: (x.exp() * w).sum(),
    "saves nothing that it makes": lambda x, w: (x * w).sum(),
    "parts": lambda x, w: (x.sin() + w.exp()).sum(),
    "a product": lambda x, w: torch.tanh(x @ w.t() @ x).sum(),
    "a softmax": lambda x, w: torch.softmax(x * w, -1),
    "a view of a saved result": lambda x, w: (x * w).exp()[1:],
    "a result of a result": inner,
    "heads over a trunk": over_a_trunk,
    "a result that is written": rewritten,
    "dropout": lambda x, w: F.dropout(x.exp(), 0.5) * w,
}


def total(values: Any) -> torch.Tensor:
    values = [one for one in tensors(values) if one is not None and one.requires_grad]
    parts = [(one * torch.linspace(1, 2, one.numel()).view(one.shape)).sum() for one in values]
    return torch.stack(parts).sum() if parts else torch.zeros((), requires_grad=True)


def grad(values: Any, inputs: Any, **options: Any) -> tuple[Any, ...]:
    return torch.autograd.grad(total(values), inputs, allow_unused=True, **options)


class Case:
    """One function's results at leaves, and their gradients by `wanted` with a history."""

    def __init__(
        self, function: Callable[..., Any], wanted: str, retain: bool | None = None
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x, self.w = (torch.randn(3, 3, generator=generator).requires_grad_() for _ in "xw")
        torch.manual_seed(1)
        self.results = function(self.x, self.w)
        self.seen: list[torch.Tensor] = []
        self.wanted, self.retain = wanted, retain

    def of(self, names: str) -> list[torch.Tensor]:
        return [getattr(self, name) for name in names]

    def gradients(self) -> tuple[Any, ...]:
        return grad(self.results, self.of(self.wanted), create_graph=True, retain_graph=self.retain)

    def hooked(self) -> list[torch.Tensor]:
        """The results, with hooks that see and change their gradients."""
        for one in tensors(self.results):
            one.retain_grad()
            one.register_hook(lambda g: (self.seen.append(g.detach().clone()), g * 3)[1])
        return tensors(self.results)

    def reached(self) -> list[Any]:
        seen = sorted(self.seen, key=lambda g: (g.numel(), float(g.sum())))
        return [self.x.grad, self.w.grad, *(one.grad for one in self.hooked()), *seen]


def hooks(case: Case) -> Sequence[Any]:
    case.hooked()
    first = case.gradients()
    total(first).backward()
    return *first, *case.reached()


def hooks_in_the_third_order(case: Case) -> Sequence[Any]:
    case.hooked()
    first = case.gradients()
    second = grad(first, case.of("xw"), create_graph=True)
    total(second).backward()
    return *first, *second, *case.reached()


def by_the_results(case: Case) -> Sequence[Any]:
    inputs = [*case.of("xw"), *tensors(case.results)]
    first = case.gradients()
    second = grad(first, inputs, create_graph=True)
    return *first, *second, *grad(second, inputs)


def together(case: Case) -> Sequence[Any]:
    """One backward of results and gradients uses each node once."""
    first, again = case.gradients(), case.gradients()
    (total(first) + total(again) + total(case.results)).backward()
    return case.x.grad, case.w.grad


def without_retaining(case: Case) -> Sequence[Any]:
    case.retain = False
    return grad(case.gradients(), case.of("xw"))


def first_the_gradients(one: str, other: str) -> Callable[[Case], Sequence[Any]]:
    def run(case: Case) -> Sequence[Any]:
        first = case.gradients()
        return *grad(first, case.of(one)), *grad(case.results, case.of(other))

    return run


def first_the_results(one: str, other: str) -> Callable[[Case], Sequence[Any]]:
    def run(case: Case) -> Sequence[Any]:
        first = case.gradients()
        return *grad(case.results, case.of(one)), *grad(first, case.of(other))

    return run


def a_third_order_first(case: Case) -> Sequence[Any]:
    first = case.gradients()
    second = grad(first, case.of("xw"), create_graph=True)
    return *grad(second, case.of("xw")), *grad(case.results, case.of("xw"))


def a_third_order_frees_the_second(case: Case) -> Sequence[Any]:
    first = case.gradients()
    second = grad(first, case.of("xw"), create_graph=True)
    return *grad(second, case.of("xw")), *grad(first, case.of("xw"))


PATHS: list[Callable[[Case], Sequence[Any]]] = [
    *(hooks, hooks_in_the_third_order, by_the_results, together, without_retaining),
    *(first_the_gradients(one, other) for one, other in (("x", "w"), ("w", "x"), ("xw", "xw"))),
    *(first_the_results(one, other) for one, other in (("x", "w"), ("w", "x"), ("xw", "xw"))),
    *(a_third_order_first, a_third_order_frees_the_second),
]


def outcome(path: Callable[[Case], Sequence[Any]], case: Case) -> Sequence[Any] | str:
    try:
        return path(case)
    except RuntimeError as error:
        return str(error).split(".")[0]


def same(function: Callable[..., Any], paths: Sequence[Callable[[Case], Any]]) -> Any:
    jitted = graftjit.jit(function)
    for path in paths:
        for wanted in ("x", "w", "xw"):
            expected, ours = (outcome(path, Case(run, wanted)) for run in (function, jitted))
            where = f"{path.__name__}, by {wanted}"
            if isinstance(expected, str) or isinstance(ours, str):
                assert ours == expected, where
                continue
            for mine, theirs in zip(ours, expected, strict=True):
                assert (mine is None) == (theirs is None), where
                if theirs is not None:
                    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
                    assert mine.requires_grad == theirs.requires_grad, where
    return jitted


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_lead_to_what_they_lead_to_in_eager(name: str) -> None:
    assert "FB3" not in str(same(FUNCTIONS[name], PATHS).report())


@pytest.mark.parametrize("name", ["saves its result", "parts", "a result of a result"])
def test_so_they_do_where_the_calls_run_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_order, "LIMIT", 0)
    assert "FB317" in str(same(FUNCTIONS[name], PATHS[:-2]).report())


def test_what_no_backward_can_use_is_freed() -> None:
    """A backward of the gradient frees what the forward has saved, if all of it is used up."""
    x = torch.randn(50).requires_grad_()
    y = graftjit.jit(lambda x: (x.exp() * x).sum())(x)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    _ = y.grad_fn.saved_tensors
    torch.autograd.grad(first.sum(), x)
    with pytest.raises(RuntimeError, match="a second time"):
        _ = y.grad_fn.saved_tensors


def test_autograd_is_asked_once_for_each_input_of_a_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the native part it answers by raising where a leaf's gradient is requested by name,
    which takes long."""
    asked: list[Any] = []
    monkeypatch.setattr(passing._leaf_runs, "_read", passing._unknown)
    real = passing._will_run
    monkeypatch.setattr(passing, "_will_run", lambda node: asked.append(node) or real(node))
    run = graftjit.jit(lambda x, w: (x.exp() * w).sum())
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    for _ in range(2):
        asked.clear()
        (slope,) = torch.autograd.grad(run(x, w), x, create_graph=True)
        assert len(asked) == len(set(asked)) > 0
        slope.sum().backward()
