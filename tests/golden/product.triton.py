import triton
import triton.language as tl
from triton.language.extra import libdevice


# x @ w  line 3
@triton.jit
def k0_silu(whole, scale, right_factor, bias, residual, out, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr, KBLOCK: tl.constexpr):
    pid = tl.program_id(0)
    first = pid // 16 * 4
    beside = 4
    y_pid = first + pid % 16 % beside
    x_pid = pid % 16 // beside
    acc = tl.zeros((YBLOCK, XBLOCK), tl.float32)
    for start in range(0, 256, KBLOCK):
        y = y_pid * YBLOCK + tl.arange(0, YBLOCK)[:, None]
        k = start + tl.arange(0, KBLOCK)[None, :]
        v0 = tl.load(whole + 256 * y + k)
        v1 = v0.to(tl.float32)
        v2 = tl.load(scale + y)
        v3 = v1 * v2
        v4 = v3.to(tl.bfloat16)
        left = v4
        k = start + tl.arange(0, KBLOCK)[:, None]
        x = x_pid * XBLOCK + tl.arange(0, XBLOCK)[None, :]
        x_mask = x < 100
        v0 = tl.load(right_factor + 100 * k + x, mask=x_mask)
        right = v0
        acc = tl.dot(left, right, acc, input_precision="ieee")
    y = y_pid * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    x = x_pid * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    x_mask = x < 100
    v0 = tl.load(bias + x, mask=x_mask)
    acc += v0.to(tl.float32)
    tile = acc.to(tl.bfloat16)
    y = y_pid * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    x = x_pid * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    x_mask = x < 100
    v0 = tile
    v1 = v0.to(tl.float32)
    v2 = tl.div_rn(tl.full((), 1.0, tl.float32), 1.0 + libdevice.exp(-v1))
    v3 = v1 * v2
    v4 = tl.load(residual + y + 64 * x, mask=x_mask)
    v5 = v3 + v4
    v6 = v5.to(tl.bfloat16)
    tl.store(out + 100 * y + x, v6, mask=x_mask)
