"""Products with prologue and epilogue as one Triton kernel: values by the interpreter, text, cubins."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from graftjit.codegen.loops import loop_nest as loops
from graftjit.codegen.loops.loop_nest import Buffer, Index, Store, Value
from graftjit.codegen.triton import matmul as triton_product
from graftjit.codegen.triton import renderer as triton
from graftjit.codegen.triton.matmul import Configuration, Product, plain_factor
from graftjit.runtime.errors import BuildError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
SMALL = Configuration(16, 32, 16, 4, 2)


def factor(name, tensor):
    """The nest of a tensor of three axes as it lies."""
    return plain_factor(name, tensor.dtype, tuple(tensor.shape), tensor.stride())


def three(tensor):
    return tensor if tensor.dim() == 3 else tensor[None]


def product_of(left, right, added=None):
    left, right = three(left), three(right)
    batch, m, k = left.shape
    n = right.shape[2]
    more = None if added is None else factor("added", added.expand(batch, m, n))
    return Product(
        batch, m, n, k, left.dtype, factor("left_factor", left), factor("right_factor", right), more
    )


def run(worker, product, nest, given, out, way=SMALL):
    kernel = triton_product.render(product, nest, way)
    *_, found = worker.run(kernel, [*given, out])
    return found


def close(found, exact, dtype):
    """Within what the product's own rounding leaves."""
    room = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(found.double(), exact, rtol=room, atol=room * 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(16, 32, 16), (5, 3, 7), (33, 40, 50), (1, 64, 17), (70, 1, 33)])
def test_plain(worker, sizes, dtype):
    m, n, k = sizes
    left, right = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    product = product_of(left, right)
    out = torch.empty(m, n, dtype=dtype)
    found = run(worker, product, triton_product.result(product), [left, right], out)
    close(found, left.double() @ right.double(), dtype)


def test_batches_strides_and_an_added_row(worker):
    left = torch.randn(20, 3, 18).transpose(0, 1)
    right, added = torch.randn(3, 40, 18).mT, torch.randn(40)
    product = product_of(left, right, added)
    nest = triton_product.result(product)
    found = run(worker, product, nest, [left, right, added], torch.empty(3, 20, 40))
    close(found, left.double() @ right.double() + added.double(), torch.float32)


def test_what_is_outside_is_not_read(worker):
    """Numbers behind a row's end, nan here, reach nothing."""
    m, n, k = 17, 33, 19
    left = torch.full((m, 40), float("nan"))[:, :k].copy_(torch.randn(m, k))
    right = torch.full((40, 40), float("nan"))[:k, :n].copy_(torch.randn(k, n))
    product = product_of(left, right)
    nest = triton_product.result(product)
    found = run(worker, product, nest, [left, right], torch.empty(m, n))
    close(found, left.double() @ right.double(), torch.float32)


def gelu_like(product, out):
    """tile * sigmoid(tile) + residual, with a residual that is read turned over."""
    shape = (product.batch, product.m, product.n)
    here = Index((product.m * product.n, product.n, 1))
    turned = Index((product.m * product.n, 1, product.m))
    f32 = torch.float32
    values = (
        Value("load", (), product.dtype, (0, here)),
        Value("cast", (0,), f32),
        Value("sigmoid", (1,), f32),
        Value("mul", (1, 2), f32),
        Value("load", (), f32, (1, turned)),
        Value("add", (3, 4), f32),
        Value("cast", (5,), out),
    )
    if product.dtype == f32:
        values = (values[0], replace(values[1], op="mul", args=(0, 0)), *values[2:])
    buffers = (
        Buffer("tile", product.dtype, shape, here.strides),
        Buffer("residual", f32, shape, turned.strides),
        Buffer("out", out, shape, here.strides, written=True),
    )
    last = Store(2, here, 5 if out == f32 else 6)
    values = values[: last.value + 1]
    return loops.LoopNest(
        "k0_silu", (), shape, buffers, values, (last,), ("x @ w  line 3",), tiled=0
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_epilogue_over_the_rounded_tile(worker, dtype):
    m, n, k = 40, 50, 33
    left, right = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    residual, bias = torch.randn(n, m).t(), torch.randn(n).to(dtype)
    product = product_of(left, right, bias)
    nest = gelu_like(product, torch.float32)
    found = run(worker, product, nest, [left, right, bias, residual], torch.empty(m, n))
    wanted = F.silu((left.float() @ right.float() + bias.float()).to(dtype).float()) + residual
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=4e-2)


