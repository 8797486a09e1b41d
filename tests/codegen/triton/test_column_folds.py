"""Sums over rows beside reductions of rows, in Triton's interpreter: nests with `Store.across`, and
whole programs that get them (backwards of norms), beside eager."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from graftjit.codegen.loops import loop_nest as loops
from graftjit.codegen.loops.loop_nest import Index, Store
from graftjit.codegen.programs.shadow import differs
from graftjit.codegen.triton import column_folds
from graftjit.codegen.triton import renderer as triton
from graftjit.ir.symbolic.expr import Symbol

from ..on_cuda import Machine, written
from .nests import Build, close

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
bf16 = torch.bfloat16


def centred(x, w, result=torch.float32):
    """Rows minus their mean, times w; the sums of the columns of that, and of w."""
    build = Build("centred", tuple(x.shape[:-1]), (x.shape[-1],))
    value = build.load(x)
    count = build.const(float(x.shape[-1]), torch.float32)
    away = build.op("sub", value, build.op("div", build.reduce("sum", value), count))
    found = build.op("mul", away, build.load(w))
    build.store(found)
    along = Index((*(0 for _ in x.shape[:-1]), 1))
    for one in (found, build.load(w)):
        out = torch.zeros(x.shape[-1], dtype=result)
        build.stores.append(Store(build._buffer(out, True), along, one, across=True))
    return build


def run_shared(worker, build, multiprocessors=2):
    split, programs = column_folds.split(build.nest(), multiprocessors)
    tensors = [tensor.clone() for tensor in build.tensors]
    tensors += [torch.full((one.size,), torch.nan, dtype=one.dtype) for one in split.between]
    for nest, places in zip(split.nests, split.places, strict=True):
        loops.check(nest)
        kernel = triton.render(nest, programs=programs if nest.folds_across else 0)
        left = worker.run(kernel, [tensors[place] for place in places])
        for place, tensor in zip(places, left, strict=True):
            tensors[place].copy_(tensor)
    return build.outputs(tensors[: len(build.tensors)]), programs


@needs_triton
@pytest.mark.parametrize(
    ("shape", "kind", "result"),
    [
        ((37, 100), torch.float32, torch.float32),  # several rows to a tile; masks both ways
        ((64, 2048), torch.float32, torch.float32),
        ((3, 7, 64), torch.float32, bf16),
        ((9, 3000), bf16, torch.float32),
        ((1, 64), bf16, bf16),
    ],
)
def test_values(worker, shape, kind, result):
    torch.manual_seed(0)
    x, w = torch.randn(shape).to(kind), torch.randn(shape[-1])
    (rows, first, second), _programs = run_shared(worker, centred(x, w, result))
    wide = x.double()
    wanted = (wide - wide.mean(-1, keepdim=True)) * w.double()
    close(rows.double(), wanted, rtol=1e-4, atol=1e-4)
    count = x.numel() // shape[-1]
    slack = {"rtol": 1e-2, "atol": 2e-2} if result is bf16 else {"rtol": 1e-5, "atol": 1e-4}
    close(first.double(), wanted.reshape(count, -1).sum(0), **slack)
    close(second.double(), w.double() * count, **slack)


def test_programs_fill_a_device_once():
    """As many as its multiprocessors hold, each with several rows; loads ahead of their use."""
    x = torch.empty(65536, 4096, device="meta")
    build = centred(x, torch.empty(4096, device="meta"))
    split, programs = column_folds.split(build.nest(), 132)
    assert programs == 264
    kernel = triton.render(split.nests[0], programs=programs)
    assert kernel.programs == 264 and kernel.warps == 16
    assert "num_stages=3" in kernel.source
    before, loop = kernel.source.split("for start")
    assert before.count("tl.load(") == 2 and loop.count("tl.load(") == 1  # w is loaded before
    few = centred(torch.empty(10, 4096, device="meta"), torch.empty(4096, device="meta"))
    assert column_folds.split(few.nest(), 132)[1] == 10


def test_rows_that_would_not_fit_beside_each_other_are_not_loaded_ahead():
    x = torch.empty(512, 8192, dtype=torch.float64, device="meta")
    build = Build("wide", (512,), (8192,))
    value = build.load(x)
    far = [build.load(torch.empty_like(x)) for _ in range(2)]
    total = build.op("add", build.op("add", value, far[0]), far[1])
    build.store(build.op("sub", value, build.reduce("sum", value)))
    out = build._buffer(torch.empty(8192, dtype=torch.float64), True)
    build.stores.append(Store(out, Index((0, 1)), total, across=True))
    split, programs = column_folds.split(build.nest(), 132)
    assert "num_stages=1" in triton.render(split.nests[0], programs=programs).source


def test_a_sum_over_rows_does_not_move_along_them():
    build = centred(torch.empty(4, 64), torch.empty(64))
    build.stores[-1] = Store(build.stores[-1].buffer, Index((1, 1)), 0, across=True)
    with pytest.raises(ValueError, match="moves along"):
        build.nest()


# -- whole programs --------------------------------------------------------------------------------


def rms_backward(g, x, w):
    wide, grad = x.float(), g.float()
    spread = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    normal, scaled = wide * spread, grad * w.float()
    dx = spread * (scaled - normal * (scaled * normal).mean(-1, keepdim=True))
    return dx.to(x.dtype), (grad * normal).sum(0).to(w.dtype)


def layer_backward(g, x, w):
    mean, spread = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True).rsqrt()
    shape, bias = (x.shape[-1],), torch.zeros_like(w)
    mask = [True, True, True]
    return torch.ops.aten.native_layer_norm_backward(g, x, shape, mean, spread, w, bias, mask)


def sums_before_rows(g, x, w):
    """The sums over rows come first: the kernel does not turn to columns."""
    over_rows = (g * x).sum(0), g.sum(0, keepdim=True)
    return (*over_rows, (g * w).softmax(-1))


def loss(g, x, w):
    return (F.rms_norm(x, (x.shape[-1],), w) * g).sum(), (F.softmax(x, -1) - g).square().mean()


PROGRAMS = {
    "rms norm": (rms_backward, 1),
    "layer norm": (layer_backward, 2),
    "sums first": (sums_before_rows, 2),
    "loss": (loss, 0),
}


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, bf16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(worker, name, dtype):
    torch.manual_seed(0)
    function, sums = PROGRAMS[name]
    given = [torch.randn(40, 96), torch.randn(40, 96), torch.randn(96)]
    given = [one.to(dtype) for one in given]
    made = written(function, *given)
    kernels = [k for k in made.plan.kernels if k.nest.folds_across]
    assert sum(store.across for k in kernels for store in k.nest.stores) == sums
    assert not made.aten
    found = Machine(worker).run(made, *given)
    for ours, theirs in zip(found, function(*given), strict=True):
        wide = (0.02, 0.02) if dtype == bf16 else (1e-5, 1e-5)
        assert not differs(ours, theirs, wide), (ours, theirs)


def test_one_kernel_reads_what_sums_and_rows_need():
    given = [torch.empty(512, 1024, device="cpu") for _ in range(2)]
    made = written(sums_before_rows, *given, torch.empty(1024))
    large = [k for k in made.plan.kernels if k.bytes >= given[0].nbytes]
    assert len(large) == 1 and large[0].bytes < 3.1 * given[0].nbytes


def test_sums_without_reductions_of_rows_are_plain():
    """Nothing on the way reduces the rows of x + y, though something reduces those of z."""
    x, y, z = (torch.empty(64, 96) for _ in range(3))
    made = written(lambda x, y, z: ((x + y).sum(0), z.softmax(-1)), x, y, z)
    assert not any(kernel.nest.folds_across for kernel in made.plan.kernels)


def test_rows_of_unknown_number_have_all_programs():
    """A later call may have more rows than the one that was captured."""
    nest = centred(torch.empty(8, 4096, device="meta"), torch.empty(4096, device="meta")).nest()
    rows = Symbol("rows", "int", 8, 1, None)
    assert column_folds.split(nest, 132)[1] == 8
    assert column_folds.split(replace(nest, outer=(rows,)), 132)[1] == 264
