"""Writes to tensors of the caller beside operators that may raise for what is in a tensor: whatever was done before (attributes,
lists, handlers), one graph, and after an exception everything is as eager leaves it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def a_write_before(s: Any, x: Any, at: Any) -> Any:
    s.seen.append(1)
    s.a.add_(x)
    y = torch.gather(s.a, 0, at)
    s.seen.append(2)
    return y * 2


@program
def several_writes(s: Any, x: Any, at: Any) -> Any:
    s.count += 1
    s.a.add_(x).mul_(2)
    y = s.a.sum() + s.a[at].sum()
    s.a.div_(y.abs() + 1)
    s.b.copy_(s.a.tanh())
    z = torch.gather(s.b, 0, at)
    s.a.add_(z.sum())
    s.count += 1
    return z


@program
def parts_of_a_buffer(s: Any, x: Any, at: Any) -> Any:
    s.seen.append("begun")
    first, rest = s.a[:2], s.a.split(2)[1]
    first.add_(1)
    s.a[3:5] = x[:2]
    rest.mul_(first.sum())
    y = s.a[at] + s.a.view(2, 4)[1].sum()
    s.a.t().neg_()
    return y, first + 1


@program
def views_go_out(s: Any, x: Any, at: Any) -> Any:
    s.seen.append(1)
    part = s.a[1:4]
    s.a.add_(x)
    y = s.a[at]
    return y, part, s.a[2:], s.a


@program
def what_is_written_goes_out(s: Any, x: Any, at: Any) -> Any:
    s.seen.append(1)
    value = x * 3
    s.a.copy_(value)
    y = s.a[at]
    value.add_(1)
    return y, value


@program
def a_handler_around(s: Any, x: Any, at: Any) -> Any:
    s.a.add_(1)
    try:
        y = torch.gather(s.a, 0, at)
        s.b.add_(y.sum())
    except (IndexError, RuntimeError) as error:
        s.seen.append(type(error).__name__)
        s.b.sub_(1)
        y = s.b * 2
    s.a.mul_(2)
    return y


@program
def batch_norm_and_targets(s: Any, x: Any, at: Any) -> Any:
    s.seen.append(1)
    out = F.batch_norm(x.view(4, 2), s.mean, s.var, training=True)
    s.steps.add_(1)
    out = F.batch_norm(out, s.mean, s.var, training=True)
    loss = F.cross_entropy(out, at[:4] % 8 // 4 + at[:4] // 8)
    s.total.add_(loss)
    return loss, s.mean * 2


@program
def an_index_and_a_write_at_once(s: Any, x: Any, at: Any) -> Any:
    s.seen.append(1)
    s.a.index_put_((at,), x, accumulate=True)
    return s.a.cumsum(0)


@program
def random_numbers(s: Any, x: Any, at: Any) -> Any:
    s.seen.append(1)
    s.a.add_(torch.rand(8))
    y = F.dropout(s.a, 0.5)[at]
    s.b.normal_()
    return y + torch.rand(8)


@program
def whole_numbers_divided(s: Any, x: Any, at: Any) -> Any:
    s.seen.append(1)
    s.steps.add_(1)
    return at // (at - 5), s.steps + 0


@program
def a_changed_grad_mode(s: Any, x: Any, at: Any) -> Any:
    with torch.no_grad():
        s.a.add_(x)
        y = torch.gather(s.a, 0, at)
        s.b.copy_(y)
    return s.b * 2


class State:
    def __init__(self) -> None:
        self.a, self.b = torch.arange(8.0), torch.ones(8)
        self.mean, self.var = torch.zeros(2), torch.ones(2)
        self.steps, self.total = torch.tensor(0), torch.zeros(())
        self.seen: list[Any] = []
        self.count = 0


CALLS = [
    [0, 1, 2, 3, 4, 6, 7, 0],
    [7, 6, 4, 4, 3, 2, 1, 0],
    [1, 2, 9, 0, 5, 3, 6, 7],
    [3, 2, 1, 0, 0, 0, 0, 0],
]


def outcome(function: Callable[..., Any], s: Any, index: list[int], seed: int) -> Any:
    x = torch.linspace(-1, 1, 8)
    torch.manual_seed(seed)
    try:
        found = function(s, x, torch.tensor(index))
    except (IndexError, RuntimeError) as error:
        found = type(error), str(error)
    return found, torch.rand(1)


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            same(one, other)
    elif isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b)
        assert (a.stride(), a._is_view()) == (b.stride(), b._is_view())
    else:
        assert a == b


@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_state_is_eagers(name: str, level: str) -> None:
    function = PROGRAMS[name]
    jitted = graftjit.jit(function, config=graftjit.JitConfig(jit_level=level))
    ours, theirs = State(), State()
    for seed, index in enumerate(CALLS):
        found, expected = (
            outcome(one, s, index, seed) for one, s in ((jitted, ours), (function, theirs))
        )
        same(found, expected)
        for key, value in vars(theirs).items():
            same(getattr(ours, key), value)
            if isinstance(value, torch.Tensor):
                assert getattr(ours, key)._version == value._version, key
    assert jitted.report().break_count == 0, jitted.report()


def test_under_inference_mode() -> None:
    function = PROGRAMS["a_write_before"]
    jitted = graftjit.jit(function)
    with torch.inference_mode():
        ours, theirs = State(), State()
        for index in CALLS:
            same(outcome(jitted, ours, index, 0), outcome(function, theirs, index, 0))
            same(ours.a, theirs.a)
            assert ours.seen == theirs.seen


def test_a_part_of_a_tensor_with_holes_cannot_wait() -> None:
    def function(s: Any, x: Any, at: Any) -> Any:
        s.seen.append(1)
        s.a.add_(1)
        return at // (at - 5)

    jitted = graftjit.jit(function)
    ours, theirs = State(), State()
    for s in (ours, theirs):
        s.a = torch.zeros(16)[::2]
    for index in CALLS:
        same(outcome(jitted, ours, index, 0), outcome(function, theirs, index, 0))
        same(ours.a, theirs.a)
        assert ours.seen == theirs.seen
    assert "GB138" in str(jitted.report())


def test_an_error_after_a_write_is_raised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody could foresee (memory that ran out) must not do the writes a second time."""
    from graftjit.ir.graph.nodes import Graph
    from graftjit.runtime.autograd import rollback as taking_back

    written = torch.zeros(3)

    def run(*inputs: Any) -> Any:
        inputs[0].add_(1)
        raise MemoryError("no more")

    again = taking_back.again(run, Graph("g", mutates=True, written=[0]), True)
    with pytest.raises(taking_back.Begun) as raised:
        again(written)
    assert type(raised.value.error) is MemoryError
    with pytest.raises(MemoryError):
        taking_back.unwriting(run, [0])(written)
    assert written.tolist() == [1, 1, 1]
    assert written._version == 1


