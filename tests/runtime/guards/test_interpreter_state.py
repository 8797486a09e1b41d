"""The packed image of interpreter state says what the plain-Python reading says, whatever is toggled."""

from __future__ import annotations

import contextlib
import threading
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graftjit.runtime import _native
from graftjit.runtime.guards import interpreter_state as state
from graftjit.runtime.guards import tensor_access as tensors


class Quiet(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def set_to(setter, value, before):
    setter(value)
    try:
        yield
    finally:
        setter(before)


TOGGLES = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "autocast cuda": lambda: set_to(
        lambda on: torch._C.set_autocast_enabled("cuda", on), True, False
    ),
    "autocast dtype": lambda: set_to(
        lambda dtype: torch._C.set_autocast_dtype("cpu", dtype), torch.float16, torch.bfloat16
    ),
    "autocast cache": lambda: set_to(torch.set_autocast_cache_enabled, False, True),
    "default dtype": lambda: set_to(torch.set_default_dtype, torch.float64, torch.float32),
    "default device": lambda: torch.device("meta"),
    "dispatch mode": Quiet,
    "torch function off": torch._C.DisableTorchFunctionSubclass,
    "torch function all off": torch._C.DisableTorchFunction,
    "deterministic": lambda: set_to(torch.use_deterministic_algorithms, True, False),
    "warn only": lambda: set_to(
        lambda on: torch.use_deterministic_algorithms(on, warn_only=on), True, False
    ),
    "flash attention": lambda: set_to(torch.backends.cuda.enable_flash_sdp, False, True),
    "math attention": lambda: set_to(torch.backends.cuda.enable_math_sdp, False, True),
    "mkldnn": lambda: set_to(torch._C._set_mkldnn_enabled, False, True),
    "forward ad": torch.autograd.forward_ad.dual_level,
    "forward grad off": lambda: set_to(torch._C._set_fwd_grad_enabled, False, True),
}


@pytest.fixture(params=["native", "python"])
def route(request: pytest.FixtureRequest):
    tensors.bind(("state",) if request.param == "python" else ())
    yield request.param
    tensors.bind()


@pytest.mark.parametrize("name", TOGGLES)
def test_a_toggle_is_seen_and_forgotten(route, name):
    rest = state.snapshot()
    assert _native.state_matches(rest)
    with TOGGLES[name]():
        toggled = state.snapshot()
        assert toggled != rest
        assert not _native.state_matches(rest)
        assert _native.state_matches(toggled)
        assert toggled.difference(rest)
    assert _native.state_matches(rest)
    assert not _native.state_matches(toggled)
    assert state.snapshot() == rest


def test_pairs_of_toggles_are_told_apart():
    names = ["no_grad", "inference_mode", "autocast", "default dtype", "forward grad off"]
    seen: list[state.State] = []
    for first in names:
        for second in names:
            with TOGGLES[first](), TOGGLES[second]():
                now = state.snapshot()
                for other in seen:
                    assert _native.state_matches(other) == (other == now), (first, second)
                seen.append(now)


def test_transforms_and_tracing(route):
    rest = state.snapshot()
    found = []

    def inside(x):
        found.append((_native.state_matches(rest), state.snapshot().plain))
        return x * 2

    torch.func.vmap(inside)(torch.zeros(3))
    torch.func.grad(lambda x: inside(x).sum())(torch.zeros(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.trace is deprecated in newer versions
        torch.jit.trace(inside, torch.zeros(3), check_trace=False)
    assert found == [(False, False)] * 3
    assert _native.state_matches(rest)


def test_two_default_devices_differ(route):
    with torch.device("meta"):
        one = state.snapshot()
        assert _native.state_matches(one)
    with torch.device("cpu"):
        assert not _native.state_matches(one)


def test_each_thread_has_its_own(route):
    rest = state.snapshot()
    found = []

    def other():
        found.append(_native.state_matches(rest))
        with torch.no_grad():
            found.append(_native.state_matches(rest))

    with torch.no_grad():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        found.append(_native.state_matches(rest))
    assert found == [True, False, False]


def test_plain():
    assert state.snapshot().plain
    for name in ("default device", "dispatch mode", "forward ad", "torch function off"):
        with TOGGLES[name]():
            assert not state.snapshot().plain
    with torch._C._DisableTorchDispatch():
        assert not state.snapshot().plain
    for name in ("no_grad", "autocast", "default dtype"):
        with TOGGLES[name]():
            assert state.snapshot().plain
