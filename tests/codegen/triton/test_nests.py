"""Loop nests as Triton kernels: tiles, masks, strides, reductions; compiled for sm_90; their text.

Kernels run in Triton's interpreter on CPU tensors (a worker process) and are compared with eager.
"""

from __future__ import annotations

import importlib.util
import re
import sys

import pytest
import torch

from graftjit.codegen.loops import operators as expr
from graftjit.codegen.loops.loop_nest import Buffer, Index, LoopNest, Store, Value
from graftjit.codegen.triton import renderer as triton
from graftjit.codegen.triton.renderer import Tiling, TritonKernel
from graftjit.runtime.errors import BuildError

from .launch_text import launch_text
from .nests import NARROW, Build, close, run

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


# -- pointwise: tails, strides, broadcast -------------------------------------------------------------


def scaled(shape, *tensors):
    """(a + b + ...) * 2 over a shape."""
    build = Build("scaled", (), shape)
    total = build.load(tensors[0])
    for tensor in tensors[1:]:
        total = build.op("add", total, build.load(tensor))
    build.store(build.op("mul", total, build.const(2.0, torch.float32)))
    return build, sum(tensors[1:], tensors[0]).expand(shape) * 2


@needs_triton
@pytest.mark.parametrize("shape", [(), (1,), (5,), (1024,), (1025,), (3000,), (3, 5, 7), (1, 9, 1)])
def test_tails(worker, shape):
    build, wanted = scaled(shape, torch.randn(shape), torch.randn(shape))
    close(run(worker, build)[0], wanted)


@needs_triton
@pytest.mark.parametrize(
    ("shape", "tensors"),
    [
        ((6, 10), lambda: (torch.randn(6, 10), torch.randn(10))),
        ((6, 10), lambda: (torch.randn(6, 1), torch.randn(10))),
        ((6, 10), lambda: (torch.randn(()), torch.randn(1, 1))),
        ((4, 3, 5), lambda: (torch.randn(3, 1), torch.randn(4, 1, 5), torch.randn(5))),
        ((6, 10), lambda: (torch.randn(12, 30)[::2, ::3], torch.randn(7, 11)[1:, 1:])),
        ((6, 10), lambda: (torch.randn(10, 6).t(), torch.randn(6, 10))),
        ((40, 70), lambda: (torch.randn(70, 40).t(), torch.randn(40, 70))),
        ((40, 70), lambda: (torch.randn(70, 40).t(), torch.randn(40, 1))),
        ((9, 40, 33), lambda: (torch.randn(9, 33, 40).transpose(1, 2), torch.randn(33))),
        ((9, 5, 33), lambda: (torch.randn(33, 5, 9).permute(2, 1, 0), torch.randn(5, 1))),
        ((3, 9, 5, 33), lambda: (torch.randn(33, 5, 3, 9).permute(2, 3, 1, 0),)),
    ],
)
def test_strides_and_broadcast(worker, shape, tensors):
    build, wanted = scaled(shape, *tensors())
    close(run(worker, build)[0], wanted)


@needs_triton
def test_transposes_get_square_tiles():
    build, _wanted = scaled((64, 96), torch.randn(96, 64).t())
    kernel = triton.render(build.nest())
    assert dict(kernel.constants) == {"YBLOCK": 32, "XBLOCK": 32}
    assert kernel.programs == 2 * 3 and "mask" not in kernel.source


@needs_triton
def test_transposes_of_16_bits_move_128_bytes_of_a_row(worker):
    x = torch.randn(1088, 1000).bfloat16()
    build = Build("turned", (), (1000, 1088))
    build.store(build.load(x.t()), torch.bfloat16)
    kernel = triton.render(build.nest())
    assert dict(kernel.constants) == {"YBLOCK": 64, "XBLOCK": 64} and kernel.warps == 8
    assert torch.equal(build.outputs(worker.run(kernel, build.tensors))[0], x.t())
    few = Build("few", (), (640, 640))
    few.store(few.load(x[:640, :640].t()), torch.bfloat16)
    assert triton.render(few.nest()).constants["XBLOCK"] == 32


@needs_triton
def test_strided_stores_and_several_outputs(worker):
    a, b = torch.randn(8, 12), torch.randn(8, 12)
    build = Build("two", (), (8, 12))
    x, y = build.load(a), build.load(b)
    build.store_to(build.op("add", x, y), torch.zeros(12, 8).t())
    build.store_to(build.op("lt", x, y), torch.zeros(8, 24, dtype=torch.bool)[:, ::2])
    total, less = run(worker, build)
    close(total, a + b)
    assert torch.equal(less, a < b)


