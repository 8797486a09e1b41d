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


@triton.jit
def logsumexp(in0, out0, RBLOCK: tl.constexpr, CBLOCK: tl.constexpr):
    r = tl.program_id(0) * RBLOCK + tl.arange(0, RBLOCK)[:, None]
    v3 = tl.full((), 0.0, tl.float32)
    acc1 = tl.full((RBLOCK, CBLOCK), float("-inf"), tl.float32)
    acc7 = tl.full((RBLOCK, CBLOCK), 0.0, tl.float32)
    for start in range(0, 50257, CBLOCK):
        c = start + tl.arange(0, CBLOCK)[None, :]
        c_mask = c < 50257
        v0 = tl.load(in0 + 50257 * r + c, mask=c_mask)
        acc7 = _exp_in(acc1, acc7, tl.where(c_mask, v0, float("-inf")))
        acc1 = _nan_max(acc1, tl.where(c_mask, v0, float("-inf")))
    v1 = tl.reduce(acc1, 1, _nan_max, keep_dims=True)
    v2 = tl.abs(v1) == float("inf")
    v4 = tl.where(v2, v3, v1)
    v7 = _exp_out(acc1, acc7, v1, v4)
    v8 = libdevice.log(v7)
    v9 = v8 + v4
    tl.store(out0 + r, v9)

# arguments: in0: *fp32, out0: *fp32, RBLOCK: constexpr, CBLOCK: constexpr
# launch: 512 programs, RBLOCK=1, CBLOCK=2048, 8 warps
