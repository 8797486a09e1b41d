import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _ex2(x):
    text: tl.constexpr = "ex2.approx.ftz.f32 $0, $1;"
    return tl.inline_asm_elementwise(text, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _exp_in(top, total, x):
    away = tl.where(x == top, 0.0, x - top)
    if x.dtype == tl.float64:
        scale = libdevice.exp(-tl.abs(away))
    else:
        scale = _ex2(tl.abs(away) * -1.4426950408889634)
    return tl.where(away > 0, total * scale + 1.0, total + scale)


@triton.jit
def _exp_out(tops, totals, top, shift):
    total = tl.sum(totals * libdevice.exp(tops - top), 1, keep_dims=True)
    return tl.where(tl.abs(top) == float("inf"), libdevice.exp(top - shift), total)


# softmax(x, -1)
@triton.jit
def softmax(in0, out0, RBLOCK: tl.constexpr, CBLOCK: tl.constexpr):
    r = tl.program_id(0) * RBLOCK + tl.arange(0, RBLOCK)[:, None]
    acc1 = tl.full((RBLOCK, CBLOCK), float("-inf"), tl.float32)
    acc4 = tl.full((RBLOCK, CBLOCK), 0.0, tl.float32)
    for start in range(0, 50000, CBLOCK):
        c = start + tl.arange(0, CBLOCK)[None, :]
        c_mask = c < 50000
        v0 = tl.load(in0 + 50000 * r + c, mask=c_mask)
        acc4 = _exp_in(acc1, acc4, tl.where(c_mask, v0, float("-inf")))
        acc1 = _nan_max(acc1, tl.where(c_mask, v0, float("-inf")))
    v1 = tl.reduce(acc1, 1, _nan_max, keep_dims=True)
    v4 = _exp_out(acc1, acc4, v1, v1)
    for start in range(0, 50000, CBLOCK):
        c = start + tl.arange(0, CBLOCK)[None, :]
        c_mask = c < 50000
        v0 = tl.load(in0 + 50000 * r + c, mask=c_mask)
        v2 = v0 - v1
        v3 = libdevice.exp(v2)
        v5 = tl.div_rn(v3, v4)
        tl.store(out0 + 50000 * r + c, v5, mask=c_mask)

# arguments: in0: *fp32, out0: *fp32, RBLOCK: constexpr, CBLOCK: constexpr
# launch: 64 programs, RBLOCK=1, CBLOCK=2048, 8 warps
