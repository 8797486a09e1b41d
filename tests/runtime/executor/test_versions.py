"""Version counters after compiled writes are those of eager, and backward refuses what was written after it was saved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import graftjit


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y).mul_(2)
    return x.sin() + y


def by_index(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[0] = 3
    x[1:] *= y[1:]
    return x + y


def copied(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.copy_(torch.tanh(y) + 1)
    return x


def through_views(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    tail = x[1:]
    tail.exp_()
    tail.view(-1).add_(y[1:])
    return tail * 2


def by_out(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    torch.add(y, 1, out=x)
    torch.sin(x, out=x)
    return x + 1


def augmented(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x += y.sin()
    x -= 1
    return x.relu_()


def both(x: torch.Tensor, y: torch.Tensor) -> None:
    x.zero_()
    y.fill_(2.0)


def returned_and_written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x.sin()
    z.add_(1)
    z.mul_(y)
    return z


PROGRAMS = [
    in_place,
    by_index,
    copied,
    through_views,
    by_out,
    augmented,
    both,
    returned_and_written,
]


def run(function: Callable, times: int = 3) -> tuple[list[int], list[torch.Tensor]]:
    """Versions of the operands and the result after each call, and the values in the end."""
    generator = torch.Generator().manual_seed(5)
    x, y = torch.randn(6, generator=generator), torch.randn(6, generator=generator)
    versions = []
    for _ in range(times):
        result = function(x, y)
        versions += [x._version, y._version]
    return versions, [x, y, *([] if result is None else [result])]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("level", ["O0", "O1"])
def test_versions_are_those_of_eager(program, level):
    config = graftjit.JitConfig(jit_level=level)
    versions, values = run(program)
    jitted_versions, jitted_values = run(graftjit.jit(program, config=config))
    assert jitted_versions == versions
    for got, expected in zip(jitted_values, values, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    "program", [in_place, by_index, copied, through_views, by_out], ids=lambda p: p.__name__
)
def test_backward_refuses_what_was_written_after_it_was_saved(program):
    jitted = graftjit.jit(program)
    for call in (program, jitted, jitted):
        x, y = torch.rand(6), torch.rand(6)
        w = torch.ones(6, requires_grad=True)
        loss = (w * x).sum()
        call(x, y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_what_was_only_read_can_be_differentiated():
    jitted = graftjit.jit(lambda x, y: x.sin() + y)
    x, y = torch.rand(6), torch.rand(6)
    w = torch.ones(6, requires_grad=True)
    loss = (w * x).sum()
    jitted(x, y)
    loss.backward()
    assert torch.equal(w.grad, x)


def test_a_buffer_written_by_a_module():
    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("running", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.running.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return x - self.running

    eager, compiled = Mean(), Mean()
    fast = graftjit.compile(compiled)
    x = torch.rand(3, 4)
    for _ in range(3):
        torch.testing.assert_close(fast(x), eager(x))
        assert compiled.running._version == eager.running._version