def test_copies() -> None:
    """A module's forward that counts its calls, with a lookup behind a norm."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.table, self.calls = torch.nn.BatchNorm1d(4), torch.nn.Embedding(5, 4), 0

        def forward(self, x: Any, at: Any) -> Any:
            self.calls += 1
            return (self.norm(x) * self.table(at)).sum()

    torch.manual_seed(0)
    net = Net()
    compiled = graftjit.compile(copy.deepcopy(net))
    first = [{k: v._version for k, v in one.state_dict().items()} for one in (net, compiled)]
    for index in ([0, 1], [4, 2], [5, 1], [3, 3]):
        outs = []
        for one in (net, compiled):
            one.zero_grad()
            try:
                out = one(torch.arange(8.0).view(2, 4), torch.tensor(index))
                out.backward()
                outs.append(out)
            except IndexError as error:
                outs.append(str(error))
        same(*outs) if isinstance(outs[0], str) else torch.testing.assert_close(*outs)
        assert net.calls == compiled.calls
        for (key, a), b in zip(
            net.state_dict().items(), compiled.state_dict().values(), strict=True
        ):
            torch.testing.assert_close(a, b, msg=key)
            moved = (a._version - first[0][key], b._version - first[1][key])
            assert moved[0] == moved[1], key
        for a, b in zip(net.parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
    assert graftjit.report(compiled).break_count == 0
