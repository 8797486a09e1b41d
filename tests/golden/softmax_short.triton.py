import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


# softmax(x, -1)
@triton.jit
def softmax(in0, out0, RBLOCK: tl.constexpr, CBLOCK: tl.constexpr):
    c = tl.arange(0, CBLOCK)[None, :]
    c_mask = c < 1000
    r = tl.program_id(0) * RBLOCK + tl.arange(0, RBLOCK)[:, None]
    v0 = tl.load(in0 + 1000 * r + c, mask=c_mask)
    v1 = tl.reduce(tl.where(c_mask, v0, float("-inf")), 1, _nan_max, keep_dims=True)
    v2 = v0 - v1
    v3 = libdevice.exp(v2)
    v4 = tl.sum(tl.where(c_mask, v3, 0.0), 1, keep_dims=True)
    v5 = tl.div_rn(v3, v4)
    tl.store(out0 + 1000 * r + c, v5, mask=c_mask)

# arguments: in0: *fp32, out0: *fp32, RBLOCK: constexpr, CBLOCK: constexpr
# launch: 64 programs, RBLOCK=1, CBLOCK=1024, 2 warps
