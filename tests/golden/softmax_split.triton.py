import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_part(in0, between2, between3, RBLOCK: tl.constexpr, CBLOCK: tl.constexpr):
    c = tl.arange(0, CBLOCK)[None, :]
    r = tl.program_id(0) * RBLOCK + tl.arange(0, RBLOCK)[:, None]
    i1 = r % 2
    i0 = r // 2
    v0 = tl.load(in0 + 4096 * i0 + 1048576 * i1 + c)
    v1 = tl.reduce(v0, 1, _nan_max, keep_dims=True)
    v2 = tl.full((), 0.0, tl.float32)
    v3 = tl.abs(v1) == float("inf")
    v4 = tl.where(v3, v2, v1)
    v5 = v0 - v4
    v6 = libdevice.exp(v5)
    v7 = tl.sum(v6, 1, keep_dims=True)
    tl.store(between2 + r, v1)
    tl.store(between3 + r, v7)

# arguments: in0: *fp32, between2: *fp32, between3: *fp32, RBLOCK: constexpr, CBLOCK: constexpr
# launch: 512 programs, RBLOCK=1, CBLOCK=4096, 8 warps


import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_whole(between2, between3, between0, between1, RBLOCK: tl.constexpr, CBLOCK: tl.constexpr):
    c = tl.arange(0, CBLOCK)[None, :]
    r = tl.arange(0, RBLOCK)[:, None]
    v0 = tl.load(between2 + r + 2 * c)
    v1 = tl.reduce(v0, 1, _nan_max, keep_dims=True)
    v2 = tl.load(between2 + r + 2 * c)
    v3 = tl.load(between3 + r + 2 * c)
    v4 = tl.full((), 0.0, tl.float32)
    v5 = tl.abs(v2) == float("inf")
    v6 = tl.where(v5, v4, v2)
    v7 = v6 - v1
    v8 = libdevice.exp(v7)
    v9 = v2 - v1
    v10 = libdevice.exp(v9)
    v11 = v3 * v8
    v12 = tl.abs(v2) == float("inf")
    v13 = tl.where(v12, v10, v11)
    v14 = tl.sum(v13, 1, keep_dims=True)
    tl.store(between0 + r, v1)
    tl.store(between1 + r, v14)

# arguments: between2: *fp32, between3: *fp32, between0: *fp32, between1: *fp32, RBLOCK: constexpr, CBLOCK: constexpr
# launch: 1 programs, RBLOCK=2, CBLOCK=256, 1 warps


import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def softmax_rest(in0, between0, between1, out0, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    pid = tl.program_id(0)
    x_pid = pid % tl.cdiv(1048576, XBLOCK)
    x = x_pid * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    y = (pid // tl.cdiv(1048576, XBLOCK)) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    v0 = tl.load(in0 + 1048576 * y + x)
    v1 = tl.load(between0 + y)
    v2 = v0 - v1
    v3 = libdevice.exp(v2)
    v4 = tl.load(between1 + y)
    v5 = tl.div_rn(v3, v4)
    tl.store(out0 + 1048576 * y + x, v5)

# arguments: in0: *fp32, between0: *fp32, between1: *fp32, out0: *fp32, YBLOCK: constexpr, XBLOCK: constexpr
# launch: 2048 programs, YBLOCK=1, XBLOCK=1024, 4 warps
