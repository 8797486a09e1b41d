import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def cumprod(in0, out0, RBLOCK: tl.constexpr, CBLOCK: tl.constexpr):
    r = tl.program_id(0) * RBLOCK + tl.arange(0, RBLOCK)[:, None]
    r_mask = r < 40
    acc1 = tl.full((RBLOCK, 1), 1.0, tl.float64)
    for start in range(0, 30, CBLOCK):
        c = start + tl.arange(0, CBLOCK)[None, :]
        v0 = tl.load(in0 + r + 40 * c, mask=r_mask)
        acc1 = _product(acc1, v0)
        v1 = acc1
        tl.store(out0 + r + 40 * c, v1, mask=r_mask)

# arguments: in0: *fp64, out0: *fp64, RBLOCK: constexpr, CBLOCK: constexpr
# launch: 3 programs, RBLOCK=16, CBLOCK=1, 1 warps
