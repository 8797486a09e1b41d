import triton
import triton.language as tl
from triton.language.extra import libdevice


# mul(x, 2.0)
@triton.jit
def scaled(in0, out0, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    pid = tl.program_id(0)
    x_pid = pid % tl.cdiv(60, XBLOCK)
    pid = pid // tl.cdiv(60, XBLOCK)
    x = x_pid * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    x_mask = x < 60
    y_pid = pid % tl.cdiv(100, YBLOCK)
    y = y_pid * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    y_mask = y < 100
    z = pid // tl.cdiv(100, YBLOCK)
    v0 = tl.load(in0 + 6000 * z + y + 100 * x, mask=y_mask & x_mask)
    v1 = tl.full((), 2.0, tl.float32)
    v2 = v0 * v1
    tl.store(out0 + 6000 * z + 60 * y + x, v2, mask=y_mask & x_mask)

# arguments: in0: *fp32, out0: *fp32, YBLOCK: constexpr, XBLOCK: constexpr
# launch: 64 programs, YBLOCK=32, XBLOCK=32, 4 warps
