"""Group norm, batch norm by the batch, instance norm as kernels: values, errors, layouts; buffers as eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graftjit

from ..harness import check, make
from ..symbolic import check_open

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return (torch.randn(shape, generator=generator) * 2 + 1).to(dtype)


LAYOUTS = {
    "plain": numbers(2, 8, 6, 5),
    "channels last": numbers(2, 8, 6, 5).to(memory_format=torch.channels_last),
    "three": numbers(2, 8, 11),
    "two": numbers(3, 8),
    "volumes": numbers(2, 8, 3, 4, 5),
    "wide": numbers(2, 64, 7, 7).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_group_norm(layout, dtype):
    x = LAYOUTS[layout].to(dtype)
    weight = numbers(x.shape[1], dtype=dtype)
    for groups in (1, 4, x.shape[1]):
        if x.numel() // (x.shape[0] * groups) < 2:
            continue
        check(lambda x, w: F.silu(F.group_norm(x, groups, w, w + 1)), x, weight, library=None)
        own = "channels" not in layout and layout != "wide"
        check(lambda x: F.group_norm(x, groups), x, kernels=int(own), library=1 - own)
    if x.element_size() == 2:
        check(lambda x, w: F.group_norm(x, 4, w, w), x, weight.float(), library=None)


def test_group_norm_and_what_follows_are_one_kernel():
    x, w = numbers(2, 8, 6, 5), numbers(8)
    check(lambda x, w: F.silu(F.group_norm(x, 4, w, w)) + x, x, w, kernels=1)
    check(lambda x, w: torch.ops.aten.native_group_norm(x, w, w, 2, 8, 30, 2, 1e-5), x, w)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("two",)])
def test_instance_norm(layout):
    x = LAYOUTS[layout]
    weight = numbers(x.shape[1])
    check(lambda x: F.instance_norm(x).relu(), x, library=None)
    check(lambda x, w: F.instance_norm(x, None, None, w, w) * 2, x, weight, library=None)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_batch_norm_by_the_batch(layout, dtype):
    x = LAYOUTS[layout].to(dtype)
    weight = numbers(x.shape[1], dtype=dtype)
    check(lambda x, w: F.batch_norm(x, None, None, w, w, True).relu(), x, weight)
    check(lambda x: F.batch_norm(x, None, None, None, None, True), x)


def test_a_module_in_training_has_eagers_buffers():
    for momentum in (0.1, None):
        ours, eager = (torch.nn.BatchNorm2d(8, momentum=momentum) for _ in range(2))
        x = numbers(4, 8, 6, 6)
        compiled = graftjit.jit(lambda x: ours(x).relu())
        with torch.no_grad():
            for step in range(4):
                torch.testing.assert_close(compiled(x + step), eager(x + step).relu())
        for name, buffer in eager.named_buffers():
            assert dict(ours.named_buffers())[name]._version == buffer._version
            torch.testing.assert_close(dict(ours.named_buffers())[name], buffer)


@pytest.mark.parametrize("dim", ("plain", "channels last"))
def test_errors_are_no_larger_than_twice_eagers(dim):
    x = torch.randn(8, 32, 40, 40) * 3 + 5
    x = x.to(memory_format=torch.channels_last) if dim == "channels last" else x
    for fn in (
        lambda x: F.group_norm(x, 8),
        lambda x: F.batch_norm(x, None, None, None, None, True),
        lambda x: F.instance_norm(x),
    ):
        with torch.no_grad():
            found, eager, exact = graftjit.jit(fn)(x), fn(x), fn(x.double())
        assert (found - exact).abs().max() <= 2 * (eager - exact).abs().max()


@pytest.mark.parametrize("value", (float("nan"), float("inf")))
def test_what_is_not_finite(value):
    x = numbers(3, 8, 6, 5)
    x[1, 3, 2, 2] = value
    check(lambda x: F.group_norm(x, 4) + 1, x)
    check(lambda x: F.batch_norm(x, None, None, None, None, True) + 1, x)
    check(lambda x: F.group_norm(x * 0, 4) + 1, numbers(2, 8, 3, 3))


def test_what_stays_with_aten():
    for x in (numbers(2, 8, 0), numbers(0, 8, 4)):
        check(lambda x: F.group_norm(x, 4), x, library=None)
    mean, variance = numbers(8), numbers(8).abs()
    fn = lambda x, m, v: torch.native_batch_norm(x, None, None, m, v, True, 0.1, 1e-5)  # noqa: E731
    made = make(fn, numbers(1, 8, 1, 1), mean, variance)
    assert [str(op) for op in made.library] == ["aten.native_batch_norm.default"]


def test_open_sizes():
    sizes = (5, 2, 17, 9)
    for made_for, dims in (
        (lambda n: (numbers(n, 8, 5, 6),), ((0,),)),
        (lambda n: (numbers(n, 8, n + 1, 6),), ((0, 2),)),
    ):
        check_open(lambda x: F.silu(F.group_norm(x, 4)), made_for, dims, sizes, library=None)
        check_open(
            lambda x: F.batch_norm(x, None, None, None, None, True).relu(), made_for, dims, sizes
        )
        check_open(lambda x: F.instance_norm(x).relu(), made_for, dims, sizes, library=None)
