"""Each known divergence from eager, written down as a test that says what happens instead. The aim is an empty file."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import graftjit
from graftjit.runtime.errors import GraftError
from graftjit.runtime.process.session import SESSION


def ones() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def test_sums_that_overflow_in_eager_alone() -> None:
    """Eager's layer norm adds up squares in float32, and gives nan where they overflow; a kernel adds in a wider range, and gives
    numbers. GRAFTJIT_CHECK tells of it."""
    x = torch.tensor([[1e20, -1e20, 2e20, -3e20, 1e20, -1e20, 2e20, -3e20]])
    assert bool(torch.nn.functional.layer_norm(x, (8,)).isnan().all())
    with pytest.raises(GraftError, match="nan or infinite in one of them only"):
        graftjit.jit(lambda x: torch.nn.functional.layer_norm(x, (8,)))(x)


def test_gelu_overflows_in_eager_alone() -> None:
    """Eager's vectors give nan for gelu(inf) and inf above 1.7e38, where its loop for one element gives x, as a kernel does."""
    gelu, x = torch.nn.functional.gelu, torch.tensor([float("inf"), 3e38] * 8)
    assert torch.equal(gelu(x[:1]), x[:1]) and torch.equal(gelu(x[1:2]), x[1:2])
    if torch.equal(gelu(x), x):  # its vectors of AVX2 are right
        assert torch.equal(graftjit.jit(gelu)(x), x)
        return
    with pytest.raises(GraftError, match="nan or infinite in one of them only"):
        graftjit.jit(gelu)(x)


def test_of_two_zeros_eager_takes_one_by_the_place_of_the_element() -> None:
    """Its vectors take the second of two zeros, its loop over the elements behind them the first. A kernel takes the second
    one at each place of a tensor of that size."""
    x = torch.full((1001,), -0.0)
    plain = torch.signbit(torch.maximum(x, torch.zeros(1001)))
    found = torch.signbit(graftjit.jit(torch.maximum)(x, torch.zeros(1001)))
    assert not found[-1] and bool(plain[-1])
    assert torch.equal(found[:900], plain[:900])


def test_of_zeros_of_both_signs_a_fold_keeps_one_by_its_own_order() -> None:
    """So does eager's, whose order hangs on sizes and strides. The number is the same."""
    x = torch.tensor([0.0, -0.0] * 50)
    for of in (torch.amax, torch.amin):
        assert graftjit.jit(lambda x, of=of: of(x, 0))(x) == of(x, 0) == 0


def test_functions_that_eager_computes_wrong_by_vectors() -> None:
    """On some processors eager's gelu of infinity, and its fmod and remainder of a quotient beyond 1e38, are nan; its erf of a
    denormal bfloat16 is zero. A kernel gives what the function is."""
    x, y = torch.full((64,), 3e38), torch.full((64,), 0.5)
    assert bool(torch.fmod(x, y).isnan().all())
    with pytest.raises(GraftError, match="nan or infinite in one of them only"):
        graftjit.jit(torch.fmod)(x, y)


def test_functions_of_torch_call_what_they_called_when_they_were_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that the program puts in the place of torch's is seen where the program itself calls it. Other functions of torch are
    recorded whole, and no guard looks into them."""
    relu, x = torch.nn.functional.relu, torch.ones(2)
    direct, whole = graftjit.jit(lambda x: torch.relu(x)), graftjit.jit(lambda x: relu(x))
    assert direct(x).tolist() == whole(x).tolist() == [1, 1]
    monkeypatch.setattr(torch, "relu", lambda x: x + 100)
    assert relu(x).tolist() == direct(x).tolist() == [101, 101]
    with pytest.raises(
        GraftError, match="is not what eager gives"
    ):  # silent without GRAFTJIT_CHECK
        whole(x)
    assert graftjit.jit(lambda x: relu(x))(x).tolist() == [101, 101]


def test_results_that_share_a_part_that_data_skip_lead_to_each_others_histories() -> None:
    """A hook of a tensor with a history, which only another result depends on, gets None, where eager mode does not call it.
    Without such a part these results have nodes apart."""

    def heads(x: torch.Tensor, w: torch.Tensor) -> Any:
        h = torch.tanh(x)
        for i in range(2):
            if x[i] > 0:
                h = h.sin() * h
        return h.exp(), h * h * w

    found = []
    for f in (heads, graftjit.jit(heads)):
        x, w, heard = ones(), ones(), list[Any]()
        before = w * w
        before.register_hook(heard.append)
        f(x, before)[0].sum().backward()
        found.append(heard)
    assert found == [[], [None]]


class Shifted(torch.autograd.Function):
    """Its backward is not linear."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * g + 1


