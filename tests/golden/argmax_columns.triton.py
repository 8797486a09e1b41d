import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _first_max(a, i, b, j):
    same = (a == b) | ((a != a) & (b != b))
    left = (same & (i < j)) | (a > b) | ((a != a) & (b == b))
    return tl.where(left, a, b), tl.where(left, i, j)


# argmax(x, 0)
@triton.jit
def argmax(in0, out0, RBLOCK: tl.constexpr, CBLOCK: tl.constexpr):
    r = tl.program_id(0) * RBLOCK + tl.arange(0, RBLOCK)[:, None]
    r_mask = r < 40
    acc1 = tl.full((RBLOCK, CBLOCK), float("-inf"), tl.float32)
    at1 = tl.full((RBLOCK, CBLOCK), 2147483647, tl.int32)
    for start in range(0, 500, CBLOCK):
        c = start + tl.arange(0, CBLOCK)[None, :]
        c_mask = c < 500
        v0 = tl.load(in0 + r + 40 * c, mask=r_mask & c_mask)
        acc1, at1 = _first_max(acc1, at1, tl.where(c_mask, v0, float("-inf")), tl.broadcast_to(c, (RBLOCK, CBLOCK)))
    w1, v1 = tl.reduce((acc1, at1), 1, _first_max, keep_dims=True)
    v1 = v1.to(tl.int64)
    tl.store(out0 + r, v1, mask=r_mask)

# arguments: in0: *fp32, out0: *i64, RBLOCK: constexpr, CBLOCK: constexpr
# launch: 2 programs, RBLOCK=32, CBLOCK=64, 4 warps
