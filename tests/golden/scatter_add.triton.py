import triton
import triton.language as tl
from triton.language.extra import libdevice


# mul.Tensor
# index_add
@triton.jit
def k0_index_add_before(p_x0, p_t2, XBLOCK: tl.constexpr):
    x = tl.arange(0, XBLOCK)
    x_mask = x < 15
    v0 = tl.load(p_x0 + x, mask=x_mask)
    tl.store(p_t2 + x, v0, mask=x_mask)


import triton
import triton.language as tl
from triton.language.extra import libdevice


# mul.Tensor
# index_add
@triton.jit
def k0_index_add(p_x2, p_x1, p_t2, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x_mask = x < 2100
    i1 = x % 3
    i0 = x // 3
    v0 = tl.load(p_x2 + x, mask=x_mask)
    v1 = tl.full((), 2.0, tl.float32)
    v2 = v0 * v1
    v3 = tl.load(p_x1 + i0, mask=x_mask)
    tl.device_assert((v3 >= 0) & (v3 < 5), "index out of bounds", mask=x_mask)
    v4 = v3
    v5 = tl.full((), 3, tl.int64)
    v6 = v4 * v5
    tl.atomic_add(p_t2 + i1 + v6, v2, mask=x_mask, sem="relaxed")
