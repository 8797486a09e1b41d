import triton
import triton.language as tl
from triton.language.extra import libdevice


# neg
# mul.Tensor
# mul.Tensor
# cat
@triton.jit
def k0_cat(p_x0, t5_5_part0, t5_5_part1, XBLOCK: tl.constexpr):
    x = tl.arange(0, XBLOCK)
    x_mask = x < 24
    i1 = x % 4
    i0 = x // 4
    v0 = tl.load(p_x0 + 8 * i0 + i1 + 4, mask=x_mask)
    v1 = v0 * -1.0
    v2 = tl.load(p_x0 + 8 * i0 + i1, mask=x_mask)
    v3 = v1 * v2
    v4 = v2 * v0
    tl.store(t5_5_part0 + 8 * i0 + i1, v3, mask=x_mask)
    tl.store(t5_5_part1 + 8 * i0 + i1 + 4, v4, mask=x_mask)