@needs_triton
def test_index_values(worker):
    build = Build("positions", (), (5, 7))
    build.store(build.index((7, 1)))
    build.store(build.index((0, -2), 100))
    build.store(build.index((0, 0), 3))
    flat, down, same = run(worker, build)
    assert torch.equal(flat, torch.arange(35).view(5, 7))
    assert torch.equal(down, (100 - 2 * torch.arange(7)).expand(5, 7))
    assert torch.equal(same, torch.full((5, 7), 3))


def test_offsets_beyond_32_bits_are_64_bit():
    def kernel(rows):
        stride = (1 << 20, 1)
        buffers = (
            Buffer("in0", torch.float32, (rows, 16), stride),
            Buffer("out0", torch.float32, (rows, 16), (16, 1), True),
        )
        load = Value("load", (), torch.float32, (0, Index(stride)))
        nest = LoopNest("far", (), (rows, 16), buffers, (load,), (Store(1, Index((16, 1)), 0),))
        return triton.render(nest)

    assert "int64" in kernel(4096).source
    assert "int64" not in kernel(1024).source


# -- reductions ---------------------------------------------------------------------------------------

FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.int32, torch.int64, torch.uint8)
EAGER = {
    "sum": lambda x: x.sum(-1),
    "prod": lambda x: x.prod(-1),
    "max": lambda x: x.amax(-1),
    "min": lambda x: x.amin(-1),
    "any": lambda x: x.any(-1),
    "all": lambda x: x.all(-1),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
}


def values_for(name, dtype, shape):
    if name in ("any", "all"):
        return torch.rand(shape) < (0.1 if name == "any" else 0.9)
    if name == "prod":
        return (
            (torch.rand(shape) + 0.5).to(dtype)
            if dtype.is_floating_point
            else torch.randint(1, 4, shape).to(dtype)
        )
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(0 if dtype == torch.uint8 else -100, 100, shape).to(dtype)


def folded(name, x):
    """Fold the last axis; the accumulator has the argument's dtype."""
    build = Build(name, tuple(x.shape[:-1]), tuple(x.shape[-1:]))
    build.store(build.reduce(name, build.load(x)), row=True)
    wanted = EAGER[name](x)
    return build, wanted if name.startswith("arg") else wanted.to(x.dtype)


@needs_triton
@pytest.mark.parametrize("columns", [1, 13, 64, 1100])
@pytest.mark.parametrize("name", EAGER)
def test_reductions(worker, name, columns):
    # In the interpreter a fold with a function of ours costs 50 us an element: few rows.
    shape = (3, columns) if columns < 1000 else (1, columns)
    kinds = [torch.bool] if name in ("any", "all") else [torch.float32, torch.int32]
    if columns == 13 and kinds != [torch.bool]:
        kinds = [*FLOATS, *INTEGERS]
    for dtype in kinds:
        build, wanted = folded(name, values_for(name, dtype, shape))
        found = run(worker, build, tiling=Tiling(columns=64))[0]
        close(found, wanted, rtol=1e-5 if dtype.is_floating_point else 0, atol=1e-5)


@needs_triton
@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("limit", [1024, 4])
def test_nan_infinities_and_ties(worker, name, limit):
    nan, inf = float("nan"), float("inf")
    rows = [[1, 5, 5, -7, -7], [nan, 1, 2, 3, nan], [3, nan, -inf, nan, inf], [-inf] * 5, [inf] * 5]
    x = torch.tensor(rows, dtype=torch.float32)
    build, wanted = folded(name, x)
    close(run(worker, build, tiling=Tiling(columns=limit))[0], wanted)


@needs_triton
def test_reductions_over_strided_and_several_axes(worker):
    a = torch.randn(70, 5)
    build = Build("columns", (5,), (70,))
    build.store(build.reduce("sum", build.load(a.t())), row=True)
    close(run(worker, build)[0], a.sum(0))

    b = torch.randn(3, 4, 6, 5)
    build = Build("planes", (4,), (3, 6, 5))  # axes 0, 2 and 3 folded
    build.store(build.reduce("sum", build.load(b.permute(1, 0, 2, 3))), row=True)
    position = build.reduce("argmax", build.load(b.permute(1, 0, 2, 3)))
    build.store(position, row=True)
    total, where = run(worker, build)
    close(total, b.sum((0, 2, 3)), rtol=1e-5, atol=1e-5)
    assert torch.equal(where, b.permute(1, 0, 2, 3).reshape(4, -1).argmax(1))


