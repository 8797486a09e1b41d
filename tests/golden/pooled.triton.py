import triton
import triton.language as tl
from triton.language.extra import libdevice


# max_pool2d_with_indices
@triton.jit
def k0_max_pool2d_with_indices(p_x0, p_t2, XBLOCK: tl.constexpr):
    x = tl.arange(0, XBLOCK)
    x_mask = x < 60
    i2 = x % 5
    i1 = x // 5 % 4
    i0 = x // 20
    v0 = tl.full((), float("-inf"), tl.float32)
    v1 = (2 * i1 + -1 >= 0) & (2 * i2 + -1 >= 0)
    v2 = tl.load(p_x0 + 63 * i0 + 18 * i1 + 2 * i2 + -10, mask=x_mask & v1, other=v0)
    v3 = (2 * i1 + -1 >= 0)
    v4 = tl.load(p_x0 + 63 * i0 + 18 * i1 + 2 * i2 + -9, mask=x_mask & v3, other=v0)
    v5 = v4 > v2
    v6 = v4 != v4
    v7 = v5 | v6
    v8 = tl.where(v7, v4, v2)
    v9 = (2 * i1 + -1 >= 0) & (2 * i2 + 1 < 9)
    v10 = tl.load(p_x0 + 63 * i0 + 18 * i1 + 2 * i2 + -8, mask=x_mask & v9, other=v0)
    v11 = v10 > v8
    v12 = v10 != v10
    v13 = v11 | v12
    v14 = tl.where(v13, v10, v8)
    v15 = (2 * i2 + -1 >= 0)
    v16 = tl.load(p_x0 + 63 * i0 + 18 * i1 + 2 * i2 + -1, mask=x_mask & v15, other=v0)
    v17 = v16 > v14
    v18 = v16 != v16
    v19 = v17 | v18
    v20 = tl.where(v19, v16, v14)
    v21 = tl.load(p_x0 + 63 * i0 + 18 * i1 + 2 * i2, mask=x_mask)
    v22 = v21 > v20
    v23 = v21 != v21
    v24 = v22 | v23
    v25 = tl.where(v24, v21, v20)
    v26 = (2 * i2 + 1 < 9)
    v27 = tl.load(p_x0 + 63 * i0 + 18 * i1 + 2 * i2 + 1, mask=x_mask & v26, other=v0)
    v28 = v27 > v25
    v29 = v27 != v27
    v30 = v28 | v29
    v31 = tl.where(v30, v27, v25)
    v32 = (2 * i1 + 1 < 7) & (2 * i2 + -1 >= 0)
    v33 = tl.load(p_x0 + 63 * i0 + 18 * i1 + 2 * i2 + 8, mask=x_mask & v32, other=v0)
    v34 = v33 > v31
    v35 = v33 != v33
    v36 = v34 | v35
    v37 = tl.where(v36, v33, v31)
    v38 = (2 * i1 + 1 < 7)
    v39 = tl.load(p_x0 + 63 * i0 + 18 * i1 + 2 * i2 + 9, mask=x_mask & v38, other=v0)
    v40 = v39 > v37
    v41 = v39 != v39
    v42 = v40 | v41
    v43 = tl.where(v42, v39, v37)
    v44 = (2 * i1 + 1 < 7) & (2 * i2 + 1 < 9)
    v45 = tl.load(p_x0 + 63 * i0 + 18 * i1 + 2 * i2 + 10, mask=x_mask & v44, other=v0)
    v46 = v45 > v43
    v47 = v45 != v45
    v48 = v46 | v47
    v49 = tl.where(v48, v45, v43)
    tl.store(p_t2 + x, v49, mask=x_mask)
