import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _total(a, b):
    return a + b


@triton.jit
def cumsum(in0, out0, RBLOCK: tl.constexpr, CBLOCK: tl.constexpr):
    r = tl.program_id(0) * RBLOCK + tl.arange(0, RBLOCK)[:, None]
    acc1 = tl.full((RBLOCK, 1), 0.0, tl.float32)
    for start in range(0, 40000, CBLOCK):
        c = start + tl.arange(0, CBLOCK)[None, :]
        c_mask = c < 40000
        v0 = tl.load(in0 + 40000 * r + c, mask=c_mask)
        x1 = tl.where(c_mask, v0, 0.0)
        v1 = _total(acc1, tl.associative_scan(x1, 1, _total))
        acc1 = _total(acc1, tl.reduce(x1, 1, _total, keep_dims=True))
        tl.store(out0 + 40000 * r + c, v1, mask=c_mask)

# arguments: in0: *fp32, out0: *fp32, RBLOCK: constexpr, CBLOCK: constexpr
# launch: 300 programs, RBLOCK=1, CBLOCK=2048, 8 warps
