"""Folds and scans of Triton kernels against eager, in Triton's interpreter: rows, columns, all, lengths around the
tile's; sums and products no further from float64 than twice eager's."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from graftjit.codegen.loops import loop_nest as loops
from graftjit.codegen.programs.shadow import differs
from graftjit.codegen.triton import renderer as triton
from graftjit.codegen.triton import split_reduction as triton_split
from graftjit.codegen.triton.renderer import Tiling

from .launch_text import launch_text
from .made import evaluate
from .nests import Build, close, hard_rows, layer_norm, logsumexp, run, softmax

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


# -- scans --------------------------------------------------------------------------------------------

EAGER_SCANS = {
    "sum": lambda x, dim: torch.cumsum(x, dim, dtype=x.dtype),
    "prod": lambda x, dim: torch.cumprod(x, dim, dtype=x.dtype),
    "max": lambda x, dim: torch.cummax(x, dim).values,
    "min": lambda x, dim: torch.cummin(x, dim).values,
}
SCAN_TYPES = (torch.float32, torch.float64, torch.int8, torch.int32, torch.int64, torch.uint8)


def values_for(kind, dtype, shape):
    if not dtype.is_floating_point:
        return torch.randint(0 if dtype == torch.uint8 else -100, 100, shape).to(dtype)
    return torch.rand(shape, dtype=dtype) + 0.5 if kind == "prod" else torch.randn(shape).to(dtype)


def scanned(kind, x, columns=False, turn=""):
    """A scan along the last axis, or the first one."""
    rows = x.t() if columns else x
    build = Build(f"cum{kind}", tuple(rows.shape[:-1]), tuple(rows.shape[-1:]))
    found = build.scan(kind + turn, build.load(rows))
    build.store_to(found, torch.zeros_like(x).t() if columns else torch.zeros_like(x))
    return build, EAGER_SCANS[kind](x, 0 if columns else -1)


def compared(found, wanted):
    tolerance = 1e-12 if wanted.dtype == torch.float64 else 1e-5
    exact = not wanted.dtype.is_floating_point
    close(found.view(wanted.shape), wanted, rtol=0 if exact else tolerance, atol=tolerance)


@needs_triton
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("kind", EAGER_SCANS)
def test_scans(worker, kind, columns):
    for dtype in SCAN_TYPES:
        for length in (1, 2, 7, 9) if dtype == torch.float32 else (9,):
            x = values_for(kind, dtype, (length, 3) if columns else (3, length))
            build, wanted = scanned(kind, x, columns)
            (found,) = run(worker, build)
            compared(found.t() if columns else found, wanted)
            (found,) = run(worker, build, tiling=Tiling(columns=4))
            compared(found.t() if columns else found, wanted)


@needs_triton
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("kind", ["sum", "prod"])
def test_scans_in_turn(worker, kind, columns):
    x = values_for(kind, torch.float64, (17, 3) if columns else (3, 17))
    build, wanted = scanned(kind, x, columns, " in turn")
    kernel = triton.render(build.nest(), tiling=Tiling(columns=4))
    if columns:  # one element after the other costs nothing where rows lie side by side
        assert "associative_scan" not in kernel.source
    (found,) = build.outputs(worker.run(kernel, build.tensors))
    compared(found.t() if columns else found, wanted)


@needs_triton
def test_long_scans_carry_from_block_to_block(worker):
    x = torch.randn(1, 1030)
    for kind in ("sum", "max"):
        build, wanted = scanned(kind, x)
        kernel = triton.render(build.nest(), tiling=Tiling(columns=1024))
        assert "for start" in kernel.source
        compared(build.outputs(worker.run(kernel, build.tensors))[0], wanted)


@needs_triton
@pytest.mark.parametrize("limit", [1024, 4])
def test_nan_and_infinities_in_scans(worker, limit):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1, 5, nan, 7, 2, 9], [-inf, -inf, 3, inf, 4, 1], [-0.0, 0.0, -1, nan, 1, 2]])
    for kind in EAGER_SCANS:
        build, wanted = scanned(kind, x)
        compared(run(worker, build, tiling=Tiling(columns=limit))[0], wanted)


@needs_triton
@pytest.mark.parametrize("limit", [1024, 4])
def test_a_scan_beside_folds_and_elements(worker, limit):
    """cumsum of a softmax, its largest place, and a scan of what does not move along the row."""
    x, one = torch.randn(3, 10), torch.rand(3, 1)
    build = Build("mixed", (3,), (10,))
    a = build.load(x)
    e = build.op("exp", build.op("sub", a, build.reduce("max", a)))
    share = build.op("div", e, build.reduce("sum", e))
    total = build.scan("sum", share)
    build.store(build.op("mul", total, build.load(one)))
    build.store(build.reduce("max", build.op("sub", total, share)), row=True)
    build.store(build.scan("sum", build.load(one)))
    first, second, third = run(worker, build, tiling=Tiling(columns=limit))
    share = torch.softmax(x, -1)
    compared(first, share.cumsum(-1) * one)
    compared(second, (share.cumsum(-1) - share).amax(-1))
    compared(third, one.expand(3, 10).cumsum(-1))


def test_scans_compile():
    if not triton.available():
        pytest.skip("triton is not installed")
    build, _wanted = scanned("max", torch.randn(8, 3000))
    build.store(build.scan("sum", build.cast(0, torch.float64)))
    for capability in (80, 90):
        assert triton.compile_kernel(triton.render(build.nest()), capability).cubin


# -- long rows in parts -------------------------------------------------------------------------------


def run_split(worker, build, longest=16, multiprocessors=4, **options):
    """(outputs, the split) of the nests one after the other."""
    found = triton_split.split(build.nest(), multiprocessors, longest)
    assert found is not None
    tensors = [tensor.clone() for tensor in build.tensors]
    tensors += [torch.zeros(one.size, dtype=one.dtype) for one in found.between]
    for nest, places in zip(found.nests, found.places, strict=True):
        loops.check(nest)
        kernel = triton.render(nest, **options)
        left = worker.run(kernel, [tensors[place] for place in places])
        for place, tensor in zip(places, left, strict=True):
            tensors[place].copy_(tensor)
    return build.outputs(tensors[: len(build.tensors)]), found


EAGER_FOLDS = {
    "sum": lambda x: x.sum(-1, dtype=x.dtype),
    "prod": lambda x: x.prod(-1, dtype=x.dtype),
    "max": lambda x: x.amax(-1),
    "min": lambda x: x.amin(-1),
    "any": lambda x: x.any(-1),
    "all": lambda x: x.all(-1),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
}


@needs_triton
@pytest.mark.parametrize("shape", [(64,), (3, 64), (2, 61), (1, 97)], ids=str)
@pytest.mark.parametrize("kind", EAGER_FOLDS)
def test_split_folds(worker, kind, shape):
    dtypes = [torch.bool] if kind in ("any", "all") else [torch.float32, torch.int32]
    for dtype in dtypes:
        x = torch.rand(shape) < 0.1 if dtype == torch.bool else values_for(kind, dtype, shape)
        build = Build(kind, shape[:-1], shape[-1:])
        build.store(build.reduce(kind, build.load(x)), row=True)
        (found,), _split = run_split(worker, build)
        compared(found, EAGER_FOLDS[kind](x))


@needs_triton
def test_split_places_with_ties_and_nan(worker):
    nan = float("nan")
    x = torch.randint(0, 3, (4, 80)).float()
    x[1, [13, 60]], x[2] = nan, 1.0
    build = Build("places", (4,), (80,))
    a = build.load(x)
    for kind in ("argmax", "argmin", "max", "min"):
        build.store(build.reduce(kind, a), row=True)
    found, _split = run_split(worker, build)
    for kind, ours in zip(("argmax", "argmin", "max", "min"), found, strict=True):
        compared(ours, EAGER_FOLDS[kind](x))


@needs_triton
def test_split_columns_and_several_axes(worker):
    x = torch.randn(90, 7)
    build = Build("columns", (7,), (90,))
    a = build.load(x.t())
    build.store(build.reduce("sum", a), row=True)
    build.store(build.reduce("argmax", a), row=True)
    (total, place), _split = run_split(worker, build)
    compared(total, x.sum(0))
    compared(place, x.argmax(0))
    y = torch.randn(5, 3, 4, 6)
    build = Build("channels", (3,), (5, 4, 6))
    a = build.load(y.permute(1, 0, 2, 3))
    build.store(build.reduce("sum", a), row=True)
    build.store(build.reduce("argmin", a), row=True)
    for multiprocessors in (2, 4, 9):
        (total, place), _split = run_split(worker, build, multiprocessors=multiprocessors)
        compared(total, y.sum((0, 2, 3)))
        compared(place, y.permute(1, 0, 2, 3).reshape(3, -1).argmin(1))


@needs_triton
@pytest.mark.parametrize("columns", [64, 61])
def test_split_softmax_and_logsumexp(worker, columns):
    x = hard_rows(columns)
    (found,), split = run_split(worker, softmax(x))
    assert [nest.name for nest in split.nests] == ["softmax_part", "softmax_whole", "softmax_rest"]
    compared(found, torch.softmax(x, -1))
    (found,), split = run_split(worker, logsumexp(x))
    assert len(split.nests) == 2
    compared(found, torch.logsumexp(x, -1))


@needs_triton
@pytest.mark.parametrize("columns", [64, 61])
def test_split_layer_norm(worker, columns):
    x, w = (
        torch.randn(3, columns) * torch.tensor([[1.0], [0.1], [1.0]]) + 100,
        torch.randn(columns),
    )
    (more, mean, scale, found), split = run_split(worker, layer_norm(x, w))
    assert [nest.name[-4:] for nest in split.nests] == ["part", "hole", "rest"]
    wide = x.double()
    compared(more, x + 1)
    compared(mean, x.mean(-1))
    exact = (wide.var(-1, correction=0) + 1e-5).rsqrt()
    close(scale.double(), exact, rtol=1e-5, atol=0)
    close(
        found.double(),
        (wide - wide.mean(-1, keepdim=True)) * exact[:, None] * w,
        rtol=1e-3,
        atol=1e-3,
    )


@needs_triton
def test_split_folds_one_after_the_other(worker):
    """The second fold is of no pair: nests for each of them."""
    x = torch.randn(2, 64)
    build = Build("chain", (2,), (64,))
    a = build.load(x)
    gap = build.op("abs", build.op("sub", a, build.reduce("max", a)))
    far = build.reduce("sum", gap)
    build.store(build.op("div", gap, far))
    build.store(far, row=True)
    (found, total), split = run_split(worker, build)
    assert len(split.nests) == 5
    gap = (x - x.amax(-1, keepdim=True)).abs()
    compared(total, gap.sum(-1))
    compared(found, gap / gap.sum(-1, keepdim=True))


def test_what_is_split():
    def programs_of(shape, columns=False):
        x = torch.empty(shape).t() if columns else torch.empty(shape)
        build = Build("sum", tuple(x.shape[:-1]), tuple(x.shape[-1:]))
        build.store_to(build.reduce("sum", build.load(x)), torch.empty(x.shape[:-1]), row=True)
        found = triton_split.split(build.nest(), 132)
        return found and [triton.render(nest).programs for nest in found.nests]

    assert programs_of((4096, 8192)) is None  # programs enough
    assert programs_of((4, 8192)) is None  # too short
    parts, whole = programs_of((4, 1 << 20))
    assert 264 <= parts <= 1056 and whole <= 4
    parts, _whole = programs_of((1 << 24,))
    assert 264 <= parts <= 1056


def kernels_of_columns(nest):
    return [triton.render(one) for one in triton_split.split(nest, 132).nests]


@pytest.mark.parametrize("rows", [2048, 65536])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_folds_of_columns_fill_a_device(rows, dtype):
    """Threads for all multiprocessors, lines of a cache side by side, 16 elements or more per thread."""
    x = torch.empty(rows, 4096, dtype=dtype, device="meta").t()
    build = Build("sum", (4096,), (rows,))
    value = build.cast(build.load(x), torch.float32)
    total = build.reduce("sum", value)
    build.store_to(total, torch.empty(4096, device="meta"), row=True)
    parts, _whole = kernels_of_columns(build.nest())
    assert parts.constants["RBLOCK"] * dtype.itemsize >= 128
    assert parts.programs * parts.warps * 32 >= 132 * 2048 * min(1, rows / 32768)
    tile = parts.constants["RBLOCK"] * parts.constants["CBLOCK"]
    assert tile == 16 * parts.warps * 32


def test_a_column_beside_a_matrix_does_not_turn_a_fold():
    """Sums of columns of x * r: r is contiguous along the columns, x is not."""
    x, r = torch.empty(4096, 512, device="meta"), torch.empty(4096, 1, device="meta")
    build = Build("sum", (512,), (4096,))
    product = build.op("mul", build.load(x.t()), build.load(r.expand(4096, 512).t()))
    build.store_to(build.reduce("sum", product), torch.empty(512, device="meta"), row=True)
    parts, _whole = kernels_of_columns(build.nest())
    assert parts.constants["RBLOCK"] >= 32


# -- long rows in two walks ---------------------------------------------------------------------------


@needs_triton
@pytest.mark.parametrize("columns", [64, 61])
def test_looped_softmax_and_logsumexp(worker, columns):
    x = hard_rows(columns)
    build = softmax(x)
    kernel = triton.render(build.nest(), tiling=Tiling(columns=8))
    assert kernel.source.count("for start") == 2
    compared(build.outputs(worker.run(kernel, build.tensors))[0], torch.softmax(x, -1))
    build = logsumexp(x)
    kernel = triton.render(build.nest(), tiling=Tiling(columns=8))
    assert kernel.source.count("for start") == 1
    compared(build.outputs(worker.run(kernel, build.tensors))[0], torch.logsumexp(x, -1))


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("columns", [64, 61])
def test_looped_layer_norm(worker, dtype, columns):
    x = torch.randn(3, columns) * torch.tensor([[1.0], [0.1], [30.0]]) + 100
    x, w = x.to(dtype), torch.randn(columns).to(dtype)
    build = layer_norm(x, w)
    kernel = triton.render(build.nest(), tiling=Tiling(columns=8))
    assert kernel.source.count("for start") == 2
    more, mean, scale, found = build.outputs(worker.run(kernel, build.tensors))
    wide = x.double()
    middle = wide.mean(-1, keepdim=True)
    exact = (wide.var(-1, correction=0) + 1e-5).rsqrt()
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    close(more.double(), wide + 1, rtol=8e-3, atol=0)
    close(mean.double(), middle[:, 0], rtol=tolerance, atol=0)
    close(scale.double(), exact, rtol=tolerance, atol=0)
    wanted = (wide - middle) * exact[:, None] * w
    tolerance = 8e-3 if dtype == torch.bfloat16 else tolerance * 100
    close(found.double(), wanted, rtol=tolerance, atol=tolerance)


def test_variants_are_other_tiles_of_the_same_nest():
    for build in (softmax(torch.empty(64, 50000)), softmax(torch.empty(640, 6000))):
        found = triton.variants(build.nest())
        assert len(found) >= 4 and found[0] == triton.render(build.nest())
        assert len({(k.source, *k.constants.values(), k.warps) for k in found}) == len(found)


@needs_triton
def test_variants_give_the_same(worker):
    x = hard_rows(20)
    for build, wanted in (
        (softmax(x), torch.softmax(x, -1)),
        (logsumexp(x), torch.logsumexp(x, -1)),
    ):
        for tiling in (Tiling(columns=8, rows=2), Tiling(rows=4)):
            compared(run(worker, build, tiling=tiling)[0], wanted)


# -- families of kernels in each dtype, against eager ----------------------------------------------------

FAMILIES = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log softmax of columns": lambda x: torch.log_softmax(x, 0),
    "rms norm": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "layer norm": lambda x: torch.layer_norm(x, x.shape[-1:]),
    "mean and variance": lambda x: (x.mean(0), x.var(-1), x.std()),
    "sums": lambda x: (x.sum(0), x.sum(-1), x.sum()),
    "products": lambda x: (x[:, :5].prod(-1), x[:3].prod(0)),
    "extremes": lambda x: (x.amax(-1), x.amin(0), x.max(), x.min(1).values),
    "places": lambda x: (x.argmax(-1), x.argmin(0), x.argmax()),
    "flags": lambda x: ((x > 1).any(-1), (x > -1).all(0)),
    "cumulative": lambda x: (x.cumsum(-1), x.cumsum(0), x.cummax(-1).values, x.cummin(0).indices),
    "scaled": lambda x: x * 2 + x.sum(-1, keepdim=True),
}
OF_FLOATS = (
    "softmax",
    "log softmax of columns",
    "rms norm",
    "layer norm",
    "mean and variance",
    "flags",
)
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@needs_triton
@pytest.mark.parametrize("name", FAMILIES)
def test_families_in_each_dtype(worker, name):
    slow = name in ("places", "extremes", "cumulative")  # the interpreter folds by functions
    for dtype in FLOATS if name in OF_FLOATS else FLOATS + WHOLE[: 2 if slow else None]:
        if dtype.is_floating_point:
            x = torch.randn(3, 9).to(dtype)
        else:
            x = torch.randint(0 if dtype == torch.uint8 else -9, 9, (3, 9)).to(dtype)
        wanted = FAMILIES[name](x)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        plan, found = evaluate(worker, FAMILIES[name], [x])
        assert plan.kernels
        for ours, eager in zip(found, wanted, strict=True):
            if ours is None:  # an operator that ATen does better
                continue
            assert ours.dtype == eager.dtype
            problem = differs(ours.view(eager.shape), eager)
            assert not problem, f"{dtype} {problem}\nours {ours}\neager {eager}"


# -- golden text ----------------------------------------------------------------------------------------


def rms_norm(x, weight):
    build = Build("rms_norm", tuple(x.shape[:-1]), tuple(x.shape[-1:]))
    a, w = build.load(x), build.load(weight)
    count = build.const(float(x.shape[-1]), torch.float32)
    mean = build.op("div", build.reduce("sum", build.op("mul", a, a)), count)
    scale = build.op("rsqrt", build.op("add", mean, build.const(1e-6, torch.float32)))
    build.store(build.op("mul", build.op("mul", a, scale), w), x.dtype)
    return build


def split_sum():
    build = Build("sum", (4,), (100003,))
    build.store(build.reduce("sum", build.load(torch.empty(4, 100003))), row=True)
    return build


GOLDEN_NESTS = {
    "rms_norm_bf16": lambda: [
        rms_norm(torch.empty(512, 4096).bfloat16(), torch.empty(4096).bfloat16()).nest()
    ],
    "logsumexp_long": lambda: [logsumexp(torch.empty(512, 50257)).nest()],
    "layer_norm_long": lambda: [layer_norm(torch.empty(512, 40000), torch.empty(40000)).nest()],
    "cumsum_long": lambda: [scanned("sum", torch.empty(300, 40000))[0].nest()],
    "cumprod_columns": lambda: [
        scanned("prod", torch.empty(30, 40).double(), True, " in turn")[0].nest()
    ],
    "sum_split": lambda: triton_split.split(split_sum().nest(), 132).nests,
    "softmax_split": lambda: triton_split.split(softmax(torch.empty(2, 1 << 20)).nest(), 132).nests,
}


@pytest.mark.parametrize("name", GOLDEN_NESTS)
def test_golden(name, golden):
    kernels = [triton.render(nest) for nest in GOLDEN_NESTS[name]()]
    text = "\n\n".join(kernel.source + launch_text(kernel) for kernel in kernels)
    golden(f"{name}.triton.py", text)
