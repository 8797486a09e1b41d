import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def sum_part(in0, between0, RBLOCK: tl.constexpr, CBLOCK: tl.constexpr):
    c = tl.arange(0, CBLOCK)[None, :]
    c_mask = c < 1040
    r = tl.program_id(0) * RBLOCK + tl.arange(0, RBLOCK)[:, None]
    i1 = r % 4
    i0 = r // 4
    v0 = (1040 * i0 + c < 100003)
    v1 = tl.full((), 0.0, tl.float32)
    v2 = tl.load(in0 + 1040 * i0 + 100003 * i1 + c, mask=c_mask & v0, other=v1)
    v3 = tl.full((), 0.0, tl.float32)
    v4 = tl.where(v0, v2, v3)
    v5 = tl.sum(tl.where(c_mask, v4, 0.0), 1, keep_dims=True)
    tl.store(between0 + r, v5)

# arguments: in0: *fp32, between0: *fp32, RBLOCK: constexpr, CBLOCK: constexpr
# launch: 388 programs, RBLOCK=1, CBLOCK=2048, 4 warps


import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def sum_whole(between0, out0, RBLOCK: tl.constexpr, CBLOCK: tl.constexpr):
    r = tl.arange(0, RBLOCK)[:, None]
    acc1 = tl.full((RBLOCK, CBLOCK), 0.0, tl.float32)
    for start in range(0, 97, CBLOCK):
        c = start + tl.arange(0, CBLOCK)[None, :]
        c_mask = c < 97
        v0 = tl.load(between0 + r + 4 * c, mask=c_mask)
        acc1 = acc1 + tl.where(c_mask, v0, 0.0)
    v1 = tl.sum(acc1, 1, keep_dims=True)
    tl.store(out0 + r, v1)

# arguments: between0: *fp32, out0: *fp32, RBLOCK: constexpr, CBLOCK: constexpr
# launch: 1 programs, RBLOCK=4, CBLOCK=64, 1 warps