def test_a_second_derivative_calls_a_backward_apart_from_the_first() -> None:
    """In eager the second derivative comes to the node of the forward from two sides, and autograd adds up the gradients before it
    calls the backward once. A compiled part calls it for each side, which differs where it is not linear."""
    found = []
    for function in (Shifted.apply, graftjit.jit(lambda x: Shifted.apply(x).square())):
        x = ones()
        y = function(x).square() if function is Shifted.apply else function(x)
        (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(g.square().sum(), x)[0])
    assert not torch.allclose(*found)  # silent


def test_a_second_derivative_passes_a_result_that_a_checkpoint_computes_again() -> None:
    """What eager's checkpoint computes again has the history of the saved tensor that it stands for. So the second derivative of
    a region that ends with an operator that saves its own result goes through that result, its hooks and its `retain_grad`."""
    found = []

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: y.sin().sigmoid(), x, use_reentrant=False)  # type: ignore[no-any-return]

    for function in (f, graftjit.jit(f)):
        x = ones()
        y, heard = function(x), list[float]()
        y.register_hook(lambda g, heard=heard: heard.append(g.sum().item()))
        (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        g.square().sum().backward()
        found.append((heard, x.grad))
    assert torch.allclose(found[0][1], found[1][1])
    assert found[0][0][0] == pytest.approx(found[1][0][0])
    assert found[0][0][1] != pytest.approx(found[1][0][1])  # silent


def test_a_write_past_autograd_before_a_second_derivative() -> None:
    """A write by `.data` raises no version. Eager has saved results of the forward, which it leaves as they were; a second
    derivative of a compiled part computes them again, and a first one those that are cheap."""
    found = []
    for function in (torch.exp, graftjit.jit(lambda x: torch.exp(x))):
        x = ones()
        y = function(x)
        x.data.mul_(2)
        found.append(torch.autograd.grad(y.sum(), x, create_graph=True)[0])
    assert not torch.allclose(*found)  # silent


def test_other_data_before_a_backward() -> None:
    """`w.data = other` raises no version. Where eager's operator has saved a view of the weight, as `linear` does, that view has the
    memory of before; a compiled part has saved the weight and reads what it has now. An operator that saves the weight itself
    reads that in eager mode too."""
    found = []
    for function in (torch.nn.functional.linear, graftjit.jit(torch.nn.functional.linear)):
        w, x = torch.nn.Parameter(torch.ones(2, 3)), ones()
        with SESSION.override(check=False):
            y = function(x, w)
        w.data = w.detach() * 5
        y.sum().backward()
        found.append(x.grad)
    assert [one[0].item() for one in found if one is not None] == [2, 10]  # silent


def test_training_casts_a_weight_in_each_graph() -> None:
    """Autocast keeps the first cast of a weight until its block ends, also if the weight is written meanwhile. A compiled part
    with a gradient casts the weight as it is."""
    found = []
    for through in (lambda f: f, graftjit.jit):
        w = torch.nn.Parameter(torch.ones(3, 3))
        f = through(lambda x, w=w: torch.mm(x, w) * 2)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            before = f(torch.eye(3))
            w.data.mul_(2)
            found.append((before.tolist(), f(torch.eye(3)).tolist()))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]  # silent


def test_hooks_for_saved_tensors_get_what_the_compiled_node_saves() -> None:
    """A hook that changes values changes other values than in eager mode."""

    def f(x: torch.Tensor) -> Any:
        return (x.sin() * x.cos()).sum()

    found = []
    for function in (f, graftjit.jit(f)):
        x = ones()
        packed: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, packed=packed: packed.append(1) or t * 2, lambda t: t
        ):
            y = function(x)
        y.backward()
        found.append((len(packed), x.grad))
    assert [n for n, _ in found] == [4, 1]
    assert not torch.allclose(found[0][1], found[1][1])
