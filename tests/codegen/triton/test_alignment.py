"""Rows that start at any address: loads and stores of 16 bytes, and what lies beside a row stays as it is.

Kernels run in Triton's interpreter, and are compiled for sm_90 to read their PTX.
"""

from __future__ import annotations

import importlib.util
import re

import pytest
import torch

from graftjit.codegen.loops.loop_nest import Index, Value
from graftjit.codegen.triton import renderer as triton
from graftjit.codegen.triton.renderer import Tiling

from .nests import Build, close
from .nests import softmax_to as softmax

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
F32, BF16 = torch.float32, torch.bfloat16


def rows(count, length, dtype=F32, stride=0):
    """Rows so far apart, between which there is nan."""
    whole = torch.full((count, stride or length), float("nan"), dtype=dtype)
    found = whole[:, :length]
    found.copy_(torch.randn(count, length) * 3)
    return found


def run(worker, build, **options):
    kernel = triton.render(build.nest(), aligned=range(len(build.buffers)), **options)
    return kernel, build.outputs(worker.run(kernel, build.tensors))


@pytest.mark.parametrize(
    ("count", "length", "dtype", "stride", "columns"),
    [
        (11, 1001, F32, 0, 0),
        (11, 1001, BF16, 0, 0),
        (9, 515, BF16, 517, 0),
        (9, 500, BF16, 0, 0),
        (9, 501, F32, 512, 0),
        (9, 1031, BF16, 0, 256),
        (9, 1031, F32, 1033, 256),
        (9, 1025, F32, 0, 128),
        (17, 151, BF16, 0, 0),
        (5, 301, torch.float64, 0, 0),
    ],
)
def test_rows_at_any_address(worker, count, length, dtype, stride, columns):
    x = rows(count, length, dtype, stride)
    x[2, 3] = float("inf")
    x[4, -1] = float("nan")
    x[-1, 0] = -float("inf")
    build = softmax(x, rows(count, length, dtype, stride))
    kernel, (found,) = run(worker, build, tiling=Tiling(columns=columns))
    assert "mask=c_near" in kernel.source and "mask=c_whole" in kernel.source
    close(found, torch.softmax(x, -1))
    beside = found.as_strided((count, found.stride(0) - length), found.stride(), length)
    assert beside[:-1].isnan().all()


@pytest.mark.parametrize("length", [1001, 1023, 50257])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_loads_and_stores_take_16_bytes(dtype, length):
    build = softmax(torch.empty(264, length, dtype=dtype))
    ptx = triton.compile_kernel(triton.render(build.nest(), aligned=(0, 1)), 90).ptx
    loads = re.findall(r"ld\.global\S*", ptx)
    wide = [one for one in loads if ".v4." in one or ".v2." in one and "64" in one]
    fits = length != 1023  # with the elements before a row more than its tile holds
    assert (loads == wide) == fits
    assert bool(re.search(r"st\.global\.v4\.b32", ptx)) == fits


def test_the_places_of_rows_may_differ_by_whole_groups(worker):
    x, y = rows(9, 501, BF16, 509), rows(9, 501, BF16)
    build = Build("sums", (9,), (501,))
    total = build.reduce("sum", build.op("add", build.load(x), build.load(y)))
    build.store(build.op("sub", build.load(x), total), torch.float32)
    kernel, (found,) = run(worker, build)
    assert kernel.source.count("mask=c_near") == 3 and "509 * r" in kernel.source
    close(found, x.float() - (x.float() + y.float()).sum(1, keepdim=True), rtol=1e-5, atol=1e-4)


def test_other_places_keep_their_masks(worker):
    x, weight = rows(9, 501, F32), torch.randn(501)
    turned = rows(501, 9, F32).t()
    build = Build("mixed", (9,), (501,))
    place = build._add("index", (), torch.int64, Index((0, 1), 0))
    scaled = build.op("mul", build.load(x), build.load(weight))
    scaled = build.op("add", scaled, build.cast(place, F32))
    scaled = build.op("add", scaled, build.load(turned))
    best = build.reduce("argmax", scaled)
    build.store(best, row=True)
    build.store(build.op("mul", scaled, build.cast(best, F32)))
    kernel, (first, found) = run(worker, build)
    assert kernel.source.count("mask=c_near") == 1 and kernel.source.count("mask=c_mask") == 2
    wanted = x * weight + torch.arange(501) + turned
    assert torch.equal(first, wanted.argmax(1))
    close(found, wanted * first[:, None])


def test_a_slice_starts_where_it_starts(worker):
    whole = rows(9, 701, BF16)
    build = Build("slice", (9,), (601,))
    number = build._buffer(whole, False)
    build.values.append(Value("load", (), BF16, (number, Index((701, 1), 43))))
    total = build.reduce("sum", build.cast(0, F32))
    build.store(build.op("sub", build.cast(0, F32), total), BF16)
    kernel, (found,) = run(worker, build)
    assert "+ 3) % 8" in kernel.source
    part = whole[:, 43:644].float()
    close(found, (part - part.sum(1, keepdim=True)).bfloat16())


@pytest.mark.parametrize("length", [512, 100])
def test_rows_at_multiples_of_16_bytes_and_short_ones_are_not_moved(length):
    nest = softmax(torch.empty(64, length, dtype=BF16)).nest()
    assert "shift" not in triton.render(nest, aligned=(0, 1)).source


def test_buffers_at_other_addresses_are_not_moved():
    nest = softmax(torch.empty(64, 501, dtype=BF16)).nest()
    assert "shift" not in triton.render(nest).source
    source = triton.render(nest, aligned=(0,)).source
    assert "mask=c_near" in source and "mask=c_whole" not in source
