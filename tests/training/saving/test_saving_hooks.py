"""Saved-tensor hooks and `torch.utils.checkpoint` around compiled functions, beside plain Python:
values, gradients, errors, effects, and what the hooks get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

import graftjit
from graftjit.runtime.errors import GraftError
from graftjit.runtime.process.session import SESSION

Wrap = Callable[[Any], Any]


def leaf(*shape: int) -> torch.Tensor:
    made = torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) / 7
    return made.sin().requires_grad_()


def both(program: Callable[[Wrap], Any]) -> tuple[Any, Any]:
    """The results of a program in plain Python and with `jit`."""
    torch.manual_seed(0)
    plain = program(lambda fn: fn)
    torch.manual_seed(0)
    return plain, program(graftjit.jit)


def is_compiled(jitted: Any) -> bool:
    report = jitted.report()
    return report.break_count == 0 and "PL209" not in str(report)


class Block(nn.Module):
    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.outer, self.drop = nn.Linear(2 * width, width), nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.outer(torch.nn.functional.gelu(self.inner(self.norm(x)))))


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_checkpoint_of_jitted_blocks(dropout: float, early_stop: bool) -> None:
    functions = []

    def program(wrap: Wrap) -> Any:
        blocks = nn.ModuleList(Block(8, dropout) for _ in range(4)).double()
        functions[:] = [wrap(block) for block in blocks]
        x = leaf(3, 8).detach().double().requires_grad_()
        for _ in range(2):
            h = x
            for function in functions:
                h = checkpoint(function, h, use_reentrant=False, early_stop=early_stop)
            h.square().sum().backward()
        return x.grad, [p.grad for p in blocks.parameters()], torch.rand(2)

    torch.testing.assert_close(*both(program))
    assert all(map(is_compiled, functions))


def test_checkpoint_keeps_nothing_of_a_jitted_function() -> None:
    """Between forward and backward no memory inside the checkpoint is alive: neither what the
    function saves, nor an input that only a second derivative would need."""
    w = leaf(4)
    inside: list[StorageWeakRef] = []
    function = graftjit.jit(lambda a: ((a + w).tanh() * w).sum())

    def region(a: torch.Tensor) -> torch.Tensor:
        h = a * 2
        inside.append(StorageWeakRef(h.untyped_storage()))
        return function(h)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        inside.append(StorageWeakRef(tensor.untyped_storage()))
        return tensor * 1

    # the check keeps inputs for the comparison with eager mode
    with SESSION.override(check=False), saved_tensors_hooks(pack, lambda packed: packed):
        region(leaf(3, 4))
    outside = StorageWeakRef(w.untyped_storage())
    assert len(inside) >= 2
    assert all(one.expired() for one in inside if one != outside)
    inside.clear()
    with SESSION.override(check=False):
        y = checkpoint(region, leaf(3, 4), use_reentrant=False)
    assert inside[0].expired()
    y.backward()


def test_nested_and_reentrant_checkpoints_around_jitted_functions() -> None:
    def program(wrap: Wrap) -> Any:
        x, w = leaf(3, 4), leaf(4, 4)
        inner = wrap(lambda a: (a @ w).tanh())
        outer = wrap(lambda a: (a * 2).sin())

        def both(a: torch.Tensor) -> torch.Tensor:
            return outer(checkpoint(inner, outer(a), use_reentrant=False))

        checkpoint(both, x, use_reentrant=False).sum().backward()
        checkpoint(both, x, use_reentrant=True).sum().backward()
        return x.grad, w.grad

    torch.testing.assert_close(*both(program))


class Odd(ValueError):
    pass


def test_errors_of_hooks_reach_the_caller_once() -> None:
    def program(wrap: Wrap) -> Any:
        x, w, calls = leaf(3, 4), leaf(4, 4), []
        function = wrap(lambda a: (a @ w).tanh().sum())
        function(x)

        def fails(_: Any) -> Any:
            calls.append(1)
            raise Odd("no room")

        with saved_tensors_hooks(fails, lambda t: t), pytest.raises(Odd, match="no room"):
            function(x)
        with saved_tensors_hooks(lambda t: t, fails):
            y = function(x)
        with pytest.raises(Odd, match="no room"):
            y.backward()
        return len(calls), x.grad

    plain, compiled = both(program)
    assert plain == compiled == (2, None)


def test_offload_in_another_layout() -> None:
    """An unpack hook may return other strides than were saved."""

    def program(wrap: Wrap) -> Any:
        x, w = leaf(3, 4), leaf(5, 4)
        function = wrap(lambda a: ((a @ w.t()).tanh().t() * 3).sin().sum())

        def pack(tensor: torch.Tensor) -> Any:
            return tensor.detach().contiguous().numpy().tobytes(), tensor.shape

        def unpack(packed: Any) -> torch.Tensor:
            data, shape = packed
            return torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape)

        with saved_tensors_hooks(pack, unpack):
            y = function(x)
        y.backward()
        with save_on_cpu():
            y = function(x)
        y.backward()
        return x.grad, w.grad

    torch.testing.assert_close(*both(program))


def test_packed_tensors_stay_as_they_were() -> None:
    packed: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append((tensor, tensor.detach().clone()))
        return tensor

    x, w = leaf(6, 4), leaf(4, 4)
    function = graftjit.jit(lambda a: (((a @ w).tanh() @ w).exp() + a).sin().sum())
    with saved_tensors_hooks(pack, lambda t: t):
        y = function(x)
    y.backward()
    assert packed and is_compiled(function)
    for tensor, before in packed:
        assert torch.equal(tensor, before)


def test_an_unpack_hook_that_changes_the_dtype_is_an_error() -> None:
    x = leaf(3, 4)
    function = graftjit.jit(lambda a: (a.sin() * a).sum())
    with saved_tensors_hooks(lambda t: t, lambda t: t.double()):
        y = function(x)
    with pytest.raises(GraftError, match="unpack hook"):
        y.backward()


def test_second_order_under_hooks() -> None:
    """Inputs that only a second derivative needs are packed as well."""

    def program(wrap: Wrap) -> Any:
        x, w = leaf(3, 4), leaf(4)
        function = wrap(lambda a, b: (a + b).sin().sum())
        packed = []
        with saved_tensors_hooks(lambda t: packed.append(t.numel()) or t * 1, lambda t: t):
            y = function(x * 2, w * 3)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        g.square().sum().backward()
        return x.grad, w.grad

    torch.testing.assert_close(*both(program))


@pytest.mark.parametrize("early_stop", [True, False])
def test_effects_inside_a_checkpoint_happen_as_often(early_stop: bool) -> None:
    """A hook may raise in the middle of the function, so effects keep their order."""

    def program(wrap: Wrap) -> Any:
        x, w, log, count = leaf(3, 4), leaf(4, 4), [], torch.zeros(())

        @wrap
        def function(a: torch.Tensor) -> torch.Tensor:
            log.append("begins")
            y = (a @ w).tanh().sum()
            log.append("ends")
            return y

        @wrap
        def writer(a: torch.Tensor) -> torch.Tensor:
            y = (a @ w).tanh().sum()
            count.add_(1)
            return y

        for _ in range(2):
            for one in (function, writer):
                checkpoint(one, x, use_reentrant=False, early_stop=early_stop).backward()
        return x.grad, w.grad, log, count

    plain, compiled = both(program)
    torch.testing.assert_close(plain[:2], compiled[:2])
    assert plain[2:] == compiled[2:]


def test_several_results_under_hooks() -> None:
    def program(wrap: Wrap) -> Any:
        x, w = leaf(3, 4), leaf(4, 4)
        function = wrap(lambda a: ((a @ w).tanh().sum(), (a * 2).exp()))
        packed: list[Any] = []
        for _ in range(2):
            with saved_tensors_hooks(
                lambda t: packed.append(t) or len(packed) - 1, packed.__getitem__
            ):
                first, second = function(x)
            first.backward()
            second.sum().backward()
        return x.grad, w.grad

    torch.testing.assert_close(*both(program))


def test_hooks_that_are_disabled_are_an_error() -> None:
    x = leaf(3, 4)
    function = graftjit.jit(lambda a: (a.sin() * a).sum())
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        y = function(x)
        with pytest.raises(RuntimeError, match="not here"), saved_tensors_hooks(id, id):
            pass
    y.backward()
    assert is_compiled(function)


class _Refused(saved_tensors_hooks):
    """Hooks that raise when something is saved, or needed again."""

    def __init__(self, when: str, log: list[str]) -> None:
        def passed(name: str) -> Callable[[Any], Any]:
            def hook(given: Any) -> Any:
                log.append(name)
                if name == when:
                    raise KeyError(name)
                return given

            return hook

        super().__init__(passed("pack"), passed("unpack"))


def _caught_inside(x, log):
    with _Refused("pack", log):
        try:
            return (x.exp() * 2).sin()
        except KeyError as error:
            return str(error)


def _caught_outside(x, log):
    try:
        with _Refused("pack", log):
            return (x.exp() * 2).sin()
    except KeyError as error:
        return str(error)


def _caught_below_a_cast(x, log):
    with _Refused("pack", log):
        try:
            with torch.autocast("cpu", enabled=False):
                return (x.exp() * 2).sin()
        except KeyError as error:
            return str(error)


def _caught_in_a_callee(x, log):
    def inner():
        try:
            return x.exp()
        except KeyError:
            return x * 2

    with _Refused("pack", log):
        return inner()


def _at_the_end(x, log):
    try:
        with _Refused("pack", log):
            y = x.exp()
            return y * y
    finally:
        log.append("end")


def _needed_again(x, log):
    with _Refused("unpack", log):
        y = x.exp()
        try:
            y.sum().backward()
        except KeyError as error:
            return str(error)


def _only_seen(x, log):
    with _Refused("", log):
        y = (x.exp() * 2).sin()
        log.append("made")
    y.sum().backward()
    return x.grad


def _not_used(x, log):
    with _Refused("pack", log):
        try:
            x.exp()
        except KeyError as error:
            return str(error)


@pytest.mark.parametrize(
    "program",
    [
        *(_caught_inside, _caught_outside, _caught_below_a_cast, _caught_in_a_callee),
        *(_at_the_end, _needed_again, _only_seen, _not_used),
    ],
)
def test_hooks_of_a_block_in_the_frame(program: Callable[..., Any]) -> None:
    """What a hook raises comes from its operator, and the block's end runs."""
    jitted = graftjit.jit(program)
    for _ in range(2):
        found = []
        for run in (program, jitted):
            log: list[str] = []
            try:
                result = run(leaf(3), log)
            except KeyError as error:
                result = error
            found.append(
                (str(result), log, torch._C._autograd._top_saved_tensors_default_hooks(True))
            )
        assert found[0] == found[1]
        assert found[1][2] is None
