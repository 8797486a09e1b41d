"""Programs and their steps are ranges of `torch.profiler`, while it runs on this thread, and change nothing."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import graftjit
from graftjit.runtime.process.session import SESSION


@pytest.fixture(autouse=True)
def _unchecked() -> Any:
    """As users run: the comparison of GRAFTJIT_CHECK runs functions once more."""
    with SESSION.override(check=False):
        yield


def _profiled(run: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    with profile(activities=[ProfilerActivity.CPU], **options) as seen:
        found = run()
    return found, seen


def _ours(seen: Any) -> list[Any]:
    return [event for event in seen.events() if event.name.startswith("graftjit: ")]


def _within(event: Any) -> list[str]:
    return [child.name for child in event.cpu_children]


def _layer(x: Any, w: Any, b: Any) -> Any:
    return torch.softmax(torch.addmm(b, x, w), -1).sum()


def _tensors(grad: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(16, 8), (8, 12), (12,)]
    return [torch.randn(shape, requires_grad=grad) for shape in shapes]


@pytest.mark.parametrize("options", [{}, {"record_shapes": True, "profile_memory": True}])
def test_a_program_and_its_steps_are_ranges(options: dict[str, bool]) -> None:
    fn = graftjit.jit(_layer)
    given = _tensors()
    before = fn(*given)
    found, seen = _profiled(lambda: fn(*given), **options)
    assert torch.equal(found, before)
    (program,) = _ours(seen)
    assert program.name == "graftjit: _layer"
    (emitted,) = fn.report().graphs
    steps = [one.name for one in fn.report().kernels if one.graph == emitted.name]
    assert steps and [name for name in _within(program) if name in steps] == steps


def test_what_is_compiled_under_the_profiler_is_one_too() -> None:
    fn = graftjit.jit(_layer)
    given = _tensors()
    (first, second), seen = _profiled(lambda: (fn(*given), fn(*given)))
    assert torch.equal(first, second)
    assert len([one for one in _ours(seen) if one.name == "graftjit: _layer"]) == 2


def test_backward_is_a_range_of_its_own() -> None:
    fn = graftjit.jit(_layer)
    given = _tensors(grad=True)

    def step() -> list[Any]:
        return list(torch.autograd.grad(fn(*given), given))

    expected = step()
    found, seen = _profiled(step)
    assert all(map(torch.equal, found, expected))
    forward, backward = _ours(seen)
    assert (forward.name, backward.name) == ("graftjit: _layer", "graftjit: _layer_backward")
    assert forward.time_range.end <= backward.time_range.start
    for program in (forward, backward):
        assert any(name.startswith(("k0_", "c0_")) for name in _within(program))


def test_an_exception_ends_the_ranges() -> None:
    def lookup(table: Any, at: Any) -> Any:
        return table.exp()[at] * 2

    fn = graftjit.jit(lookup)
    table, good, bad = torch.randn(4, 3), torch.tensor([1, 2]), torch.tensor([1, 9])
    fn(table, good)

    def run() -> Any:
        for call in (lookup, fn):
            with pytest.raises(IndexError):
                call(table, bad)
        return fn(table, good)

    found, seen = _profiled(run)
    torch.testing.assert_close(found, lookup(table, good))
    failed, *others = _ours(seen)
    assert others and all(failed.time_range.end <= other.time_range.start for other in others)
    assert all(one.cpu_parent is None for one in (failed, *others))


def test_without_a_profiler_there_is_none_and_its_runs_are_no_samples() -> None:
    fn = graftjit.jit(_layer)
    given = _tensors()
    fn(*given)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(20):
            fn(*given)
    fn(*given)
    assert len(_ours(seen)) == 20
    (state,) = fn._unit.states
    (entry,) = state.entries
    assert entry.target.times()[:2] == (22, 0) and state.times()[:2] == (22, 0)
    for _ in range(40):
        fn(*given)
    assert entry.target.times()[1] > 0 and state.times()[1] > 0


def test_other_threads_are_not_profiled() -> None:
    fn = graftjit.jit(_layer)
    given = _tensors()
    fn(*given)

    def elsewhere() -> None:
        thread = threading.Thread(target=lambda: fn(*given))
        thread.start()
        thread.join()

    elsewhere()
    _found, seen = _profiled(elsewhere)
    assert not _ours(seen)
    _found, seen = _profiled(lambda: fn(*given))
    assert len(_ours(seen)) == 1
