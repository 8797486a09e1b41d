"""Sums over rows with one element that is not zero: no walk over the row, and eager's value."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch

from graftjit.codegen.triton import one_hot
from graftjit.codegen.triton import renderer as triton

from .nests import Build, close

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
F32, BF16 = torch.float32, torch.bfloat16


def spread(target, kept, g, columns, narrow=False, offset=0):
    """The sums of `where(position == target and kept, g, 0)`, and that minus the sum for each element."""
    build = Build("spread", (len(target),), (columns,))
    here = build.index((0, 1), offset)
    chosen = build.op("eq", here, build.load(target[:, None]))
    chosen = build.op("and", chosen, build.load(kept[:, None]))
    given = build.op("where", chosen, build.load(g[:, None]), build.const(0.0, F32))
    given = build.cast(build.cast(given, BF16), F32) if narrow else given
    total = build.reduce("sum", given)
    build.store(total, row=True)
    build.store(build.op("sub", given, total))
    return build


@pytest.mark.parametrize("rows", [5, 300])
@pytest.mark.parametrize("narrow", [False, True])
def test_the_sum_is_the_element(worker, rows, narrow):
    target = torch.randint(0, 37, (rows,))
    target[:4] = torch.tensor([-100, 37, 36, 0])
    kept = torch.rand(rows) < 0.8
    g = torch.randn(rows)
    kept[2:5], g[2:5] = True, torch.tensor([math.inf, -0.0, math.nan])
    build = spread(target, kept, g, 37, narrow)
    nest = one_hot.known(build.nest())
    assert not nest.has_reduction and bool(nest.outer) == (rows == 300)
    found = build.outputs(worker.run(triton.render(nest), build.tensors))
    wanted = build.outputs(worker.run(triton.render(build.nest()), build.tensors))
    for one, two in zip(found, wanted, strict=True):
        close(one, two, rtol=0, atol=0)
        assert torch.equal(one.signbit() | one.isnan(), two.signbit() | two.isnan())


def test_other_sums_are_walked():
    target, kept, g = torch.zeros(5, dtype=torch.long), torch.ones(5, dtype=torch.bool), r(5)
    moved = spread(target, kept, g, 37, offset=1).nest()
    assert one_hot.known(moved) is moved
    build = Build("plain", (5,), (37,))
    chosen = build.op("lt", build.index((0, 1)), build.load(target[:, None]))
    given = build.op("where", chosen, build.load(g[:, None]), build.const(0.0, F32))
    build.store(build.reduce("sum", given), row=True)
    assert one_hot.known(build.nest()).has_reduction


def r(*shape):
    return torch.randn(shape)