@needs_triton
def test_one_row_and_empty_rows(worker):
    x = torch.randn(2, 1500)
    build = Build("everything", (), (2, 1500))
    build.store(build.reduce("sum", build.load(x)), row=True)
    close(run(worker, build)[0], x.sum(), rtol=1e-4, atol=1e-4)

    build = Build("nothing", (3,), (0,))
    build.store(build.reduce("sum", build.load(torch.randn(3, 0))), row=True)
    build.store(build.reduce("prod", build.load(torch.randn(3, 0))), row=True)
    zeros, ones = run(worker, build)
    assert torch.equal(zeros, torch.zeros(3)) and torch.equal(ones, torch.ones(3))


@needs_triton
def test_fold_of_what_does_not_move_along_the_row(worker):
    x = torch.randn(6, 1)
    for columns in (10, 1500):
        build = Build("repeated", (6,), (columns,))
        build.store(build.reduce("sum", build.load(x)), row=True)
        build.store(build.reduce("argmax", build.load(x)), row=True)
        total, position = run(worker, build, tiling=Tiling(columns=64))
        close(total, x[:, 0] * columns)
        assert not position.any()


def softmax(x, dtype=None):
    build = Build("softmax", tuple(x.shape[:-1]), tuple(x.shape[-1:]))
    a = build.load(x)
    e = build.op("exp", build.op("sub", a, build.reduce("max", a)))
    build.store(build.op("div", e, build.reduce("sum", e)), x.dtype)
    return build


def layer_norm(x, weight, bias, eps=1e-5):
    build = Build("layer_norm", tuple(x.shape[:-1]), tuple(x.shape[-1:]))
    a, w, b = build.load(x), build.load(weight), build.load(bias)
    kind = build.values[a].dtype
    count = build.const(x.shape[-1], kind)
    mean = build.op("div", build.reduce("sum", a), count)
    gap = build.op("sub", a, mean)
    variance = build.op("div", build.reduce("sum", build.op("mul", gap, gap)), count)
    scale = build.op("rsqrt", build.op("add", variance, build.const(eps, kind)))
    normal = build.op("mul", gap, scale)
    build.store(build.op("add", build.op("mul", normal, w), b), x.dtype)
    build.store(mean, row=True)
    return build


TOLERANCE = {
    torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 1e-2, torch.float16: 2e-3,
}  # fmt: skip


@needs_triton
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("limit", [1024, 32], ids=["persistent", "looped"])
def test_softmax_and_layer_norm(worker, dtype, limit):
    columns = 60 if limit == 1024 else 1090
    x = torch.randn(2, columns).to(dtype)
    w, b = torch.randn(columns).to(dtype), torch.randn(columns).to(dtype)
    rtol = TOLERANCE[dtype]
    (found,) = run(worker, softmax(x), tiling=Tiling(columns=limit))
    close(found, torch.softmax(x, -1), rtol=rtol, atol=rtol / 10)
    found, mean = run(worker, layer_norm(x, w, b), tiling=Tiling(columns=limit))
    close(found, torch.layer_norm(x, (columns,), w, b), rtol=rtol, atol=rtol * 3)
    wide = x.float() if dtype in NARROW else x
    close(mean, wide.mean(-1), rtol=1e-4, atol=1e-5)


def test_softmax_is_one_persistent_kernel():
    short = triton.render(softmax(torch.randn(64, 1000)).nest())
    long = triton.render(softmax(torch.empty(64, 50000)).nest())
    assert "for start" not in short.source and short.source.count("tl.load") == 1
    assert long.source.count("for start") == 2


# -- compiled for a GPU, without one ------------------------------------------------------------------


def everything(dtype):
    """One kernel with every operator on floats."""
    build = Build("everything", (), (1000,))
    x, y = build.load(torch.randn(1000).to(dtype)), build.load(torch.randn(1000).to(dtype))
    total = x
    for name, op in expr.OPS.items():
        if "f" in op.kinds and name != "where":
            value = build.op(name, *(x, y, x)[: op.arity])
            total = build.op("add", total, build.cast(value, dtype))
    build.store(total)
    return build


@needs_triton
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_operator_compiles_for_sm_90(dtype):
    binary = triton.compile_kernel(triton.render(everything(dtype).nest()), 90)
    assert binary.cubin[:4] == b"\x7fELF" and ".target sm_90" in binary.ptx
    # libdevice has approximations inside that flush by themselves; nothing else may
    assert not re.search(r"(add|mul|div\.rn|fma\.rn|sqrt\.rn)\.ftz", binary.ptx)