def scaled_bytes(m, k):
    """A factor that is computed: int8 numbers times a scale a row, in bfloat16."""
    f32 = torch.float32
    values = (
        Value("load", (), torch.int8, (0, Index((0, k, 1)))),
        Value("cast", (0,), f32),
        Value("load", (), f32, (1, Index((0, 1, 0)))),
        Value("mul", (1, 2), f32),
        Value("cast", (3,), torch.bfloat16),
    )
    buffers = (
        Buffer("whole", torch.int8, (1, m, k), (m * k, k, 1)),
        Buffer("scale", f32, (m,), (1,)),
        Buffer("value", torch.bfloat16, (1, m, k), (m * k, k, 1), written=True),
    )
    store = Store(2, Index((m * k, k, 1)), 4)
    return loops.LoopNest("scaled", (), (1, m, k), buffers, values, (store,))


def quantised(m, n, k):
    left = torch.randint(-128, 127, (m, k), dtype=torch.int8)
    scale, right = torch.rand(m), torch.randn(k, n).bfloat16()
    plain = product_of(torch.zeros(m, k).bfloat16(), right)
    return replace(plain, left=scaled_bytes(m, k)), [left, scale, right]


def test_prologue(worker):
    m, n, k = 21, 34, 40
    product, (left, scale, right) = quantised(m, n, k)
    nest = triton_product.result(product)
    out = torch.empty(m, n, dtype=torch.bfloat16)
    found = run(worker, product, nest, [left, scale, right], out)
    factor = (left.float() * scale[:, None]).bfloat16().double()
    torch.testing.assert_close(found.double(), factor @ right.double(), rtol=1e-2, atol=2.0)


def test_epilogue_over_axes_that_are_rows_together(worker):
    """Rows of (2, 20) and batches of 3 in a nest of four axes."""
    left, right = torch.randn(3, 40, 18), torch.randn(3, 18, 36)
    product = product_of(left, right)
    nest = loops.LoopNest(
        "k1", (), (3, 2, 20, 36),
        (
            Buffer("tile", torch.float32, (3, 40, 36), (1440, 36, 1)),
            Buffer("row", torch.float32, (20,), (1,)),
            Buffer("out", torch.float32, (3, 2, 20, 36), (1440, 720, 36, 1), written=True),
        ),
        (
            Value("load", (), torch.float32, (0, Index((1440, 720, 36, 1)))),
            Value("load", (), torch.float32, (1, Index((0, 0, 1, 0)))),
            Value("mul", (0, 1), torch.float32),
        ),
        (Store(2, Index((1440, 720, 36, 1)), 2),), tiled=0,
    )  # fmt: skip
    row = torch.randn(20)
    found = run(worker, product, nest, [left, right, row], torch.empty(3, 2, 20, 36))
    wanted = (left.double() @ right.double()).view(3, 2, 20, 36) * row[:, None].double()
    close(found, wanted, torch.float32)
    with pytest.raises(BuildError):
        triton_product.render(replace(product, batch=4, m=30), nest, SMALL)


def test_ways_fit_the_result():
    wide = product_of(torch.zeros(4096, 512).half(), torch.zeros(512, 4096).half())
    thin = product_of(torch.zeros(3, 512).half(), torch.zeros(512, 4096).half())
    full = product_of(torch.zeros(4096, 512), torch.zeros(512, 4096))
    assert triton_product.configurations(wide)[0] == triton_product.CONFIGURATIONS[0]
    assert all(one.rows == 16 for one in triton_product.configurations(thin))
    assert all(one.rows * one.columns <= 128 * 128 for one in triton_product.configurations(full))


@pytest.mark.parametrize("capability", [80, 90])
def test_compiles(capability):
    m, n, k = 256, 512, 128
    left, right = torch.zeros(m, k).bfloat16(), torch.zeros(n, k).bfloat16().t()
    product = product_of(left, right, torch.zeros(n).bfloat16())
    way = Configuration(64, 64, 64, 4, 3)
    kernel = triton_product.render(product, gelu_like(product, torch.float32), way, range(5))
    found = triton.compile_kernel(kernel, capability)
    matrix = "wgmma" if capability == 90 else "mma.sync"
    assert matrix in found.ptx and found.cubin.startswith(b"\x7fELF")
    assert "cp.async" in found.ptx  # loads run ahead of the sums


def test_golden(golden):
    product, _given = quantised(64, 100, 256)
    bias = plain_factor("bias", torch.bfloat16, (1, 64, 100), (0, 0, 1))
    product = replace(product, added=bias)
    kernel = triton_product.render(product, gelu_like(product, torch.bfloat16), SMALL)
    golden("product.triton.py", kernel.source)
