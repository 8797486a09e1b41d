"""A backward that is divided by leaves (`JitConfig(segments=...)`): what the undivided one gives, in parts."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graftjit
from graftjit.runtime.autograd.divided import FurtherBackward
from graftjit.runtime.autograd.joint_program import JointProgram
from graftjit.runtime.errors import OptionError
from graftjit.runtime.executor import slices
from graftjit.runtime.process.session import SESSION

T = torch.Tensor
N = 4


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x: T) -> T:
        return nn.functional.gelu(self.norm(self.linear(x)))


class Two(nn.Module):
    """Two results, one by the other."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(*(Block(8) for _ in range(3))), nn.Linear(8, 3)

    def forward(self, x: T) -> tuple[T, T]:
        hidden = self.body(x)
        return hidden, self.head(hidden).square().mean()


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*(nn.Sequential(Block(8), nn.Dropout(0.5)) for _ in range(3)))

    def forward(self, x: T) -> T:
        return self.body(x)


def blocks() -> nn.Module:
    return nn.Sequential(*(Block(8) for _ in range(4)), nn.Linear(8, 2))


def convolutions() -> nn.Module:
    layers = [nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU()) for _ in range(3)]
    return nn.Sequential(*layers, nn.Flatten())


def embedded() -> nn.Module:
    return nn.Sequential(nn.Embedding(10, 8), *(Block(8) for _ in range(3)))


def tied() -> nn.Module:
    first = nn.Linear(8, 8)
    return nn.Sequential(first, Block(8), first, Block(8), first)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], T]]] = {
    "blocks": (blocks, lambda: torch.randn(5, 8)),
    "two": (Two, lambda: torch.randn(5, 8)),
    "dropping": (Dropping, lambda: torch.randn(5, 8)),
    "convolutions": (convolutions, lambda: torch.randn(2, 3, 9, 9)),
    "embedded": (embedded, lambda: torch.randint(0, 10, (4, 5))),
    "tied": (tied, lambda: torch.randn(5, 8)),
}


def divided(model: nn.Module, segments: Any = N) -> Any:
    return graftjit.compile(model, config=graftjit.JitConfig(segments=segments))


def both(name: str = "blocks", segments: Any = N) -> tuple[nn.Module, Any, T]:
    """The model in eager mode, the same compiled, and an argument."""
    make, argument = MODELS[name]
    torch.manual_seed(0)
    eager, x = make().double(), argument()
    return (
        eager,
        divided(copy.deepcopy(eager), segments),
        x.double() if x.is_floating_point() else x,
    )


def loss_of(found: Any) -> T:
    return (
        sum((one.square().sum() for one in found), torch.zeros(()))
        if type(found) is tuple
        else found.square().sum()
    )


def nodes(out: T) -> list[Any]:
    """The nodes of the chain that a result comes from."""
    found: list[Any] = [(out._base if out._is_view() else out).grad_fn]
    while True:
        further = [one for one, _ in found[-1].next_functions if isinstance(one, FurtherBackward)]
        if not further:
            return found
        found += further


def gradients(model: nn.Module) -> list[T | None]:
    return [one.grad for one in model.parameters()]


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_eagers(name: str) -> None:
    eager, model, x = both(name)
    for _ in range(3):
        for one in (eager, model):
            one.zero_grad()
            torch.manual_seed(1)
            loss_of(one(x)).backward()
        torch.testing.assert_close(gradients(model), gradients(eager))
    out = model(x)
    # Few leaves have most of the bytes.
    n = 3 if name in ("convolutions", "tied") else N
    assert len(nodes(out[0] if type(out) is tuple else out)) == n
    assert f"backward in {n} segments" in str(model.report())


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_undivided_program(name: str) -> None:
    _, model, x = both(name)
    whole = divided(copy.deepcopy(model), 1)
    for one in (whole, model):
        torch.manual_seed(1)
        loss_of(one(x)).backward()
    assert all(map(torch.equal, gradients(model), gradients(whole)))


def test_gradients_come_one_segment_after_the_other() -> None:
    _, model, x = both()
    seen: list[int] = []
    names = [name for name, _ in model.named_parameters()]
    for number, one in enumerate(model.parameters()):
        one.register_post_accumulate_grad_hook(lambda _, number=number: seen.append(number))
    out = model(x)
    chain = out.grad_fn.joint.chain
    out.sum().backward()
    groups = iter([len(one) for one in chain.members])
    last = len(names)
    while seen:
        n = next(groups)
        group, seen = seen[:n], seen[n:]
        assert min(group) < last
        last = min(group)


def test_a_gradient_of_some_inputs_runs_some_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    eager, model, x = both()
    runs: list[int] = []
    kept = slices.Passing.next
    monkeypatch.setattr(slices.Passing, "next", lambda self: (runs.append(0), kept(self))[1])
    for wanted in (
        lambda m: [m[4].bias],
        lambda m: [m[0].linear.weight],
        lambda m: [m[2].norm.bias],
    ):
        found = [torch.autograd.grad(one(x).sum(), wanted(one)) for one in (model, eager)]
        torch.testing.assert_close(*found)
    assert 0 < len(runs) < 3 * N
    for one in (model, eager):
        one(x).sum().backward(inputs=[one[3].linear.weight, one[4].bias])
    torch.testing.assert_close(gradients(model), gradients(eager))


