"""torch.compile and graftjit in one process: nested both ways, disabled, under stances, after resets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

import graftjit
from graftjit.runtime import _native


def body(x: Any) -> Any:
    return torch.relu(x) + 1


def by_torch(fn: Any) -> Any:
    return torch.compile(fn, backend="eager")


def jit_of_compiled() -> Any:
    return graftjit.jit(by_torch(body))


def compiled_of_jit() -> Any:
    return by_torch(graftjit.jit(body))


def compiled_calls_jitted() -> Any:
    inner = graftjit.jit(body)
    return by_torch(lambda x: inner(x + 1) - 1)


def jitted_calls_compiled() -> Any:
    inner = by_torch(body)
    return graftjit.jit(lambda x: inner(x + 1) - 1)


def three_deep() -> Any:
    innermost = graftjit.jit(body)
    inner = by_torch(lambda x: innermost(x) * 3)
    return graftjit.jit(lambda x: inner(x + 1) - 1)


def jitted_calls_compiled_module() -> Any:
    inner = by_torch(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softplus()))
    return graftjit.jit(lambda x: inner(x) + 1)


def compile_of_compiled_module() -> Any:
    return graftjit.compile(by_torch(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softplus())))


def torch_compile_of_ours() -> Any:
    return by_torch(graftjit.compile(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softplus())))


def bound(x: Any) -> Any:
    return torch.nn.functional.softplus(torch.relu(x))


WAYS: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (jit_of_compiled, body),
    (compiled_of_jit, body),
    (compiled_calls_jitted, lambda x: body(x + 1) - 1),
    (jitted_calls_compiled, lambda x: body(x + 1) - 1),
    (three_deep, lambda x: body(x + 1) * 3 - 1),
    (jitted_calls_compiled_module, lambda x: bound(x) + 1),
    (compile_of_compiled_module, bound),
    (torch_compile_of_ours, bound),
]


@pytest.fixture(autouse=True)
def _afresh() -> Any:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize(("make", "plain"), WAYS, ids=[make.__name__ for make, _ in WAYS])
def test_each_in_the_other(make: Any, plain: Any, caplog: pytest.LogCaptureFixture) -> None:
    made = make()
    for number in range(3):
        x = torch.randn(4, requires_grad=number == 2)
        with caplog.at_level(logging.WARNING):
            found = made(x)
        torch.testing.assert_close(found, plain(x))
        if x.requires_grad:
            (ours,) = torch.autograd.grad(found.sum(), x)
            (theirs,) = torch.autograd.grad(plain(x).sum(), x)
            torch.testing.assert_close(ours, theirs)
    torch.compiler.reset()
    torch.testing.assert_close(made(x), plain(x))
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert not _native.hook_status()["installed"]


def test_a_compiled_function_is_named_and_left_alone() -> None:
    inner = by_torch(body)
    outer = graftjit.jit(lambda x: inner(x + 1) - 1)
    for _ in range(2):
        outer(torch.ones(3))
    report = outer.report()
    assert [one.code for one in report.breaks] == ["GB142"]
    assert "body under torch.compile" in str(report)
    assert report.graph_count == 2  # before it and after it; nothing of it


def test_frames_of_ours_are_not_torch_compiles() -> None:
    """Dynamo walks through a jitted function to the function itself: its graph has nothing of ours."""
    seen: list[str] = []

    def backend(module: Any, _inputs: Any) -> Any:
        seen.append(str(module.graph))
        return module.forward

    inner = graftjit.jit(body)
    torch.compile(lambda x: inner(x * 2) * 5, backend=backend)(torch.ones(3))
    assert len(seen) == 1
    assert seen[0].count("call_function[") == 4  # mul, relu, add, mul


def test_disabled_functions_and_all_they_call_run_plain() -> None:
    def deeper(x: Any) -> Any:
        return x.sin().cos()

    @torch.compiler.disable
    def disabled(x: Any) -> Any:
        return deeper(x) + 1

    jitted = graftjit.jit(lambda x: disabled(x * 2) * 3)
    x = torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(jitted(x), disabled(x * 2) * 3)
    report = jitted.report()
    assert [one.code for one in report.breaks] == ["GB142"]
    assert not any("sin" in str(kernel) for kernel in report.kernels)


def test_disabled_below_a_frame_that_the_hook_meets() -> None:
    """The call stands in a frame of its own, below one that broke before."""

    @torch.compiler.disable
    def disabled(x: Any) -> Any:
        return x.sin().cos()

    def middle(x: Any) -> Any:
        print(end="")
        return disabled(x) + 1

    jitted = graftjit.jit(lambda x: middle(x * 2) * 3)
    x = torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(jitted(x), middle(x * 2) * 3)
    assert not any("sin" in str(kernel) for kernel in jitted.report().kernels)


def test_disabled_not_recursively() -> None:
    """The function's own frame is no part of the caller's graph."""

    @torch.compiler.disable(recursive=False)
    def disabled(x: Any) -> Any:
        return x.sin()

    jitted = graftjit.jit(lambda x: disabled(x * 2) * 3)
    x = torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(jitted(x), (x * 2).sin() * 3)


@pytest.mark.parametrize(
    "stance", ["default", "force_eager", "eager_on_recompile", "fail_on_recompile"]
)
def test_stances_are_torch_compiles(stance: str) -> None:
    """They say what torch.compile does; what graftjit compiles gives the same under each."""
    inner = by_torch(body)
    outer = graftjit.jit(lambda x: inner(x + 1) - 1)
    around = compiled_calls_jitted()
    x = torch.randn(4)
    outer(x), around(x)
    with torch.compiler.set_stance(stance):
        for _ in range(2):
            torch.testing.assert_close(outer(x), body(x + 1) - 1)
            torch.testing.assert_close(around(x), body(x + 1) - 1)


def test_a_jitted_function_may_be_disabled() -> None:
    """torch.compiler.disable takes a jitted function as it takes a function; a frame that calls it breaks there."""
    disabled = torch.compiler.disable(graftjit.jit(body))
    x = torch.randn(4)
    torch.testing.assert_close(disabled(x), body(x))
    outer = graftjit.jit(lambda x: disabled(x) * 2)
    for _ in range(2):
        torch.testing.assert_close(outer(x), body(x) * 2)
    assert [one.code for one in outer.report().breaks] == ["GB142"]


def test_a_stance_of_torch_compiles_in_a_frame() -> None:
    def around(x: Any) -> Any:
        with torch.compiler.set_stance("force_eager"):
            y = body(x)
        return y * 2

    x, jitted = torch.randn(4), graftjit.jit(around)
    for _ in range(2):
        torch.testing.assert_close(jitted(x), around(x))


def test_torch_export_takes_compiled_models_and_models_with_jitted_functions() -> None:
    class Net(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x) * 2

    x, plain = torch.randn(4), Net(body)
    for model in (graftjit.compile(Net(body)), Net(graftjit.jit(body))):
        exported = torch.export.export(model, (x,)).module()
        torch.testing.assert_close(exported(x), plain(x))
        torch.testing.assert_close(graftjit.compile(exported)(x), plain(x))