@needs_triton
def test_reductions_compile_for_sm_90():
    x = torch.randn(8, 3000)
    build = layer_norm(x, torch.randn(3000), torch.randn(3000))
    build.store(build.reduce("argmax", 0), row=True)
    binary = triton.compile_kernel(triton.render(build.nest()), 90)
    assert binary.hidden >= 0 and binary.scratch == 0 and binary.shared > 0
    build = Build("whole", (8,), (300,))
    flags = build.load(torch.rand(8, 300) < 0.5)
    small = build.load(torch.randint(-9, 9, (8, 300), dtype=torch.int8))
    for name, value in (("any", flags), ("sum", small), ("max", small), ("prod", small)):
        build.store(build.reduce(name, value), row=True)
    quotient = build.op("int_floor_div", small, build.const(-3, torch.int8))
    build.store(build.op("shl", quotient, build.const(2, torch.int8)))
    assert triton.compile_kernel(triton.render(build.nest()), 90).cubin


@needs_triton
def test_fusion_and_alignment_are_as_asked():
    a, b, c = (torch.randn(4096).bfloat16() for _ in range(3))
    build = Build("fma", (), (4096,))
    x, y, z = build.load(a), build.load(b), build.load(c)
    build.store(build.op("add", build.op("mul", x, y), z), torch.bfloat16)
    nest = build.nest()
    plain = triton.compile_kernel(triton.render(nest), 90)
    wide = triton.compile_kernel(triton.render(nest, aligned=range(4), fp_fusion=True), 90)
    assert "fma.rn.f32" not in plain.ptx and "fma.rn" in wide.ptx
    assert "ld.global.v4" in wide.ptx and "ld.global.v4" not in plain.ptx


@needs_triton
def test_what_cannot_be_compiled_is_a_build_error():
    broken = TritonKernel(
        "broken",
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef broken(out):\n    tl.nothing(out)\n",
        (("out", "*fp32"),),
        {},
        1,
    )
    with pytest.raises(BuildError, match="could not compile the kernel broken"):
        triton.compile_kernel(broken)
    with pytest.raises(BuildError, match="wrong number of tensors"):
        triton.launch(broken, [])


def test_without_triton(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    build, _wanted = scaled((8,), torch.randn(8))
    kernel = triton.render(build.nest())  # text needs no triton
    assert not triton.available()
    with pytest.raises(BuildError, match=r"graftjit\[gpu\]"):
        triton.compile_kernel(kernel)


def test_names_that_would_clash():
    buffers = tuple(
        Buffer(name, torch.float32, (4,), (1,), name == "out 0")
        for name in ("x", "x_mask", "class", "out 0", "out-0")
    )
    load = Value("load", (), torch.float32, (0, Index((1,))))
    nest = LoopNest("2 nests!", (), (4,), buffers, (load,), (Store(3, Index((1,)), 0),))
    kernel = triton.render(nest)
    assert kernel.name == "kernel_2_nests"
    names = [name for name, _kind in kernel.arguments]
    assert len(set(names)) == len(names)
    compile(kernel.source, "kernel", "exec")


# -- golden text --------------------------------------------------------------------------------------


def gelu_tail(shape):
    x, bias = torch.empty(shape).bfloat16(), torch.empty(shape[-1:]).bfloat16()
    build = Build("add_gelu", (), shape)
    total = build.op("add", build.load(x), build.load(bias))
    half = build.op("mul", total, build.const(0.5, torch.float32))
    inner = build.op("mul", total, build.const(0.5**0.5, torch.float32))
    one = build.op("add", build.op("erf", inner), build.const(1.0, torch.float32))
    build.store(build.op("mul", half, one), torch.bfloat16)
    return build.nest("add(x, bias)", "gelu(t0)")


def transposed():
    build, _wanted = scaled((8, 100, 60), torch.randn(8, 60, 100).transpose(1, 2))
    return build.nest("mul(x, 2.0)")


GOLDEN_NESTS = {
    "add_gelu_bf16": lambda: gelu_tail((30, 100)),
    "transpose_scale": transposed,
    "softmax_short": lambda: softmax(torch.randn(64, 1000)).nest("softmax(x, -1)"),
    "softmax_long": lambda: softmax(torch.randn(64, 50000)).nest("softmax(x, -1)"),
    "layer_norm": lambda: layer_norm(torch.randn(64, 768), torch.randn(768), torch.randn(768)).nest(
        "layer_norm(x, w, b)"
    ),
    "argmax_columns": lambda: folded("argmax", torch.randn(500, 40).t())[0].nest("argmax(x, 0)"),
}


@pytest.mark.parametrize("name", GOLDEN_NESTS)
def test_golden(name, golden):
    kernel = triton.render(GOLDEN_NESTS[name]())
    text = kernel.source + launch_text(kernel)
    golden(f"{name}.triton.py", text)