def test_a_retained_graph_and_a_second_backward() -> None:
    eager, model, x = both()
    texts = []
    for one in (eager, model):
        loss = one(x).sum()
        for retain in (True, True, False):
            loss.backward(retain_graph=retain)
        with pytest.raises(RuntimeError) as error:
            loss.backward()
        texts.append(str(error.value))
    torch.testing.assert_close(gradients(model), gradients(eager))
    assert texts[0] == texts[1]


def test_gradients_of_gradients() -> None:
    eager, model, x = both()
    found = []
    for one in (eager, model):
        weights = list(one.parameters())
        first = torch.autograd.grad(one(x).square().sum(), weights, create_graph=True)
        found.append(
            torch.autograd.grad(
                sum(each.square().sum() for each in first), weights, allow_unused=True
            )
        )
    torch.testing.assert_close(found[1], found[0])


def test_batched_gradients() -> None:
    eager, model, x = both()
    found = []
    for one in (eager, model):
        out = one(x)
        seeds = torch.eye(out.numel(), dtype=torch.float64).reshape(-1, *out.shape)[:3]
        found.append(torch.autograd.grad(out, list(one.parameters()), seeds, is_grads_batched=True))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("which", [0, 1])
def test_results_without_a_gradient(which: int) -> None:
    eager, model, x = both("two")
    for one in (eager, model):
        one(x)[which].sum().backward()
    torch.testing.assert_close(gradients(model), gradients(eager))


def test_hooks_on_results() -> None:
    eager, model, x = both("two")
    seen = []
    for one in (eager, model):
        hidden, loss = one(x)
        hidden.register_hook(lambda gradient: seen.append(gradient.clone()) or gradient * 2)
        loss.backward()
    torch.testing.assert_close(seen[1], seen[0])
    torch.testing.assert_close(gradients(model), gradients(eager))


def test_inputs_with_a_history() -> None:
    eager, model, x = both()
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    for one, leaf in zip((eager, model), leaves, strict=True):
        one(leaf * 2).sum().backward()
    torch.testing.assert_close(leaves[1].grad, leaves[0].grad)
    torch.testing.assert_close(gradients(model), gradients(eager))


def test_sizes_that_vary() -> None:
    eager, model, _ = both()
    for rows in (2, 3, 5, 7):
        x = torch.randn(rows, 8, dtype=torch.float64)
        for one in (eager, model):
            one.zero_grad()
            one(x).square().sum().backward()
        torch.testing.assert_close(gradients(model), gradients(eager))
    assert len(nodes(model(x))) == N


def test_a_slice_that_fails_gives_the_gradients_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    eager, model, x = both()
    kept = slices.Passing.next

    def failing(self: slices.Passing) -> Any:
        if self._at == 2:
            raise RuntimeError("a slice")
        return kept(self)

    monkeypatch.setattr(slices.Passing, "next", failing)
    with SESSION.override(check=False):
        for one in (eager, model):
            loss_of(one(x)).backward()
    torch.testing.assert_close(gradients(model), gradients(eager))
    assert "its backward failed: RuntimeError: a slice" in str(model.report())


def test_a_write_between_forward_and_backward_raises() -> None:
    eager, model, x = both()
    for one in (eager, model):
        loss = one(x).sum()
        with torch.no_grad():
            one[4].weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_saved_values_are_freed() -> None:
    _, model, x = both()
    alive: list[Any] = []
    for retain in (False, True):
        out = model(x)
        alive = [
            weakref.ref(one)
            for one in out.grad_fn.saved_tensors
            if not isinstance(one, nn.Parameter)
        ]
        out.sum().backward(retain_graph=retain)
    del out
    gc.collect()
    assert not any(one() is not None and one() is not x for one in alive)


def test_accumulated_gradients_share_no_memory() -> None:
    _, model, x = both()
    model(x).sum().backward()
    kept = gradients(model)
    before = [one.clone() for one in kept]
    for one in model.parameters():
        one.grad = None
    model(x).sum().backward()
    model(2 * x).sum().backward()
    assert all(map(torch.equal, kept, before))


def test_without_a_reducer_and_without_a_request_the_program_is_the_same() -> None:
    """The node, and the texts of all kernels."""
    eager, model, x = both()
    plain = graftjit.compile(eager)
    texts = []
    for one in (plain, model):
        one(x).sum().backward()
        texts.append(sorted(each.source for each in one.report().kernels))
    assert texts[0] == texts[1] and any(texts[0])
    node = plain(x).grad_fn
    assert type(node.joint) is JointProgram and len(nodes(plain(x))) == 1


@pytest.mark.parametrize(
    ("segments", "n"), [(1, 1), (2, 2), ((1,), 18), ((10**9,), 1), ((600, 1200), 3)]
)
def test_sizes_of_segments(segments: Any, n: int) -> None:
    _, model, x = both(segments=segments)
    assert len(nodes(model(x))) == n


@pytest.mark.parametrize("segments", [0, -1, 1.5, (), (0,), ("a",), True])
def test_segments_are_checked(segments: Any) -> None:
    with pytest.raises(OptionError, match="segments"):
        graftjit.JitConfig(segments=segments)


def test_the_report_times_the_steps_of_all_segments() -> None:
    """As those of the undivided backward, under the same names."""
    found = []
    for segments in (1, 3):
        _, model, x = both("blocks", segments)
        for _ in range(40):
            loss_of(model(x)).backward()
        kernels = model.report().kernels
        assert all(one.seconds > 0 for one in kernels)
        found.append([one.name for one in kernels])
    assert found[0] == found[1]
